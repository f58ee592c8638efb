"""What Claude models take and refuse, by their names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_CLAUDE = re.compile(r"claude-(?:[a-z]+-)?(\d+)(?:[-.](\d{1,2}))?(?!\d)")
_DIRECT = re.compile(r"claude-[a-z0-9.-]+")
"""As Anthropic itself calls a model. Bedrock and Vertex, whose names have more in them, do not take
system messages among the others."""
_ALWAYS_THINKS = re.compile(r"claude-(?:fable|mythos)-")
SYSTEM_MESSAGES_FROM = (4, 8)
"""The version from which a system message may stand among the others."""
ADAPTIVE_FROM, ENABLED_UNTIL = (4, 6), (4, 6)
"""The first version that knows adaptive thinking, and the last that takes a budget for it."""
THINKS_FROM = (3, 7)
"""The first version that thinks before it answers."""


def claude_version(model: str) -> tuple[int, int] | None:
    """`(4, 5)` for `claude-sonnet-4-5-20250929`; None for what is no Claude."""
    found = _CLAUDE.search(model)
    return None if found is None else (int(found[1]), int(found[2] or 0))


def takes_system_messages(model: str) -> bool:
    """Whether a model is known to take a system message among the others."""
    version = claude_version(model)
    direct = _DIRECT.fullmatch(model) is not None
    return version is not None and direct and version >= SYSTEM_MESSAGES_FROM


def refused_thinking(model: str, kind: Any) -> str | None:
    """What the API says of a type of thinking that the model does not know; None if it takes it."""
    version = claude_version(model)
    if version is None:
        return None
    if kind in ("enabled", "adaptive") and version < THINKS_FROM:
        return f"'{model}' does not support thinking."
    if kind == "enabled" and version > ENABLED_UNTIL:
        return (
            '"thinking.type.enabled" is not supported for this model. Use '
            '"thinking.type.adaptive" and "output_config.effort" to control thinking behavior.'
        )
    if kind == "adaptive" and version < ADAPTIVE_FROM:
        return "adaptive thinking is not supported on this model"
    if kind == "disabled" and _ALWAYS_THINKS.search(model):
        return '"thinking.type.disabled" is not supported for this model.'
    return None


def thinking_for(model: str, asked: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Thinking as the model takes it. One without budgets decides itself how much; one without
    the kind that is asked for does not think; one that always thinks is not asked to stop."""
    kind, version = asked.get("type"), claude_version(model)
    if refused_thinking(model, kind) is None:
        return asked
    if kind != "enabled" or version is None or version < THINKS_FROM:
        return None
    return {**{key: asked[key] for key in ("display",) if key in asked}, "type": "adaptive"}
