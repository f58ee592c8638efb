"""A recorded conversation in the form that each provider's API would have had it.

A step is either what the caller adds (a user's message, results) or a reply of the model, which
comes as the whole body of a response, usage included.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

Wire = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    index: int
    """Of the recorded message it begins with."""
    reply: bool
    """True where the model speaks, so that a call stands before it."""
    wire: Wire
    """What to add; for a reply its body, without usage."""


def split_head(messages: Sequence[Wire]) -> tuple[list[Wire], int]:
    """The system messages at the start, and where the rest begins."""
    start = next((i for i, m in enumerate(messages) if m["role"] != "system"), len(messages))
    return list(messages[:start]), start


def steps(messages: Sequence[Wire], start: int, dialect: str) -> list[Step]:
    make: Callable[[Sequence[Wire], int], Iterator[Step]] = {
        "anthropic": _anthropic,
        "openai_chat": _chat,
        "openai_responses": _responses,
    }[dialect]
    return list(make(messages, start))


def with_usage(reply: Wire, dialect: str, used: int, said: int) -> Wire:
    """The reply's body with the usage that the provider would report."""
    names = ("input_tokens", "output_tokens")
    if dialect == "openai_chat":
        names = ("prompt_tokens", "completion_tokens")
    return {**reply, "usage": {names[0]: used, names[1]: said}}


def _chat(messages: Sequence[Wire], start: int) -> Iterator[Step]:
    for index in range(start, len(messages)):
        message = messages[index]
        if message["role"] != "assistant":
            yield Step(index=index, reply=False, wire=message)
            continue
        stop = "tool_calls" if message.get("tool_calls") else "stop"
        choice = {"index": 0, "message": message, "finish_reason": stop}
        body = {"id": f"chatcmpl-{index}", "object": "chat.completion", "choices": [choice]}
        yield Step(index=index, reply=True, wire=body)


def _anthropic(messages: Sequence[Wire], start: int) -> Iterator[Step]:
    index = start
    while index < len(messages):
        message = messages[index]
        first = index
        index += 1
        if message["role"] == "tool":
            while index < len(messages) and messages[index]["role"] == "tool":
                index += 1
            results = [_tool_result(result) for result in messages[first:index]]
            wire: Wire = {"role": "user", "content": results}
            yield Step(index=first, reply=False, wire=wire)
        elif message["role"] == "assistant":
            yield Step(index=first, reply=True, wire=_anthropic_reply(message, first))
        else:
            yield Step(index=first, reply=False, wire=message)


def _tool_result(message: Wire) -> Wire:
    kind = {"type": "tool_result", "tool_use_id": message["tool_call_id"]}
    return {**kind, "content": message["content"]}


def _anthropic_reply(message: Wire, index: int) -> Wire:
    content: list[Wire] = []
    if message.get("content"):
        content.append({"type": "text", "text": message["content"]})
    for call in message.get("tool_calls") or ():
        block = {"type": "tool_use", "id": call["id"], "name": call["function"]["name"]}
        content.append({**block, "input": json.loads(call["function"]["arguments"])})
    return {
        "id": f"msg_{index}",
        "type": "message",
        "role": "assistant",
        "model": "recorded",
        "content": content,
        "stop_reason": "tool_use" if message.get("tool_calls") else "end_turn",
    }


def _responses(messages: Sequence[Wire], start: int) -> Iterator[Step]:
    for index in range(start, len(messages)):
        message = messages[index]
        if message["role"] == "assistant":
            yield Step(index=index, reply=True, wire=_response(message, index))
        elif message["role"] == "tool":
            kind = {"type": "function_call_output", "call_id": message["tool_call_id"]}
            yield Step(index=index, reply=False, wire={**kind, "output": message["content"]})
        else:
            yield Step(index=index, reply=False, wire=message)


def _response(message: Wire, index: int) -> Wire:
    output: list[Wire] = []
    if message.get("content"):
        text = {"type": "output_text", "text": message["content"], "annotations": []}
        item = {"type": "message", "id": f"msg_{index}", "role": "assistant"}
        output.append({**item, "status": "completed", "content": [text]})
    for number, call in enumerate(message.get("tool_calls") or ()):
        item = {"type": "function_call", "id": f"fc_{index}_{number}", "call_id": call["id"]}
        output.append({**item, **call["function"]})
    body = {"id": f"resp_{index}", "object": "response", "status": "completed"}
    return {**body, "output": output}
