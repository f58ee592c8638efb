"""Chat Completions: a reply, and the chunks that stream it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trimtab.testing.answer import Answer, Call, Frame, pieces
from trimtab.testing.arguments import as_text

_WIRE = Mapping[str, Any]


def reply(answer: Answer, frame: Frame) -> dict[str, Any]:
    message: dict[str, Any] = {
        "role": "assistant",
        "content": answer.text or (None if answer.calls else ""),
        "refusal": None,
        "annotations": [],
    }
    if answer.thinking is not None:
        # Servers of open models tell it so; OpenAI's own keep it to themselves.
        message["reasoning_content"] = answer.thinking
    if answer.calls:
        message["tool_calls"] = [_call(call, frame) for call in answer.calls]
    stop = answer.stop or ("tool_calls" if answer.calls else "stop")
    return {
        "id": frame.ids("chatcmpl-"),
        "object": "chat.completion",
        "created": frame.created,
        "model": frame.model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": stop}],
        "usage": _usage(frame),
        "service_tier": "default",
        "system_fingerprint": "fp_simulated",
    }


def _call(call: Call, frame: Frame) -> dict[str, Any]:
    function = {"name": call.name, "arguments": as_text(call.arguments)}
    return {"id": call.id or frame.ids("call_"), "type": "function", "function": function}


def _usage(frame: Frame) -> dict[str, Any]:
    usage = frame.usage
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
            "reasoning_tokens": frame.thought,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def events(reply: _WIRE, request: _WIRE) -> Iterator[dict[str, Any]]:
    head = {key: value for key, value in reply.items() if key not in ("choices", "usage")}
    head["object"] = "chat.completion.chunk"
    options: _WIRE = request.get("stream_options") or {}
    told = bool(options.get("include_usage"))
    if told:
        # Each chunk then has the key, and the last one the value.
        head["usage"] = None
    for choice in reply["choices"]:
        for delta, stop in _deltas(choice):
            made = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": stop}
            yield {**head, "choices": [made]}
    if told:
        yield {**head, "choices": [], "usage": reply["usage"]}


def _deltas(choice: _WIRE) -> Iterator[tuple[dict[str, Any], str | None]]:
    message = choice["message"]
    content = message["content"]
    start = None if content is None else ""
    yield {"role": "assistant", "content": start, "refusal": None}, None
    for thought in pieces(message.get("reasoning_content") or ""):
        if thought:
            yield {"reasoning_content": thought}, None
    for text in pieces(content or ""):
        if text:
            yield {"content": text}, None
    for index, call in enumerate(message.get("tool_calls") or ()):
        function = call["function"]
        begun: dict[str, Any] = {**call, "function": {**function, "arguments": ""}}
        yield {"tool_calls": [{"index": index, **begun}]}, None
        for text in pieces(function["arguments"]):
            yield {"tool_calls": [{"index": index, "function": {"arguments": text}}]}, None
    yield {}, choice["finish_reason"]
