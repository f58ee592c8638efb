"""Responses: a reply, and the events that stream it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trimtab.testing.answer import Answer, Call, Frame, pieces
from trimtab.testing.arguments import as_text
from trimtab.testing.seals import seal

_WIRE = Mapping[str, Any]
_ECHOED: Mapping[str, Any] = {
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "reasoning": {"effort": None, "summary": None},
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": 1.0,
    "truncation": "disabled",
}


def reply(answer: Answer, frame: Frame) -> dict[str, Any]:
    status, details = "completed", None
    if answer.stop not in (None, "completed", "stop"):
        status, details = "incomplete", {"reason": answer.stop}
    return {
        "id": frame.ids("resp_"),
        "object": "response",
        "created_at": frame.created,
        "status": status,
        "background": False,
        "error": None,
        "incomplete_details": details,
        "model": frame.model,
        "output": _output(answer, frame, status),
        **{key: frame.request.get(key, value) for key, value in _ECHOED.items()},
        "usage": _usage(frame),
    }


def _output(answer: Answer, frame: Frame, status: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if answer.thinking is not None:
        item: dict[str, Any] = {"type": "reasoning", "id": frame.ids("rs_"), "summary": []}
        if frame.sealed:
            item["encrypted_content"] = f"gAAAA{seal(item['id'], '')}"
        items.append(item)
    if answer.text:
        part: dict[str, Any] = {"type": "output_text", "text": answer.text}
        part |= {"annotations": [], "logprobs": []}
        message = {"type": "message", "id": frame.ids("msg_"), "role": "assistant"}
        items.append({**message, "status": status, "content": [part]})
    items += [_call(call, frame) for call in answer.calls]
    return items


def _call(call: Call, frame: Frame) -> dict[str, Any]:
    return {
        "type": "function_call",
        "id": frame.ids("fc_"),
        "call_id": call.id or frame.ids("call_"),
        "name": call.name,
        "arguments": as_text(call.arguments),
        "status": "completed",
    }


def _usage(frame: Frame) -> dict[str, Any]:
    usage = frame.usage
    return {
        "input_tokens": usage.input,
        "input_tokens_details": {
            "cached_tokens": usage.cache_read,
            "cache_write_tokens": usage.cache_write,
        },
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": frame.thought},
        "total_tokens": usage.input + usage.output,
    }


def events(reply: _WIRE, request: _WIRE) -> Iterator[dict[str, Any]]:
    del request
    for number, event in enumerate(_events(reply)):
        yield {"type": event.pop("type"), "sequence_number": number, **event}


def _events(reply: _WIRE) -> Iterator[dict[str, Any]]:
    begun: dict[str, Any] = {**reply, "status": "in_progress", "output": [], "usage": None}
    begun["incomplete_details"] = None
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for index, item in enumerate(reply["output"]):
        place = {"output_index": index}
        match item["type"]:
            case "message":
                yield from _message(item, place)
            case "function_call":
                yield from _function_call(item, place)
            case _:
                bare = {key: item[key] for key in ("type", "id", "summary")}
                yield {"type": "response.output_item.added", **place, "item": bare}
        yield {"type": "response.output_item.done", **place, "item": item}
    yield {"type": f"response.{reply['status']}", "response": dict(reply)}


def _message(item: _WIRE, place: _WIRE) -> Iterator[dict[str, Any]]:
    bare: dict[str, Any] = {**item, "status": "in_progress", "content": []}
    yield {"type": "response.output_item.added", **place, "item": bare}
    for index, part in enumerate(item["content"]):
        where = {"item_id": item["id"], **place, "content_index": index}
        yield {"type": "response.content_part.added", **where, "part": {**part, "text": ""}}
        for text in pieces(part["text"]):
            yield {"type": "response.output_text.delta", **where, "delta": text, "logprobs": []}
        whole: dict[str, Any] = {"text": part["text"], "logprobs": []}
        yield {"type": "response.output_text.done", **where, **whole}
        yield {"type": "response.content_part.done", **where, "part": part}


def _function_call(item: _WIRE, place: _WIRE) -> Iterator[dict[str, Any]]:
    bare = {**item, "status": "in_progress", "arguments": ""}
    yield {"type": "response.output_item.added", **place, "item": bare}
    where = {"item_id": item["id"], **place}
    for text in pieces(item["arguments"]):
        yield {"type": "response.function_call_arguments.delta", **where, "delta": text}
    whole = {"name": item["name"], "arguments": item["arguments"]}
    yield {"type": "response.function_call_arguments.done", **where, **whole}
