"""Calls and results of a request, checked by nobody's code but this.

Every call has just one result, results stand behind their calls, and none stands anywhere else.
Anthropic and Chat want them at once; Responses anywhere behind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trimtab.testing.counting import listed

Wire = Mapping[str, Any]
Seen = tuple[str, tuple[str, ...]]
"""`call` or `result` with ids, or `other`."""


def unpaired(request: Wire, dialect: str) -> str | None:
    """What is wrong with the first pair that is; None where all is well."""
    look = {"anthropic": _messages, "openai_chat": _chat, "openai_responses": _items}[dialect]
    waiting: list[str] = []
    for kind, ids in look(request):
        if kind == "result":
            for call_id in ids:
                if call_id not in waiting:
                    return f"a result of {call_id} where no call of that id is open"
                waiting.remove(call_id)
            continue
        if waiting and dialect != "openai_responses":
            return f"no result behind the call {waiting[0]}"
        waiting += ids
        if len(set(waiting)) != len(waiting):
            return f"one id for two calls that are open: {sorted(waiting)}"
    return f"no result behind the call {waiting[0]}" if waiting else None


def _messages(request: Wire) -> Iterator[Seen]:
    """Neighbours of one role are one message to the API."""
    role, run = None, list[Any]()
    for message in [*listed(request["messages"]), {"role": None, "content": ()}]:
        if message.get("role") != role:
            yield from _run(run)
            role, run = message.get("role"), []
        content = message.get("content")
        run += listed(content) if isinstance(content, list) else [{"type": "text"}]


def _run(blocks: list[Any]) -> Iterator[Seen]:
    results = tuple(str(b.get("tool_use_id")) for b in blocks if b.get("type") == "tool_result")
    calls = tuple(str(b.get("id")) for b in blocks if b.get("type") == "tool_use")
    if results:
        yield "result", results
    if blocks and (calls or not results):
        yield "call" if calls else "other", calls


def _chat(request: Wire) -> Iterator[Seen]:
    for message in listed(request["messages"]):
        if message.get("role") == "tool":
            yield "result", (str(message.get("tool_call_id")),)
        else:
            calls = tuple(str(call.get("id")) for call in listed(message.get("tool_calls")))
            yield "call" if calls else "other", calls


def _items(request: Wire) -> Iterator[Seen]:
    for item in listed(request.get("input")):
        kind, call_id = str(item.get("type")), str(item.get("call_id"))
        if kind.endswith("_call_output"):
            yield "result", (call_id,)
        elif kind in ("function_call", "custom_tool_call"):
            yield "call", (call_id,)
