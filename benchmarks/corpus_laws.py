"""Recorded conversations, call by call, under every preset: is each request valid, does it fit?

    TRIMTAB_CORPUS=… python -m benchmarks.corpus_laws [--quick] [--json] [--jobs N] [--skip N]

Before each assistant message of a record one request is asked for. It is checked by the dialect's
own rules (`trimtab.check`), by a check of the pairs that shares no code with the library, for
being an extension of the request before it unless something was edited, and for holding the newest
user message and the active round; then it is counted exactly (`trimtab.testing.request_counter`
says what that is), the count is reported back as the reply's usage, and the recorded reply is
added. System messages at the start are the head. An interrupt ends the run with the report of what
was done.

The lanes: `chat` is Chat Completions counted by o200k; `anthropic` is the Messages API counted by
tekken, which stands for a family of its own; `responses` is a sample in OpenAI's other format. They
estimate; in the lanes `… exact` the context has the exact tokenizer itself.

Must hold: no violation, no exception, at most 0.1 % of the calls over their window where tokens are
estimated and none where they are counted. `cannot_fit` counts calls that were refused by a typed
error; `unconfirmed` are those of them whose smallest request would have fitted by its exact count,
which the margin of the declared bound explains: `smallest_refused` is the least share of the room
(window less requested output) that any of them needed.
`over_bound` are calls whose exact count is above the declared upper bound. Utilisation is the exact
input's mean share of the window less the requested output; `breaks` are calls whose request does
not extend the one before.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

from benchmarks import corpus, exact_tokenizers, harness
from benchmarks.corpus import Conversation
from benchmarks.replay_calls import Lane, Replay, Tally
from trimtab.engine.policy.presets import POLICY_NAMES
from trimtab.testing.request_counter import RequestCounter

WINDOWS = (8_000, 32_000, 200_000)
QUICK = 1
"""Conversations of each file in the quick sample."""
TOLERATED = 0.001
"""Share of the calls that may be over their window where tokens are estimated."""
MOST_FAILURES = 50
"""That a report lists."""
STAND_IN = {"tokenizer": "tekken", "cache_style": "marks", "max_output": 16_384}
LANES = (
    Lane(name="chat", model="gpt-4o", dialect="openai_chat", family="o200k_base"),
    Lane(name="anthropic", model="stand-in", dialect="anthropic", family="tekken", entry=STAND_IN),
    Lane(
        name="responses", model="gpt-4o", dialect="openai_responses", family="o200k_base", one_in=8
    ),
    Lane(
        name="chat exact",
        model="gpt-4o",
        dialect="openai_chat",
        family="o200k_base",
        exact=True,
        one_in=4,
    ),
    Lane(
        name="anthropic exact",
        model="stand-in",
        dialect="anthropic",
        family="tekken",
        exact=True,
        one_in=4,
        entry=STAND_IN,
    ),
)
COLUMNS = (
    "calls",
    "violations",
    "exceptions",
    "cannot_fit",
    "cannot_fit_unconfirmed",
    "over_window",
    "over_bound",
    "edits",
    "breaks",
)

Key = tuple[str, str, int]
"""Lane, preset and window."""
Tallies = dict[Key, Tally]
Task = tuple[Conversation, tuple[Lane, ...]]


def replay(task: Task) -> Tallies:
    """One conversation through all its lanes, presets and windows."""
    conversation, lanes = task
    tokenizers = exact_tokenizers.available()
    counters = {lane.family: RequestCounter(tokenizers[lane.family]) for lane in lanes}
    return {
        (lane.name, preset, window): Replay(
            conversation, lane, preset, window, counters[lane.family]
        ).run()
        for lane in lanes
        for preset in POLICY_NAMES
        for window in WINDOWS
    }


def tasks(lanes: tuple[Lane, ...], *, quick: bool, skip: int) -> Iterator[Task]:
    for conversation in islice(corpus.conversations(each=QUICK if quick else None), skip, None):
        taken = (lane for lane in lanes if quick or corpus.falls_in(conversation, lane.one_in))
        yield conversation, tuple(taken)


def run(lanes: tuple[Lane, ...], *, quick: bool, jobs: int, skip: int) -> tuple[int, Tallies]:
    """How many conversations there were, and what was found until they end or it is interrupted."""
    whole: Tallies = {}
    number = 0
    begun = time.monotonic()
    with (
        _processes(jobs) if jobs > 1 else _Inline() as pool,
        suppress(KeyboardInterrupt),
    ):
        for tallies in pool.imap_unordered(replay, tasks(lanes, quick=quick, skip=skip)):
            number += 1
            for key, tally in tallies.items():
                whole.setdefault(key, Tally()).add(tally)
            calls = sum(tally.counts["calls"] for tally in whole.values())
            wrong = sum(len(tally.failures) for tally in whole.values())
            spent = time.monotonic() - begun
            harness.progress(
                f"{number} conversations, {calls:,} calls, {wrong} failures, {spent:.0f} s"
            )
    return number, whole


def _processes(jobs: int) -> Any:
    """Processes that an interrupt does not reach: it is for whoever gathers what they find."""
    return multiprocessing.Pool(jobs, signal.signal, (signal.SIGINT, signal.SIG_IGN))


class _Inline:
    """A pool of no processes."""

    def __enter__(self) -> _Inline:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def imap_unordered(self, function: Any, given: Iterator[Task]) -> Iterator[Tallies]:
        return map(function, given)


def row(tally: Tally) -> dict[str, Any]:
    calls = tally.counts["calls"]
    sent = calls - tally.counts["cannot_fit"]
    return {
        **{name: tally.counts[name] for name in COLUMNS},
        "over_window_share": tally.counts["over_window"] / calls if calls else 0.0,
        "utilisation": tally.utilisation / sent if sent else 0.0,
        "smallest_refused": tally.smallest_refused,
    }


def totals(whole: Tallies) -> dict[str, dict[str, Any]]:
    """By lane."""
    sums: dict[str, Tally] = {}
    for (lane, _, _), tally in whole.items():
        sums.setdefault(lane, Tally()).add(tally)
    return {lane: row(tally) for lane, tally in sums.items()}


def broken(whole: Tallies, lanes: tuple[Lane, ...]) -> list[str]:
    found: list[str] = []
    sums = totals(whole)
    for lane in lanes:
        total = sums.get(lane.name)
        if total is None:
            continue
        found += [
            f"{lane.name}: {total[name]} {name}"
            for name in ("violations", "exceptions")
            if total[name]
        ]
        allowed = 0.0 if lane.exact else TOLERATED
        if total["over_window_share"] > allowed:
            found.append(f"{lane.name}: {total['over_window']} calls over the window")
    return found


def show(report: harness.Report) -> None:
    names = (*COLUMNS, "smallest_refused", "over_window_share", "utilisation")
    short = [name.replace("cannot_fit_unconfirmed", "unconfirmed") for name in names]

    def cells(each: dict[str, Any]) -> list[Any]:
        return [
            f"{value:.2%}" if isinstance(value := each[name], float) else value for name in names
        ]

    lanes = [[lane, *cells(total)] for lane, total in report["lanes"].items()]
    print(f"\n{harness.table(['lane', *short], lanes)}\n")
    keys = ("lane", "preset", "window")
    rows = [[*(each[key] for key in keys), *cells(each)] for each in report["rows"]]
    print(harness.table([*keys, *short], rows))
    for failure in report["failures"]:
        print(failure)


def main() -> int:
    parser = harness.parser(__doc__)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument(
        "--skip", type=int, default=0, help="conversations at the start to leave out"
    )
    asked = parser.parse_args()
    there = exact_tokenizers.available()
    lanes = tuple(lane for lane in LANES if lane.family in there)
    missing = None if lanes else "neither rs-bpe nor mistral-common is installed"
    if why := harness.no_corpus() or missing:
        return harness.skip(why, as_json=asked.json)
    number, whole = run(lanes, quick=asked.quick, jobs=asked.jobs, skip=asked.skip)
    report = harness.head(("rs-bpe", "mistral-common"))
    report["sample"] = {
        "conversations": number,
        "presets": list(POLICY_NAMES),
        "windows": list(WINDOWS),
        "lanes": [lane.name for lane in lanes],
    }
    report["lanes"] = totals(whole)
    report["rows"] = [
        {"lane": lane, "preset": preset, "window": window, **row(tally)}
        for (lane, preset, window), tally in sorted(whole.items())
    ]
    failures = [failure for tally in whole.values() for failure in tally.failures]
    report["failures"] = failures[:MOST_FAILURES]
    report["broken"] = broken(whole, lanes)
    return harness.finish(report, show, as_json=asked.json)


if __name__ == "__main__":
    sys.exit(main())
