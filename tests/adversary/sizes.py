"""Texts of one alphabet, whose real number of tokens is known: is the declared bound one?

The numbers are those of o200k, the tokenizer of the model asked here. They are written down, so
that no vocabulary is needed; `test_counting.py` counts them anew if one is installed. The syllables
are random and cost more than a book in the same script would: this is what somebody sends who wants
a request to be refused.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.adversary import laws
from tests.adversary.dice import Dice
from tests.adversary.findings import Broken, Findings
from tests.adversary.speech import user
from tests.adversary.subject import CannotFit, Settings, Subject
from tests.adversary.texts import png

MODEL = Settings(model="gpt-4o", tools=())
BYTES = 6_000
"""Of the text whose tokens are known."""
LONG, SMALL = 40_000, 8_000
"""Bytes of a text that fills a window several times, and the tokens of that window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alphabet:
    name: str
    """What it is called."""
    characters: str
    """All of it."""
    tokens: int
    """Of a text of `BYTES`, by o200k."""
    marks: str = ""
    """Combining characters, four of which stand on each character."""

    def text(self, size: int) -> str:
        """So many bytes of it, or a few less."""
        dice, width = Dice("alphabet", self.name), len(self.characters[0].encode())
        width += 4 * len(self.marks[:1].encode())
        one, marks = self.characters, self.marks
        if not marks:
            return "".join(dice.one_of(one) for _ in range(size // width))
        return "".join(
            dice.one_of(one) + "".join(dice.one_of(marks) for _ in range(4))
            for _ in range(size // width)
        )

    @property
    def rate(self) -> float:
        """Tokens of one character."""
        return self.tokens / len(self.text(BYTES))


def _range(first: int, last: int) -> str:
    return "".join(map(chr, range(first, last + 1)))


LATIN = _range(0x61, 0x7A)
ALPHABETS = (
    Alphabet(name="Cherokee", characters=_range(0x13A0, 0x13EF), tokens=6_000),
    Alphabet(name="Braille", characters=_range(0x2800, 0x28FF), tokens=5_942),
    Alphabet(name="private use", characters=_range(0xE000, 0xE3FF), tokens=5_835),
    Alphabet(name="Ethiopic", characters=_range(0x1200, 0x1247), tokens=4_000),
    Alphabet(name="Lao", characters=_range(0x0E94, 0x0E97) + _range(0x0EA1, 0x0EA3), tokens=4_000),
    Alphabet(name="Tibetan", characters=_range(0x0F49, 0x0F6A), tokens=3_943),
    Alphabet(name="Khmer", characters=_range(0x1780, 0x17B3), tokens=2_942),
    Alphabet(name="Devanagari", characters=_range(0x0905, 0x0939), tokens=2_162),
    Alphabet(name="Georgian", characters=_range(0x10D0, 0x10F0), tokens=1_707),
    Alphabet(name="Hebrew", characters=_range(0x05D0, 0x05EA), tokens=2_136),
    Alphabet(name="Arabic", characters=_range(0x0621, 0x063A), tokens=2_490),
    Alphabet(name="Greek", characters=_range(0x03B1, 0x03C9), tokens=2_418),
    Alphabet(name="Han", characters=_range(0x4E00, 0x9F9F), tokens=3_848),
    Alphabet(name="Hangul", characters=_range(0xAC00, 0xD7A3), tokens=4_495),
    Alphabet(name="box drawing", characters=_range(0x2500, 0x257F), tokens=3_843),
    Alphabet(name="emoji", characters=_range(0x1F300, 0x1F5FE), tokens=3_358),
    Alphabet(name="Zalgo", characters=LATIN, marks=_range(0x0300, 0x036F), tokens=5_698),
    Alphabet(name="DNA", characters="ACGT", tokens=3_109),
    Alphabet(name="capitals", characters=LATIN.upper(), tokens=3_428),
    Alphabet(name="letters", characters=LATIN, tokens=3_120),
    Alphabet(name="digits", characters="0123456789", tokens=2_000),
    Alphabet(name="hexadecimal", characters="0123456789abcdef", tokens=3_415),
    Alphabet(name="punctuation", characters="!#$%&*+-/<=>?@^|~", tokens=4_347),
)

PICTURES = (
    ("gpt-4o", "openai_chat", 1024, 1024, 85 + 4 * 170),
    ("gpt-4o-mini", "openai_chat", 1024, 1024, 2_833 + 4 * 5_667),
    ("claude-sonnet-4-5", "anthropic", 1000, 1000, 1000 * 1000 // 750),
)
"""Model, dialect, width, height, and the tokens that the provider documents for it."""


def check_sizes(findings: Findings) -> None:
    """Each alphabet as a first request, and as a text that has to be cut; then pictures."""
    for alphabet in ALPHABETS:
        _first_request(alphabet, findings)
        _cut_to_fit(alphabet, findings)
    for model, dialect, width, height, tokens in PICTURES:
        subject = Subject(Settings(model=model, dialect=dialect, tools=()))
        subject.add(user(dialect, "What is this?", png(width, height)))
        input_bound = _bound_of_request(subject, findings)
        detail = f"{width} × {height} for {model}: {tokens:,} tokens, the bound is {input_bound:,}"
        if tokens > input_bound:
            _note(findings, Broken("a picture is not larger than its bound", detail), model)


def _first_request(alphabet: Alphabet, findings: Findings) -> None:
    subject = Subject(MODEL)
    subject.add({"role": "user", "content": alphabet.text(BYTES)})
    input_bound = _bound_of_request(subject, findings)
    if alphabet.tokens > input_bound:
        detail = (
            f"{alphabet.tokens:,} tokens, the bound is {input_bound:,}: "
            f"{alphabet.tokens / input_bound:.2f}"
        )
        _note(findings, Broken("a text is not larger than its bound", detail), alphabet.name)


def _cut_to_fit(alphabet: Alphabet, findings: Findings) -> None:
    """Of a text of one kind, each part costs as much as any other."""
    subject = Subject(Settings(model="gpt-4o", tools=(), window=SMALL))
    subject.add({"role": "user", "content": alphabet.text(LONG)})
    findings.requests += 1
    try:
        request = subject.request()
    except CannotFit:
        return  # said aloud
    characters = set(alphabet.characters + alphabet.marks)
    count = sum(each in characters for each in request["messages"][-1]["content"])
    real = int(count * alphabet.rate * 0.97) + laws.output_of(request)
    if real > SMALL:
        detail = f"{real:,} of {SMALL:,} tokens: {real / SMALL:.2f}"
        _note(findings, Broken("a text that was cut to fit does fit", detail), alphabet.name)


def _bound_of_request(subject: Subject, findings: Findings) -> int:
    findings.requests += 1
    subject.request()
    return subject.bound()


def _note(findings: Findings, broken: Broken, what: str) -> None:
    findings.note("v4", [broken], where=f"of one message, {what!r}", request={})
