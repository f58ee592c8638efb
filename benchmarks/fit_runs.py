"""What a row of one character costs, by tokenizer.

Writes packages/trimtab/src/trimtab/engine/tokens/repeats.py.

    python -m benchmarks.fit_runs

A row is 1,024 characters long. A figure is in eighths of a token for one character, rounded up, as
a letter: `a` is an eighth. `max` is the largest of all tokenizers that are here.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from textwrap import wrap

from benchmarks.exact_tokenizers import Count, available

FIRST, LAST, LONG = 32, 255, 1_024
FAMILIES = ("o200k_base", "cl100k_base", "tekken")
FIGURES = "abcdefghijklmnopqrstuvwxyz"
TARGET = Path(__file__).parents[1] / "packages/trimtab/src/trimtab/engine/tokens/repeats.py"


def rates(count: Count) -> list[int]:
    """Eighths of a token for one character of a row, by character."""
    return [math.ceil(8 * count(chr(c) * LONG) / LONG) for c in range(FIRST, LAST + 1)]


def table(figures: list[int]) -> str:
    letters = "".join(FIGURES[min(each, len(FIGURES)) - 1] for each in figures)
    return "\n".join(f'        "{line}"' for line in wrap(letters, 80))


def main() -> int:
    found = available()
    missing = [family for family in FAMILIES if family not in found]
    if missing:
        print(f"not installed: {', '.join(missing)}")
        return 1
    measured = {family: rates(found[family]) for family in FAMILIES}
    measured["max"] = [max(column) for column in zip(*measured.values(), strict=True)]
    entries = "\n".join(
        f'    "{name}": (\n{table(each)}\n    ),' for name, each in measured.items()
    )
    TARGET.write_text(
        '"""The cost of a run of one character; written by benchmarks/fit_runs.py."""\n\n'
        f"FIRST_RUN_CHARACTER = {FIRST}\n"
        '"""The character of the first figure."""\n\n'
        f"RUN_COSTS_BY_FAMILY = {{\n{entries}\n}}\n"
        '"""By family: eighths of a token for one character of a run; `a` is one eighth."""\n',
        encoding="utf-8",
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
