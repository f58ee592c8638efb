"""Anthropic Messages: a reply, and the events that stream it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from trimtab.testing.replies import ReplyMetadata, ScriptedCall, ScriptedReply, split_for_streaming
from trimtab.testing.signatures import sign_thinking
from trimtab.testing.tool_arguments import dump_tool_arguments

_JsonObject = Mapping[str, Any]


def build_reply_body(scripted_reply: ScriptedReply, metadata: ReplyMetadata) -> dict[str, Any]:
    content: list[dict[str, Any]] = []
    if metadata.compacted_tokens:
        content.append({"type": "compaction", "content": "A short summary of the conversation."})
    if scripted_reply.thinking is not None:
        content.append(_thinking(scripted_reply, metadata))
    if scripted_reply.text:
        content.append({"type": "text", "text": scripted_reply.text})
    content += [_call(call, metadata) for call in scripted_reply.calls]
    body: dict[str, Any] = {
        "id": metadata.ids("msg_"),
        "type": "message",
        "role": "assistant",
        "model": metadata.model,
        "content": content,
        "stop_reason": scripted_reply.stop or ("tool_use" if scripted_reply.calls else "end_turn"),
        "stop_sequence": None,
        "usage": _usage(metadata),
    }
    if metadata.applied_edits is not None:
        body["context_management"] = {"applied_edits": list(metadata.applied_edits)}
    return body


def _thinking(scripted_reply: ScriptedReply, metadata: ReplyMetadata) -> dict[str, Any]:
    text = scripted_reply.thinking or ""
    if scripted_reply.redacted:
        mark = metadata.ids("")
        return {
            "type": "redacted_thinking",
            "data": f"{mark}.{sign_thinking(mark, metadata.previous_signature)}",
        }
    signature = sign_thinking(text, metadata.previous_signature)
    return {"type": "thinking", "thinking": text, "signature": signature}


def _call(call: ScriptedCall, metadata: ReplyMetadata) -> dict[str, Any]:
    arguments = call.arguments
    input_json = json.loads(arguments) if isinstance(arguments, str) else dict(arguments)
    name = call.id or metadata.ids("toolu_")
    return {"type": "tool_use", "id": name, "name": call.name, "input": input_json}


def _usage(metadata: ReplyMetadata) -> dict[str, Any]:
    """Return the usage. Anthropic's `input_tokens` does not include cache reads and writes."""
    usage = metadata.usage
    figures: dict[str, Any] = {
        "input_tokens": usage.input - usage.cache_read - usage.cache_write,
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cache_read,
        "cache_creation": {
            "ephemeral_5m_input_tokens": usage.cache_write - metadata.hour_cache_tokens,
            "ephemeral_1h_input_tokens": metadata.hour_cache_tokens,
        },
        "output_tokens": usage.output,
        "service_tier": "standard",
    }
    if metadata.compacted_tokens:
        # What the compaction itself took is in no figure above.
        compaction_figures = {"input_tokens": metadata.compacted_tokens, "output_tokens": 12}
        empty = {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
        message_figures = {key: figures[key] for key in figures if key != "service_tier"}
        figures["iterations"] = [
            {"type": "compaction", **compaction_figures, **empty},
            {"type": "message", **message_figures},
        ]
    return figures


def stream_reply_events(body: _JsonObject, request: _JsonObject) -> Iterator[dict[str, Any]]:
    del request
    start: dict[str, Any] = {**body, "content": [], "stop_reason": None}
    start["usage"] = {**body["usage"], "output_tokens": min(1, body["usage"]["output_tokens"])}
    start["usage"].pop("iterations", None)
    start.pop("context_management", None)
    yield {"type": "message_start", "message": start}
    for index, block in enumerate(body["content"]):
        yield from _block(index, block)
        if index == 0:
            yield {"type": "ping"}
    ending = {"stop_reason": body["stop_reason"], "stop_sequence": body["stop_sequence"]}
    usage = {
        key: value
        for key, value in body["usage"].items()
        if key.endswith("_tokens") or key == "iterations"
    }
    end: dict[str, Any] = {"type": "message_delta", "delta": ending, "usage": usage}
    if "context_management" in body:
        end["context_management"] = body["context_management"]
    yield end
    yield {"type": "message_stop"}


def _block(index: int, block: _JsonObject) -> Iterator[dict[str, Any]]:
    start_block, deltas = _deltas(block)
    yield {"type": "content_block_start", "index": index, "content_block": start_block}
    for delta in deltas:
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


def _deltas(block: _JsonObject) -> tuple[_JsonObject, list[dict[str, Any]]]:
    match block["type"]:
        case "text":
            texts = split_for_streaming(block["text"])
            return {**block, "text": ""}, [{"type": "text_delta", "text": text} for text in texts]
        case "thinking":
            thoughts: list[dict[str, Any]] = [
                {"type": "thinking_delta", "thinking": text}
                for text in split_for_streaming(block["thinking"])
            ]
            thoughts.append({"type": "signature_delta", "signature": block["signature"]})
            return {**block, "thinking": "", "signature": ""}, thoughts
        case "tool_use":
            texts = ["", *split_for_streaming(dump_tool_arguments(block["input"]))]
            deltas = [{"type": "input_json_delta", "partial_json": text} for text in texts]
            return {**block, "input": {}}, deltas
        case "compaction":
            delta = {"type": "compaction_delta", "content": block["content"]}
            return {**block, "content": None}, [delta]
        case _:
            return block, []
