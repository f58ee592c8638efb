"""The figures of the pages, from the stored results of the benchmarks.

    python -m benchmarks.claims            # says what a page has that the results do not
    python -m benchmarks.claims --write    # puts the tables into the pages

A table stands between two comments of its page. A sentence with figures stands in its page word for
word; line breaks do not count. A test compares both, so no page says what no command said.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"
Row = Mapping[str, Any]
AUTO_ROWS = {
    "everything": "everything, as sent",
    "full": "`full`",
    "layered": "`layered`",
    "auto cost": "`auto`, goal `cost`",
    "auto balanced": "`auto`, goal `balanced`",
}
"""Rows of the table on docs/auto.md, by the names of the setups."""


def load_results(name: str) -> dict[str, Any]:
    """Return the stored report of a benchmark."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def list_tables() -> dict[tuple[str, str], str]:
    """Return the tables by page and name."""
    auto, peers = load_results("auto_evidence"), load_results("peers")
    return {
        ("docs/auto.md", "auto"): _build_auto_table(auto["rows"]),
        ("docs/peers.md", "peers"): _build_peers_table(peers["rows"]),
    }


def list_sentences() -> Iterator[tuple[str, str]]:
    """Yield each page with a sentence that it must contain."""
    auto, peers, session = (load_results(name) for name in ("auto_evidence", "peers", "session"))
    sample, long = auto["sample"], _by_setup(auto["rows"])
    short, very_long = _by_setup(auto["rows_short"]), _by_setup(auto["rows_very_long"])
    balanced, cost = long["auto balanced"], long["auto cost"]
    saved = (
        f"In {sample['conversations']} recorded Claude Code sessions of 25 calls and more, with "
        "system prompts and tools in a 200k window, the default would have saved "
        f"{_interval(balanced)} of what sending everything costs. "
        f'`goal="cost"` would have saved {_interval(cost)}.'
    )
    yield "README.md", saved
    yield (
        "README.md",
        (
            f"In {sample['short_conversations']} sessions under 30 calls it was "
            f"{_percent(short['auto balanced']['saved'])} and "
            f"{_percent(short['auto cost']['saved'])}."
        ),
    )
    yield (
        "README.md",
        (
            f"With the default, {_percent(balanced['recall'], 1)} of "
            f"these names were still sent, and "
            f'{_percent(cost["recall"], 1)} with `goal="cost"`. Of those '
            f"that were last mentioned more "
            f"than ten messages before, {_percent(balanced['far'], 1)} "
            f"and {_percent(cost['far'], 1)} were."
        ),
    )
    yield (
        "README.md",
        (
            f"With them it is {_percent(balanced['recall_with_lists'], 1)} and "
            f"{_percent(cost['recall_with_lists'], 1)} of all names."
        ),
    )
    yield (
        "docs/auto.md",
        f"{sample['conversations']} conversations of 25 calls or more, {sample['calls']:,} calls",
    )
    yield (
        "docs/auto.md",
        (
            f"In conversations of 100 calls and more, `balanced` saves "
            f"{_interval(very_long['auto balanced'])} and `cost` "
            f"{_interval(very_long['auto cost'])}."
        ),
    )
    yield (
        "docs/auto.md",
        (
            f"In {sample['short_conversations']} conversations under 30 calls, `balanced` saves "
            f"{_interval(short['auto balanced'])} and `cost` {_interval(short['auto cost'])}."
        ),
    )
    yield (
        "docs/auto.md",
        (
            f"A provider would have refused "
            f"{long['everything']['refused']:,} of the calls if everything "
            "is sent."
        ),
    )
    by_model = long["auto cost, model"]
    yield (
        "docs/auto.md",
        (
            f"With summaries by a model, `cost` saves {_interval(by_model)} and shows "
            f"{_share(by_model['recall'])} of the names."
        ),
    )
    yield (
        "docs/auto.md",
        f"`full` hid something before {auto['full_edits_per_100_calls']:g} of 100 calls.",
    )
    yield (
        "docs/peers.md",
        f"{peers['sample']['conversations']} conversations, {peers['sample']['calls']:,} calls",
    )
    yield (
        "README.md",
        f"The picture shows the median of the long ones, {session['calls']} calls.",
    )


def _build_auto_table(rows: Sequence[Row]) -> str:
    by_setup = _by_setup(rows)
    heads = ["policy", "cost", "saved", "recall", "far", "tool only", "recall, far with lists"]
    lines = [
        [
            label,
            f"{by_setup[name]['cost']:,}",
            "" if name == "everything" else _interval(by_setup[name]),
            *(_share(by_setup[name][share]) for share in ("recall", "far", "tool")),
            ", ".join(
                _share(by_setup[name][share]) for share in ("recall_with_lists", "far_with_lists")
            ),
        ]
        for name, label in AUTO_ROWS.items()
    ]
    return _format_table(heads, lines)


def _build_peers_table(rows: Sequence[Row]) -> str:
    heads = ["", "setup", "cost", "saved", "recall", "far", "refused", "no head: cost", "far"]
    lines = [
        [
            str(number),
            row["setup"],
            f"{row['cost']:,}",
            "" if row["setup"] == "everything" else _percent(row["saved"]),
            *(_share(row[share]) for share in ("recall", "far")),
            f"{row['refused']:,}",
            f"{row['without_head']['cost']:,}",
            _share(row["without_head"]["far"]),
        ]
        for number, row in enumerate(rows, 1)
    ]
    return _format_table(heads, lines)


def _by_setup(rows: Sequence[Row]) -> dict[str, Row]:
    return {row["setup"]: row for row in rows}


def _percent(share: float, digits: int = 0) -> str:
    return f"{100 * share:.{digits}f} %".replace("-0 %", "0 %")


def _interval(row: Row) -> str:
    """A saving with its 95 % interval."""
    return f"{_percent(row['saved'])} ({_percent(row['low'])} to {_percent(row['high'])})"


def _share(share: float) -> str:
    return "1.000" if share >= 0.9995 else f"{share:.3f}"[1:]


def _format_table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rule = ["---"] * len(heads)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, rule, *lines))


def put_table(page: str, name: str, table: str) -> str:
    """Return a page with the table between the comments that name it."""
    start, end = f"<!-- figures: {name} -->\n", "<!-- end of figures -->"
    pattern = re.compile(f"({re.escape(start)}).*?({re.escape(end)})", re.DOTALL)
    if not pattern.search(page):
        raise ValueError(f"no comment {start.strip()!r} followed by {end.strip()!r}")
    return pattern.sub(lambda match: f"{match[1]}{table}\n{match[2]}", page)


def list_contradictions() -> list[str]:
    """Return what pages do not say as the results do."""
    lines: list[str] = []
    for (name, table), text in list_tables().items():
        page = (ROOT / name).read_text(encoding="utf-8")
        if put_table(page, table, text) != page:
            lines.append(f"{name}: the table {table!r} is not that of the results; use --write")
    for name, sentence in list_sentences():
        if sentence not in _join_lines((ROOT / name).read_text(encoding="utf-8")):
            lines.append(f"{name}: should say: {sentence}")
    return lines


def _join_lines(page: str) -> str:
    return re.sub(r"\s+", " ", page)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="put the tables into the pages")
    if parser.parse_args().write:
        for (name, table), text in list_tables().items():
            path = ROOT / name
            page = put_table(path.read_text(encoding="utf-8"), table, text)
            path.write_text(page, encoding="utf-8")
    lines = list_contradictions()
    print("\n".join(lines) or "the pages say what the results say")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
