"""How one call uses its tokens, what is hidden, and what it costs."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from trimtab.engine.log.deferred_tools import list_tools_in_prompt
from trimtab.engine.log.erase import RECALL_TOOL_NAMES
from trimtab.engine.log.event import Edit, Usage
from trimtab.engine.log.message import ToolCall, ToolResult
from trimtab.engine.policy.budget import Budget
from trimtab.engine.policy.planning.user_words import compute_user_words_allowance
from trimtab.engine.policy.request_limits import format_megabytes
from trimtab.engine.prompt.report_html import render_report_html
from trimtab.engine.tokens.cost import compute_cost_usd as compute_cost_usd
from trimtab.engine.tokens.counter import (
    measure_json,
    measure_message_parts,
    measure_schema_params,
    measure_tool_definition,
    tools_overhead_tokens,
)
from trimtab.engine.window.accounting import UNEXPLAINED_MISS, describe_silent_truncation
from trimtab.engine.window.structure import Entry
from trimtab.engine.window.summary_attempts import SummaryAttemptStats
from trimtab.engine.window.window import Window

SHOW_ABOVE_SHARE = 0.3
"""Show the display only if more than this share of the window is used."""
HIGH_ABOVE_SHARE = 0.7
CRITICAL_ABOVE_SHARE = 0.9
BAR_CHARS = 40
"""Width of the bar in characters."""
MIN_CALLS_TO_JUDGE_TOOLS = 10
"""Number of calls after which the breakdown names the tools that were never called."""
_DISPLAY_LINE_BY_KIND = {
    "system": "System",
    "summary": "Context summary",
    "tools": "Tool output",
    "messages": "Messages",
}
"""By a section's kind: the line of the display that includes it."""
_SECTION_EXPLANATIONS = {
    "tool use": "the provider adds it for tools",
    "request overhead": "what frames a request",
    "provider's count": "what it counted above or below the estimate",
}
"""Explanations of sections whose names do not explain themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSection:
    """One part of a request and its tokens."""

    name: str
    """The name: `system`, `tool definition: read`, `user`, `tool result: bash`, …"""
    kind: str
    """The line of the display that includes it: `system`, `summary`, `tools`, `messages`."""
    tokens: int
    """Estimated tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextReport:
    """The tokens of one call by section. `str()` draws it."""

    model: str
    """The model's name."""
    limit: int
    """Tokens that input and output may reach together."""
    source: str
    """What set the limit."""
    sections: tuple[ReportSection, ...]
    """Everything that is sent, in order."""
    hidden: Mapping[str, tuple[int, int]]
    """By kind of edit: how many parts or messages are hidden, and the tokens they would need."""
    output_reserve: int
    """Tokens reserved for the reply."""
    margin: int
    """Tokens by which the declared upper bound exceeds the estimate. It is below 0 if the provider
    has counted fewer tokens than estimated."""
    last_usage: Usage | None
    """What the provider reported for the last call."""
    total_usage: Usage
    """Everything that was reported in this session."""
    calls: int
    """Number of requests so far."""
    cost: float | None
    """US dollars of the calls whose cost is known, at list prices, without summaries; None if it is
    known for none of them."""
    calls_without_cost: int = 0
    """Number of calls that are not in `cost`, because their usage was not reported or has no price.
    If there are any, all calls together cost at least `cost`. A call that waits for its reply is
    not among them."""
    summaries: SummaryAttemptStats = field(default_factory=SummaryAttemptStats)
    """Summaries that a model was asked to write, with their usage and cost."""
    model_doubt: str = ""
    """What is assumed for a model that may be misspelt; empty if the catalog has it, or nothing
    similar."""
    doubt: str = ""
    """Why the reported usage of the last call is not used; empty if it is used."""
    cache_miss: str = ""
    """Why the last call could not be read from the provider's prompt cache, according to the
    provider and to our log; empty if nothing was missed."""
    cache_misses: Mapping[str, int] = field(default_factory=dict[str, int])
    """How many calls missed the provider's prompt cache, by reason."""
    tool_count: int = 0
    """Tools in the prompt that you run. Deferred tools that nothing has loaded are not in it."""
    unused_tools: Mapping[str, int] = field(default_factory=dict[str, int])
    """By name: the tokens in each call of those tools that the model has never called."""
    words: str = ""
    """What limits the user's earlier words, a setting or the space; empty if nothing does."""
    pictures: int = 0
    """Pictures that are sent."""
    max_pictures: int = 0
    """Pictures that the provider accepts in one request; 0 if no limit is known."""
    request_bytes: int = 0
    """An upper estimate of the bytes of the request."""
    max_request_bytes: int = 0
    """Bytes that the provider accepts in one request; 0 if no limit is known."""
    has_media: bool = False
    """Whether pictures or files are sent."""
    hidden_handles: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict[str, tuple[str, ...]]
    )
    """By kind of edit: the handles of what is hidden and in memory, oldest first. `why` explains
    each, and `recall` returns its text."""

    @property
    def used(self) -> int:
        """Input tokens: what the provider counted for the last request, and an estimate of what is
        new. Without such a count, the estimate of the whole."""
        return sum(section.tokens for section in self.sections)

    @property
    def bound(self) -> int:
        """The declared upper bound of the input."""
        return self.used + self.margin

    @property
    def free(self) -> int:
        """Tokens of the limit that are neither used nor reserved."""
        return self.limit - self.bound - self.output_reserve

    @property
    def share(self) -> float:
        """The used share of the limit, 0 to 1."""
        return self.used / self.limit if self.limit else 0.0

    @property
    def worth_showing(self) -> bool:
        """Whether more than 30 % of the limit is used."""
        return self.share > SHOW_ABOVE_SHARE

    @property
    def level(self) -> str:
        """`normal`, `high` above 70 %, or `critical` above 90 %."""
        if self.share > CRITICAL_ABOVE_SHARE:
            return "critical"
        return "high" if self.share > HIGH_ABOVE_SHARE else "normal"

    @property
    def cache_hit(self) -> float | None:
        """Share of all reported input that came from the provider's cache."""
        total = self.total_usage
        return total.cache_read / total.input if total.input else None

    def tokens(self, kind: str) -> int:
        """Return the tokens of one line of the display.

        Args:
            kind: The line: `system`, `summary`, `tools` or `messages`.
        """
        return sum(section.tokens for section in self.sections if section.kind == kind)

    def to_dict(self) -> dict[str, Any]:
        """Return the whole report as plain JSON values."""
        properties = ("used", "bound", "free", "share", "level", "cache_hit")
        return {**asdict(self), **{name: getattr(self, name) for name in properties}}

    def __str__(self) -> str:
        return self.draw()

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return render_report_html(self)

    def draw(self, bar_chars: int = BAR_CHARS) -> str:
        """Return the display as text.

        Args:
            bar_chars: Width of the bar in characters.
        """
        full_chars = min(bar_chars, int(self.share * bar_chars))
        blocks = "█" * full_chars + "░" * (bar_chars - full_chars)
        tokens_now = _short_token_count(self.used)
        limit = _short_token_count(self.limit)
        rows = [(_DISPLAY_LINE_BY_KIND["system"], self.tokens("system"))]
        if summary := self.tokens("summary"):
            rows.append((_DISPLAY_LINE_BY_KIND["summary"], summary))
        rows += [(_DISPLAY_LINE_BY_KIND[kind], self.tokens(kind)) for kind in ("tools", "messages")]
        lines = [
            " " * (bar_chars // 2) + "Context Usage",
            f"  {blocks} {tokens_now}/{limit} ({self.share:.1%})",
        ]
        lines += [f"  ├─ {_display_row(name, tokens, self.limit)}" for name, tokens in rows]
        lines.append(f"  └─ {_display_row('Free space', self.limit - self.used, self.limit)}")
        return "\n".join(lines)

    def describe_request_size(self) -> str:
        """Describe the bytes and pictures of the request, and how many the provider accepts."""
        line = f"request: {format_megabytes(self.request_bytes)}"
        if self.max_request_bytes:
            line += f" of {format_megabytes(self.max_request_bytes)}"
        line += f", {self.pictures:,}"
        if self.max_pictures:
            line += f" of {self.max_pictures:,}"
        return f"{line} pictures"

    def describe_unused_tools(self) -> str:
        """Describe the tools that were never called; empty if there are none, or if there were too
        few calls."""
        if self.calls < MIN_CALLS_TO_JUDGE_TOOLS or not self.unused_tools:
            return ""
        many = len(self.unused_tools)
        tokens = sum(self.unused_tools.values())
        return f"{many} of {self.tool_count} tools were never called: {tokens:,} tokens a call"

    def describe_cost(self) -> str:
        """Describe the cost of all calls: `$0.0123`, `at least $0.0123` if some are not in it, or
        `unknown`."""
        if self.cost is None:
            return "unknown"
        return f"{'at least ' if self.calls_without_cost else ''}${self.cost:.4f}"

    def line(self) -> str:
        """Return how full the window is, on one line."""
        text = (
            f"Context {self.share:.1%} · "
            f"{_short_token_count(self.used)}/{_short_token_count(self.limit)}"
        )
        return text if self.cache_hit is None else f"{text} · cache {self.cache_hit:.0%}"

    def breakdown(self, bar_chars: int = BAR_CHARS) -> str:
        """Return the display, then every section, what is hidden, and the parts of the budget.

        Each section is followed by the line of the display that includes it, or by an explanation.

        Args:
            bar_chars: Width of the bar in characters.
        """
        rows = [
            (each.name, each.tokens, _section_explanation(each))
            for each in self.sections
            if each.tokens
        ]
        margin_note = "so that the estimate is an upper bound"
        if self.margin < 0:
            margin_note = "the provider counts fewer than estimated"
        rows.append(("output reserve", self.output_reserve, "kept for the reply"))
        rows.append(("margin", self.margin, margin_note))
        rows.append(("free", self.free, "Free space − output reserve − margin"))
        wide = max(len(name) for name, _, _ in rows)
        lines = [self.draw(bar_chars), ""]
        lines += [f"  {name:<{wide}}  {tokens:>9,}  {note}" for name, tokens, note in rows]
        for kind, (count, tokens) in self.hidden.items():
            lines.append(f"  hidden by {kind}: {count} ({tokens:,} tokens)")
        if self.has_media:
            lines.append(f"  {self.describe_request_size()}")
        tools = self.describe_unused_tools()
        remarks = (self.model_doubt, tools, self.words, self.doubt, self.cache_miss)
        lines += [f"  {note}" for note in remarks if note]
        if self.cache_hit is not None:
            lines.append(f"  read from the provider's cache: {self.cache_hit:.1%} of all input")
        if self.cost is not None and self.total_usage.input:
            many = "1 call" if self.calls == 1 else f"{self.calls} calls"
            lines.append(f"  cost so far: {self.describe_cost()} in {many}")
        if note := self.summaries.describe():
            lines.append(f"  {note}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestPreview:
    """What the next call would send and cost."""

    request: Mapping[str, Any]
    """Keyword arguments for the SDK."""
    report: ContextReport
    """How the request uses its tokens."""
    edits: tuple[Edit, ...]
    """The edits that would be made first."""
    cost: float | None
    """US dollars of its input at list prices if nothing of it is cached; None if a price is
    unknown."""


def build_request_preview(
    window: Window,
    request: Mapping[str, Any],
    report: ContextReport,
    edits: tuple[Edit, ...],
    *,
    at: float,
) -> RequestPreview:
    """Build the preview of the window's request, at the prices of the day of `at`."""
    cost = compute_cost_usd(Usage(input=report.used), window.settings.entry, at=at)
    return RequestPreview(request=request, report=report, edits=edits, cost=cost)


def build_context_report(window: Window, budget: Budget, input_bound: int) -> ContextReport:
    """Build the report of the call that the window would make now."""
    head = _head_sections(window)
    # The head's own figure is the one that budgets use: what its parts do not show is overhead.
    rest = budget.head.tokens - sum(section.tokens for section in head)
    head.append(ReportSection(name="request overhead", kind="system", tokens=rest))
    if words_tokens := window.conversation.user_words.measure_all_blocks(
        window.counter, recall_hint=window.settings.recall_hint
    ).tokens:
        head.append(
            ReportSection(name="user's earlier words", kind="messages", tokens=words_tokens)
        )
    if window.summary is not None:
        summary_text = window.conversation.framed_summary(window.summary)
        size = window.conversation.measure_summary_and_notice(summary_text, "")
        head.append(ReportSection(name="summary", kind="summary", tokens=size.tokens))
    if notice := window.conversation.dropped_notice():
        size = window.conversation.measure_summary_and_notice("", notice)
        head.append(ReportSection(name="notice", kind="messages", tokens=size.tokens))
    body, hidden_totals = _message_sections(window)
    if budget.volatile:
        body.append(ReportSection(name="volatile tail", kind="messages", tokens=budget.volatile))
    body += _count_difference_sections(window, (*head, *body))
    tokens_in_use = sum(section.tokens for section in (*head, *body))
    tools = [each for tool in window.settings.tools for each in list_tools_in_prompt(tool)]
    tools = [(name, definition) for name, definition in tools if name not in RECALL_TOOL_NAMES]
    costed_calls = window.accounting.costed_calls
    open_seq = window.accounting.open_call_seq
    is_waiting = open_seq is not None and window.conversation.last_assistant_seq < open_seq
    calls_without_cost = max(0, window.accounting.call_count - is_waiting - costed_calls)
    return ContextReport(
        model=window.settings.model,
        limit=budget.limit,
        source=budget.source,
        sections=(*head, *body),
        hidden=hidden_totals,
        hidden_handles=_list_hidden_handles(window),
        output_reserve=budget.max_output,
        margin=input_bound - tokens_in_use,
        last_usage=window.accounting.last_usage,
        total_usage=window.accounting.total_usage,
        calls=window.accounting.call_count,
        cost=None if calls_without_cost and not costed_calls else window.accounting.total_cost_usd,
        calls_without_cost=calls_without_cost,
        summaries=window.accounting.summary_stats,
        doubt=describe_usage_doubt(window),
        cache_miss=_cache_miss_text(window),
        cache_misses=dict(window.accounting.cache_misses.misses_by_reason),
        tool_count=len(tools),
        unused_tools=_measure_unused_tools(window, tools),
        words=_user_words_limit_text(window, budget),
        pictures=window.conversation.count_visible_pictures(),
        max_pictures=budget.request_limits.max_pictures,
        request_bytes=window.conversation.request_bytes(),
        max_request_bytes=budget.request_limits.max_bytes,
        has_media=bool(window.conversation.visible_media),
    )


def _list_hidden_handles(window: Window) -> dict[str, tuple[str, ...]]:
    handles: dict[str, list[str]] = {}
    if dropped := window.conversation.dropped_groups:
        handles["drop"] = [f"m{dropped.first}-m{dropped.last}"]
    if window.summary is not None:
        handles["summarise"] = [window.summary.handle]
    for group in window.visible_groups.values():
        for entry in group.entries():
            for _, edit in sorted(entry.edits.items()):
                handles.setdefault(edit.op, []).append(edit.handle)
    return {kind: tuple(names) for kind, names in handles.items()}


def _count_difference_sections(
    window: Window, sections: Iterable[ReportSection]
) -> list[ReportSection]:
    """Return by how much the provider's count of the last request differs from our estimate.

    It is added to the largest kind, because nobody says what was counted differently.
    """
    if (anchor := window.accounting.usage_anchor) is None:
        return []
    by_kind: dict[str, int] = {}
    for each in sections:
        by_kind[each.kind] = by_kind.get(each.kind, 0) + each.tokens
    tokens = anchor.reported_tokens - anchor.estimated_tokens
    kind = max(by_kind, key=by_kind.__getitem__)
    return [ReportSection(name="provider's count", kind=kind, tokens=tokens)]


def _measure_unused_tools(
    window: Window, tools: Iterable[tuple[str, Mapping[str, Any]]]
) -> dict[str, int]:
    """Return the tokens of each of these tools that was never called."""
    return {
        name: measure_json(definition, window.counter).tokens
        for name, definition in tools
        if name not in window.conversation.called_tools
    }


def describe_usage_doubt(window: Window) -> str:
    """Explain why the usage of the last call says nothing about its size; empty if it does."""
    reported_tokens = window.accounting.disbelieved_input
    estimate = window.accounting.last_estimate.total_tokens
    if not reported_tokens:
        return ""
    if window.accounting.was_truncated:
        return (
            f"{describe_silent_truncation(estimate, reported_tokens)}; "
            f"{window.accounting.learned_limit:,} is now used as the limit"
        )
    return (
        f"the reported usage is ignored: the provider reported {reported_tokens:,} input tokens, "
        f"but the request had about {estimate:,}; Trimtab uses its own estimate"
    )


def _cache_miss_text(window: Window) -> str:
    """Explain why the last call was not read from the cache: the provider's reason, then ours."""
    misses = window.accounting.cache_misses
    if not misses.last_reason:
        return ""
    tokens = f"about {misses.last_missed_tokens:,} tokens" if misses.last_missed_tokens else "some"
    provider = "the provider gave no reason"
    if misses.last_reason != UNEXPLAINED_MISS:
        provider = f"the provider says {misses.last_reason.replace('_', ' ')}"
    own_reason = misses.own_reason or "Trimtab had not changed anything that was sent before"
    return f"cache missed at the last call: {tokens}; {provider}; {own_reason}"


def _user_words_limit_text(window: Window, budget: Budget) -> str:
    """Explain what keeps the user's earlier words from being shown in full."""
    allowance = compute_user_words_allowance(window.settings, budget)
    left_out = window.conversation.user_words.left_out
    notes: list[str] = []
    if allowance is not None and allowance.limited_by:
        notes.append(f"limited to {allowance.user_tokens:,} tokens by {allowance.limited_by}")
    if left_out is not None:
        notes.append(f"{left_out.messages:,} messages not shown")
    return f"user's earlier words: {', '.join(notes)}" if notes else ""


def _head_sections(window: Window) -> list[ReportSection]:
    settings = window.settings
    counter = window.counter
    system = sum(
        s.tokens for message in settings.system for s in measure_message_parts(message, counter)
    )
    sections = [ReportSection(name="system prompt", kind="system", tokens=system)]
    for tool in settings.tools:
        function: Mapping[str, Any] = tool.get("function") or tool
        name = str(function.get("name", tool.get("type", "")))
        if tokens := measure_tool_definition(tool, counter).tokens:
            sections.append(
                ReportSection(name=f"tool definition: {name}", kind="system", tokens=tokens)
            )
    if settings.tools:
        overhead = tools_overhead_tokens(counter)
        sections.append(ReportSection(name="tool use", kind="system", tokens=overhead))
    if schema_tokens := measure_schema_params(settings.params, counter).tokens:
        sections.append(
            ReportSection(name="request parameters", kind="system", tokens=schema_tokens)
        )
    return sections


def _message_sections(window: Window) -> tuple[list[ReportSection], dict[str, tuple[int, int]]]:
    totals: Tally[tuple[str, str]] = Tally()
    hidden_totals = dict(window.base.evicted_totals)

    def hide(kind: str, count: int, tokens: int) -> None:
        before = hidden_totals.get(kind, (0, 0))
        hidden_totals[kind] = (before[0] + count, before[1] + tokens)

    for group in window.conversation.groups:
        if group.hidden is not None:
            whole = sum(size.tokens for entry in group.entries() for size in entry.sizes)
            hide(group.hidden.op, group.message_count, whole)
            continue
        for entry in group.entries():
            for part, size in enumerate(entry.sizes):
                visible_tokens = entry.shown_size(part).tokens
                totals[_section_name(entry, part)] += visible_tokens
                if part in entry.edits:
                    hide(entry.edits[part].op, 1, size.tokens - visible_tokens)
    sections = [
        ReportSection(name=name, kind=kind, tokens=tokens)
        for (name, kind), tokens in totals.items()
    ]
    return sections, hidden_totals


def _section_name(entry: Entry, part: int) -> tuple[str, str]:
    content = entry.message.parts[part] if entry.message.parts else None
    if isinstance(content, ToolCall):
        return f"tool call: {content.name}", "tools"
    if isinstance(content, ToolResult):
        calls = entry.round.calls
        tool = next((c.name for c in calls if c.result and c.result.key == (entry.seq, part)), "?")
        return f"tool result: {tool}", "tools"
    return entry.message.role, "messages"


def _section_explanation(section: ReportSection) -> str:
    """Return the explanation that follows a section."""
    line = _DISPLAY_LINE_BY_KIND[section.kind]
    return (
        f"{line}; {_SECTION_EXPLANATIONS[section.name]}"
        if section.name in _SECTION_EXPLANATIONS
        else line
    )


def _display_row(name: str, tokens: int, limit: int) -> str:
    share = tokens / limit if limit else 0.0
    return f"{name + ':':<17}{_short_token_count(tokens)} ({share:.1%})"


def _short_token_count(tokens: int) -> str:
    if abs(tokens) >= 999_950:  # what would round to 1000.0k
        return f"{tokens / 1_000_000:.1f}M"
    return f"{tokens / 1_000:.1f}k" if abs(tokens) >= 1_000 else str(tokens)
