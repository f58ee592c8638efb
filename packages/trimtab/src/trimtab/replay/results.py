"""One comparison: its conversations, setups and results, and how they were measured.

The columns of its table, for the terminal and the report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from trimtab.models.catalog import resolve_model_info
from trimtab.replay.billing import ProviderPricing
from trimtab.replay.runner import ConversationRun, ReplaySetup
from trimtab.replay.selection import RecordedConversation
from trimtab.replay.setup_costs import SetupResult, summarise_runs_by_setup

MIN_CONVERSATIONS_AND_CALLS = (3, 30)
"""With fewer conversations, or fewer calls in each on average, a comparison proves little."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayStudy:
    """The results of all setups over the same conversations."""

    conversations: tuple[RecordedConversation, ...]
    """The conversations that were replayed."""
    setups: tuple[ReplaySetup, ...]
    """The setups. The others are compared with the first one."""
    runs: tuple[ConversationRun, ...]
    """Each conversation under each setup."""
    providers: tuple[ProviderPricing, ...]
    """The providers whose caches billed the runs. The first is the model's own."""
    rows: tuple[SetupResult, ...]
    """The runs added up, one row for each setup."""

    @property
    def model(self) -> str:
        return self.setups[0].model

    @property
    def window(self) -> int:
        """Size of the window in tokens, input and output together."""
        entry = resolve_model_info(self.model)
        return int(self.setups[0].options.get("context_window", entry.context_window))

    @property
    def calls(self) -> int:
        """Number of recorded model calls."""
        return sum(conversation.calls for conversation in self.conversations)

    @property
    def recorded_times(self) -> int:
        """Number of conversations whose pauses were recorded."""
        return sum(conversation.times is not None for conversation in self.conversations)

    @property
    def title(self) -> str:
        """Describe what was replayed, in one line."""
        many = format_noun_count(len(self.conversations), "conversation")
        return (
            f"{many}, {format_noun_count(self.calls, 'call')}, {self.model}, window {self.window:,}"
        )

    def count_sources(self) -> Counter[str]:
        """Count conversations by origin."""
        return Counter(_source_name(conversation.source) for conversation in self.conversations)

    def describe_pauses(self) -> str:
        """Say whether the pauses between calls are recorded or modelled."""
        recorded_count, many = self.recorded_times, len(self.conversations)
        model = (
            "modelled: 5 s after a tool result (10 min in 0.6 % of cases) and 60 s before a user's "
            "message (10 min in 23 % of cases); a hash chooses, so every run has the same pauses"
        )
        if recorded_count == many:
            return "pauses between calls: as recorded"
        if not recorded_count:
            return f"pauses between calls: {model}"
        return (
            f"pauses between calls: recorded in {recorded_count} of {many} conversations, "
            f"otherwise {model}"
        )

    def warn_missing_system_prompts(self) -> str:
        """Return a warning if recordings have no system prompt, or nothing if all have one."""
        bare = sum(not (one.system or one.usage) for one in self.conversations)
        if not bare:
            return ""
        return (
            f"{bare} of {len(self.conversations)} recordings have neither a system prompt nor "
            "usage; the tokens of their system prompts and tools are not counted"
        )

    def warn_too_little_data(self) -> str:
        """Return a warning if there is too little data, or nothing if there is enough."""
        many = len(self.conversations)
        if (
            many >= MIN_CONVERSATIONS_AND_CALLS[0]
            and self.calls >= many * MIN_CONVERSATIONS_AND_CALLS[1]
        ):
            return ""
        return (
            f"too little data: {format_noun_count(many, 'conversation')} with "
            f"{format_noun_count(round(self.calls / many), 'call')} on average; use at least "
            f"{MIN_CONVERSATIONS_AND_CALLS[0]} conversations with at least "
            f"{MIN_CONVERSATIONS_AND_CALLS[1]} calls each"
        )

    @property
    def tokenizer(self) -> str:
        """The family whose weights estimate the tokens."""
        return resolve_model_info(self.model).tokenizer or "default"


def build_study(
    conversations: Sequence[RecordedConversation],
    setups: Sequence[ReplaySetup],
    runs: Sequence[ConversationRun],
    providers: Sequence[ProviderPricing],
) -> ReplayStudy:
    """Combine runs into a study, with one row of results for each setup.

    Args:
        conversations: The conversations that were replayed.
        setups: The setups. The others are compared with the first one.
        runs: The result of `replay_all`.
        providers: The result of `list_billed_providers`.
    """
    return ReplayStudy(
        conversations=tuple(conversations),
        setups=tuple(setups),
        runs=tuple(runs),
        providers=tuple(providers),
        rows=tuple(summarise_runs_by_setup(runs, providers)),
    )


def format_noun_count(count: int, noun: str) -> str:
    """Return `1 call` or `1,200 calls`."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def _source_name(source: str) -> str:
    """Remove the part that names a single file."""
    return source.partition("@")[0].partition(":")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    name: str
    """The heading."""
    unit: str = ""
    """The heading's second line."""
    text: Callable[[SetupResult], str]
    """Formats a cell."""
    value: Callable[[SetupResult], float | None]
    """Returns the cell's number."""
    best: Literal["low", "high"] | None = None
    """Whether low or high values are better. None if neither is."""


def build_cost_columns(study: ReplayStudy) -> list[TableColumn]:
    """Return the columns for what a setup costs."""
    provider_name = study.providers[0].name
    return [
        *(_cost_column(provider.name) for provider in study.providers),
        TableColumn(
            name="× cheaper",
            unit=provider_name,
            text=lambda row: _format_cost_ratio(row, provider_name),
            value=lambda row: (
                row.cheaper[provider_name].value if provider_name in row.cheaper else 1.0
            ),
        ),
        TableColumn(
            name="re-fetch",
            unit="/call",
            text=lambda row: f"{row.prices[provider_name].with_refetch:,.0f}",
            value=lambda row: row.prices[provider_name].with_refetch,
            best="low",
        ),
        TableColumn(
            name="$/1k",
            unit="calls",
            text=lambda row: _format_dollars(row.prices[provider_name].dollars),
            value=lambda row: row.prices[provider_name].dollars,
        ),
    ]


def build_visibility_and_cache_columns(study: ReplayStudy) -> list[TableColumn]:
    """Return the columns for what a setup shows, and for its use of the cache."""
    provider_name = study.providers[0].name
    return [
        *(_share_column(name, name) for name in ("recall", "far", "tool")),
        _share_column("hidden", "hidden_edits", unit="edits", best="low"),
        _share_column("far", "far_4grams", unit="4-grams"),
        TableColumn(
            name="cache hit",
            text=lambda row: f"{row.prices[provider_name].cache_hit:.1%}",
            value=lambda row: row.prices[provider_name].cache_hit,
        ),
        TableColumn(
            name="uncached",
            unit="/call",
            text=lambda row: f"{row.prices[provider_name].uncached:,.0f}",
            value=lambda row: row.prices[provider_name].uncached,
            best="low",
        ),
        TableColumn(
            name="tokens",
            unit="/call",
            text=lambda row: f"{row.tokens:,.0f}",
            value=lambda row: row.tokens,
        ),
        TableColumn(
            name="breaks", text=lambda row: f"{row.breaks:.1%}", value=lambda row: row.breaks
        ),
    ]


def find_best_setup(column: TableColumn, study: ReplayStudy) -> str | None:
    """Return the best setup of a column. None if there is no best, or only one setup."""
    values = [(v, row.setup) for row in study.rows if (v := column.value(row)) is not None]
    if column.best is None or len(values) < 2:
        return None
    return (min if column.best == "low" else max)(values, key=lambda pair: pair[0])[1]


def _cost_column(provider: str) -> TableColumn:
    return TableColumn(
        name=provider,
        unit="/call",
        text=lambda row: f"{row.prices[provider].cost:,.0f}",
        value=lambda row: row.prices[provider].cost,
        best="low",
    )


def _share_column(
    name: str, field: str, *, unit: str = "", best: Literal["low", "high"] = "high"
) -> TableColumn:
    def read_share(row: SetupResult) -> float | None:
        return getattr(row, field)

    return TableColumn(
        name=name,
        unit=unit,
        text=lambda row: _format_share(read_share(row)),
        value=read_share,
        best=best,
    )


def _format_share(value: float | None) -> str:
    """Format a share as `.987`."""
    if value is None:
        return "–"
    return "1.000" if value >= 0.9995 else f"{value:.3f}"[1:]


def _format_cost_ratio(row: SetupResult, provider: str) -> str:
    ratio = row.cheaper.get(provider)
    return f"{ratio.value:.2f} [{ratio.low:.2f}–{ratio.high:.2f}]" if ratio else "1"


def _format_dollars(value: float | None) -> str:
    return "?" if value is None else f"{value:,.2f}"
