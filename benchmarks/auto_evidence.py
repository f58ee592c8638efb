"""What `auto` saves and what it keeps visible, on conversations that had no part in tuning it.

Held-out half: conversations whose id's SHA-256 is odd. Claude Code conversations of 25 calls or
more (short ones apart), 200k window, our own token estimate of the model's tokenizer. Costs are in
fresh input tokens a call, output and summary calls included; ratios are sums over conversations
with a 95 % bootstrap interval. `layered` is billed with marks at the head and the last block alone
(naive), and with the frontier mark. Under `auto` no model writes summaries unless it is said: what
is billed for one there is an assumption. `model` are setups in which one does, with the sizes that
such summaries have: see trimtab/replay/runner.py. Definitions: references.py, billing.py and
setup_costs.py there.

`full_edits_per_100_calls` are calls before which something was hidden under `full`.
`full_over_everything` is what `full` costs, relative to sending everything, over the calls whose
whole history is within the window. The provider refuses the others.
"""

from __future__ import annotations

import argparse
import random
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

from benchmarks.harness import finish, head, no_corpus, parser, progress, skip
from benchmarks.optimum import over_optimum
from benchmarks.orders import order_gain
from benchmarks.recorded import held_out
from trimtab.engine.policy.auto import build_auto_policy
from trimtab.engine.policy.config import parse_policy_config
from trimtab.models.catalog import resolve_model_info
from trimtab.replay.billing import build_cache_rules
from trimtab.replay.references import find_earlier_references
from trimtab.replay.runner import ReplayedCall, ReplaySetup, replay_conversation
from trimtab.replay.selection import RecordedConversation
from trimtab.replay.setup_costs import compute_call_cost_in_input_tokens, compute_refetch_cost

WINDOW_TOKENS = 200_000
WINDOW = {"context_window": WINDOW_TOKENS}
BY_MODEL = {"summaries": "manual", "limits": {"summary": {"price": 1 / 3}}}
"""A model writes the summaries, at a third of the price."""
CLAUDE, GPT = "claude-sonnet-4-5", "gpt-5.2"
ANTHROPIC, OPENAI = (
    build_cache_rules(resolve_model_info(CLAUDE)),
    build_cache_rules(resolve_model_info(GPT)),
)
PROVIDERS = {"anthropic": ANTHROPIC, "openai": OPENAI}
SETUPS = (
    ReplaySetup(name="full", model=CLAUDE, options={"policy": "full", **WINDOW}),
    ReplaySetup(
        name="layered naive",
        model=CLAUDE,
        options={"policy": "layered", **WINDOW},
        naive_marks=True,
    ),
    ReplaySetup(name="layered", model=CLAUDE, options={"policy": "layered", **WINDOW}),
    ReplaySetup(
        name="auto cost", model=CLAUDE, options={"policy": "auto", "goal": "cost", **WINDOW}
    ),
    ReplaySetup(name="auto balanced", model=CLAUDE, options={"policy": "auto", **WINDOW}),
    ReplaySetup(
        name="auto quality", model=CLAUDE, options={"policy": "auto", "goal": "quality", **WINDOW}
    ),
    ReplaySetup(
        name="auto cost, model",
        model=CLAUDE,
        options={"policy": "auto", "goal": "cost", **WINDOW, **BY_MODEL},
    ),
    ReplaySetup(
        name="auto balanced, model", model=CLAUDE, options={"policy": "auto", **WINDOW, **BY_MODEL}
    ),
    ReplaySetup(
        name="rolling, model", model=CLAUDE, options={"policy": "rolling", **WINDOW, **BY_MODEL}
    ),
    ReplaySetup(
        name="thresholds, model",
        model=CLAUDE,
        options={"policy": "thresholds", **WINDOW, **BY_MODEL},
    ),
    ReplaySetup(name="rolling", model=CLAUDE, options={"policy": "rolling", **WINDOW}),
    # Placeholders of `auto` name words of what they hide, and recall counts them as visible. These
    # two show what is left without. They are policies of our own, which keep no list of the user's
    # messages.
    ReplaySetup(
        name="auto cost, no names",
        model=CLAUDE,
        options={
            "policy": build_auto_policy(parse_policy_config({}), "cost", max_names=0),
            **WINDOW,
        },
    ),
    ReplaySetup(
        name="auto balanced, no names",
        model=CLAUDE,
        options={"policy": build_auto_policy(parse_policy_config({}), max_names=0), **WINDOW},
    ),
    ReplaySetup(name="layered gpt", model=GPT, options={"policy": "layered", **WINDOW}),
    ReplaySetup(
        name="auto cost gpt", model=GPT, options={"policy": "auto", "goal": "cost", **WINDOW}
    ),
)
EVERYTHING = ReplaySetup(
    name="everything",
    model=CLAUDE,
    options={"policy": "full", "context_window": 100 * WINDOW_TOKENS},
)
"""Without a limit `full` hides nothing."""
ACCEPTED = {"full": "full, accepted", "everything": "everything, accepted"}
"""Names of what these setups cost over the calls that are accepted if everything is sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """One conversation under one setup."""

    calls: int
    edited: int
    anthropic: float
    openai: float
    refetch: float
    tokens: int
    read: int
    needs: int
    seen: int
    far: int
    far_seen: int
    tool: int
    tool_seen: int


def sums(conversation: RecordedConversation) -> dict[str, Sums]:
    wanted = find_earlier_references(conversation.messages)
    runs = {
        setup.name: replay_conversation(conversation, setup, PROVIDERS, wanted).calls
        for setup in (*SETUPS, EVERYTHING)
    }
    accepted = {call.index for call in runs["everything"] if call.tokens <= WINDOW_TOKENS}
    runs |= {
        name: tuple(call for call in runs[setup] if call.index in accepted)
        for setup, name in ACCEPTED.items()
    }
    return {name: _sum(calls) for name, calls in runs.items()}


def _sum(calls: tuple[ReplayedCall, ...]) -> Sums:
    def total(name: str) -> int:
        return sum(getattr(call, name) for call in calls)

    anthropic = sum(
        compute_call_cost_in_input_tokens(call, "anthropic", ANTHROPIC) for call in calls
    )
    return Sums(
        calls=len(calls),
        edited=sum(call.edits > 0 for call in calls),
        anthropic=anthropic,
        openai=sum(compute_call_cost_in_input_tokens(call, "openai", OPENAI) for call in calls),
        refetch=anthropic + sum(compute_refetch_cost(call, ANTHROPIC) for call in calls),
        tokens=total("tokens"),
        read=sum(call.bill["anthropic"].read for call in calls),
        **{name: total(name) for name in ("needs", "seen", "far", "far_seen", "tool", "tool_seen")},
    )


Table = list[dict[str, Sums]]


def ratio(table: Table, dear: str, cheap: str, field: str = "anthropic") -> dict[str, Any]:
    """How many times cheaper, with a 95 % interval over conversations."""
    pairs = [(getattr(row[dear], field), getattr(row[cheap], field)) for row in table]
    pick = random.Random(7)  # noqa: S311  not for secrets
    drawn: list[float] = []
    for _ in range(1_000):
        sample = pick.choices(pairs, k=len(pairs))
        drawn.append(sum(a for a, _ in sample) / sum(b for _, b in sample))
    drawn.sort()
    point = sum(a for a, _ in pairs) / sum(b for _, b in pairs)
    return {"ratio": round(point, 3), "interval": [round(drawn[25], 3), round(drawn[974], 3)]}


def recall(table: Table, setup: str) -> dict[str, float]:
    def share(seen: str, all_: str) -> float:
        total = sum(getattr(row[setup], all_) for row in table)
        return round(sum(getattr(row[setup], seen) for row in table) / max(1, total), 4)

    return {
        "all": share("seen", "needs"),
        "far": share("far_seen", "far"),
        "tool": share("tool_seen", "tool"),
    }


def rows(table: Table) -> list[dict[str, Any]]:
    shown: list[dict[str, Any]] = []
    for setup in SETUPS:
        of = [row[setup.name] for row in table]
        calls = sum(s.calls for s in of)
        shown.append(
            {
                "setup": setup.name,
                "calls": calls,
                "anthropic": round(sum(s.anthropic for s in of) / calls),
                "openai": round(sum(s.openai for s in of) / calls),
                "refetch": round(sum(s.refetch for s in of) / calls),
                "hit": round(sum(s.read for s in of) / sum(s.tokens for s in of), 3),
                "tokens": round(sum(s.tokens for s in of) / calls),
                **recall(table, setup.name),
            }
        )
    return shown


def figures(table: Table, short: Table) -> dict[str, Any]:
    long = [row for row in table if row["full"].calls >= 100]
    balanced = recall(table, "auto balanced")
    full = [row["full"] for row in table]
    return {
        "full_edits_per_100_calls": round(
            100 * sum(one.edited for one in full) / sum(one.calls for one in full), 2
        ),
        "full_over_everything": ratio(table, *ACCEPTED.values())["ratio"],
        "cost_ratio_layered_anthropic": ratio(table, "layered naive", "auto cost"),
        "cost_ratio_layered_frontier": ratio(table, "layered", "auto cost"),
        "cost_ratio_full_anthropic": ratio(table, "full", "auto cost"),
        "cost_ratio_full_long": ratio(long, "full", "auto cost") if long else None,
        "cost_ratio_layered_openai": ratio(table, "layered gpt", "auto cost gpt", "openai"),
        "cost_recall": recall(table, "auto cost"),
        "layered_recall": recall(table, "layered"),
        "balanced_ratio_full": ratio(table, "full", "auto balanced"),
        "balanced_refetch_ratio_full": ratio(table, "full", "auto balanced", "refetch"),
        "model_cost_ratio_full": ratio(table, "full", "auto cost, model"),
        "model_balanced_ratio_full": ratio(table, "full", "auto balanced, model"),
        "rolling_ratio_full": ratio(table, "full", "rolling, model"),
        "thresholds_ratio_full": ratio(table, "full", "thresholds, model"),
        "balanced_recall": balanced["all"],
        "balanced_recall_far": balanced["far"],
        "balanced_recall_tool": balanced["tool"],
        "balanced_recall_no_names": recall(table, "auto balanced, no names"),
        "cost_recall_no_names": recall(table, "auto cost, no names"),
        "short_overhead": ratio(short, "auto balanced", "full") if short else None,
    }


def main() -> int:
    asked = _arguments().parse_args()
    if why := no_corpus():
        return skip(why, as_json=asked.json)
    every = held_out()
    work = [c for c in every if c.calls >= 25]
    brief = [c for c in every if 1 <= c.calls < 30]
    if asked.quick:
        work, brief = work[::8], brief[::8]
    with ProcessPoolExecutor(asked.jobs) as pool:
        table: Table = []
        for done, row in enumerate(pool.map(sums, work), 1):
            table.append(row)
            progress(f"{done} of {len(work)} conversations")
        short = list(pool.map(sums, brief))
    report = {
        **head(),
        "sample": f"{len(work)} conversations of 25 calls or more, {len(brief)} under 30",
        "rows": rows(table),
        **figures(table, short),
        "over_optimum": over_optimum(work),
        **order_gain(work),
    }
    return finish(report, as_json=asked.json)


def _arguments() -> argparse.ArgumentParser:
    made = parser(__doc__)
    made.add_argument("--jobs", type=int, default=None, help="processes; all cores by default")
    return made


if __name__ == "__main__":
    sys.exit(main())
