"""What `auto` saves and what it keeps visible, on conversations that had no part in tuning it.

Held-out half of recorded Claude Code conversations: those whose id's SHA-256 is odd. Conversations
of 25 calls or more, and those under 30 apart. Everything is measured as `trimtab replay` does it
(recorded.py): against sending everything, with system prompt and tools, in fresh input tokens a
call. Under `auto` no model writes summaries unless it is said. `model` are setups in which one
does, with the sizes that such summaries have: trimtab/replay/runner.py.

The results are stored: `… --json > benchmarks/results/auto_evidence.json`, from where claims.py
takes the figures of the pages.

`full_edits_per_100_calls` are calls before which something was hidden under `full`.
`--optimum` adds `over_optimum`, which optimum.py explains.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from benchmarks.harness import finish, head, no_corpus, parser, progress, skip
from benchmarks.optimum import over_optimum
from benchmarks.recorded import (
    BASELINE,
    MODEL,
    SHORT_CALLS,
    WINDOW,
    build_rows,
    held_out,
    learn_scale,
    replay_in_window,
    sample_long,
)
from trimtab.replay.billing import ProviderPricing, list_billed_providers
from trimtab.replay.references import find_earlier_references
from trimtab.replay.runner import ConversationRun, ReplaySetup
from trimtab.replay.selection import RecordedConversation

BY_MODEL = {"summaries": "manual", "limits": {"summary": {"price": 1 / 3}}}
"""A model writes the summaries, at a third of the price."""
VERY_LONG_CALLS = 100
QUICK_SHARE = 12
"""A quick run takes one in so many conversations."""


def _setup(name: str, **options: Any) -> ReplaySetup:
    return ReplaySetup(name=name, model=MODEL, options={"context_window": WINDOW, **options})


SETUPS = (
    BASELINE,
    _setup("full", policy="full"),
    _setup("layered", policy="layered"),
    _setup("auto cost", policy="auto", goal="cost"),
    _setup("auto balanced", policy="auto"),
    _setup("auto quality", policy="auto", goal="quality"),
    _setup("auto cost, model", policy="auto", goal="cost", **BY_MODEL),
    _setup("auto balanced, model", policy="auto", **BY_MODEL),
)
SHORT_SETUPS = tuple(
    setup for setup in SETUPS if setup.name in (BASELINE.name, "auto balanced", "auto cost")
)
OWN = list_billed_providers(MODEL)[0]


def replay_long(conversation: RecordedConversation) -> list[ConversationRun]:
    return _replay(conversation, SETUPS)


def replay_short(conversation: RecordedConversation) -> list[ConversationRun]:
    return _replay(conversation, SHORT_SETUPS)


def _replay(
    conversation: RecordedConversation, setups: Sequence[ReplaySetup]
) -> list[ConversationRun]:
    references = find_earlier_references(conversation.messages)
    scale = learn_scale(conversation)
    rules = {OWN.name: OWN.rules}
    return [replay_in_window(conversation, setup, rules, references, scale) for setup in setups]


def main() -> int:
    asked = _arguments().parse_args()
    missing = no_corpus()
    if missing is not None:
        return skip(missing, as_json=asked.json)
    long = sample_long()
    short = [one for one in held_out() if 1 <= one.calls < SHORT_CALLS]
    if asked.quick:
        long, short = long[::QUICK_SHARE], short[::QUICK_SHARE]
    runs: list[ConversationRun] = []
    with ProcessPoolExecutor(asked.jobs) as pool:
        for done, own in enumerate(pool.map(replay_long, long), 1):
            runs += own
            progress(f"{done} of {len(long)} conversations")
        short_runs = [run for own in pool.map(replay_short, short) for run in own]
    report = {**head(), **build_report(long, short, runs, short_runs, OWN)}
    if asked.optimum:
        report |= {"over_optimum": over_optimum(long)}
    return finish(report, as_json=asked.json)


def build_report(
    long: Sequence[RecordedConversation],
    short: Sequence[RecordedConversation],
    runs: Sequence[ConversationRun],
    short_runs: Sequence[ConversationRun],
    provider: ProviderPricing,
) -> dict[str, Any]:
    very_long = {one.id for one in long if one.calls >= VERY_LONG_CALLS}
    full = [call for run in runs if run.setup == "full" for call in run.calls]
    edited = sum(call.edits > 0 for call in full)
    return {
        "sample": {
            "conversations": len(long),
            "calls": sum(one.calls for one in long),
            "short_conversations": len(short),
            "short_calls": sum(one.calls for one in short),
            "very_long_conversations": len(very_long),
            "very_long_calls": sum(one.calls for one in long if one.id in very_long),
        },
        "rows": [row.to_json() for row in build_rows(runs, provider)],
        "rows_short": [row.to_json() for row in build_rows(short_runs, provider)],
        "rows_very_long": [
            row.to_json()
            for row in build_rows([run for run in runs if run.conversation in very_long], provider)
        ]
        if very_long
        else [],
        "full_edits_per_100_calls": round(100 * edited / max(1, len(full)), 2),
    }


def _arguments() -> argparse.ArgumentParser:
    arguments = parser(__doc__)
    arguments.add_argument("--jobs", type=int, default=None, help="processes; all cores by default")
    arguments.add_argument("--optimum", action="store_true", help="also find the best schedule")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
