"""Other libraries' context management on the same recorded conversations, under the same rules.

    python -m benchmarks.peers.run            # 40 conversations
    python -m benchmarks.peers.run --quick    # a few, within a minute

Claude Code conversations of 25 calls or more whose id's SHA-256 is odd, the first in the order of
that hash. Each peer works in an environment of its own (envs.py) and says for each call what it
would send; bills, recall and table are those of `trimtab.replay`. Costs are in fresh input tokens a
call, replies and summary calls included. The replay is open-loop: no model reacts to what is
hidden.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.peers import envs, measure, plot
from benchmarks.peers.measure import NAIVE, Material, PeerFailed, Told, Worker
from benchmarks.peers.setups import CHECK, OWN, PEERS, QUICK, PeerSetup
from benchmarks.recorded import held_out
from trimtab.replay.billing import ProviderPricing, list_billed_providers
from trimtab.replay.references import find_earlier_references
from trimtab.replay.runner import ConversationRun, ReplaySetup, replay_conversation
from trimtab.replay.selection import RecordedConversation
from trimtab.replay.setup_costs import (
    SetupResult,
    compute_call_cost_in_input_tokens,
    summarise_runs_by_setup,
)

CALLS = 25
SAMPLE, QUICK_SAMPLE = 40, 2
QUICK_SECONDS = 40.0
"""After which the quick run begins no further peer."""
TOLERANCE = 0.02
"""Share by which our two ways to measure the same requests may differ."""
COLUMNS = [
    *"setup version tokens Anthropic naive OpenAI none refetch".split(),
    *"hit% recall far tool breaks% summaries refused ms".split(),
]


def main() -> None:
    asked = _arguments()
    why = harness.no_corpus()
    if why is not None:
        sys.exit(harness.skip(why, as_json=asked.json))
    begun = time.monotonic()
    sample = _sample(QUICK_SAMPLE if asked.quick else asked.conversations)
    materials = [Material(one, find_earlier_references(one.messages)) for one in sample]
    providers = _providers()
    runs, told = _own(materials, OWN[:1] if asked.only else OWN, providers)
    skipped: dict[str, str] = {}
    for setup in (CHECK, *PEERS):
        if asked.only and not any(word in setup.name for word in asked.only):
            continue
        if asked.quick and time.monotonic() - begun > QUICK_SECONDS:
            skipped[setup.name] = "no time left in a quick run"
            continue
        if asked.quick and setup not in (CHECK, *QUICK):
            skipped[setup.name] = "not in a quick run"
            continue
        try:
            done, told[setup.name] = _peer(materials, setup, providers)
        except (envs.Absent, PeerFailed) as absent:
            skipped[setup.name] = str(absent)
            continue
        runs += done
    rest = {"skipped": skipped, "broken": _broken(runs, providers)}
    _finish(asked, sample, summarise_runs_by_setup(runs, providers), told, rest)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="a smaller sample, within a minute")
    parser.add_argument("--conversations", type=int, default=SAMPLE, help="how many")
    parser.add_argument("--only", action="append", help="setups whose name holds this text")
    parser.add_argument("--svg", type=Path, help="also draw cost against far recall")
    return parser.parse_args()


def _sample(count: int) -> list[RecordedConversation]:
    found = [one for one in held_out() if one.calls >= CALLS]
    return sorted(found, key=lambda one: hashlib.sha256(one.id.encode()).digest())[:count]


def _providers() -> list[ProviderPricing]:
    first, *others = list_billed_providers(measure.MODEL)
    return [first, replace(first, name=NAIVE), *others]


def _own(
    materials: Sequence[Material],
    setups: Sequence[ReplaySetup],
    providers: Sequence[ProviderPricing],
) -> tuple[list[ConversationRun], dict[str, Told]]:
    rules = {provider.name: provider.rules for provider in providers}
    runs: list[ConversationRun] = []
    told: dict[str, Told] = {}
    for setup in setups:
        naive = replace(setup, naive_marks=True)
        told[setup.name] = Told()
        for material in materials:
            one, wanted = material.conversation, material.needs
            run = replay_conversation(one, setup, rules, wanted)
            told[setup.name].refused += run.cannot_fit
            begun = time.process_time()
            marked = replay_conversation(one, naive, {NAIVE: rules[NAIVE]}, {})
            # Rendering, hashing and one cache's bill are in it: more than is timed of a peer.
            told[setup.name].seconds += time.process_time() - begun
            runs.append(_with_naive(run, marked))
            harness.progress(f"{setup.name}: {one.id}")
    return runs, told


def _with_naive(run: ConversationRun, naive: ConversationRun) -> ConversationRun:
    """The run with the bill for naive marks taken from a run that had them."""
    calls = tuple(
        replace(call, bill={**call.bill, NAIVE: other.bill[NAIVE]})
        for call, other in zip(run.calls, naive.calls, strict=True)
    )
    return replace(run, calls=calls)


def _peer(
    materials: Sequence[Material], setup: PeerSetup, providers: Sequence[ProviderPricing]
) -> tuple[list[ConversationRun], Told]:
    python = sys.executable
    if setup.environment is not None:
        python = str(envs.interpreter(_environment(setup.environment)))
    rules = {provider.name: provider.rules for provider in providers}
    told, runs = Told(), list[ConversationRun]()
    worker = Worker(python, setup.adapter)
    try:
        for material in materials:
            answers = worker.ask(material.job(setup.options))
            runs.append(measure.run_of(material, setup.name, answers, rules, told))
            harness.progress(f"{setup.name}: {material.conversation.id}")
    finally:
        worker.close()
    return runs, told


def _environment(name: str) -> envs.Peer:
    return next(peer for peer in envs.PEERS if peer.name == name)


def _versions() -> dict[str, str]:
    """By setup: the package and its version."""
    found: dict[str, str] = {}
    for setup in PEERS:
        if setup.environment is None:
            found[setup.name] = "as documented"
            continue
        peer = _environment(setup.environment)
        try:
            envs.interpreter(peer)
        except envs.Absent:
            continue
        package = "langchain-core" if "trim_messages" in setup.name else peer.package
        found[setup.name] = envs.versions(peer)[package]
    return found


def _finish(
    asked: argparse.Namespace,
    sample: Sequence[RecordedConversation],
    rows: Sequence[SetupResult],
    told: dict[str, Told],
    rest: dict[str, Any],
) -> None:
    versions = _versions()
    report: dict[str, Any] = {
        "command": " ".join(["python -m benchmarks.peers.run", *sys.argv[1:]]),
        "sample": {
            "conversations": len(sample),
            "calls": sum(one.calls for one in sample),
            "of": "Claude Code, held-out half, 25 calls or more",
        },
        "rows": [
            {
                **row.to_json(),
                "version": versions.get(row.setup, ""),
                "refused": told[row.setup].refused,
                "ms": told[row.setup].seconds / max(1, row.calls) * 1_000,
            }
            for row in rows
        ],
        **rest,
    }
    if asked.svg is not None:
        asked.svg.write_text(
            plot.svg([row for row in rows if row.setup != CHECK.name]), encoding="utf-8"
        )
    if asked.json:
        print(json.dumps(report, indent=1))
    else:
        _show(report, rows)
    sys.exit(1 if rest["broken"] else 0)


def _broken(runs: Sequence[ConversationRun], providers: Sequence[ProviderPricing]) -> list[str]:
    """Our own replay and the peers' way must agree on the same requests: where `full` hid nothing,
    it sent what keeping everything sends."""
    whole = {
        run.conversation: run
        for run in runs
        if run.setup == OWN[0].name and not any(call.edits for call in run.calls)
    }
    both = [
        (whole[r.conversation], r)
        for r in runs
        if r.setup == CHECK.name and r.conversation in whole
    ]
    found: list[str] = []
    for provider in providers:
        ours, theirs = (
            sum(
                compute_call_cost_in_input_tokens(call, provider.name, provider.rules)
                for run in side
                for call in run.calls
            )
            for side in ([one for one, _ in both], [other for _, other in both])
        )
        if theirs and abs(ours / theirs - 1) > TOLERANCE:
            found.append(f"{provider.name}: full costs {ours:,.0f} our way, {theirs:,.0f} theirs")
    return found


def _show(report: dict[str, Any], rows: Sequence[SetupResult]) -> None:
    print(report["command"])
    print(", ".join(f"{key}: {value}" for key, value in report["sample"].items()))
    lines = [
        _cells(row, one)
        for row, one in zip(rows, report["rows"], strict=True)
        if row.setup != CHECK.name
    ]
    print(harness.table(COLUMNS, lines))
    for name, why in report["skipped"].items():
        print(f"skipped: {name}: {why}")
    for line in report["broken"]:
        print(f"BROKEN: {line}")


def _cells(row: SetupResult, one: dict[str, Any]) -> list[Any]:
    costs = [round(priced.cost) for priced in row.prices.values()]
    first = next(iter(row.prices.values()))
    seen = [round(first.with_refetch), round(first.cache_hit * 100)]
    shares = [f"{share:.3f}" for share in (row.recall, row.far, row.tool) if share is not None]
    rest = [f"{row.breaks:.1%}", row.summaries, one["refused"], f"{one['ms']:.1f}"]
    return [row.setup, one["version"], round(row.tokens), *costs, *seen, *shares, *rest]


if __name__ == "__main__":
    main()
