"""Recorded Claude Code conversations, replayed as `trimtab replay` does, and the figures of setups.

The window has 200,000 tokens. What its usage says about a conversation is learned as in
`trimtab replay`: the size of system prompt and tools, the provider's tokens for an estimated one,
and when the cache was lost. *Everything* sends the whole conversation in each call. A provider
refuses what exceeds the window: these calls are counted apart.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from benchmarks import corpus
from trimtab.replay.billing import CacheRules, ProviderPricing
from trimtab.replay.prompt_scale import PromptScale
from trimtab.replay.readers import read_recordings
from trimtab.replay.references import EarlierReference
from trimtab.replay.runner import (
    EVERYTHING,
    ConversationRun,
    ReplayedCall,
    ReplaySetup,
    learn_recorded_scale,
    replay_conversation,
)
from trimtab.replay.savings import compute_saved_share, resample_saved_share
from trimtab.replay.selection import RecordedConversation, select_conversations
from trimtab.replay.setup_costs import (
    compute_call_cost_in_input_tokens,
    compute_refetch_cost,
    summarise_runs_by_setup,
)

MODEL = "claude-sonnet-4-5"
WINDOW = 200_000
LONG_CALLS = 25
"""Calls from which on a conversation counts as long."""
SHORT_CALLS = 30
"""Calls below which a conversation is in the sample of short ones."""
BASELINE = ReplaySetup(
    name=EVERYTHING, model=MODEL, options={"policy": EVERYTHING, "context_window": WINDOW}
)


def held_out() -> list[RecordedConversation]:
    """The half of them that had no part in tuning, each up to where its agent itself compacted."""
    folder = corpus.folder()
    paths = sorted(folder.glob("entire_claude_code*.jsonl.gz")) if folder else []
    return select_conversations(
        (one for path in paths for one in read_recordings(path) if one.part == 1), half="odd"
    )


def sample_long(count: int | None = None) -> list[RecordedConversation]:
    """Return long conversations of the held-out half: the first in the order of a hash, or all."""
    long = [one for one in held_out() if one.calls >= LONG_CALLS]
    return sorted(long, key=lambda one: hashlib.sha256(one.id.encode()).digest())[:count]


def learn_scale(conversation: RecordedConversation, *, head: bool = True) -> PromptScale:
    """Return the scale of a conversation; without `head`, system prompt and tools are left out."""
    scale = learn_recorded_scale(conversation, MODEL) or PromptScale()
    return scale if head else replace(scale, head=0, shared=0)


def replay_in_window(
    conversation: RecordedConversation,
    setup: ReplaySetup,
    rules: Mapping[str, CacheRules],
    references: Mapping[int, list[EarlierReference]],
    scale: PromptScale,
) -> ConversationRun:
    """Replay a conversation, and refuse the calls that exceed the window."""
    return refuse_above_window(
        replay_conversation(conversation, setup, rules, references, scale=scale)
    )


def refuse_above_window(run: ConversationRun) -> ConversationRun:
    """Move the calls above the window, and those without any message, to the refused ones."""
    accepted = tuple(call for call in run.calls if 0 < call.tokens <= WINDOW)
    refused = run.cannot_fit + len(run.calls) - len(accepted)
    return replace(run, calls=accepted, cannot_fit=refused)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What one setup costs and shows, compared with sending everything.

    Costs are those of `trimtab replay`: input as the cache bills it, output, summaries, and each
    hidden text that a later call names fetched again.
    """

    setup: str
    """The setup's name."""
    calls: int
    """Calls that were sent."""
    refused: int
    """Calls that did not fit the window."""
    tokens: int
    """Input tokens of a call."""
    cost: int
    """Cost of a call in fresh input tokens, over the calls that everything could send as well."""
    baseline: int
    """Cost of the same calls if everything is sent."""
    saved: float
    """The share of the cost of everything that is saved."""
    low: float
    """Lower end of the 95 % interval, from resampled conversations."""
    high: float
    """Upper end of the interval."""
    cache_hit: float
    """Share of the input that is read from the cache."""
    breaks: float
    """Share of calls whose prompt does not extend the one before."""
    summaries: int
    """Calls before which something was summarised."""
    recall: float
    """Share of references that are visible outside our lists of names."""
    far: float
    """The same for references last mentioned more than ten messages before."""
    tool: float
    """The same for references that only tool results contained."""
    recall_with_lists: float
    """Like `recall`, with the names in our lists."""
    far_with_lists: float
    """Like `far`, with the names in our lists."""
    tool_with_lists: float
    """Like `tool`, with the names in our lists."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def build_rows(runs: Sequence[ConversationRun], provider: ProviderPricing) -> list[Row]:
    """Return one row for each setup. Among the runs are those of everything."""
    by_setup: dict[str, dict[str, ConversationRun]] = {}
    for run in runs:
        by_setup.setdefault(run.setup, {})[run.conversation] = run
    baseline = by_setup[EVERYTHING]
    sums = {row.setup: row for row in summarise_runs_by_setup(runs, [provider])}
    rows: list[Row] = []
    for name, own in by_setup.items():
        row = sums[name]
        shared, pairs = _compare(baseline, own, provider)
        low, high = resample_saved_share(pairs)
        rows.append(
            Row(
                setup=name,
                calls=row.calls,
                refused=row.cannot_fit,
                tokens=round(row.tokens),
                cost=round(sum(after for _, after in pairs) / max(1, shared)),
                baseline=round(sum(before for before, _ in pairs) / max(1, shared)),
                saved=round(compute_saved_share(pairs), 4),
                low=round(low, 4),
                high=round(high, 4),
                cache_hit=round(row.prices[provider.name].cache_hit, 3),
                breaks=round(row.breaks, 4),
                summaries=row.summaries,
                **{
                    share: round(getattr(row, share) or 0.0, 4)
                    for share in (
                        *("recall", "far", "tool"),
                        *("recall_with_lists", "far_with_lists", "tool_with_lists"),
                    )
                },
            )
        )
    return rows


def _compare(
    baseline: Mapping[str, ConversationRun],
    own: Mapping[str, ConversationRun],
    provider: ProviderPricing,
) -> tuple[int, list[tuple[float, float]]]:
    """Return the number of calls that both could send, and both costs of each conversation."""
    count = 0
    pairs: list[tuple[float, float]] = []
    for name, run in own.items():
        before = {call.index: call for call in baseline[name].calls}
        after = {call.index: call for call in run.calls}
        shared = before.keys() & after.keys()
        count += len(shared)
        pairs.append(
            (
                sum(compute_cost(before[index], provider) for index in shared),
                sum(compute_cost(after[index], provider) for index in shared),
            )
        )
    return count, pairs


def compute_cost(call: ReplayedCall, provider: ProviderPricing) -> float:
    """Return the cost of a call in fresh input tokens, hidden texts fetched again included."""
    rules = provider.rules
    spent = compute_call_cost_in_input_tokens(call, provider.name, rules)
    return spent + compute_refetch_cost(call, rules)
