"""Find sentences that have to be read twice, in everything that users read.

`make lint` runs this on the documents and on the strings and docstrings of the source. With
`--list` it prints every text that it reads, with its place. Name files or folders to see a part.
"""

import argparse
import ast
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
MAX_WORDS = 40
"""Words of one sentence. The aim is twenty; above this limit a sentence is split."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A text that users read, and its place."""

    path: Path
    """The file that contains it."""
    line: int
    """The line of its first word, from 1."""
    text: str
    """The text on one line. Code in it, and a value that the program fills in, is `…`."""

    @property
    def place(self) -> str:
        """File and line, as editors open them."""
        path = self.path.relative_to(ROOT) if self.path.is_relative_to(ROOT) else self.path
        return f"{path.as_posix()}:{self.line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A sentence that breaks a rule."""

    passage: Passage
    """The text that contains it."""
    sentence: str
    """The sentence, on one line."""
    advice: str
    """What to write instead."""

    def __str__(self) -> str:
        return f"{self.passage.place}: {self.advice}\n    {self.sentence}"


_BEFORE_A_PLACE = (
    "place|places|folder|folders|directory|file|files|line|lines|page|pages|point|position|server"
    "|machine|section|column|module|process|environment|systems?|path|host|list|log|step"
    "|know|knows|see|sees|say|says|saying|show|shows|find|finds|remember|remembers|tell|tells"
    "|decide|decides|read|reads|mark|marks|from|to|on|and|or|of|is|are|exactly|just"
)
"""After these words `where` asks for a place. After any other it means `if`."""

_RULES = {
    r",? too(?=[.;:)]|$)|, too,": "put `also` before the verb, not `too` at the end",
    r"(?<!there )(?<!that )\b(?:is|are|was|were) no (?!longer\b|more than\b|need\b|matter\b|such\b"
    r"|more \w|better\b|worse\b|larger\b|smaller\b|other\b)\w+": (
        "write `invalid X` or `is not an X`"
    ),
    r"\bbehind\b(?! (?:an? |the |your |its |every )?(?:reverse |own )?(?:prox|load balancer|flag"
    r"|nginx|caddy|gateway))": "write `after`, or say how the rest can be read",
    rf"(?:^|(?<!\w)(?!(?:{_BEFORE_A_PLACE})\W)[\w…`'’-]+[^\w.…]+)where\b(?!\?)": (
        "write `if`, or `in which`"
    ),
    r"\bbut for\b": "write `except`",
    r"\banew\b": "write `again`",
    r"\b(?:would|could|may|might|must|will|is|are|can|should) else\b": "write `otherwise`",
    r"\bthat (?:is|are) none\b|\bof none\b": "say which value is invalid",
    r"^so (?:many|much|long|often)\b": "write `Maximum number of …` or `How long …`",
    r"\b(?:is|are|was|were|be) (?:not |never |also )?(?:said|told|heard|looked after)\b(?! to\b)": (
        "name who says it"
    ),
    r"\b(?:is|are|was|were|does|do)(?: \w+)? no more(?=[.;:,)]|$)": "write `no longer`",
    r"^(?:who|whoever|whose)\b(?!.*\?)": "begin with the actor: `A user who …`, `If you …`",
    r"^(?:left out|unset|given|asked|told|said|kept|meant|wanted), ": "write `If it is …`",
    r"^nor (?:is|are|was|has|have|does|do|can|may|will)\b": "begin with the subject",
    r"^that (?:it|what|the|an?|they|nothing|something) ": "do not begin with a clause",
    r"\bstands? (?:once|there|behind|alone|around)\b": "write `is`, `is used once`",
    r"\bin earnest\b": "write `in production`",
    r"\b(?:broken|breaks?|broke) off\b": "write `cancel`, `stop` or `fail`",
    r"\b(?:tells?|told) of\b": "write `mentions` or `contains`",
    r"\bof (?:a|an) (?:later|earlier) (?:release|version)\b": "write `written by a newer version`",
    r"\bnobody (?:knows|is asked|can be asked)\b": "write `unknown`, or name who would be asked",
    r"\bof which (?:all|none|some)\b|\b(?:wherein|whereof|thereof|hitherto)\b": (
        "split the sentence"
    ),
    r"(?<!dead )(?<!dead-)\bletters?\b(?!,| and | or | of the alphabet)|\b(?:crew|desk|crowd)\b": (
        "write `message`, `queue`, `process` or `channel`"
    ),
    r"\bcomes? on top\b": "write `is added`",
    r"\bgoes before (?:it|them|that)\b": "write `takes precedence over`",
    r"\bin (?:its|their|his) stead\b": "write `instead of`",
    r"^what (?:[\w`…'’,-]+ ){14,}": "begin with the actor, and split the sentence",
    rf"^(?:\S+ ){{{MAX_WORDS},}}": f"split a sentence of more than {MAX_WORDS} words",
}
RULES = [(re.compile(pattern, re.IGNORECASE), advice) for pattern, advice in _RULES.items()]

FIXED: dict[str, str] = {}
"""Sentences that the specification words itself, and what fixes each."""

_SENTENCE_END = re.compile(r"(?<=[.!?])[\"'”’)]*\s+(?=[A-Z…\"'“(*])")
_FENCE = re.compile(
    r"^(?P<indent> *)(?P<fence>```+|~~~+|:::+).*?^(?P=indent)(?P=fence)", re.MULTILINE | re.DOTALL
)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_INLINE_CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
_LINK = re.compile(r"!?\[(?P<label>[^\]]*)\](?:\([^)]*\)|\[[^\]]*\])")
_NEW_BLOCK = re.compile(r"^\s*(?:[-*+] |\d+\. |\||#|:|>|$)")
_PARAGRAPH = re.compile(r"\n\s*\n|\n(?=\s*[-*] |\s+[\w*]+: |\s*(?:Args|Returns|Raises|Example):)")
_GRAMMAR = re.compile(
    r"\b(?:the|an?|is|are|was|of|to|in|not|no|for|it|and|or|with|on|at)\b", re.IGNORECASE
)
"""Every sentence has one of these; a list of names has none."""
_MARKER = re.compile(r"^\s*(?:[-*+] |\d+\. |: |> )\s*")


def find_in(passage: Passage) -> Iterator[Finding]:
    """Check each sentence of a text against every rule."""
    for sentence in _SENTENCE_END.split(passage.text):
        if sentence in FIXED:
            continue
        for pattern, advice in RULES:
            if pattern.search(sentence):
                yield Finding(passage=passage, sentence=sentence, advice=advice)


def read_page(path: Path) -> Iterator[Passage]:
    """Paragraphs, list items and table cells of a Markdown page, without code and headings."""

    def blank(match: re.Match[str]) -> str:
        return "\n" * match.group().count("\n")

    def one_code(match: re.Match[str]) -> str:
        return "…" + blank(match)

    text = _COMMENT.sub(blank, _FENCE.sub(blank, path.read_text("utf-8")))
    text = _LINK.sub(lambda match: match["label"], _INLINE_CODE.sub(one_code, text))
    block: list[str] = []
    first = 1
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        if block and _NEW_BLOCK.match(line):
            yield Passage(path=path, line=first, text=_flat(" ".join(block)))
            block = []
        if line.lstrip().startswith("|"):
            for cell in line.strip().strip("|").split("|"):
                if set(cell) - set(" -:"):
                    yield Passage(path=path, line=number, text=_flat(cell))
        elif line.strip() and not line.lstrip().startswith("#"):
            first = first if block else number
            block.append(line if block else _MARKER.sub("", line))


def read_source(path: Path) -> Iterator[Passage]:
    """Docstrings, and every string of at least three words."""
    tree = ast.parse(path.read_text("utf-8"))
    inside = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for part in node.values
    }
    for node in ast.walk(tree):
        if id(node) in inside:
            continue
        if isinstance(node, ast.JoinedStr):
            text = "".join(
                str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        if len(re.findall(r"[A-Za-z]{2,}(?=[\s.,;:]|$)", text)) < 3 or _is_code(text):
            continue
        for paragraph in _PARAGRAPH.split(_INLINE_CODE.sub("…", text)):
            yield Passage(path=path, line=node.lineno, text=_flat(_MARKER.sub("", paragraph)))


def _is_code(text: str) -> bool:
    """Whether a string is SQL, a pattern, HTML, a program or names, and not a sentence."""
    return bool(
        re.match(
            r"\s*(?:SELECT|INSERT|UPDATE|DELETE|CREATE|WITH|PRAGMA|<|\(\?|import |from \w+ import)",
            text,
        )
        or not _GRAMMAR.search(text)
        or (len(text.split()) > 12 and not re.search(r"\w[.,:;]", text))
        or re.search(r"\\[sbdwW]|\(\?[:P!=<]|\);\s*$|[{}].*[{}].*;", text)
    )


def _flat(text: str) -> str:
    return " ".join(text.split())


def read_all(places: Sequence[Path] = ()) -> Iterator[Passage]:
    """Everything that users read, or the part of it in these files and folders."""
    folders = [ROOT / name for name in ("docs", "examples", "packages")]
    pages = [*ROOT.glob("*.md"), *(page for folder in folders for page in folder.rglob("*.md"))]
    for path in sorted([*pages, *(ROOT / "packages").rglob("*.py")]):
        if not places or any(path.is_relative_to(place) for place in places):
            yield from read_page(path) if path.suffix == ".md" else read_source(path)


def main() -> int:
    """Print what was found, and say by the exit status whether there was anything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("places", nargs="*", type=lambda name: Path(name).resolve())
    parser.add_argument("--list", action="store_true", help="print every text, not only findings")
    options = parser.parse_args()
    passages = list(read_all(options.places))
    if options.list:
        for passage in passages:
            print(f"{passage.place}: {passage.text}")
        return 0
    findings = [finding for passage in passages for finding in find_in(passage)]
    for finding in findings:
        print(finding)
    print(f"{len(findings)} sentences to rewrite in {len(passages)} texts")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
