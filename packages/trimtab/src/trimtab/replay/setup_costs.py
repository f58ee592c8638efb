"""Compute the cost of one call, in fresh input tokens of the main model.

- *input*: tokens read from the cache, written to it and all others, each at its price;
- *output*: the recorded reply, at the price of output;
- *summary*: if a policy summarised before the call, a summariser read the summarised messages and
  wrote 400 tokens, or the known number, at a third of the main model's prices;
- *re-fetch*: if the reply refers to something hidden, its message is fetched again and written to
  the cache, in one more call that reads the prompt and writes 100 tokens.

Add up runs by setup: the cost of each, its recall, and the confidence interval.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from trimtab.replay.billing import CacheRules, ProviderPricing
from trimtab.replay.needs import sum_need_counts
from trimtab.replay.runner import ConversationRun, ReplayedCall

SUMMARY_OUTPUT_TOKENS = 400
"""Tokens of a modelled summary."""
SUMMARISER_PRICE_RATIO = 1 / 3
"""The summariser's price relative to the main model."""
REFETCH_OUTPUT_TOKENS = 100
"""Output tokens of the modelled call that fetches a lost text again."""


def compute_call_cost_in_input_tokens(
    call: ReplayedCall, provider_name: str, cache_rules: CacheRules
) -> float:
    """Return the cost of a call as it was made: input, output and summary."""
    spent = call.bill[provider_name].cost(cache_rules) + call.output * cache_rules.output
    if call.summarised:
        written = SUMMARY_OUTPUT_TOKENS if call.written is None else call.written
        spent += (call.summarised + written * cache_rules.output) * SUMMARISER_PRICE_RATIO
    return spent


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


def compute_refetch_cost(call: ReplayedCall, cache_rules: CacheRules) -> float:
    """Return the cost of fetching what the call refers to but no longer sees, or 0."""
    if call.needs.shows_every_reference:
        return 0.0
    again = cache_rules.read * call.tokens + REFETCH_OUTPUT_TOKENS * cache_rules.output
    return cache_rules.write * call.missing + again


BOOTSTRAP_RESAMPLES = 1_000
BOOTSTRAP_SEED = 20_25
CONFIDENCE_LEVEL = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupCostAtProvider:
    """The cost of one setup at one provider, in fresh input tokens per call."""

    cost: float
    """Input, output and modelled summary calls."""
    with_refetch: float
    """The same, if every lost reference is fetched again."""
    cache_hit: float
    """Share of all input that was read from the cache."""
    uncached: float
    """Input tokens per call that were not read from the cache. They delay the first token."""
    dollars: float | None
    """US dollars per 1,000 calls, without re-fetches. None if a price is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimesCheaper:
    """How many times cheaper a setup is than the first one, by cost per call."""

    value: float
    """The ratio over all conversations."""
    low: float
    """Lower end of the 95 % interval, from resampled conversations."""
    high: float
    """Upper end of the interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupResult:
    """The results of one setup over all conversations."""

    setup: str
    """The setup's name."""
    calls: int
    """Number of calls made."""
    cannot_fit: int
    """Number of calls that no edit could make fit."""
    tokens: float
    """Input tokens per call."""
    edits: float
    """Edits per call."""
    breaks: float
    """Share of calls whose prompt did not extend the previous one."""
    summaries: int
    """Number of calls before which something was summarised."""
    recall: float | None
    """Share of references that are visible outside lists of names. None if there were none."""
    far: float | None
    """The same for references last mentioned more than ten messages before."""
    tool: float | None
    """The same for references that only tool results ever contained."""
    recall_with_lists: float | None
    """Like `recall`, but names that only a list of names shows count as visible."""
    far_with_lists: float | None
    """The same for far references."""
    tool_with_lists: float | None
    """The same for tool-only references."""
    hidden_edits: float | None
    """Share of the edits that quote an old text whose quote cannot be read in the request. None if
    there were none."""
    far_4grams: float | None
    """Share of the far 4-grams that are visible. None if there were none."""
    prices: dict[str, SetupCostAtProvider]
    """Costs by provider."""
    cheaper: dict[str, TimesCheaper]
    """How much cheaper than the first setup, by provider, without re-fetches."""
    cheaper_with_refetch: dict[str, TimesCheaper]
    """How much cheaper than the first setup, by provider, with re-fetches."""

    def to_json(self) -> dict[str, Any]:
        """Convert to plain JSON values."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ConversationSums:
    """One conversation under one setup, in numbers that can be added."""

    calls: int
    """Number of calls made."""
    costs: tuple[float, ...]
    """Costs by provider without re-fetches, then by provider with them."""


def summarise_runs_by_setup(
    runs: Iterable[ConversationRun], providers: Sequence[ProviderPricing]
) -> list[SetupResult]:
    """Return one row for each setup, in the order in which they first appear."""
    by_setup: dict[str, list[ConversationRun]] = {}
    for run in runs:
        by_setup.setdefault(run.setup, []).append(run)
    sums = {setup: _sum_by_conversation(found, providers) for setup, found in by_setup.items()}
    samples = _bootstrap_cost_ratios([name for name, found in sums.items() if found], sums)
    return [
        _build_setup_result(setup, found, providers, samples) for setup, found in by_setup.items()
    ]


def _sum_by_conversation(
    runs: Sequence[ConversationRun], providers: Sequence[ProviderPricing]
) -> dict[str, _ConversationSums]:
    return {run.conversation: _sum_calls(run.calls, providers) for run in runs}


def _sum_calls(
    calls: Sequence[ReplayedCall], providers: Sequence[ProviderPricing]
) -> _ConversationSums:
    plain = [
        sum(compute_call_cost_in_input_tokens(call, p.name, p.rules) for call in calls)
        for p in providers
    ]
    again = [sum(compute_refetch_cost(call, p.rules) for call in calls) for p in providers]
    both = (one + other for one, other in zip(plain, again, strict=True))
    return _ConversationSums(calls=len(calls), costs=(*plain, *both))


def _build_setup_result(
    setup: str,
    runs: Sequence[ConversationRun],
    providers: Sequence[ProviderPricing],
    samples: dict[str, list[TimesCheaper]],
) -> SetupResult:
    calls = [call for run in runs for call in run.calls]
    count = max(1, len(calls))
    needs = sum_need_counts(call.needs for call in calls)
    ratios, width = samples.get(setup, []), len(providers)
    names = [provider.name for provider in providers]
    return SetupResult(
        setup=setup,
        calls=len(calls),
        cannot_fit=sum(run.cannot_fit for run in runs),
        tokens=sum(call.tokens for call in calls) / count,
        edits=sum(call.edits for call in calls) / count,
        breaks=sum(call.broke for call in calls) / count,
        summaries=sum(call.summarised > 0 for call in calls),
        recall=share_of(needs.seen, needs.references),
        far=share_of(needs.far_seen, needs.far),
        tool=share_of(needs.tool_seen, needs.tool),
        recall_with_lists=share_of(needs.seen + needs.listed, needs.references),
        far_with_lists=share_of(needs.far_seen + needs.far_listed, needs.far),
        tool_with_lists=share_of(needs.tool_seen + needs.tool_listed, needs.tool),
        hidden_edits=share_of(needs.hidden_edits, needs.quoting_edits),
        far_4grams=share_of(needs.far_4grams_seen, needs.far_4grams),
        prices={provider.name: _compute_provider_cost(calls, provider) for provider in providers},
        cheaper=dict(zip(names, ratios[:width], strict=False)),
        cheaper_with_refetch=dict(zip(names, ratios[width:], strict=False)),
    )


def _compute_provider_cost(
    calls: Sequence[ReplayedCall], provider: ProviderPricing
) -> SetupCostAtProvider:
    count = max(1, len(calls))
    rules = provider.rules
    spent = sum(compute_call_cost_in_input_tokens(call, provider.name, rules) for call in calls)
    again = sum(compute_refetch_cost(call, rules) for call in calls)
    read = sum(call.bill[provider.name].read for call in calls)
    tokens = sum(call.tokens for call in calls)
    return SetupCostAtProvider(
        cost=spent / count,
        with_refetch=(spent + again) / count,
        cache_hit=read / tokens if tokens else 0.0,
        uncached=(tokens - read) / count,
        dollars=None if provider.price is None else spent / count * provider.price / 1_000,
    )


def share_of(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _bootstrap_cost_ratios(
    setups: Sequence[str], sums: dict[str, dict[str, _ConversationSums]]
) -> dict[str, list[TimesCheaper]]:
    """Return the cost ratios of each setup to the first one, with resampled conversations."""
    if len(setups) < 2:
        return {}
    base = sums[setups[0]]
    out: dict[str, list[TimesCheaper]] = {}
    for setup in setups[1:]:
        shared = [name for name in base if name in sums[setup]]
        pairs = [(base[name], sums[setup][name]) for name in shared]
        # The same draws for every setup: rows can be compared with one another.
        rng = random.Random(BOOTSTRAP_SEED)  # noqa: S311 - no secret, and it must repeat
        draws = [rng.choices(range(len(pairs)), k=len(pairs)) for _ in range(BOOTSTRAP_RESAMPLES)]
        out[setup] = _compute_cost_ratios(pairs, draws)
    return out


def _compute_cost_ratios(
    pairs: Sequence[tuple[_ConversationSums, _ConversationSums]], draws: Sequence[Sequence[int]]
) -> list[TimesCheaper]:
    if not pairs:
        return []
    calls = ([one.calls for one, _ in pairs], [other.calls for _, other in pairs])
    found: list[TimesCheaper] = []
    for column in range(len(pairs[0][0].costs)):
        costs = ([a.costs[column] for a, _ in pairs], [b.costs[column] for _, b in pairs])
        drawn = sorted(_cost_ratio(costs, calls, draw) for draw in draws)
        edge = int(len(drawn) * (1 - CONFIDENCE_LEVEL) / 2)
        value = _cost_ratio(costs, calls, range(len(pairs)))
        found.append(TimesCheaper(value=value, low=drawn[edge], high=drawn[-1 - edge]))
    return found


def _cost_ratio(
    costs: tuple[list[float], list[float]], calls: tuple[list[int], list[int]], draw: Sequence[int]
) -> float:
    """Divide the first cost per call by the second, over the drawn conversations."""
    one, other = (
        sum(map(spent.__getitem__, draw)) / max(1, sum(map(made.__getitem__, draw)))
        for spent, made in zip(costs, calls, strict=True)
    )
    return one / other if other else 0.0
