"""What `auto` saves and what it hides, on recorded conversations that had no part in tuning it.

Everything is measured as `trimtab replay` does it (recorded.py): against sending everything, with
system prompt and tools, in fresh input tokens a call. `trimtab/replay/needs.py` defines the three
needs; samples.py says which conversations are measured and how they are split.

At the top of the report stands each point of the dial, on the held-out repositories in a window of
200k: `saved`, and of what the requests show `far` (names last mentioned more than ten messages
before), `hidden_edits` (edits whose old text the request does not show) and `far_4grams` (of what
calls copy), each with a 95 % interval from resampled conversations. `today` is an earlier revision
on the same conversations (auto_today.py), and `against_today` the paired difference.

`backward_steps` are steps to the next higher price that save less or show more, with the paired
interval on that side of 0.

- `rows`: other policies, and summaries by a model; `rows_very_long` those of 100 calls and more.
- `same_repositories`, `rows_same_repositories` and `rows_short`: the half of all repositories that
  the hash of the id held out at first, to compare with figures that were published before.
- `repositories`: each repository apart, as if it had been left out.
- `window_1m`, `window_64k`; `codex`: Codex at OpenAI's prices; with `--populations` the
  conversations of other people, on which nothing is tuned.

The results are stored: `… --json > benchmarks/results/auto_evidence.json`, from where claims.py
takes the figures of the pages. Under `auto` no model writes summaries unless it is said. `model`
are setups in which one does, with the sizes that such summaries have (simulated_summary.py).
`full_edits_per_100_calls` are calls before which something was hidden under `full`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import pairwise
from typing import Any

from benchmarks.auto_today import REVISION, load_today
from benchmarks.harness import Report, finish, head, no_corpus, parser, skip, table
from benchmarks.recorded import (
    SHARES,
    Sums,
    build_rows,
    compare_points,
    describe_point,
    make_baseline,
    make_setup,
    replay_sample,
    sum_runs,
)
from benchmarks.samples import (
    FIRST_SAMPLE,
    POPULATIONS,
    TUNING_REPOSITORIES,
    Sample,
    add_sample_arguments,
    choose_samples,
    count_conversations,
    get_repository,
    sample_half,
    sample_short,
    shorten_id,
)
from trimtab.replay.calls import EVERYTHING, ConversationRun, ReplaySetup
from trimtab.replay.selection import RecordedConversation

DIAL: dict[str, dict[str, Any]] = {
    str(goal): {"policy": "auto", "goal": goal} for goal in ("quality", "balanced", 1, 2, "cost")
}
"""The options of `Context` for each point of the dial, by its name in the report."""
BY_MODEL = {"summaries": "manual", "limits": {"summary": {"price": 1 / 3}}}
"""A model writes the summaries, at a third of the price."""
OTHERS: dict[str, dict[str, Any]] = {
    "full": {"policy": "full"},
    "layered": {"policy": "layered"},
    "cost, model": {**DIAL["cost"], **BY_MODEL},
    "balanced, model": {**DIAL["balanced"], **BY_MODEL},
}
"""What is measured beside the dial, in the first sample alone."""
VERY_LONG_CALLS = 100


def make_setups(sample: Sample, options_by_name: Mapping[str, Any]) -> tuple[ReplaySetup, ...]:
    """Return everything, and the named setups."""
    setups = (make_setup(name, sample, **options) for name, options in options_by_name.items())
    return (make_baseline(sample), *setups)


def main() -> int:
    asked = _arguments().parse_args()
    missing = no_corpus()
    if missing is not None:
        return skip(missing, as_json=asked.json)
    today = load_today()
    report: Report = {**head(), "baseline": REVISION}
    populations: Report = {}
    with ProcessPoolExecutor(asked.jobs) as pool:
        for sample in choose_samples(asked):
            is_first = sample.name == FIRST_SAMPLE
            setups = make_setups(sample, {**DIAL, **OTHERS} if is_first else DIAL)
            runs = replay_sample(pool, sample, setups)
            earlier = today.get(sample.name, {})
            if is_first:
                report |= describe_splits(sample, runs, earlier)
            elif sample.name in POPULATIONS:
                populations[sample.name] = describe_dial(sample, runs, earlier)
            else:
                report[sample.name] = describe_dial(sample, runs, earlier)
        short = Sample(name="short", conversations=sample_short(count_conversations(asked)))
        runs = replay_sample(pool, short, make_setups(short, DIAL))
    report["rows_short"] = [row.to_json() for row in build_rows(runs, short.provider)]
    report["sample"] |= {
        "short_conversations": len(short.conversations),
        "short_calls": short.calls,
    }
    if populations:
        report["populations"] = populations
    return finish(report, _show, as_json=asked.json)


def _arguments() -> argparse.ArgumentParser:
    arguments = parser(__doc__)
    add_sample_arguments(arguments)
    return arguments


def describe_splits(
    sample: Sample, runs: Sequence[ConversationRun], today: Mapping[str, Mapping[str, Sums]]
) -> Report:
    """Describe the held-out repositories, each repository, and the half held out at first."""
    conversations = sample.conversations
    held_out = [one for one in conversations if get_repository(one) not in TUNING_REPOSITORIES]
    very_long = [one for one in held_out if one.calls >= VERY_LONG_CALLS]
    half = {one.id for one in sample_half()}
    same_repositories = [one for one in conversations if one.id in half]
    report = describe_dial(replace(sample, conversations=tuple(held_out)), runs, today)
    report["sample"] |= {
        "very_long_conversations": len(very_long),
        "very_long_calls": sum(one.calls for one in very_long),
    }
    rows = {
        "rows": held_out,
        "rows_same_repositories": same_repositories,
        "rows_very_long": very_long,
    }
    for name, chosen in rows.items():
        own_runs = select_runs(runs, chosen)
        report[name] = [row.to_json() for row in build_rows(own_runs, sample.provider)]
    report["same_repositories"] = describe_dial(
        replace(sample, conversations=tuple(same_repositories)), runs, today
    )
    report["repositories"] = {}
    for repository in sorted({get_repository(one) for one in conversations}):
        own = tuple(one for one in conversations if get_repository(one) == repository)
        report["repositories"][repository] = describe_dial(
            replace(sample, conversations=own), runs, today
        )
    full = [
        call for run in select_runs(runs, held_out) if run.setup == "full" for call in run.calls
    ]
    edited = sum(call.edits > 0 for call in full)
    report["full_edits_per_100_calls"] = round(100 * edited / max(1, len(full)), 2)
    return report


def describe_dial(
    sample: Sample, runs: Sequence[ConversationRun], today: Mapping[str, Mapping[str, Sums]]
) -> Report:
    """Describe each point of the dial on a sample, and an earlier revision beside it."""
    sums = sum_runs(select_runs(runs, sample.conversations), sample.provider)
    ids = {shorten_id(one.id) for one in sample.conversations}
    earlier = {
        goal: {one: row for one, row in rows.items() if one in ids} for goal, rows in today.items()
    }
    report: Report = {
        "sample": {"conversations": len(ids), "calls": sample.calls},
        EVERYTHING: describe_point(sums[EVERYTHING]),
    }
    for name in DIAL:
        report[name] = describe_point(sums[name])
        if earlier.get("balanced"):
            # The default of before is what a point must be better than, whatever it is called.
            comparison = compare_points(sums[name], earlier["balanced"])
            report[name]["than_todays_balanced"] = comparison
    report["backward_steps"] = [
        f"{lower} to {higher}: {share}"
        for lower, higher in pairwise(DIAL)
        for share in find_backward_shares(compare_points(sums[higher], sums[lower]))
    ]
    report["today"] = {
        goal: {**describe_point(rows), "conversations": len(rows)}
        for goal, rows in earlier.items()
        if rows
    }
    return report


def find_backward_shares(difference: Mapping[str, Any]) -> list[str]:
    """Return the shares that go the wrong way with a higher price: less is saved, or more shown."""
    wrong_signs = {"saved": -1, "far": 1, "hidden_edits": -1, "far_4grams": 1}
    return [
        share
        for share, sign in wrong_signs.items()
        if all(sign * edge > 0 for edge in difference[f"{share}_interval"])
    ]


def select_runs(
    runs: Sequence[ConversationRun], conversations: Sequence[RecordedConversation]
) -> list[ConversationRun]:
    ids = {one.id for one in conversations}
    return [run for run in runs if run.conversation in ids]


def _show(report: Report) -> None:
    sections = {
        "held-out repositories, window 200k": report,
        "the half of all repositories that a hash held out": report["same_repositories"],
        **report["repositories"],
        **{name: report[name] for name in ("window_1m", "window_64k", "codex")},
        **report.get("populations", {}),
    }
    for name, section in sections.items():
        counts = section["sample"]
        print(f"\n{name}: {counts['conversations']} conversations, {counts['calls']:,} calls")
        lines = [_format_point(f"today {goal}", point) for goal, point in section["today"].items()]
        lines += [_format_point(goal, section[goal]) for goal in (EVERYTHING, *DIAL)]
        print(table(["", "cost", "refused", *SHARES], lines))
    print("\nWhere the cost of a call goes, on the held-out repositories")
    rows = report["rows"]
    parts = list(rows[0]["costs"])
    print(table(["", *parts], [[row["setup"], *row["costs"].values()] for row in rows]))


def _format_point(name: str, point: Mapping[str, Any]) -> list[Any]:
    shares = [
        f"{point[share]:.3f} ({low:.3f} to {high:.3f})"
        for share in SHARES
        for low, high in (point[f"{share}_interval"],)
    ]
    return [name, point["cost"], point["refused"], *shares]


if __name__ == "__main__":
    sys.exit(main())
