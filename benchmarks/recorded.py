"""Recorded conversations, replayed as `trimtab replay` does, and the figures of setups.

What its usage says about a conversation is learned as in `trimtab replay`: the size of system
prompt and tools, the provider's tokens for an estimated one, and when the cache was lost.
*Everything* sends the whole conversation in each call. A provider refuses what exceeds the window:
these calls are counted apart.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from benchmarks.harness import progress
from benchmarks.samples import CLAUDE_MODEL, WINDOW, Sample, shorten_id
from benchmarks.simulated_summary import add_simulated_summary
from trimtab.replay.billing import CacheRules, ProviderPricing
from trimtab.replay.call_costs import compute_call_cost_in_input_tokens, compute_refetch_cost
from trimtab.replay.calls import EVERYTHING, ConversationRun, ReplayedCall, ReplaySetup
from trimtab.replay.needs import CallNeeds, NeedCounts, find_needs, sum_need_counts
from trimtab.replay.prompt_scale import PromptScale
from trimtab.replay.runner import learn_recorded_scale, replay_conversation
from trimtab.replay.selection import RecordedConversation

BOOTSTRAP_RESAMPLES = 1_000
BOOTSTRAP_SEED = 20_25
CONFIDENCE_LEVEL = 0.95


def make_setup(name: str, sample: Sample | None = None, **options: Any) -> ReplaySetup:
    """Return a setup at the model and in the window of a sample."""
    model = sample.model if sample else CLAUDE_MODEL
    window = sample.window if sample else WINDOW
    by_model = options.get("summaries") == "manual"
    return ReplaySetup(
        name=name,
        model=model,
        options={"context_window": window, **options},
        summarise=add_simulated_summary if by_model else None,
    )


def learn_scale(
    conversation: RecordedConversation, model: str = CLAUDE_MODEL, *, head: bool = True
) -> PromptScale:
    """Return the scale of a conversation; without `head`, system prompt and tools are left out."""
    scale = learn_recorded_scale(conversation, model) or PromptScale()
    return scale if head else replace(scale, head=0, shared=0)


def make_baseline(sample: Sample | None = None) -> ReplaySetup:
    """Return the setup that sends everything."""
    return make_setup(EVERYTHING, sample, policy=EVERYTHING)


def replay_sample(
    pool: Executor, sample: Sample, setups: tuple[ReplaySetup, ...]
) -> list[ConversationRun]:
    """Replay a sample under setups."""
    replay = partial(replay_under_setups, setups=setups, provider=sample.provider)
    runs: list[ConversationRun] = []
    for number, own in enumerate(pool.map(replay, sample.conversations), 1):
        runs += own
        progress(f"{sample.name}: {number} of {len(sample.conversations)} conversations")
    return runs


def replay_under_setups(
    conversation: RecordedConversation, setups: Sequence[ReplaySetup], provider: ProviderPricing
) -> list[ConversationRun]:
    """Replay a conversation under setups for one model, and refuse the calls above the window."""
    needs = find_needs(conversation.messages)
    scale = learn_scale(conversation, setups[0].model)
    rules = {provider.name: provider.rules}
    return [replay_in_window(conversation, setup, rules, needs, scale) for setup in setups]


def replay_in_window(
    conversation: RecordedConversation,
    setup: ReplaySetup,
    rules: Mapping[str, CacheRules],
    needs: Mapping[int, CallNeeds],
    scale: PromptScale,
) -> ConversationRun:
    """Replay a conversation, and refuse the calls that exceed the window."""
    run = replay_conversation(conversation, setup, rules, needs, scale=scale)
    return refuse_above_window(run, setup.options["context_window"])


def refuse_above_window(run: ConversationRun, window: int = WINDOW) -> ConversationRun:
    """Move the calls above the window, and those without any message, to the refused ones."""
    accepted = tuple(call for call in run.calls if 0 < call.tokens <= window)
    refused = run.cannot_fit + len(run.calls) - len(accepted)
    return replace(run, calls=accepted, cannot_fit=refused)


class Sums(NamedTuple):
    """One conversation under one setup, in numbers that can be added."""

    calls: int
    """Calls that both the setup and everything could send."""
    refused: int
    """Calls that the setup could not send."""
    cost: int
    """Cost of the shared calls, in fresh input tokens."""
    baseline: int
    """Cost of the same calls if everything is sent."""
    references: int
    seen: int
    far: int
    far_seen: int
    quoting_edits: int
    hidden_edits: int
    far_4grams: int
    far_4grams_seen: int


SHARES: dict[str, Callable[[Sums], float]] = {
    "saved": lambda total: 1 - total.cost / max(1, total.baseline),
    "recall": lambda total: _divide(total.seen, total.references),
    "far": lambda total: _divide(total.far_seen, total.far),
    "hidden_edits": lambda total: (
        1 - _divide(total.quoting_edits - total.hidden_edits, total.quoting_edits)
    ),
    "far_4grams": lambda total: _divide(total.far_4grams_seen, total.far_4grams),
}
"""What a point of the dial is judged by. Where there is no need, all of it is visible."""


def _divide(part: int, whole: int) -> float:
    return part / whole if whole else 1.0


def sum_runs(
    runs: Sequence[ConversationRun], provider: ProviderPricing
) -> dict[str, dict[str, Sums]]:
    """Return sums by setup and by a hash of the conversation. Among the runs are those of
    everything."""
    everything = {run.conversation: run for run in runs if run.setup == EVERYTHING}
    sums: dict[str, dict[str, Sums]] = {}
    for run in runs:
        baseline = {call.index: call for call in everything[run.conversation].calls}
        shared = [call for call in run.calls if call.index in baseline]
        needs = sum_need_counts(call.needs for call in run.calls)
        sums.setdefault(run.setup, {})[shorten_id(run.conversation)] = Sums(
            calls=len(shared),
            refused=run.cannot_fit,
            cost=round(sum(compute_cost(call, provider) for call in shared)),
            baseline=round(sum(compute_cost(baseline[call.index], provider) for call in shared)),
            **{name: getattr(needs, name) for name in Sums._fields if hasattr(NeedCounts, name)},
        )
    return sums


def add_sums(sums: Iterable[Sums]) -> Sums:
    return Sums(*map(sum, zip(*sums, strict=True)))


def resample(
    count: int, compute_shares: Callable[[Sequence[int]], Mapping[str, float]]
) -> dict[str, list[float]]:
    """Return the 95 % interval of each share, from resampled conversations.

    Args:
        count: The number of conversations.
        compute_shares: Returns the shares over the conversations with these indexes.
    """
    rng = random.Random(BOOTSTRAP_SEED)  # noqa: S311 - no secret, and it must repeat
    draws = [rng.choices(range(count), k=count) for _ in range(BOOTSTRAP_RESAMPLES)]
    samples = [compute_shares(draw) for draw in draws]
    edge = int(len(samples) * (1 - CONFIDENCE_LEVEL) / 2)
    intervals: dict[str, list[float]] = {}
    for name in samples[0]:
        values = sorted(sample[name] for sample in samples)
        intervals[name] = [round(values[edge], 4), round(values[-1 - edge], 4)]
    return intervals


def describe_point(sums: Mapping[str, Sums]) -> dict[str, Any]:
    """Return the shares of one setup with their intervals, and its cost of a call."""
    rows = list(sums.values())
    total = add_sums(rows)
    intervals = resample(len(rows), lambda draw: _compute_shares([rows[i] for i in draw]))
    point: dict[str, Any] = {}
    for name, share in _compute_shares(rows).items():
        point[name] = round(share, 4)
        point[f"{name}_interval"] = intervals[name]
    cost = round(total.cost / max(1, total.calls))
    return {**point, "cost": cost, "refused": total.refused}


def compare_points(sums: Mapping[str, Sums], before: Mapping[str, Sums]) -> dict[str, Any]:
    """Return by how much the shares of one setup exceed those of another, conversation by
    conversation."""
    names = [name for name in sums if name in before]
    if not names:
        return {"conversations": 0}
    pairs = [(sums[name], before[name]) for name in names]
    for now, then in pairs:
        if (now.calls, now.refused) == (then.calls, then.refused) and now[4::2] != then[4::2]:
            raise ValueError("results/auto_today.json counts other needs than this replay does")

    def subtract(draw: Sequence[int]) -> dict[str, float]:
        now, then = zip(*(pairs[index] for index in draw), strict=True)
        shares, earlier_shares = _compute_shares(now), _compute_shares(then)
        return {name: shares[name] - earlier_shares[name] for name in shares}

    intervals = resample(len(pairs), subtract)
    difference: dict[str, Any] = {"conversations": len(pairs)}
    for name, value in subtract(range(len(pairs))).items():
        difference[name] = round(value, 4)
        difference[f"{name}_interval"] = intervals[name]
    return difference


def _compute_shares(rows: Sequence[Sums]) -> dict[str, float]:
    total = add_sums(rows)
    return {name: compute_share(total) for name, compute_share in SHARES.items()}


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
    hidden_edits: float
    """Share of the edits that quote an old text whose quote the request does not show."""
    far_4grams: float
    """Share of the far 4-grams of call arguments that are visible."""
    costs: dict[str, int]
    """What the parts of `cost` come to, by the names of `split_call_cost`."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def build_rows(runs: Sequence[ConversationRun], provider: ProviderPricing) -> list[Row]:
    """Return one row for each setup. Among the runs are those of everything."""
    sums = sum_runs(runs, provider)
    indexes = {
        run.conversation: {call.index for call in run.calls}
        for run in runs
        if run.setup == EVERYTHING
    }
    rows: list[Row] = []
    for setup, own_sums in sums.items():
        point = describe_point(own_sums)
        own = list(own_sums.values())
        shared = max(1, sum(one.calls for one in own))
        own_runs = [run for run in runs if run.setup == setup]
        calls = [call for run in own_runs for call in run.calls]
        count = max(1, len(calls))
        tokens = sum(call.tokens for call in calls)
        read = sum(call.bill[provider.name].read for call in calls)
        needs = sum_need_counts(call.needs for call in calls)
        costs: Counter[str] = Counter()
        for run in own_runs:
            for call in run.calls:
                if call.index in indexes[run.conversation]:
                    costs.update(split_call_cost(call, provider.name, provider.rules))
        rows.append(
            Row(
                setup=setup,
                calls=len(calls),
                refused=sum(run.cannot_fit for run in own_runs),
                tokens=round(tokens / count),
                cost=point["cost"],
                baseline=round(sum(one.baseline for one in own) / shared),
                saved=point["saved"],
                low=point["saved_interval"][0],
                high=point["saved_interval"][1],
                cache_hit=round(read / max(1, tokens), 3),
                breaks=round(sum(call.broke for call in calls) / count, 4),
                summaries=sum(call.summarised > 0 for call in calls),
                recall=_round_share(needs.seen, needs.references),
                far=_round_share(needs.far_seen, needs.far),
                tool=_round_share(needs.tool_seen, needs.tool),
                recall_with_lists=_round_share(needs.seen + needs.listed, needs.references),
                far_with_lists=_round_share(needs.far_seen + needs.far_listed, needs.far),
                tool_with_lists=_round_share(needs.tool_seen + needs.tool_listed, needs.tool),
                hidden_edits=_round_share(needs.hidden_edits, needs.quoting_edits),
                far_4grams=_round_share(needs.far_4grams_seen, needs.far_4grams),
                costs={name: round(cost / shared) for name, cost in costs.items()},
            )
        )
    return rows


def _round_share(part: int, whole: int) -> float:
    """Return a share, or 0 of nothing."""
    return round(part / whole, 4) if whole else 0.0


def split_call_cost(
    call: ReplayedCall, provider_name: str, cache_rules: CacheRules
) -> dict[str, float]:
    """Return what the parts of a call cost, with re-fetches.

    - `head`: system prompt and tools, read, and written if they were not cached;
    - `new_content`: messages that are newer than the call before, written;
    - `reading`: earlier messages, read from the cache;
    - `cold_rewrites`: earlier messages that a pause had taken out of the cache, written again;
    - `edit_rewrites`: earlier messages after an edit, written again;
    - `output`, `summaries` and `fetched_again`.
    """
    bill = call.bill[provider_name]
    unread = bill.total - bill.read
    unread_price = (bill.cost(cache_rules) - bill.read * cache_rules.read) / max(1, unread)
    head_read = min(call.head, bill.read)
    head_written = min(call.head - head_read, unread)
    new = min(call.new, unread - head_written)
    rewritten = unread_price * (unread - head_written - new)
    output = call.output * cache_rules.output
    input_cost = bill.cost(cache_rules)
    return {
        "head": head_read * cache_rules.read + head_written * unread_price,
        "output": output,
        "new_content": new * unread_price,
        "reading": (bill.read - head_read) * cache_rules.read,
        "cold_rewrites": rewritten if call.is_cold else 0.0,
        "edit_rewrites": 0.0 if call.is_cold else rewritten,
        "summaries": compute_call_cost_in_input_tokens(call, provider_name, cache_rules)
        - input_cost
        - output,
        "fetched_again": compute_refetch_cost(call, cache_rules),
    }


def compute_cost(call: ReplayedCall, provider: ProviderPricing) -> float:
    """Return the cost of a call in fresh input tokens, hidden texts fetched again included."""
    return sum(split_call_cost(call, provider.name, provider.rules).values())
