"""Calls and results in a request, checked by nobody's code but this.

Stricter than an API: every call has just one result, all results of a message's calls stand right
behind it, and none stands anywhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

Wire = Mapping[str, Any]
Sighting = tuple[str, list[str]]
"""`calls` or `results` with their ids, or `other`."""


def unpaired(request: Wire, dialect: str) -> str | None:
    """What is wrong with the first pair that is; None where all is well."""
    look: Callable[[Wire], Iterator[Sighting]] = {
        "anthropic": _anthropic,
        "openai_chat": _chat,
        "openai_responses": _responses,
    }[dialect]
    open_calls: list[str] = []
    for kind, ids in look(request):
        if kind == "results":
            for call_id in ids:
                if call_id not in open_calls:
                    return f"a result of {call_id} where no call of that id is open"
                open_calls.remove(call_id)
            continue
        if open_calls and not (kind == "calls" and dialect == "openai_responses"):
            return f"no result behind the call {open_calls[0]}"
        if kind == "calls":
            open_calls += ids
            if len(set(open_calls)) != len(open_calls):
                return f"one id for two calls: {sorted(open_calls)}"
    return f"no result behind the call {open_calls[0]}" if open_calls else None


def _chat(request: Wire) -> Iterator[Sighting]:
    for message in request["messages"]:
        if message["role"] == "tool":
            yield "results", [message["tool_call_id"]]
        elif message.get("tool_calls"):
            yield "calls", [call["id"] for call in message["tool_calls"]]
        else:
            yield "other", []


def _anthropic(request: Wire) -> Iterator[Sighting]:
    for message in request["messages"]:
        calls = [b["id"] for b in message["content"] if b["type"] == "tool_use"]
        results = [b["tool_use_id"] for b in message["content"] if b["type"] == "tool_result"]
        if results:
            yield "results", results
        if calls or not results:
            yield "calls" if calls else "other", calls


def _responses(request: Wire) -> Iterator[Sighting]:
    for item in request["input"]:
        match item.get("type"):
            case "function_call":
                yield "calls", [item["call_id"]]
            case "function_call_output":
                yield "results", [item["call_id"]]
            case _:
                yield "other", []
