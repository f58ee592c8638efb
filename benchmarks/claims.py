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
DIAL = ("quality", "balanced", "1", "2", "cost")
"""The points of the dial, by their names in the report."""
SAMPLES = {
    "window_1m": "a window of 1M",
    "window_64k": "a window of 64k",
    "codex": "Codex, at OpenAI's prices",
}
"""The samples beside the held-out repositories, by their names in the report."""
OWN_SAMPLES = ("rows", "rows_same_repositories")
"""Where the report has rows of a sample that the peers may have been measured on."""


def load_results(name: str) -> dict[str, Any]:
    """Return the stored report of a benchmark."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def list_tables() -> dict[tuple[str, str], str]:
    """Return the tables by page and name."""
    auto, peers = load_results("auto_evidence"), load_results("peers")
    return {
        ("docs/auto.md", "dial"): _build_dial_table(auto),
        ("docs/auto.md", "samples"): _build_samples_table(auto),
        ("docs/peers.md", "peers"): _build_peers_table(list_peer_rows(auto, peers)),
    }


def list_sentences() -> Iterator[tuple[str, str]]:
    """Yield each page with a sentence that it must contain."""
    auto, peers, session = (load_results(name) for name in ("auto_evidence", "peers", "session"))
    large = auto["window_1m"]
    yield (
        "README.md",
        (
            f"In {auto['sample']['conversations']} recorded Claude Code sessions, the default "
            "would have saved "
            f"{_interval(large['balanced'])} of what sending everything costs in a window of a "
            f"million tokens, and {_interval(auto['balanced'])} in one of 200,000; "
            f"{_percent(large['balanced']['far'])} and {_percent(auto['balanced']['far'])} of the "
            "names that a call took from more than ten messages back were still in view."
        ),
    )
    yield (
        "README.md",
        (
            f'With `goal="cost"` it saves {_percent(large["cost"]["saved"])} and '
            f"{_percent(auto['cost']['saved'])}, and shows {_percent(large['cost']['far'])} and "
            f"{_percent(auto['cost']['far'])} of them."
        ),
    )
    yield (
        "docs/auto.md",
        (
            f"{auto['sample']['conversations']} conversations of 25 calls or more, "
            f"{auto['sample']['calls']:,} calls"
        ),
    )
    refused = next(row for row in auto["rows"] if row["setup"] == "everything")["refused"]
    yield (
        "docs/auto.md",
        f"A provider would have refused {refused:,} of the calls if everything is sent.",
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
        f"{session['calls']} calls: the median of long sessions.",
    )


def _build_dial_table(report: Mapping[str, Any]) -> str:
    heads = ["`goal`", "saved", "far", "hidden edits", "far 4-grams"]
    lines = [[f"`{name}`", *_describe_point(report[name])] for name in DIAL]
    return _format_table(heads, lines)


def _build_samples_table(report: Mapping[str, Any]) -> str:
    heads = ["sample", "conversations", "`goal`", "saved", "far", "hidden edits", "far 4-grams"]
    sections = {
        "half of all repositories": report["same_repositories"],
        **{label: report[name] for name, label in SAMPLES.items()},
        **{name.replace("_", " "): one for name, one in report.get("populations", {}).items()},
    }
    lines = [
        [
            label,
            str(section["sample"]["conversations"]),
            f"`{goal}`",
            *_describe_point(section[goal]),
        ]
        for label, section in sections.items()
        for goal in ("balanced", "cost")
    ]
    return _format_table(heads, lines)


def _describe_point(point: Row) -> list[str]:
    return [
        _interval(point),
        _share(point["far"]),
        _percent(point["hidden_edits"], 1),
        _share(point["far_4grams"]),
    ]


def list_peer_rows(auto: Mapping[str, Any], peers: Mapping[str, Any]) -> list[Row]:
    """Return the rows of the peers with our dial on the same conversations, as auto_evidence
    measured it last."""
    everything, *others = peers["rows"]
    own_rows = next(
        rows
        for rows in map(auto.get, OWN_SAMPLES)
        if rows and rows[0]["cost"] == everything["cost"]
    )
    dial = [
        {**row, "setup": f"Trimtab auto, goal {row['setup']}", "version": ""}
        for row in own_rows
        if row["setup"] in DIAL
    ]
    return [everything, *dial, *(row for row in others if not row["setup"].startswith("Trimtab"))]


def _build_peers_table(rows: Sequence[Row]) -> str:
    heads = ["", "setup", "cost", "saved", "recall", "far", "refused"]
    lines = [
        [
            str(number),
            row["setup"],
            f"{row['cost']:,}",
            "" if row["setup"] == "everything" else _percent(row["saved"]),
            *(_share(row[share]) for share in ("recall", "far")),
            f"{row['refused']:,}",
        ]
        for number, row in enumerate(rows, 1)
    ]
    return _format_table(heads, lines)


def _percent(share: float, digits: int = 0) -> str:
    return f"{100 * share:.{digits}f} %".replace("-0 %", "0 %")


def _interval(row: Row) -> str:
    """A saving with its 95 % interval."""
    low, high = row["saved_interval"]
    return f"{_percent(row['saved'])} ({_percent(low)} to {_percent(high)})"


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
