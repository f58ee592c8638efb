"""Writes engine/tokens/tables.py: what tells text of a usual kind from text that is odd.

    TRIMTAB_CORPUS=… python -m benchmarks.fit_vocabulary [--write]

Trigrams are counted in the training texts of `sample_texts`, each kind and each language with the
same weight, recorded conversations with more. Characters are encoded alone, one by one, by every
tokenizer at hand; a family whose tokenizer is not installed has the largest of all.
"""

from __future__ import annotations

import argparse
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks import exact_tokenizers, sample_texts
from trimtab.engine.tokens import odd_text, tables

TRIGRAMS = 4_000
"""How many are common: of usual text 1 to 7 in 100 are not among so many."""
EACH = 120_000
"""Characters read of each kind and each language."""
LANGUAGES = (
    "da de es et eu fi fr hr hu id it lt nb nl pl pt pt_BR ro sk sl sq sv tr cs vi ca ga cy eo"
).split()
WEIGHTS = {"conversation": 4, "python": 2, "prose and text": 2, "readmes": 2}
OTHERS = (
    "ru uk bg sr be mk kk mn el ar fa ur he yi hi mr ne bn as gu pa or ta te kn ml si th lo km my"
    " ka hy am ti bo dz ja ko zh_CN zh_TW"
).split()
"""Languages of other scripts than Latin."""
LEARNT = 1.4
"""Tokens of a character alone, on average over prose, up to which a family knows its like."""
OFTEN = 300
"""Times that characters of a block must stand in prose to say anything about it."""
IDEOGRAMS = (range(0x3040, 0x3100), range(0x4E00, 0xA000), range(0xAC00, 0xD7C0))
"""Of these a text holds the common ones, whatever the average of all of them is."""
SYMBOLS = (range(0x2000, 0x2800), range(0x3000, 0x3040), range(0xFE00, 0xFFF0))
"""Blocks in which some signs are common and most are not."""
FACES = range(0x1F300, 0x1FB00)
LINE = 84

Count = Callable[[str], int]


def common_trigrams() -> list[str]:
    """By their share in each kind, `_` for whatever is no letter."""
    shares: dict[str, float] = {}
    for kind, texts in _kinds().items():
        found = Counter(each for text in texts for each in _trigrams(text))
        for trigram, times in found.items():
            share = WEIGHTS.get(kind, 1) * times / found.total()
            shares[trigram] = shares.get(trigram, 0.0) + share
    for trigram in list(shares):
        if len(set(trigram.strip("_"))) == 1:
            del shares[trigram]  # a row of one letter is no word
    return sorted(sorted(shares, key=lambda each: -shares[each])[:TRIGRAMS])


def _kinds() -> dict[str, list[str]]:
    kinds: dict[str, list[str]] = {}
    odd = {"base64 text", "identifiers", "short tokens", "numbers"}
    for kind, text in sample_texts.documents("training", each=EACH):
        if kind not in odd:
            kinds.setdefault(kind, []).append(text)
    for language in LANGUAGES:
        texts = [t for n, t in sample_texts.translations(language)() if _trains(n)]
        kinds[language] = ["\n".join(texts)[:EACH]]
    for one in sample_texts.conversations("training"):
        said = kinds.setdefault("conversation", [])
        said += [text[:2_000] for m in one["messages"][::20] for text in sample_texts.texts_of(m)]
    return {kind: texts for kind, texts in kinds.items() if sum(map(len, texts)) > 10_000}


def _trains(name: str) -> bool:
    return sample_texts.side_of(name) == "training"


def _trigrams(text: str) -> Iterator[str]:
    folded = text.encode("utf-8", "ignore").translate(odd_text.FOLD_TABLE).decode("ascii")
    folded = folded.replace("\n", "_").replace(".", "_")
    for at in range(len(folded) - 2):
        if odd_text.trigram_has_adjacent_letters(folded[at : at + 3]):
            yield folded[at : at + 3]


def prose() -> Counter[str]:
    """How often each character stands in what programs say in many languages."""
    found: Counter[str] = Counter()
    for language in (*LANGUAGES, *OTHERS):
        texts = [t for n, t in sample_texts.translations(language)() if _trains(n)]
        found.update("".join(texts)[:EACH])
    return found


def characters(count: Count, used: Counter[str], signs: str) -> str:
    """One sign for each block of 64 characters, see `vocabulary.BLOCK_COSTS_BY_FAMILY`."""
    return "".join(_block(number, count, used, signs) for number in odd_text.CHARACTER_BLOCKS)


def _block(number: int, count: Count, used: Counter[str], signs: str) -> str:
    block = [chr(point) for point in range(number * 64, number * 64 + 64)]
    kinds = {each: unicodedata.category(each) for each in block}
    known = [each for each in block if kinds[each] not in ("Cn", "Cs", "Cc", "Co")]
    if not known:
        return str(len(block[0].encode("utf-8", "surrogatepass")))
    sizes = {each: count(each) for each in known if each not in signs}
    most, often = max(sizes.values(), default=1), sum(used[each] for each in sizes)
    mean = sum(used[each] * size for each, size in sizes.items()) / max(1, often)
    learnt = often >= OFTEN and mean <= LEARNT
    learnt = learnt or any(number * 64 in each for each in (*IDEOGRAMS, FACES))
    return "-abcd"[min(most, 4)] if learnt else str(min(most, 4))


def common_signs(counts: list[Count]) -> str:
    """Signs that are one token to every tokenizer."""
    points = [point for each in SYMBOLS for point in each]
    return "".join(
        chr(p)
        for p in points
        if unicodedata.category(chr(p))[0] in "PS" and all(count(chr(p)) == 1 for count in counts)
    )


def module(trigrams: list[str], signs: str, blocks: dict[str, str]) -> str:
    thirds: dict[str, str] = {}
    for each in trigrams:
        thirds[each[:2]] = thirds.get(each[:2], "") + each[2]
    lines = [
        '"""Common trigrams and the costs of single characters; written by',
        'benchmarks/fit_vocabulary.py, not by hand."""',
        "",
        "USUAL_TRIGRAMS = (",
        *_wrapped([first + rest for first, rest in thirds.items()]),
        ")",
        '"""Trigrams of the Latin alphabet in usual text: two characters, then all that may follow',
        'them. `_` is any other character."""',
        "",
        "SINGLE_PIECE_SIGNS = (",
        *(f"    {signs[at : at + 10]!a}" for at in range(0, len(signs), 10)),
        ")",
        '"""Signs beyond ASCII that are one token to every tokenizer."""',
        "",
        "BLOCK_COSTS_BY_FAMILY: dict[str, str] = {",
    ]
    for family, told in sorted(blocks.items()):
        lines.append(f'    "{family}": (')
        lines += [f'        "{told[at : at + LINE]}"' for at in range(0, len(told), LINE)]
        lines.append("    ),")
    return "\n".join(
        [
            *lines,
            "}",
            '"""The maximum tokens of a single character, for each block of 64 characters that',
            "`odd_text.CHARACTER_BLOCKS` names: `1` to `4`, or `a` to `d` if the family knows",
            'words of them, so that usual text takes less. "max" is the largest of any family."""',
            "",
        ]
    )


def _wrapped(words: list[str]) -> Iterator[str]:
    line = ""
    for word in words:
        if len(line) + len(word) > LINE:
            yield f'    "{line}"'
            line = ""
        line += word + " "
    yield f'    "{line.rstrip()}"'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="replace engine/tokens/tables.py")
    write: bool = parser.parse_args().write
    exacts = exact_tokenizers.available()
    print(exact_tokenizers.versions())
    signs = common_signs(list(exacts.values()))
    used = prose()
    blocks = {family: characters(count, used, signs) for family, count in exacts.items()}
    worst: Count = lambda text: max(count(text) for count in exacts.values())  # noqa: E731 - short
    blocks["max"] = characters(worst, used, signs)
    trigrams = common_trigrams()
    print(f"{len(trigrams)} trigrams, {len(signs)} signs, {len(blocks['max'])} blocks")
    if write:
        path = Path(str(sys.modules[tables.__name__].__file__))
        path.write_text(module(trigrams, signs, blocks), encoding="utf-8")
        print(f"wrote {path.name}")


if __name__ == "__main__":
    main()
