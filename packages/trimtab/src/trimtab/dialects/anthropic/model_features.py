"""What Claude models accept and reject, by their names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

_CLAUDE = re.compile(r"claude-(?:[a-z]+-)?(\d+)(?:[-.](\d{1,2}))?(?!\d)")
_DIRECT_MODEL_NAME = re.compile(r"claude-[a-z0-9.-]+")
"""A model's name at Anthropic itself. Bedrock and Vertex have longer names and do not accept system
messages among the others."""
_ALWAYS_THINKS = re.compile(r"claude-(?:fable|mythos)-")
FIRST_SYSTEM_MESSAGE_VERSION = (4, 8)
"""The first version that accepts a system message among the others."""
FIRST_ADAPTIVE_THINKING_VERSION = (4, 6)
LAST_BUDGET_THINKING_VERSION = (4, 6)
"""The first version with adaptive thinking, and the last that accepts a thinking budget."""
FIRST_VERSION_WITHOUT_PREFILL = (4, 6)
"""The first version that does not continue a reply which the caller began."""
FIRST_THINKING_VERSION = (3, 7)
"""The first version that thinks before it answers."""


def parse_claude_version(model: str) -> tuple[int, int] | None:
    """Return `(4, 5)` for `claude-sonnet-4-5-20250929`; None if it is not a Claude."""
    match = _CLAUDE.search(model)
    return None if match is None else (int(match[1]), int(match[2] or 0))


def accepts_inline_system_messages(model: str) -> bool:
    """Whether a model is known to accept a system message among the others."""
    version = parse_claude_version(model)
    direct = _DIRECT_MODEL_NAME.fullmatch(model) is not None
    return version is not None and direct and version >= FIRST_SYSTEM_MESSAGE_VERSION


def accepts_prefill(model: str, thinking: Any) -> bool:
    """Whether a model continues a reply that the caller began.

    Models from 4.6 on, and models that think, continue only a reply that paused for a tool of the
    provider.
    """
    is_thinking = isinstance(thinking, Mapping) and cast("Any", thinking).get("type") == "enabled"
    version = parse_claude_version(model)
    return not is_thinking and (version is None or version < FIRST_VERSION_WITHOUT_PREFILL)


def explain_thinking_refusal(model: str, thinking_type: Any) -> str | None:
    """Return the API's error for a type of thinking that the model does not support; None if it
    does."""
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
    """Adapt thinking to the model.

    A model without budgets decides itself how much it thinks. A model without the requested kind
    does not think. A model that always thinks is not told to stop.
    """
    kind = requested.get("type")
    version = parse_claude_version(model)
    if explain_thinking_refusal(model, kind) is None:
        return requested
    if kind != "enabled" or version is None or version < FIRST_THINKING_VERSION:
        return None
    return {**{key: requested[key] for key in ("display",) if key in requested}, "type": "adaptive"}
