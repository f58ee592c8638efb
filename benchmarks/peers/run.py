"""Other libraries' context management on the same recorded conversations, under the same rules.

    python -m benchmarks.peers.run            # all; creates the environments that are missing
    python -m benchmarks.peers.run --quick    # a few, within a minute

Long Claude Code conversations of the held-out repositories (samples.py), in the order of a hash.
Each peer works in an environment of its own (envs.py) and says for each call what it would send.
Costs, recall and the baseline are those of `trimtab replay` (benchmarks/recorded.py): fresh input
tokens a call, with replies, summaries and what must be fetched again, compared with sending
everything. All is measured with system prompt and tools, and under `without_head` without. The
replay is open-loop: no model reacts to what is hidden.

The results are stored: `… --json > benchmarks/results/peers.json`, from where claims.py takes the
figures of the pages.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

from benchmarks import harness
from benchmarks.peers import envs, measure
from benchmarks.peers.measure import Material, PeerFailed, Worker
from benchmarks.peers.setups import CHECK, DIAL_PREFIX, OWN, PEERS, QUICK, PeerSetup
from benchmarks.recorded import (
    Row,
    build_rows,
    learn_scale,
    refuse_above_window,
    replay_in_window,
)
from benchmarks.samples import CLAUDE_MODEL, OPENAI_MODEL, sample_long
from trimtab.replay.billing import get_provider_pricing
from trimtab.replay.calls import EVERYTHING, ConversationRun, ReplaySetup
from trimtab.replay.needs import find_needs

QUICK_SAMPLE = 2
QUICK_SECONDS = 40.0
"""After which the quick run begins no further peer."""
TOLERANCE = 0.01
"""Share by which our two ways to measure the same requests may differ."""
PROVIDERS = {
    provider.name: provider for provider in map(get_provider_pricing, (CLAUDE_MODEL, OPENAI_MODEL))
}
RULES = {name: provider.rules for name, provider in PROVIDERS.items()}
COLUMNS = [
    *"setup version tokens cost saved OpenAI recall far".split(),
    *("hidden edits", "far 4-grams", "tool", "breaks", "summaries", "refused", "ms"),
    *("cost, no head", "far, no head"),
]


@dataclass(slots=True)
class Outcome:
    """One setup over all conversations, with and without system prompt and tools."""

    runs: dict[bool, list[ConversationRun]]
    """By whether the head is in."""
    seconds: float
    """Processor time of the decisions."""
    failure: str | None = None
    """Why there are no runs."""


MATERIALS: dict[bool, list[Material]] = {}
"""By whether the head is in. Filled before the processes are forked."""


def main() -> int:
    asked = _arguments().parse_args()
    missing = harness.no_corpus()
    if missing is not None:
        return harness.skip(missing, as_json=asked.json)
    start = time.monotonic()
    _prepare(QUICK_SAMPLE if asked.quick else asked.conversations)
    setups = _choose_setups(asked)
    skipped = _make_environments(setups)
    outcomes: dict[str, Outcome] = {}
    with ProcessPoolExecutor(asked.jobs, mp_context=get_context("fork")) as pool:
        futures = {
            setup.name: pool.submit(_measure, setup)
            for setup in setups
            if setup.name not in skipped
        }
        for name, future in futures.items():
            if asked.quick and time.monotonic() - start > QUICK_SECONDS and future.cancel():
                skipped[name] = "no time left in a quick run"
                continue
            outcome = future.result()
            if outcome.failure is None:
                outcomes[name] = outcome
            else:
                skipped[name] = outcome.failure
            harness.progress(f"{len(outcomes)} of {len(setups)} setups, the last: {name}")
    report = {**harness.head(), **_build_report(outcomes, skipped)}
    return harness.finish(report, _show, as_json=asked.json)


def _arguments() -> argparse.ArgumentParser:
    arguments = harness.parser(__doc__)
    arguments.add_argument("--conversations", type=int, default=None, help="how many; default all")
    arguments.add_argument("--only", action="append", help="setups whose name holds this text")
    arguments.add_argument("--jobs", type=int, default=None, help="processes; all cores by default")
    return arguments


def _prepare(count: int | None) -> None:
    sample = sample_long(count)
    needs = {one.id: find_needs(one.messages) for one in sample}
    for head in (True, False):
        MATERIALS[head] = [
            Material(one, needs[one.id], learn_scale(one, head=head)) for one in sample
        ]


def _choose_setups(asked: argparse.Namespace) -> list[ReplaySetup | PeerSetup]:
    peers = [
        setup
        for setup in (QUICK if asked.quick else PEERS)
        if not asked.only or any(word in setup.name for word in asked.only)
    ]
    return [*OWN, CHECK, *peers]


def _make_environments(setups: Sequence[ReplaySetup | PeerSetup]) -> dict[str, str]:
    """Create the environments that are missing, and return the setups that have none, with why."""
    absent: dict[str, str] = {}
    failures: dict[str, str] = {}
    for setup in setups:
        name = setup.environment if isinstance(setup, PeerSetup) else None
        if name is None:
            continue
        if name not in failures:
            harness.progress(f"the environment of {name}")
            try:
                envs.make(_find_environment(name))
                failures[name] = ""
            except envs.Absent as failure:
                failures[name] = str(failure)
        if failures[name]:
            absent[setup.name] = failures[name]
    return absent


def _find_environment(name: str) -> envs.Peer:
    return next(peer for peer in envs.PEERS if peer.name == name)


def _measure(setup: ReplaySetup | PeerSetup) -> Outcome:
    outcome = Outcome(runs={}, seconds=0.0)
    try:
        for head, materials in MATERIALS.items():
            if isinstance(setup, ReplaySetup):
                runs, seconds = _replay_own(materials, setup)
            else:
                runs, seconds = _ask_peer(materials, setup)
            outcome.runs[head] = runs
            outcome.seconds += seconds / len(MATERIALS)
    except (envs.Absent, PeerFailed) as failure:
        outcome.failure = str(failure)
    return outcome


def _replay_own(
    materials: Sequence[Material], setup: ReplaySetup
) -> tuple[list[ConversationRun], float]:
    start = time.process_time()
    runs = [
        replay_in_window(material.conversation, setup, RULES, material.needs, material.scale)
        for material in materials
    ]
    # Rendering, hashing, bills and recall are in it: more than is timed of a peer.
    return runs, time.process_time() - start


def _ask_peer(
    materials: Sequence[Material], setup: PeerSetup
) -> tuple[list[ConversationRun], float]:
    python = sys.executable
    if setup.environment is not None:
        python = str(envs.interpreter(_find_environment(setup.environment)))
    runs: list[ConversationRun] = []
    seconds = 0.0
    worker = Worker(python, setup.adapter)
    try:
        for material in materials:
            options = dict(setup.options)
            if setup.environment is None:
                # A model of a server: it counts what really arrives there.
                options["head"] = round(material.head.tokens * material.scale.ratio)
            answers = worker.ask(material.build_job(options))
            seconds += sum(answer[2] for answer in answers)
            is_compaction = setup.adapter == "provider_compaction"
            run = measure.build_run(material, setup.name, answers, RULES, in_provider=is_compaction)
            runs.append(refuse_above_window(run))
    finally:
        worker.close()
    return runs, seconds


def _build_report(outcomes: dict[str, Outcome], skipped: dict[str, str]) -> dict[str, Any]:
    rows = {
        (name, head): {
            row.setup: row
            for row in build_rows(
                [run for outcome in outcomes.values() for run in outcome.runs[head]], provider
            )
        }
        for name, provider in PROVIDERS.items()
        for head in MATERIALS
    }
    conversations = [material.conversation for material in MATERIALS[True]]
    return {
        "sample": {
            "conversations": len(conversations),
            "calls": sum(one.calls for one in conversations),
        },
        "rows": [
            {
                **rows["Anthropic", True][name].to_json(),
                "version": _find_version(name),
                "openai_cost": rows["OpenAI", True][name].cost,
                "openai_saved": rows["OpenAI", True][name].saved,
                "ms": round(1_000 * outcome.seconds / rows["Anthropic", True][name].calls, 1),
                "without_head": rows["Anthropic", False][name].to_json(),
            }
            for name, outcome in outcomes.items()
            if name != CHECK.name
        ],
        "undominated_peers": list_undominated(list(rows["Anthropic", True].values())),
        "skipped": skipped,
        "broken": [
            line for (provider, _), own in rows.items() for line in _compare_ways(own, provider)
        ],
    }


def list_undominated(rows: Sequence[Row]) -> list[str]:
    """Return the peers that save something and that no point of our dial beats in everything: cost
    and each of the three needs."""
    dial = [row for row in rows if row.setup.startswith(DIAL_PREFIX)]
    others = {EVERYTHING, CHECK.name, *(row.setup for row in dial)}
    return [
        peer.setup
        for peer in rows
        if peer.setup not in others
        and peer.saved > 0
        and not any(
            own.saved > peer.saved
            and own.far >= peer.far
            and own.hidden_edits <= peer.hidden_edits
            and own.far_4grams >= peer.far_4grams
            for own in dial
        )
    ]


def _compare_ways(rows: dict[str, Row], provider: str) -> list[str]:
    """Both ways of measuring must agree on the same requests."""
    ours, theirs = rows[EVERYTHING].cost, rows[CHECK.name].cost
    if abs(ours / theirs - 1) <= TOLERANCE:
        return []
    return [f"{provider}: everything costs {ours:,} our way, {theirs:,} the peers' way"]


def _find_version(name: str) -> str:
    setup = next((one for one in PEERS if one.name == name), None)
    if setup is None:
        return ""
    if setup.environment is None:
        return "documented rule, replayed"
    peer = _find_environment(setup.environment)
    package = "langchain-core" if "trim_messages" in name else peer.package
    return envs.versions(peer)[package]


def _show(report: dict[str, Any]) -> None:
    lines = [
        [
            *(row["setup"], row["version"], row["tokens"], row["cost"], f"{row['saved']:.1%}"),
            *(row["openai_cost"], row["recall"], row["far"]),
            *(row["hidden_edits"], row["far_4grams"], row["tool"], f"{row['breaks']:.1%}"),
            *(row["summaries"], row["refused"], row["ms"]),
            *(row["without_head"]["cost"], row["without_head"]["far"]),
        ]
        for row in report["rows"]
    ]
    print(harness.table(COLUMNS, lines))
    print(f"undominated peers: {', '.join(report['undominated_peers']) or 'none'}")
    for name, why in report["skipped"].items():
        print(f"skipped: {name}: {why}")


if __name__ == "__main__":
    sys.exit(main())
