"""Anthropic Messages: a reply, and the events that stream it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from trimtab.testing.answer import Answer, Call, Frame, pieces
from trimtab.testing.arguments import as_text
from trimtab.testing.seals import seal

_WIRE = Mapping[str, Any]


def reply(answer: Answer, frame: Frame) -> dict[str, Any]:
    content: list[dict[str, Any]] = []
    if answer.thinking is not None:
        content.append(_thinking(answer, frame))
    if answer.text:
        content.append({"type": "text", "text": answer.text})
    content += [_call(call, frame) for call in answer.calls]
    return {
        "id": frame.ids("msg_"),
        "type": "message",
        "role": "assistant",
        "model": frame.model,
        "content": content,
        "stop_reason": answer.stop or ("tool_use" if answer.calls else "end_turn"),
        "stop_sequence": None,
        "usage": _usage(frame),
    }


def _thinking(answer: Answer, frame: Frame) -> dict[str, Any]:
    thought = answer.thinking or ""
    if answer.redacted:
        mark = frame.ids("")
        return {"type": "redacted_thinking", "data": f"{mark}.{seal(mark, frame.previous)}"}
    signature = seal(thought, frame.previous)
    return {"type": "thinking", "thinking": thought, "signature": signature}


def _call(call: Call, frame: Frame) -> dict[str, Any]:
    given = call.arguments
    made = json.loads(given) if isinstance(given, str) else dict(given)
    name = call.id or frame.ids("toolu_")
    return {"type": "tool_use", "id": name, "name": call.name, "input": made}


def _usage(frame: Frame) -> dict[str, Any]:
    """Anthropic's `input_tokens` leaves what was read from and written to the cache out."""
    usage = frame.usage
    return {
        "input_tokens": usage.input - usage.cache_read - usage.cache_write,
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cache_read,
        "cache_creation": {
            "ephemeral_5m_input_tokens": usage.cache_write - frame.long_lived,
            "ephemeral_1h_input_tokens": frame.long_lived,
        },
        "output_tokens": usage.output,
        "service_tier": "standard",
    }


def events(reply: _WIRE, request: _WIRE) -> Iterator[dict[str, Any]]:
    del request
    start: dict[str, Any] = {**reply, "content": [], "stop_reason": None}
    start["usage"] = {**reply["usage"], "output_tokens": min(1, reply["usage"]["output_tokens"])}
    yield {"type": "message_start", "message": start}
    for index, block in enumerate(reply["content"]):
        yield from _block(index, block)
        if index == 0:
            yield {"type": "ping"}
    ending = {"stop_reason": reply["stop_reason"], "stop_sequence": reply["stop_sequence"]}
    usage = {key: value for key, value in reply["usage"].items() if key.endswith("_tokens")}
    yield {"type": "message_delta", "delta": ending, "usage": usage}
    yield {"type": "message_stop"}


def _block(index: int, block: _WIRE) -> Iterator[dict[str, Any]]:
    begun, deltas = _deltas(block)
    yield {"type": "content_block_start", "index": index, "content_block": begun}
    for delta in deltas:
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


def _deltas(block: _WIRE) -> tuple[_WIRE, list[dict[str, Any]]]:
    match block["type"]:
        case "text":
            texts = pieces(block["text"])
            return {**block, "text": ""}, [{"type": "text_delta", "text": text} for text in texts]
        case "thinking":
            thoughts: list[dict[str, Any]] = [
                {"type": "thinking_delta", "thinking": text} for text in pieces(block["thinking"])
            ]
            thoughts.append({"type": "signature_delta", "signature": block["signature"]})
            return {**block, "thinking": "", "signature": ""}, thoughts
        case "tool_use":
            texts = ["", *pieces(as_text(block["input"]))]
            deltas = [{"type": "input_json_delta", "partial_json": text} for text in texts]
            return {**block, "input": {}}, deltas
        case _:
            return block, []
