"""Runs added up by setup: what each costs, what it still shows, and how sure that is."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from trimtab.replay.costs import cost, refetch
from trimtab.replay.providers import Provider
from trimtab.replay.run import CallRecord, Run

RESAMPLES = 1_000
SEED = 20_25
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """One setup at one provider; costs in fresh input tokens per call."""

    cost: float
    """Input, output and modelled summary calls."""
    with_refetch: float
    """The same, and every lost reference fetched again."""
    cache_hit: float
    """Share of all input that was read from the cache."""
    uncached: float
    """Input tokens per call that were not read from the cache: what a first token waits for."""
    dollars: float | None
    """US dollars per 1,000 calls, without re-fetches; None where a price is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """How many times cheaper a setup is than the first one, cost per call against cost per call."""

    value: float
    """Over all conversations."""
    low: float
    """Lower end of the 95 % interval, conversations resampled."""
    high: float
    """Upper end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    setup: str
    """Its name."""
    calls: int
    """That were made."""
    cannot_fit: int
    """That no edit could make fit."""
    tokens: float
    """Input per call."""
    edits: float
    """Per call."""
    breaks: float
    """Calls whose prompt did not extend the last one, as a share of all."""
    summaries: int
    """Calls before which something was summarised."""
    recall: float | None
    """Share of references that are visible; None where there were none."""
    far: float | None
    """Of those last mentioned more than ten messages before."""
    tool: float | None
    """Of those that only tool results ever held."""
    prices: dict[str, Priced]
    """By provider."""
    cheaper: dict[str, Ratio]
    """By provider: against the first setup, without re-fetches."""
    cheaper_with_refetch: dict[str, Ratio]
    """By provider: against the first setup, with re-fetches."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sums:
    """One conversation under one setup, in numbers that may be added."""

    calls: int
    """Made."""
    costs: tuple[float, ...]
    """By provider, without re-fetches; then by provider, with them."""


def table(runs: Iterable[Run], providers: Sequence[Provider]) -> list[Row]:
    """One row for each setup, in the order they first appear."""
    by_setup: dict[str, list[Run]] = {}
    for run in runs:
        by_setup.setdefault(run.setup, []).append(run)
    sums = {setup: _sums(found, providers) for setup, found in by_setup.items()}
    samples = _samples([name for name, found in sums.items() if found], sums)
    return [_row(setup, found, providers, samples) for setup, found in by_setup.items()]


def _sums(runs: Sequence[Run], providers: Sequence[Provider]) -> dict[str, _Sums]:
    return {run.conversation: _sum(run.calls, providers) for run in runs}


def _sum(calls: Sequence[CallRecord], providers: Sequence[Provider]) -> _Sums:
    plain = [sum(cost(call, p.name, p.rules) for call in calls) for p in providers]
    again = [sum(refetch(call, p.rules) for call in calls) for p in providers]
    both = (one + other for one, other in zip(plain, again, strict=True))
    return _Sums(calls=len(calls), costs=(*plain, *both))


def _row(
    setup: str,
    runs: Sequence[Run],
    providers: Sequence[Provider],
    samples: dict[str, list[Ratio]],
) -> Row:
    calls = [call for run in runs for call in run.calls]
    count = max(1, len(calls))
    ratios, width = samples.get(setup, []), len(providers)
    names = [provider.name for provider in providers]
    return Row(
        setup=setup,
        calls=len(calls),
        cannot_fit=sum(run.cannot_fit for run in runs),
        tokens=sum(call.tokens for call in calls) / count,
        edits=sum(call.edits for call in calls) / count,
        breaks=sum(call.broke for call in calls) / count,
        summaries=sum(call.summarised > 0 for call in calls),
        recall=_share(sum(c.seen for c in calls), sum(c.needs for c in calls)),
        far=_share(sum(c.far_seen for c in calls), sum(c.far for c in calls)),
        tool=_share(sum(c.tool_seen for c in calls), sum(c.tool for c in calls)),
        prices={provider.name: _priced(calls, provider) for provider in providers},
        cheaper=dict(zip(names, ratios[:width], strict=False)),
        cheaper_with_refetch=dict(zip(names, ratios[width:], strict=False)),
    )


def _priced(calls: Sequence[CallRecord], provider: Provider) -> Priced:
    count = max(1, len(calls))
    rules = provider.rules
    spent = sum(cost(call, provider.name, rules) for call in calls)
    again = sum(refetch(call, rules) for call in calls)
    read = sum(call.bill[provider.name].read for call in calls)
    tokens = sum(call.tokens for call in calls)
    return Priced(
        cost=spent / count,
        with_refetch=(spent + again) / count,
        cache_hit=read / tokens if tokens else 0.0,
        uncached=(tokens - read) / count,
        dollars=None if provider.price is None else spent / count * provider.price / 1_000,
    )


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _samples(setups: Sequence[str], sums: dict[str, dict[str, _Sums]]) -> dict[str, list[Ratio]]:
    """For each setup but the first: its ratios to the first, conversations drawn anew each time."""
    if len(setups) < 2:
        return {}
    base = sums[setups[0]]
    out: dict[str, list[Ratio]] = {}
    for setup in setups[1:]:
        shared = [name for name in base if name in sums[setup]]
        pairs = [(base[name], sums[setup][name]) for name in shared]
        # The same draws for every setup: rows can be compared with one another.
        rng = random.Random(SEED)  # noqa: S311 - no secret, and it must repeat
        draws = [rng.choices(range(len(pairs)), k=len(pairs)) for _ in range(RESAMPLES)]
        out[setup] = _ratios(pairs, draws)
    return out


def _ratios(pairs: Sequence[tuple[_Sums, _Sums]], draws: Sequence[Sequence[int]]) -> list[Ratio]:
    if not pairs:
        return []
    calls = ([one.calls for one, _ in pairs], [other.calls for _, other in pairs])
    found: list[Ratio] = []
    for column in range(len(pairs[0][0].costs)):
        costs = ([a.costs[column] for a, _ in pairs], [b.costs[column] for _, b in pairs])
        drawn = sorted(_ratio(costs, calls, draw) for draw in draws)
        edge = int(len(drawn) * (1 - CONFIDENCE) / 2)
        value = _ratio(costs, calls, range(len(pairs)))
        found.append(Ratio(value=value, low=drawn[edge], high=drawn[-1 - edge]))
    return found


def _ratio(
    costs: tuple[list[float], list[float]], calls: tuple[list[int], list[int]], draw: Sequence[int]
) -> float:
    """Cost per call of the first over that of the second, of the drawn conversations."""
    one, other = (
        sum(map(spent.__getitem__, draw)) / max(1, sum(map(made.__getitem__, draw)))
        for spent, made in zip(costs, calls, strict=True)
    )
    return one / other if other else 0.0
