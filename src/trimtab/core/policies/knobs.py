"""What a user may set about any policy; a value that is set binds in every preset."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from trimtab.core.edits import STRATEGIES, Strategy

Goal = Literal["cost", "balanced", "quality"]
GOALS: tuple[Goal, ...] = ("cost", "balanced", "quality")
Summaries = Literal["extractive", "manual"]
SUMMARIES: tuple[Summaries, ...] = ("extractive", "manual")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolKnobs:
    max_tool_result_tokens: int | None = None
    """Tokens a result of this tool may take; None is the common cap."""
    tool_result_truncation: Strategy | None = None
    """Which end of a result is kept; None is the common strategy."""
    exempt: bool = False
    """True leaves results of this tool whole, whatever their size, and never masks them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Knobs:
    max_history_tokens: int | None = None
    """Tokens of history before the newest user message; 0 is no cap, None the preset's own."""
    max_tool_result_tokens: int | None = None
    """Tokens one tool result may take, more than 0; None is the preset's own."""
    tool_result_truncation: Strategy | None = None
    """`head`, `tail` or `both`; None is `head`."""
    tool_result_keep_first: int | None = None
    """First results that are never masked; None is the preset's own."""
    tool_result_keep_last: int | None = None
    """Newest results that are never masked; 0 for both switches masking off."""
    tools: Mapping[str, ToolKnobs] = field(default_factory=dict[str, ToolKnobs])
    """By tool name: what differs for that tool."""

    def __post_init__(self) -> None:
        _check_cap("max_tool_result_tokens", self.max_tool_result_tokens)
        _check_strategy(self.tool_result_truncation)
        for name in ("max_history_tokens", "tool_result_keep_first", "tool_result_keep_last"):
            value: int | None = getattr(self, name)
            if value is not None and value < 0:
                raise ValueError(f"{name} is {value}; it must be 0 or more")
        for name, tool in self.tools.items():
            _check_cap(f"tools.{name}.max_tool_result_tokens", tool.max_tool_result_tokens)
            _check_strategy(tool.tool_result_truncation)


def knobs_from(data: Mapping[str, Any] | None) -> Knobs:
    """The `session.context` block as plain values."""
    given = dict(data or {})
    known = set(Knobs.__dataclass_fields__)
    unknown = sorted(set(given) - known)
    if unknown:
        raise ValueError(
            f"unknown context setting {unknown[0]!r}; known: {', '.join(sorted(known))}"
        )
    tools: Mapping[str, Any] = given.pop("tools", None) or {}
    own = {
        name: value if isinstance(value, ToolKnobs) else ToolKnobs(**value)
        for name, value in tools.items()
    }
    return Knobs(**given, tools=own)


def _check_cap(name: str, value: int | None) -> None:
    if value is not None and value <= 0:
        raise ValueError(f"{name} is {value}; it must be more than 0")


def _check_strategy(value: str | None) -> None:
    if value is not None and value not in STRATEGIES:
        raise ValueError(
            f"tool_result_truncation is {value!r}; choose one of {', '.join(STRATEGIES)}"
        )
