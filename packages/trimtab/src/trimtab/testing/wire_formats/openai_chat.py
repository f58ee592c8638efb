"""Chat Completions: a reply, and the chunks that stream it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trimtab.testing.replies import ReplyMetadata, ScriptedCall, ScriptedReply, split_for_streaming
from trimtab.testing.tool_arguments import dump_tool_arguments

_JsonObject = Mapping[str, Any]


def build_reply_body(scripted_reply: ScriptedReply, metadata: ReplyMetadata) -> dict[str, Any]:
    message: dict[str, Any] = {
        "role": "assistant",
        "content": scripted_reply.text or (None if scripted_reply.calls else ""),
        "refusal": None,
        "annotations": [],
    }
    if scripted_reply.thinking is not None:
        # Servers of open models tell it so; OpenAI's own keep it to themselves.
        message["reasoning_content"] = scripted_reply.thinking
    if scripted_reply.calls:
        message["tool_calls"] = [_call(call, metadata) for call in scripted_reply.calls]
    stop = scripted_reply.stop or ("tool_calls" if scripted_reply.calls else "stop")
    return {
        "id": metadata.ids("chatcmpl-"),
        "object": "chat.completion",
        "created": metadata.created,
        "model": metadata.model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": stop}],
        "usage": _usage(metadata),
        "service_tier": "default",
        "system_fingerprint": "fp_simulated",
    }


def _call(call: ScriptedCall, metadata: ReplyMetadata) -> dict[str, Any]:
    function = {"name": call.name, "arguments": dump_tool_arguments(call.arguments)}
    return {"id": call.id or metadata.ids("call_"), "type": "function", "function": function}


def _usage(metadata: ReplyMetadata) -> dict[str, Any]:
    usage = metadata.usage
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {
            "cached_tokens": usage.cache_read,
            "cache_write_tokens": usage.cache_write,
            "audio_tokens": 0,
        },
        "completion_tokens_details": {
            "reasoning_tokens": metadata.thinking_tokens,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def stream_reply_events(body: _JsonObject, request: _JsonObject) -> Iterator[dict[str, Any]]:
    head = {key: value for key, value in body.items() if key not in ("choices", "usage")}
    head["object"] = "chat.completion.chunk"
    options: _JsonObject = request.get("stream_options") or {}
    with_usage = bool(options.get("include_usage"))
    if with_usage:
        # Each chunk then has the key, and the last one the value.
        head["usage"] = None
    for choice in body["choices"]:
        for delta, stop in _deltas(choice):
            choice_chunk = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": stop}
            yield {**head, "choices": [choice_chunk]}
    if with_usage:
        yield {**head, "choices": [], "usage": body["usage"]}


def _deltas(choice: _JsonObject) -> Iterator[tuple[dict[str, Any], str | None]]:
    message = choice["message"]
    content = message["content"]
    start = None if content is None else ""
    yield {"role": "assistant", "content": start, "refusal": None}, None
    for piece in split_for_streaming(message.get("reasoning_content") or ""):
        if piece:
            yield {"reasoning_content": piece}, None
    for text in split_for_streaming(content or ""):
        if text:
            yield {"content": text}, None
    for index, call in enumerate(message.get("tool_calls") or ()):
        function = call["function"]
        empty_call: dict[str, Any] = {**call, "function": {**function, "arguments": ""}}
        yield {"tool_calls": [{"index": index, **empty_call}]}, None
        for text in split_for_streaming(function["arguments"]):
            yield {"tool_calls": [{"index": index, "function": {"arguments": text}}]}, None
    yield {}, choice["finish_reason"]
