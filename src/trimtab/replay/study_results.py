"""One comparison: which conversations, which setups, what came out, and how it was measured.

The columns of a study's table, for every place that shows it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from trimtab.catalog import resolve_model_info
from trimtab.replay.billing import ProviderPricing
from trimtab.replay.recorded_conversation_selection import RecordedConversation
from trimtab.replay.references import FAR_REFERENCE_MESSAGES
from trimtab.replay.runner import ConversationRun, ReplaySetup
from trimtab.replay.setup_costs import (
    BOOTSTRAP_RESAMPLES,
    REFETCH_OUTPUT_TOKENS,
    SUMMARY_OUTPUT_TOKENS,
    SetupResult,
    summarise_runs_by_setup,
)

MIN_CONVERSATIONS_AND_CALLS = (3, 30)
"""Conversations, and calls of each on average, below which a comparison is an anecdote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayStudy:
    conversations: tuple[RecordedConversation, ...]
    """Those that were replayed."""
    setups: tuple[ReplaySetup, ...]
    """What they were run under; the first is what the others are compared with."""
    runs: tuple[ConversationRun, ...]
    """Each conversation under each setup."""
    providers: tuple[ProviderPricing, ...]
    """Whose caches the runs were billed by; the first is the model's own."""
    rows: tuple[SetupResult, ...]
    """The runs added up, one for each setup."""

    @property
    def model(self) -> str:
        return self.setups[0].model

    @property
    def window(self) -> int:
        """Tokens of input and output together."""
        entry = resolve_model_info(self.model)
        return int(self.setups[0].options.get("context_window", entry.context_window))

    @property
    def calls(self) -> int:
        """Model calls that were recorded."""
        return sum(conversation.calls for conversation in self.conversations)

    @property
    def recorded_times(self) -> int:
        """Conversations whose pauses were recorded."""
        return sum(conversation.times is not None for conversation in self.conversations)

    @property
    def title(self) -> str:
        """What was replayed, in one line."""
        many = format_noun_count(len(self.conversations), "conversation")
        return (
            f"{many}, {format_noun_count(self.calls, 'call')}, {self.model}, window {self.window:,}"
        )

    def count_sources(self) -> Counter[str]:
        """How many conversations come from where."""
        return Counter(_source_name(conversation.source) for conversation in self.conversations)

    def describe_pauses(self) -> str:
        """Where the pauses between calls come from."""
        recorded, many = self.recorded_times, len(self.conversations)
        model = (
            "modelled (5 s after a tool result, 0.6 % of them 10 min; 60 s before a user's "
            "message, 23 % of them 10 min; by a hash, so they repeat)"
        )
        if recorded == many:
            return "pauses between calls: as recorded"
        if not recorded:
            return f"pauses between calls: {model}"
        return f"pauses between calls: recorded in {recorded} of {many}, else {model}"

    def warn_missing_system_prompts(self) -> str:
        """What is missing where recordings have no system prompt; empty where all have one."""
        bare = sum(not conversation.system for conversation in self.conversations)
        if not bare:
            return ""
        return (
            f"{bare} of {len(self.conversations)} recordings have no system prompt; what it and "
            "the tools weigh there is not counted"
        )

    def warn_too_little_data(self) -> str:
        """Why nobody should judge by this; empty where there is enough of it."""
        many = len(self.conversations)
        if (
            many >= MIN_CONVERSATIONS_AND_CALLS[0]
            and self.calls >= many * MIN_CONVERSATIONS_AND_CALLS[1]
        ):
            return ""
        return (
            f"too little to judge by: {format_noun_count(many, 'conversation')} with "
            f"{format_noun_count(round(self.calls / many), 'call')} on average; take "
            f"{MIN_CONVERSATIONS_AND_CALLS[0]} or more "
            f"with {MIN_CONVERSATIONS_AND_CALLS[1]} calls or more each"
        )

    def list_short_notes(self) -> list[str]:
        """What to know before reading a table, in a few lines."""
        return [
            *filter(
                None,
                [
                    self.warn_too_little_data(),
                    self.warn_missing_system_prompts(),
                    self.describe_left_out_calls(),
                ],
            ),
            "cost: fresh input tokens per call, as the provider's cache bills them",
            f"× cheaper: than {self.setups[0].name}, with a 95 % interval",
            "recall: share of what the agent went back to that the request still shows",
        ]

    def describe_left_out_calls(self) -> str:
        """How many calls are not counted; empty where all are."""
        refused = sum(row.cannot_fit for row in self.rows)
        verb = "is" if refused == 1 else "are"
        told = f"{format_noun_count(refused, 'call')} could not be made to fit and {verb} left out"
        return told if refused else ""

    def list_notes(self) -> list[str]:
        """What the numbers mean, for the reader of a table."""
        first, own = self.setups[0].name, self.providers[0].name
        models = ", ".join(f"{p.name} = {p.model}" for p in self.providers if p.name != "no cache")
        notes = (
            "cost per call is in fresh input tokens: input as the cache bills it, output, and "
            "summary calls (the summariser reads what is summarised and writes "
            f"{SUMMARY_OUTPUT_TOKENS} tokens, at a third of the price); {models}\n"
            f"policies decide by {own}'s prices; the other columns bill the same prompts\n"
            f"× cheaper: {first}'s cost over the row's, with a 95 % interval over conversations "
            f"({BOOTSTRAP_RESAMPLES:,} resamples)\n"
            "re-fetch: each call that lost references pays the write of what held them and one "
            f"more call that reads the prompt and writes {REFETCH_OUTPUT_TOKENS} tokens\n"
            "recall: share of identifiers, paths and quoted strings in tool-call arguments, said "
            "before, that the request still shows; far: last mentioned more than "
            f"{FAR_REFERENCE_MESSAGES} messages before; tool: only ever in tool results\n"
            "breaks: calls whose prompt does not extend the last one; uncached: input that was "
            "not read from the cache, what a first token waits for\n"
            f"{self.describe_pauses()}\n"
            f"tokens are estimates of the {self.tokenizer} family; replies are as recorded, "
            "whatever a policy hides"
        ).split("\n")
        return [
            *notes,
            *filter(
                None,
                [
                    self.warn_missing_system_prompts(),
                    self.describe_left_out_calls(),
                    self.warn_too_little_data(),
                ],
            ),
        ]

    @property
    def tokenizer(self) -> str:
        """The family whose weights estimate the tokens."""
        return resolve_model_info(self.model).tokenizer or "default"

    def to_json(self) -> dict[str, Any]:
        """Everything but the single calls, as plain JSON values."""
        many = len(self.conversations)
        return {
            "model": self.model,
            "window": self.window,
            "tokenizer": self.tokenizer,
            "conversations": many,
            "sources": dict(self.count_sources()),
            "calls": self.calls,
            "pauses": {"recorded": self.recorded_times, "modelled": many - self.recorded_times},
            "providers": [asdict(provider) for provider in self.providers],
            "setups": [row.to_json() for row in self.rows],
            "notes": self.list_notes(),
        }


def build_study(
    conversations: Sequence[RecordedConversation],
    setups: Sequence[ReplaySetup],
    runs: Sequence[ConversationRun],
    providers: Sequence[ProviderPricing],
) -> ReplayStudy:
    """Runs with what they came from, added up."""
    return ReplayStudy(
        conversations=tuple(conversations),
        setups=tuple(setups),
        runs=tuple(runs),
        providers=tuple(providers),
        rows=tuple(summarise_runs_by_setup(runs, providers)),
    )


def format_noun_count(count: int, noun: str) -> str:
    """`1 call`, `1,200 calls`."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def _source_name(source: str) -> str:
    """Without what names a single file of it."""
    return source.partition("@")[0].partition(":")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    name: str
    """The heading."""
    unit: str = ""
    """The heading's second line."""
    text: Callable[[SetupResult], str]
    """A cell."""
    value: Callable[[SetupResult], float | None]
    """What the cell shows, as a number."""
    best: Literal["low", "high"] | None = None
    """Which end is the better one; None where neither is."""


def build_cost_columns(study: ReplayStudy) -> list[TableColumn]:
    """What a setup costs."""
    own = study.providers[0].name
    return [
        *(_cost_column(provider.name) for provider in study.providers),
        TableColumn(
            name="× cheaper",
            unit=own,
            text=lambda row: _format_cost_ratio(row, own),
            value=lambda row: row.cheaper[own].value if own in row.cheaper else 1.0,
        ),
        TableColumn(
            name="re-fetch",
            unit="/call",
            text=lambda row: f"{row.prices[own].with_refetch:,.0f}",
            value=lambda row: row.prices[own].with_refetch,
            best="low",
        ),
        TableColumn(
            name="$/1k",
            unit="calls",
            text=lambda row: _format_dollars(row.prices[own].dollars),
            value=lambda row: row.prices[own].dollars,
        ),
    ]


def build_visibility_and_cache_columns(study: ReplayStudy) -> list[TableColumn]:
    """What a setup shows, and how it treats the cache."""
    own = study.providers[0].name
    return [
        TableColumn(
            name="recall",
            text=lambda r: _format_share(r.recall),
            value=lambda r: r.recall,
            best="high",
        ),
        TableColumn(
            name="far", text=lambda r: _format_share(r.far), value=lambda r: r.far, best="high"
        ),
        TableColumn(
            name="tool", text=lambda r: _format_share(r.tool), value=lambda r: r.tool, best="high"
        ),
        TableColumn(
            name="cache hit",
            text=lambda row: f"{row.prices[own].cache_hit:.1%}",
            value=lambda row: row.prices[own].cache_hit,
        ),
        TableColumn(
            name="uncached",
            unit="/call",
            text=lambda row: f"{row.prices[own].uncached:,.0f}",
            value=lambda row: row.prices[own].uncached,
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
    """The setup that is best in a column; None where there is no best, or only one setup."""
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


def _format_share(value: float | None) -> str:
    """`.987`, as tables of recall have it."""
    if value is None:
        return "–"
    return "1.000" if value >= 0.9995 else f"{value:.3f}"[1:]


def _format_cost_ratio(row: SetupResult, provider: str) -> str:
    ratio = row.cheaper.get(provider)
    return f"{ratio.value:.2f} [{ratio.low:.2f}–{ratio.high:.2f}]" if ratio else "1"


def _format_dollars(value: float | None) -> str:
    return "?" if value is None else f"{value:,.2f}"
