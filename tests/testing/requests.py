"""Requests to ask a provider with, in each dialect."""

from __future__ import annotations

from typing import Any

CLAUDE = "claude-sonnet-4-6"
"""Neither deprecated nor warned of by the SDK; thinks, does not take a prefill."""
OLD_CLAUDE = "claude-opus-4-1"
"""From before a reply could end where the window does."""
GPT = "gpt-4o"
REASONER = "gpt-5.1"
MARKED = "gpt-5.6"

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "line": {"type": "integer", "minimum": 1}},
    "required": ["path"],
}
TOOLS: dict[str, list[Any]] = {
    "anthropic": [{"name": "read", "description": "Reads.", "input_schema": SCHEMA}],
    "openai_chat": [{"type": "function", "function": {"name": "read", "parameters": SCHEMA}}],
    "openai_responses": [
        {"type": "function", "name": "read", "parameters": SCHEMA, "strict": False}
    ],
}
THINKING: Any = {"type": "enabled", "budget_tokens": 1_024}
PROSE = "The quick brown fox jumps over the lazy dog and then goes home to sleep. "


def user(text: Any) -> Any:
    return {"role": "user", "content": text}


def results(*ids: str, text: str = "found") -> Any:
    return user([{"type": "tool_result", "tool_use_id": each, "content": text} for each in ids])


def marked(text: str, ttl: str | None = None) -> Any:
    control = {"type": "ephemeral", **({} if ttl is None else {"ttl": ttl})}
    return {"type": "text", "text": text, "cache_control": control}


def long(words: int) -> str:
    return " ".join(f"word{number}" for number in range(words))


def told(caught: Any) -> Any:
    """The body of the error that an SDK raised."""
    return caught.value.body
