"""`check`: what a provider would refuse, before it is asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trimtab.dialects import dialect


def check(request: Mapping[str, Any], *, dialect_name: str | None = None) -> list[str]:
    """What is wrong with a request, in words; empty for one that the API would accept.

    `request` is what `Context.request()` returns, or keyword arguments of your own.
    """
    return dialect(dialect_name or _told_by(request)).check(request)


def _told_by(request: Mapping[str, Any]) -> str:
    if "input" in request:
        return "openai_responses"
    messages: list[Mapping[str, Any]] = list(request.get("messages") or [])
    chat = any(
        m.get("role") in ("tool", "system", "developer") or "tool_calls" in m for m in messages
    )
    outputs = "max_completion_tokens" in request
    return "openai_chat" if chat or outputs else "anthropic"
