"""Who is spoken to: models of three dialects, and how they may be asked to think."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Params = Mapping[str, Any]
BUDGET: Params = {"thinking": {"type": "enabled", "budget_tokens": 1_024}}
ADAPTIVE: Params = {"thinking": {"type": "adaptive"}}
CLEARING: Params = {
    **BUDGET,
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
}
EFFORT: Params = {"reasoning_effort": "low"}
PARAMS: tuple[Params, ...] = ({}, {}, BUDGET, BUDGET, CLEARING, ADAPTIVE, EFFORT)
"""What callers set, whatever the model is: most of it is one provider's."""


@dataclass(frozen=True, slots=True)
class Target:
    model: str
    """As its provider calls it."""
    dialect: str
    """The wire format."""
    thinks: bool
    """Whether its replies bring thinking along."""
    maker: str
    """Who signs what it thinks."""


TARGETS = (
    Target("claude-3-5-haiku", "anthropic", False, "anthropic"),
    Target("claude-sonnet-4-5", "anthropic", True, "anthropic"),
    Target("claude-sonnet-4-6", "anthropic", True, "anthropic"),
    Target("claude-opus-4-8", "anthropic", True, "anthropic"),
    Target("claude-sonnet-5-5", "anthropic", True, "anthropic"),
    Target("us.anthropic.claude-opus-4-8-v1:0", "anthropic", True, "anthropic"),
    Target("kimi-k2", "anthropic", True, "moonshot"),
    Target("gpt-4o", "openai_chat", False, "openai"),
    Target("gpt-5.6", "openai_chat", False, "openai"),
    Target("deepseek-reasoner", "openai_chat", True, "deepseek"),
    Target("qwen/qwen3-coder", "openai_chat", True, "qwen"),
    Target("gpt-4.1", "openai_responses", False, "openai"),
    Target("gpt-5", "openai_responses", True, "openai"),
    Target("o4-mini", "openai_responses", True, "openai"),
    Target("grok-4", "openai_responses", True, "xai"),
)
