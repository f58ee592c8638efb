"""Responses: a reply, and the events that stream it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trimtab.testing.replies import ReplyMetadata, ScriptedCall, ScriptedReply, split_for_streaming
from trimtab.testing.signatures import sign_thinking
from trimtab.testing.tool_arguments import dump_tool_arguments

_JsonObject = Mapping[str, Any]
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


def build_reply_body(scripted_reply: ScriptedReply, metadata: ReplyMetadata) -> dict[str, Any]:
    status = "completed"
    details = None
    if scripted_reply.stop not in (None, "completed", "stop"):
        status = "incomplete"
        details = {"reason": scripted_reply.stop}
    return {
        "id": metadata.ids("resp_"),
        "object": "response",
        "created_at": metadata.created,
        "status": status,
        "background": False,
        "error": None,
        "incomplete_details": details,
        "model": metadata.model,
        "output": _output(scripted_reply, metadata, status),
        **{key: metadata.request.get(key, value) for key, value in _ECHOED.items()},
        "usage": _usage(metadata),
    }


def _output(
    scripted_reply: ScriptedReply, metadata: ReplyMetadata, status: str
) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if metadata.compacted_tokens:
        compaction = {"type": "compaction", "id": metadata.ids("cmp_")}
        items.append(
            {**compaction, "encrypted_content": f"gAAAA{sign_thinking(compaction['id'], '')}"}
        )
    if scripted_reply.thinking is not None:
        item: dict[str, Any] = {"type": "reasoning", "id": metadata.ids("rs_"), "summary": []}
        if metadata.encrypts_reasoning:
            item["encrypted_content"] = f"gAAAA{sign_thinking(item['id'], '')}"
        items.append(item)
    if scripted_reply.text:
        part: dict[str, Any] = {"type": "output_text", "text": scripted_reply.text}
        part |= {"annotations": [], "logprobs": []}
        message = {"type": "message", "id": metadata.ids("msg_"), "role": "assistant"}
        items.append({**message, "status": status, "content": [part]})
    items += [_call(call, metadata) for call in scripted_reply.calls]
    return items


def _call(call: ScriptedCall, metadata: ReplyMetadata) -> dict[str, Any]:
    return {
        "type": "function_call",
        "id": metadata.ids("fc_"),
        "call_id": call.id or metadata.ids("call_"),
        "name": call.name,
        "arguments": dump_tool_arguments(call.arguments),
        "status": "completed",
        **({} if call.namespace is None else {"namespace": call.namespace}),
    }


def _usage(metadata: ReplyMetadata) -> dict[str, Any]:
    usage = metadata.usage
    return {
        "input_tokens": usage.input,
        "input_tokens_details": {
            "cached_tokens": usage.cache_read,
            "cache_write_tokens": usage.cache_write,
        },
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": metadata.thinking_tokens},
        "total_tokens": usage.input + usage.output,
    }


def stream_reply_events(body: _JsonObject, request: _JsonObject) -> Iterator[dict[str, Any]]:
    del request
    for number, event in enumerate(_unnumbered_events(body)):
        yield {"type": event.pop("type"), "sequence_number": number, **event}


def _unnumbered_events(body: _JsonObject) -> Iterator[dict[str, Any]]:
    empty_response: dict[str, Any] = {**body, "status": "in_progress", "output": [], "usage": None}
    empty_response["incomplete_details"] = None
    yield {"type": "response.created", "response": empty_response}
    yield {"type": "response.in_progress", "response": empty_response}
    for index, item in enumerate(body["output"]):
        place = {"output_index": index}
        match item["type"]:
            case "message":
                yield from _message(item, place)
            case "function_call":
                yield from _function_call(item, place)
            case _:
                bare = {key: item[key] for key in ("type", "id", "summary") if key in item}
                yield {"type": "response.output_item.added", **place, "item": bare}
        yield {"type": "response.output_item.done", **place, "item": item}
    yield {"type": f"response.{body['status']}", "response": dict(body)}


def _message(item: _JsonObject, place: _JsonObject) -> Iterator[dict[str, Any]]:
    bare: dict[str, Any] = {**item, "status": "in_progress", "content": []}
    yield {"type": "response.output_item.added", **place, "item": bare}
    for index, part in enumerate(item["content"]):
        where = {"item_id": item["id"], **place, "content_index": index}
        yield {"type": "response.content_part.added", **where, "part": {**part, "text": ""}}
        for text in split_for_streaming(part["text"]):
            yield {"type": "response.output_text.delta", **where, "delta": text, "logprobs": []}
        whole: dict[str, Any] = {"text": part["text"], "logprobs": []}
        yield {"type": "response.output_text.done", **where, **whole}
        yield {"type": "response.content_part.done", **where, "part": part}


def _function_call(item: _JsonObject, place: _JsonObject) -> Iterator[dict[str, Any]]:
    bare = {**item, "status": "in_progress", "arguments": ""}
    yield {"type": "response.output_item.added", **place, "item": bare}
    where = {"item_id": item["id"], **place}
    for text in split_for_streaming(item["arguments"]):
        yield {"type": "response.function_call_arguments.delta", **where, "delta": text}
    whole = {"name": item["name"], "arguments": item["arguments"]}
    yield {"type": "response.function_call_arguments.done", **where, **whole}
