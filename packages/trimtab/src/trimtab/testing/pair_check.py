"""Check the tool calls and results of a request, independently of Trimtab's code.

Every call has exactly one result, after the call, and there are no other results. Anthropic and
Chat Completions require the results directly after the call, Responses anywhere after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trimtab.testing.request_counter import list_array_objects

JsonObject = Mapping[str, Any]
PairEvent = tuple[str, tuple[str, ...]]
"""`call` or `result` with ids, or `other`."""


def find_pairing_error(request: JsonObject, dialect: str) -> str | None:
    """Return the first error in the pairs of calls and results. None if there is none."""
    look = {
        "anthropic": _anthropic_pairs,
        "openai_chat": _chat_pairs,
        "openai_responses": _responses_pairs,
    }[dialect]
    waiting: list[str] = []
    for kind, ids in look(request):
        if kind == "result":
            for call_id in ids:
                if call_id not in waiting:
                    return f"a result of {call_id}, but no call of that id is open"
                waiting.remove(call_id)
            continue
        if waiting and dialect != "openai_responses":
            return f"no result after the call {waiting[0]}"
        waiting += ids
        if len(set(waiting)) != len(waiting):
            return f"two open calls have the same id: {sorted(waiting)}"
    return f"no result after the call {waiting[0]}" if waiting else None


def _anthropic_pairs(request: JsonObject) -> Iterator[PairEvent]:
    """Return the pairs. The API reads adjacent messages of one role as one message."""
    role = None
    run = list[Any]()
    for message in [*list_array_objects(request["messages"]), {"role": None, "content": ()}]:
        if message.get("role") != role:
            yield from _block_pairs(run)
            role = message.get("role")
            run = []
        content = message.get("content")
        run += list_array_objects(content) if isinstance(content, list) else [{"type": "text"}]


def _block_pairs(blocks: list[Any]) -> Iterator[PairEvent]:
    results = tuple(str(b.get("tool_use_id")) for b in blocks if b.get("type") == "tool_result")
    calls = tuple(str(b.get("id")) for b in blocks if b.get("type") == "tool_use")
    if results:
        yield "result", results
    if blocks and (calls or not results):
        yield "call" if calls else "other", calls


def _chat_pairs(request: JsonObject) -> Iterator[PairEvent]:
    for message in list_array_objects(request["messages"]):
        if message.get("role") == "tool":
            yield "result", (str(message.get("tool_call_id")),)
        else:
            calls = tuple(
                str(call.get("id")) for call in list_array_objects(message.get("tool_calls"))
            )
            yield "call" if calls else "other", calls


def _responses_pairs(request: JsonObject) -> Iterator[PairEvent]:
    for item in list_array_objects(request.get("input")):
        kind = str(item.get("type"))
        call_id = str(item.get("call_id"))
        if kind.startswith("tool_search_") and item.get("execution") != "client":
            continue
        if kind.endswith("_call_output") or kind == "tool_search_output":
            yield "result", (call_id,)
        elif kind in ("function_call", "custom_tool_call", "tool_search_call"):
            yield "call", (call_id,)
