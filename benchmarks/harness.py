"""What the benchmarks share: arguments, the head of a report, its end.

A report names the command, the versions and the sample, and nothing of the machine it ran on. It
is broken, and the exit status 1, where something did not hold that must.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import corpus

Report = dict[str, Any]


def run(doc: str | None, main: Callable[[bool], Report], packages: Iterable[str] = ()) -> int:
    """A whole benchmark: `main` is told whether to be quick and returns its figures, with what
    must hold and did not under `broken`. Returns the exit status."""
    asked = parser(doc).parse_args()
    return finish({**head(packages), **main(asked.quick)}, as_json=asked.json)


def parser(doc: str | None) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--json", action="store_true", help="print one JSON object")
    made.add_argument("--quick", action="store_true", help="a smaller sample, within a minute")
    return made


def head(packages: Iterable[str] = ()) -> Report:
    """The first keys of every report."""
    spec = sys.modules["__main__"].__spec__
    module = spec.name.removesuffix(".__main__") if spec else Path(sys.argv[0]).stem
    versions = {name: _version(name) for name in ("trimtab", *packages)}
    return {
        "command": " ".join(["python", "-m", module, *sys.argv[1:]]),
        "versions": {"python": platform.python_version(), **versions},
    }


def no_corpus() -> str | None:
    """Why a benchmark of recorded conversations cannot run here; None where it can."""
    if corpus.folder() is None:
        return f"{corpus.VARIABLE} names no folder with recorded conversations"
    return None


def skip(why: str, *, as_json: bool) -> int:
    """Say why there are no figures; that is no error."""
    print(json.dumps({"skipped": why}) if as_json else f"skipped: {why}")
    return 0


def finish(report: Report, show: Callable[[Report], None] | None = None, *, as_json: bool) -> int:
    """Print the report, and say whether all that must hold did."""
    broken: Sequence[str] = report.get("broken") or ()
    if as_json:
        print(json.dumps(report, indent=1))
    else:
        _print_plain(
            report if show is None else {key: report[key] for key in report if key in HEAD}
        )
        if show is not None:
            show(report)
        for line in broken:
            print(f"BROKEN: {line}")
    return 1 if broken else 0


HEAD = ("command", "versions", "sample")
"""What every report says first, in its own words whatever shows the rest."""


def progress(text: str) -> None:
    """One line that the next one overwrites; nothing where nobody watches."""
    if sys.stderr.isatty():
        print(f"\r{text:<100}", end="", file=sys.stderr, flush=True)


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Columns as wide as they need to be: texts to the left, numbers to the right."""
    cells = [list(columns), *([_cell(value) for value in row] for row in rows)]
    wide = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    left = [not rows or isinstance(rows[0][i], str) for i in range(len(columns))]
    lines = (
        "  ".join(
            text.ljust(width) if to_left else text.rjust(width)
            for text, width, to_left in zip(row, wide, left, strict=True)
        ).rstrip()
        for row in cells
    )
    return "\n".join(lines)


def _print_plain(report: Mapping[str, Any]) -> None:
    for key, value in report.items():
        if key == "rows":
            print(f"\n{table(list(value[0]), [list(row.values()) for row in value])}\n")
        elif key != "broken":
            print(f"{key}: {value}")


def _cell(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
