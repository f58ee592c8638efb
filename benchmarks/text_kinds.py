"""Is the declared bound one, for text of any kind?

Two hundred kinds of text are generated, with another seed on each run: characters of each group of
Unicode names, and of ASCII alphabets; all of a group or a few, in a row or in words, drawn or in a
short pattern that repeats. Further kinds are those of `text_writers`: words of many languages, also
read in a wrong encoding, digits and formats. No usage is known. Real counts are those of exact
tokenizers. Each bound is also computed for a model whose tokenizer is not known.

over_bound             texts of 6 kB and 96 kB, and requests of `Context`, that are above the bound
fit_over_limit         texts of 96 kB that `fit` cut to 16,000 tokens and that are really above
worst                  the largest real count over its bound
median_over_estimate   estimate over real count, of prose in 20 languages and of recorded texts
median_before          the same by the estimate that does not look for odd text
p90_over_estimate      the same, one in ten is above

The tokenizers at hand of o200k_base, cl100k_base and tekken are asked; without any, it is skipped.
"""

from __future__ import annotations

import random
import secrets
import statistics
import string
import sys
import unicodedata
from collections.abc import Iterator
from typing import Any

from benchmarks import exact_tokenizers, sample_texts
from benchmarks.harness import Report, finish, head, parser, progress, skip, table
from benchmarks.text_writers import Write, writers
from trimtab import Context, fit
from trimtab.engine.tokens.counter import (
    compute_input_upper_bound,
    make_piecewise_counter,
)
from trimtab.engine.tokens.odd_text import sum_bytes
from trimtab.engine.tokens.piecewise import encode_byte_class_pairs, encode_utf8_as_sent
from trimtab.engine.tokens.weights import WEIGHT_UNITS_PER_TOKEN, WEIGHTS_BY_FAMILY
from trimtab.errors import CannotFit

FAMILIES = ("o200k_base", "cl100k_base", "tekken")
KINDS = 200
SMALL, LARGE, LIMIT = 6_000, 96_000, 16_000
LETTERS, CAPITALS, DIGITS = string.ascii_lowercase, string.ascii_uppercase, string.digits
ALPHABETS = {
    "letters": LETTERS,
    "capitals": CAPITALS,
    "both cases": LETTERS + CAPITALS,
    "digits": DIGITS,
    "two digits": "01",
    "octal": "01234567",
    "hexadecimal": DIGITS + "abcdef",
    "capital hexadecimal": DIGITS + "ABCDEF",
    "letters and digits": LETTERS + DIGITS,
    "capitals and digits": CAPITALS + DIGITS,
    "base64": LETTERS + CAPITALS + DIGITS + "+/",
    "base32": CAPITALS + "234567",
    "DNA": "ACGT",
    "small DNA": "acgt",
    "RNA": "ACGU",
    "proteins": "ACDEFGHIKLMNPQRSTVWY",
    "punctuation": string.punctuation,
    "brackets": "()[]{}<>",
    "arithmetic": "+-*/=<>^%",
    "printable": string.punctuation + LETTERS + CAPITALS + DIGITS,
    "spaces": " ",
    "line ends": "\n",
    "tabs": "\t",
    "blanks": " \n\t\r",
    "dots": ".",
    "dashes": "-_=",
    "vowels": "aeiou",
    "consonants": "bcdfghjklmnpqrstvwxyz",
    "rare letters": "jqxzwvk",
    "common letters": "etaoinsr",
    "control characters": "".join(map(chr, range(1, 32))),
    "zeros": "\0",
    "morse": ".- /",
    "quotes": "\"'`",
    "slashes": "/\\|",
    "roman numbers": "IVXLCDM",
    "decimals": DIGITS + ",.",
    "addresses": DIGITS + ".:",
    "capitals and underscores": CAPITALS + "_",
    "letters and underscores": LETTERS + "_",
    "mixed case": LETTERS * 3 + CAPITALS,
    "letters and blanks": LETTERS * 3 + "  .,",
    "digits and spaces": DIGITS + " ",
    "digits and tabs": DIGITS + "\t",
    "two letters": "ab",
    "two capitals": "AB",
    "one letter": "xX",
    "queries": LETTERS + DIGITS + "%/?&=-",
    "escapes": "\\nxu0123456789abcdef",
    "markup": '<>/abp="',
    "structure": '{}[]:,"01',
}


def groups() -> dict[str, list[str]]:
    """Characters by the first word of their Unicode names, the largest groups first."""
    found: dict[str, list[str]] = {}
    for point in (*range(0x80, 0xD800), *range(0xE000, 0x30000)):
        character = chr(point)
        if unicodedata.category(character) in ("Cn", "Cc"):
            continue
        name = unicodedata.name(character, "PRIVATE USE").replace("-", " ").split()[0]
        found.setdefault(name, []).append(character)
    return dict(sorted(found.items(), key=lambda each: -len(each[1])))


def kinds() -> dict[str, Write]:
    """Writers of two hundred alphabets by name, and those of words and formats."""
    named = [(f"Unicode {name}", "".join(each)) for name, each in groups().items()]
    drawn = {name: from_alphabet(each) for name, each in [*ALPHABETS.items(), *named][:KINDS]}
    return {**drawn, **writers()}


def from_alphabet(alphabet: str) -> Write:
    return lambda dice, size: write(dice, alphabet, size)


def write(dice: random.Random, alphabet: str, size: int) -> str:
    """A text of about so many bytes."""
    if dice.random() < 0.5:
        alphabet = "".join(dice.sample(alphabet, min(len(alphabet), dice.choice((1, 3, 12, 40)))))
    way = dice.choice(("drawn", "words", "words", "pattern"))
    if way == "pattern":
        unit = "".join(dice.choices(alphabet, k=dice.randint(1, 40)))
        return unit * (size // len(unit.encode()) + 1)
    longest = dice.randint(1, 12) if way == "words" else 100
    mark = dice.choice((" ", " ", "\n", ", ")) if way == "words" else ""
    words: list[str] = []
    while size > 0:
        words.append("".join(dice.choices(alphabet, k=dice.randint(1, longest))) + mark)
        size -= len(words[-1].encode())
    return "".join(words)


def judge(
    name: str, writer: Write, seed: int, exacts: dict[str, Any], quick: bool
) -> Iterator[dict[str, Any]]:
    dice = random.Random(f"{seed} {name}")  # noqa: S311 - no secret
    for size in (SMALL, LARGE):
        text = writer(dice, size)
        unknown = make_piecewise_counter(None)
        most = compute_input_upper_bound(counter=unknown, new_tokens=unknown.count(text))
        chosen = [dice.choice(sorted(exacts))] if quick and size == LARGE else sorted(exacts)
        for family in chosen:
            counter, real = make_piecewise_counter(family), exacts[family](text)
            row = {"kind": name, "bytes": size, "family": family, "real": real}
            yield {
                **row,
                "bound": compute_input_upper_bound(counter=counter, new_tokens=counter.count(text)),
            }
            yield {**row, "bound": most, "by": "unknown family"}
            message = {"role": "user", "content": text}
            if size == SMALL:
                context = Context("gpt-4o", model_info={"tokenizer": family})
                context.add(message)
                context.request()
                yield {**row, "bound": context.report().bound, "by": "context"}
                continue
            try:
                request = fit(
                    [message],
                    model="gpt-4o",
                    model_info={"tokenizer": family},
                    context_window=LIMIT,
                ).request
            except CannotFit:
                continue
            kept = sum(exacts[family](each["content"]) for each in request["messages"])
            output = request.get("max_completion_tokens") or request["max_tokens"]
            yield {**row, "real": kept + output, "bound": LIMIT, "by": "fit"}


LANGUAGES = "de fr es it pt nl sv pl cs hu ro tr ru uk el ar hi th ja zh_CN".split()


def usual(quick: bool) -> list[str]:
    """Prose in twenty languages, and texts that were recorded."""
    texts: list[str] = []
    for language in LANGUAGES:
        room = 20_000 if quick else 80_000
        for _, text in sample_texts.translations(language)():
            texts.append(text[:4_000])
            room -= len(texts[-1])
            if room < 0:
                break
    for number, one in enumerate(sample_texts.conversations("held out")):
        if number >= (40 if quick else 200):
            break
        said = [text for message in one["messages"] for text in sample_texts.texts_of(message)]
        texts += [text[:12_000] for text in said[::20] if len(text) >= 400]
    return [text for text in texts if len(text) >= 400]


def before(text: str, family: str) -> int:
    """The estimate by pairs of bytes alone."""
    raw = encode_utf8_as_sent(text)
    return min(
        -(
            -sum_bytes(encode_byte_class_pairs(raw).translate(WEIGHTS_BY_FAMILY[family]))
            // WEIGHT_UNITS_PER_TOKEN
        ),
        len(raw),
    )


def over_estimates(exacts: dict[str, Any], quick: bool) -> Report:
    now, then = list[float](), list[float]()
    for text in usual(quick):
        for family, real in exacts.items():
            tokens = real(text)
            now.append(make_piecewise_counter(family).count(text) / tokens)
            then.append(before(text, family) / tokens)
    return {
        "usual_texts": len(now) // len(exacts),
        "median_over_estimate": round(statistics.median(now), 4),
        "median_before": round(statistics.median(then), 4),
        "p90_over_estimate": round(statistics.quantiles(now, n=10)[-1], 4),
        "p90_before": round(statistics.quantiles(then, n=10)[-1], 4),
        "raised_by_5_per_cent": sum(a > 1.05 * b for a, b in zip(now, then, strict=True)),
    }


def main(quick: bool, seed: int, exacts: dict[str, Any]) -> Report:
    rows: list[dict[str, Any]] = []
    found = kinds()
    for number, (name, writer) in enumerate(found.items()):
        progress(f"{number} of {len(found)}: {name}")
        rows += judge(name, writer, seed, exacts, quick)
    over = [row for row in rows if row["real"] > row["bound"]]
    report = {
        "sample": f"{len(found)} kinds of text from seed {seed}, {len(rows)} bounds",
        "seed": seed,
        "families": sorted(exacts),
        "kinds": len(found),
        "over_bound": sum(row.get("by") != "fit" for row in over),
        "fit_over_limit": sum(row.get("by") == "fit" for row in over),
        "worst": round(max(row["real"] / row["bound"] for row in rows), 3),
        **over_estimates(exacts, quick),
        "rows": over,
    }
    said = {
        "over_bound": "counts of {} are above their bound",
        "fit_over_limit": "texts that `fit` cut of {} are above the limit",
    }
    broken = [
        f"{report[name]} {words.format(f'{len(rows):,}')}, see rows"
        for name, words in said.items()
        if report[name]
    ]
    return {**report, "broken": broken}


def show(report: Report) -> None:
    for key, value in report.items():
        if key not in ("command", "versions", "sample", "rows", "broken"):
            print(f"{key}: {value}")
    if report["rows"]:
        columns = ("kind", "bytes", "family", "real", "bound")
        print(table(columns, [[row[each] for each in columns] for row in report["rows"]]))


if __name__ == "__main__":
    arguments = parser(__doc__)
    arguments.add_argument("--seed", type=int, help="of the texts; else a random one")
    asked = arguments.parse_args()
    found = exact_tokenizers.available()
    exacts = {family: found[family] for family in FAMILIES if family in found}
    if not exacts:
        sys.exit(skip("no exact tokenizer is installed", as_json=asked.json))
    seed = secrets.randbelow(10**9) if asked.seed is None else asked.seed
    report = {**head(("rs-bpe", "mistral-common")), **main(asked.quick, seed, exacts)}
    sys.exit(finish(report, show, as_json=asked.json))
