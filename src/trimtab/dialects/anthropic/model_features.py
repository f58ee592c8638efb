"""What Claude models take and refuse, by their names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_CLAUDE = re.compile(r"claude-(?:[a-z]+-)?(\d+)(?:[-.](\d{1,2}))?(?!\d)")
_DIRECT_MODEL_NAME = re.compile(r"claude-[a-z0-9.-]+")
"""As Anthropic itself calls a model. Bedrock and Vertex, whose names have more in them, do not take
system messages among the others."""
_ALWAYS_THINKS = re.compile(r"claude-(?:fable|mythos)-")
FIRST_SYSTEM_MESSAGE_VERSION = (4, 8)
"""The version from which a system message may stand among the others."""
FIRST_ADAPTIVE_THINKING_VERSION, LAST_BUDGET_THINKING_VERSION = (4, 6), (4, 6)
"""The first version that knows adaptive thinking, and the last that takes a budget for it."""
FIRST_THINKING_VERSION = (3, 7)
"""The first version that thinks before it answers."""


def parse_claude_version(model: str) -> tuple[int, int] | None:
    """`(4, 5)` for `claude-sonnet-4-5-20250929`; None for what is no Claude."""
    found = _CLAUDE.search(model)
    return None if found is None else (int(found[1]), int(found[2] or 0))


def accepts_inline_system_messages(model: str) -> bool:
    """Whether a model is known to take a system message among the others."""
    version = parse_claude_version(model)
    direct = _DIRECT_MODEL_NAME.fullmatch(model) is not None
    return version is not None and direct and version >= FIRST_SYSTEM_MESSAGE_VERSION


def explain_thinking_refusal(model: str, thinking_type: Any) -> str | None:
    """What the API says of a type of thinking that the model does not know; None if it takes it."""
    version = parse_claude_version(model)
    if version is None:
        return None
    if thinking_type in ("enabled", "adaptive") and version < FIRST_THINKING_VERSION:
        return f"'{model}' does not support thinking."
    if thinking_type == "enabled" and version > LAST_BUDGET_THINKING_VERSION:
        return (
            '"thinking.type.enabled" is not supported for this model. Use '
            '"thinking.type.adaptive" and "output_config.effort" to control thinking behavior.'
        )
    if thinking_type == "adaptive" and version < FIRST_ADAPTIVE_THINKING_VERSION:
        return "adaptive thinking is not supported on this model"
    if thinking_type == "disabled" and _ALWAYS_THINKS.search(model):
        return '"thinking.type.disabled" is not supported for this model.'
    return None


def adapt_thinking_to_model(model: str, requested: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Thinking as the model takes it. One without budgets decides itself how much; one without
    the kind that is asked for does not think; one that always thinks is not asked to stop."""
    kind, version = requested.get("type"), parse_claude_version(model)
    if explain_thinking_refusal(model, kind) is None:
        return requested
    if kind != "enabled" or version is None or version < FIRST_THINKING_VERSION:
        return None
    return {**{key: requested[key] for key in ("display",) if key in requested}, "type": "adaptive"}
