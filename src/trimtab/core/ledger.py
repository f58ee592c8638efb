"""Where the tokens of one call went, what was hidden, and what it costs."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from trimtab.core.budget import Budget
from trimtab.core.event import Edit, Usage
from trimtab.core.message import ToolCall, ToolResult
from trimtab.core.prices import cost_of as cost_of
from trimtab.core.rounds import Entry
from trimtab.core.summary_meter import SummaryMeter
from trimtab.core.tokens import (
    TOOLS_OVERHEAD,
    front_size,
    size_of_json,
    size_of_params,
    sizes_of,
)
from trimtab.core.truncation import cut_in_silence
from trimtab.core.user_words import allowance_of
from trimtab.core.window import Window

SHOW_AT = 0.3
"""Share of the window in use above which the display is worth a user's glance."""
SUMMARISE_AT = 0.7
TRIM_AT = 0.9
BAR = 40
"""Characters."""
_LINES = {
    "system": "System",
    "summary": "Context summary",
    "tools": "Tool output",
    "messages": "Messages",
}
"""By a section's kind: the line of the display that it counts for."""
_TERMS = {
    "tool use": "the provider adds it for tools",
    "request overhead": "what frames a request",
}
"""Sections whose names do not say what they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    name: str
    """What it is: `system`, `tool definition: read`, `user`, `tool result: bash`, …"""
    kind: str
    """The line of the display that it counts for: `system`, `summary`, `tools`, `messages`."""
    tokens: int
    """Estimated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """One call's tokens by section. `str()` draws it."""

    model: str
    """The model's name."""
    limit: int
    """Tokens that input and output may reach together."""
    source: str
    """What set the limit."""
    sections: tuple[Section, ...]
    """All that is sent, in the order it is sent."""
    hidden: Mapping[str, tuple[int, int]]
    """By kind of edit: how many parts or messages are hidden, and the tokens they would take."""
    output_reserve: int
    """Tokens kept for the reply."""
    margin: int
    """Tokens by which the declared upper bound exceeds the estimate; below 0 where the provider
    has counted fewer than were estimated."""
    last_usage: Usage | None
    """What the provider reported for the last call."""
    total_usage: Usage
    """All that was reported in this session."""
    calls: int
    """Requests handed out so far."""
    cost: float | None
    """US dollars of all reported usage at list prices, summaries not included; None where a price
    is unknown."""
    summaries: SummaryMeter = field(default_factory=SummaryMeter)
    """Summaries that a model was asked for, with their usage and cost."""
    doubt: str = ""
    """Why the usage of the last call was not believed; empty where it was."""
    words: str = ""
    """What a setting or the room takes from the user's earlier words; empty where nothing does."""

    @property
    def used(self) -> int:
        """Estimated input tokens."""
        return sum(section.tokens for section in self.sections)

    @property
    def bound(self) -> int:
        """The declared upper bound of the input."""
        return self.used + self.margin

    @property
    def free(self) -> int:
        """Tokens of the limit that nothing takes or reserves."""
        return self.limit - self.bound - self.output_reserve

    @property
    def share(self) -> float:
        """Of the limit that is in use, 0 to 1."""
        return self.used / self.limit if self.limit else 0.0

    @property
    def worth_showing(self) -> bool:
        """True above 30 %."""
        return self.share > SHOW_AT

    @property
    def level(self) -> str:
        """`normal`, `high` above 70 %, `critical` above 90 %."""
        if self.share > TRIM_AT:
            return "critical"
        return "high" if self.share > SUMMARISE_AT else "normal"

    @property
    def cache_hit(self) -> float | None:
        """Share of all reported input that came from the provider's cache."""
        total = self.total_usage
        return total.cache_read / total.input if total.input else None

    def tokens(self, kind: str) -> int:
        """Of one line of the display."""
        return sum(section.tokens for section in self.sections if section.kind == kind)

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain JSON values."""
        derived = ("used", "bound", "free", "share", "level", "cache_hit")
        return {**asdict(self), **{name: getattr(self, name) for name in derived}}

    def __str__(self) -> str:
        return self.drawn()

    def drawn(self, bar: int = BAR) -> str:
        """The display, with a bar of so many characters."""
        filled = min(bar, int(self.share * bar))
        blocks = "█" * filled + "░" * (bar - filled)
        used, limit = _short(self.used), _short(self.limit)
        rows = [(_LINES["system"], self.tokens("system"))]
        if summary := self.tokens("summary"):
            rows.append((_LINES["summary"], summary))
        rows += [(_LINES[kind], self.tokens(kind)) for kind in ("tools", "messages")]
        lines = [
            " " * (bar // 2) + "Context Usage",
            f"  {blocks} {used}/{limit} ({self.share:.1%})",
        ]
        lines += [f"  ├─ {_row(name, tokens, self.limit)}" for name, tokens in rows]
        lines.append(f"  └─ {_row('Free space', self.limit - self.used, self.limit)}")
        return "\n".join(lines)

    def line(self) -> str:
        """How full it is, on one line."""
        told = f"Context {self.share:.1%} · {_short(self.used)}/{_short(self.limit)}"
        return told if self.cache_hit is None else f"{told} · cache {self.cache_hit:.0%}"

    def breakdown(self, bar: int = BAR) -> str:
        """The display, then every section, what is hidden, and the terms of the budget.

        Behind each stands the line of the display that it counts for, or what it is.
        """
        rows = [(each.name, each.tokens, _of(each)) for each in self.sections if each.tokens]
        bound = "so that the estimate is an upper bound"
        if self.margin < 0:
            bound = "the provider counts fewer than estimated"
        rows.append(("output reserve", self.output_reserve, "kept for the reply"))
        rows.append(("margin", self.margin, bound))
        rows.append(("free", self.free, "Free space − output reserve − margin"))
        wide = max(len(name) for name, _, _ in rows)
        lines = [self.drawn(bar), ""]
        lines += [f"  {name:<{wide}}  {tokens:>9,}  {told}" for name, tokens, told in rows]
        for kind, (count, tokens) in self.hidden.items():
            lines.append(f"  hidden by {kind}: {count} ({tokens:,} tokens)")
        lines += [f"  {told}" for told in (self.words, self.doubt) if told]
        if self.cache_hit is not None:
            lines.append(f"  read from the provider's cache: {self.cache_hit:.1%} of all input")
        if self.cost is not None and self.total_usage.input:
            many = "1 call" if self.calls == 1 else f"{self.calls} calls"
            lines.append(f"  cost so far: ${self.cost:.4f} in {many}")
        if told := self.summaries.told():
            lines.append(f"  {told}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What the next call would send and cost."""

    request: Mapping[str, Any]
    """Keyword arguments for the SDK."""
    report: Ledger
    """Where its tokens would go."""
    edits: tuple[Edit, ...]
    """What would be hidden first."""
    cost: float | None
    """US dollars of its input at list prices, if a cache has nothing of it; None where a price is
    not known."""


def preview_of(
    window: Window, request: Mapping[str, Any], report: Ledger, edits: tuple[Edit, ...]
) -> Preview:
    """The preview of a request that was made of the window."""
    cost = cost_of(Usage(input=report.used), window.settings.entry)
    return Preview(request=request, report=report, edits=edits, cost=cost)


def ledger_of(window: Window, budget: Budget, bound: int) -> Ledger:
    """The ledger of the call that the window would make now."""
    head = _head_sections(window)
    # The head's own figure is the one that budgets use: what its parts do not show is overhead.
    rest = budget.head.tokens - sum(section.tokens for section in head)
    head.append(Section(name="request overhead", kind="system", tokens=rest))
    if listed := window.words.size(window.counter, recall=window.settings.recall).tokens:
        head.append(Section(name="user's earlier words", kind="messages", tokens=listed))
    if window.summary is not None:
        size = front_size(window.counter, window.framed(window.summary), "")
        head.append(Section(name="summary", kind="summary", tokens=size.tokens))
    if notice := window.notice():
        size = front_size(window.counter, "", notice)
        head.append(Section(name="notice", kind="messages", tokens=size.tokens))
    body, hidden = _message_sections(window)
    if budget.volatile:
        body.append(Section(name="volatile tail", kind="messages", tokens=budget.volatile))
    used = sum(section.tokens for section in (*head, *body))
    return Ledger(
        model=window.settings.model,
        limit=budget.limit,
        source=budget.source,
        sections=(*head, *body),
        hidden=hidden,
        output_reserve=budget.max_output,
        margin=bound - used,
        last_usage=window.last_usage,
        total_usage=window.used,
        calls=window.calls,
        cost=window.paid if window.used.input else cost_of(window.used, window.settings.entry),
        summaries=window.summaries,
        doubt=_doubt(window),
        words=_words(window, budget),
    )


def _doubt(window: Window) -> str:
    """Why what was reported for the last call says nothing about its size."""
    counted, sent = window.disbelieved, window.pending.estimate
    if not counted:
        return ""
    if counted == window.learned_limit:
        return f"{cut_in_silence(sent, counted)}; {counted:,} is taken for the limit"
    return (
        f"usage not believed: {counted:,} input tokens were reported for a request of about "
        f"{sent:,}; the estimate stands"
    )


def _words(window: Window, budget: Budget) -> str:
    """What keeps the user's earlier words from being shown whole."""
    allowance, left_out = allowance_of(window.settings, budget), window.words.left_out
    told: list[str] = []
    if allowance is not None and allowance.limited_by:
        told.append(f"limited to {allowance.words:,} tokens by {allowance.limited_by}")
    if left_out is not None:
        told.append(f"{left_out.messages:,} messages not shown")
    return f"user's earlier words: {', '.join(told)}" if told else ""


def _head_sections(window: Window) -> list[Section]:
    settings, counter = window.settings, window.counter
    system = sum(s.tokens for message in settings.system for s in sizes_of(message, counter))
    sections = [Section(name="system prompt", kind="system", tokens=system)]
    for tool in settings.tools:
        named: Mapping[str, Any] = tool.get("function") or tool
        name = str(named.get("name", tool.get("type", "")))
        tokens = size_of_json(tool, counter).tokens
        sections.append(Section(name=f"tool definition: {name}", kind="system", tokens=tokens))
    if settings.tools:
        sections.append(Section(name="tool use", kind="system", tokens=TOOLS_OVERHEAD))
    if told := size_of_params(settings.params, counter).tokens:
        sections.append(Section(name="request parameters", kind="system", tokens=told))
    return sections


def _message_sections(window: Window) -> tuple[list[Section], dict[str, tuple[int, int]]]:
    totals: Tally[tuple[str, str]] = Tally()
    hidden = dict(window.gone)

    def hide(kind: str, count: int, tokens: int) -> None:
        before = hidden.get(kind, (0, 0))
        hidden[kind] = (before[0] + count, before[1] + tokens)

    for group in window.groups:
        if group.hidden is not None:
            whole = sum(size.tokens for entry in group.entries() for size in entry.sizes)
            hide(group.hidden.op, group.messages, whole)
            continue
        for entry in group.entries():
            for part, size in enumerate(entry.sizes):
                shown = entry.shown(part).tokens
                totals[_name(entry, part)] += shown
                if part in entry.edits:
                    hide(entry.edits[part].op, 1, size.tokens - shown)
    sections = [
        Section(name=name, kind=kind, tokens=tokens) for (name, kind), tokens in totals.items()
    ]
    return sections, hidden


def _name(entry: Entry, part: int) -> tuple[str, str]:
    content = entry.message.parts[part] if entry.message.parts else None
    if isinstance(content, ToolCall):
        return f"tool call: {content.name}", "tools"
    if isinstance(content, ToolResult):
        calls = entry.round.calls
        tool = next((c.name for c in calls if c.result and c.result.key == (entry.seq, part)), "?")
        return f"tool result: {tool}", "tools"
    return entry.message.role, "messages"


def _of(section: Section) -> str:
    """What stands behind a section."""
    line = _LINES[section.kind]
    return f"{line}; {_TERMS[section.name]}" if section.name in _TERMS else line


def _row(name: str, tokens: int, limit: int) -> str:
    share = tokens / limit if limit else 0.0
    return f"{name + ':':<17}{_short(tokens)} ({share:.1%})"


def _short(tokens: int) -> str:
    if abs(tokens) >= 999_950:  # what would round to 1000.0k
        return f"{tokens / 1_000_000:.1f}M"
    return f"{tokens / 1_000:.1f}k" if abs(tokens) >= 1_000 else str(tokens)
