"""Conversations to test with: a test says only what matters to it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from trimtab import Context

Wire = dict[str, Any]

NOTICE = re.compile(r"\[conversation truncated — [^]]*\]")
PROSE = "The quick brown fox jumps over the lazy dog and then goes home to sleep. "


def ticking(start: float = 0.0) -> Callable[[], float]:
    """A clock that moves one second each time it is looked at."""
    now = start

    def tick() -> float:
        nonlocal now
        now += 1
        return now

    return tick


def chat(policy: Any = "layered", **options: Any) -> Context:
    """A context in the chat dialect with far more room than any preset's own numbers ask for."""
    settings: Wire = {
        "context_window": 1_000_000,
        "clock": ticking(),
        "dialect": "openai_chat",
        **options,
    }
    return Context(settings.pop("model", "gpt-4o"), policy=policy, **settings)


def claude(policy: Any = "layered", **options: Any) -> Context:
    settings: Wire = {"context_window": 1_000_000, "clock": ticking(), **options}
    return Context(settings.pop("model", "claude-sonnet-4-5"), policy=policy, **settings)


def prose(size: int, first: str = "") -> str:
    """ASCII text of so many bytes, led by a line of its own if one is given."""
    lead = f"{first}\n" if first else ""
    return (lead + PROSE * (size // len(PROSE) + 1))[:size]


def user(text: str) -> Wire:
    return {"role": "user", "content": text}


def said(text: str) -> Wire:
    return {"role": "assistant", "content": text}


def system(text: str) -> Wire:
    return {"role": "system", "content": text}


def calls(*ids: str, tool: str = "read", arguments: str = "{}") -> Wire:
    tool_calls = [
        {"id": each, "type": "function", "function": {"name": tool, "arguments": arguments}}
        for each in ids
    ]
    return {"role": "assistant", "content": None, "tool_calls": tool_calls}


def result(call_id: str, text: str) -> Wire:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def use(context: Context, call_id: str, text: str, tool: str = "read") -> dict[str, Any]:
    """One round of a tool loop, asked for, answered and sent; the request that sent it."""
    context.add(calls(call_id, tool=tool))
    context.add(result(call_id, text))
    return context.request()


def talk(context: Context, turns: int, size: int = 40, start: int = 0) -> None:
    """User and assistant in turn, each message numbered and of so many bytes."""
    for number in range(start, start + turns):
        context.add(user(prose(size, f"question {number}")))
        context.request()
        context.add(said(prose(size, f"answer {number}")))


def contents(request: Mapping[str, Any]) -> list[Any]:
    """What each message says; a notice stands apart from what the user said behind it."""
    out: list[Any] = []
    for message in request["messages"]:
        content = message.get("content")
        notice = NOTICE.match(content) if isinstance(content, str) else None
        if notice is not None and content[notice.end() :].startswith("\n\n"):
            out += [notice[0], content[notice.end() + 2 :]]
        else:
            out.append(content)
    return out


def results(request: Mapping[str, Any]) -> list[Any]:
    return [m["content"] for m in request["messages"] if m["role"] == "tool"]


def texts(request: Mapping[str, Any]) -> str:
    """All that an Anthropic or chat request says, in one text."""
    return "\n".join(str(content) for content in contents(request))
