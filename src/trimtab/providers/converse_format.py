"""Requests of the `anthropic` dialect as Bedrock's Converse takes them, and its replies as that
dialect has them. Both have the same parts: only the names differ.

Converse puts a cache mark behind a block, as a block of its own; text blocks of a stream begin
without saying so; and the usage of a stream comes after its end.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from trimtab.dialects.json_values import dict_or_none, dicts_in_list
from trimtab.model_families import detect_model_family
from trimtab.providers.protocol_and_failures import ProviderError, ProviderFailureDetails

_JsonObject = Mapping[str, Any]
_INFERENCE_NAMES = {
    "max_tokens": "maxTokens",
    "temperature": "temperature",
    "top_p": "topP",
    "stop_sequences": "stopSequences",
}
_TRANSLATED = frozenset({*_INFERENCE_NAMES, "model", "messages", "system", "tools", "tool_choice"})
_CLIENT_OPTIONS = frozenset({"stream", "timeout", "extra_headers", "extra_query", "extra_body"})
"""What tells a client how to send, and is no part of what is sent."""
_CACHE_POINTS_BY_FAMILY = {
    "claude": frozenset({"system", "tools", "messages"}),
    "nova": frozenset({"system", "messages"}),
}
"""By family: where a model takes cache points. All others refuse a request that has one."""
_STOP_REASONS = {"guardrail_intervened": "refusal", "content_filtered": "refusal"}
_DOCUMENT_FORMATS = {"application/pdf": "pdf", "text/plain": "txt"}


def build_converse_request(request: _JsonObject) -> dict[str, Any]:
    """Keyword arguments of boto3's `converse` and `converse_stream`.

    Raises ProviderError, as `rejected`, for content that Converse has no form for.
    """
    made: dict[str, Any] = {"modelId": request["model"]}
    made["messages"] = _build_messages(dicts_in_list(request.get("messages")))
    if system := _build_system(request.get("system")):
        made["system"] = system
    limits = {theirs: request[ours] for ours, theirs in _INFERENCE_NAMES.items() if ours in request}
    if limits:
        made["inferenceConfig"] = limits
    if tools := dicts_in_list(request.get("tools")):
        made["toolConfig"] = {"tools": _build_tools(tools), **_build_choice(request)}
    more = {
        name: value
        for name, value in request.items()
        if name not in _TRANSLATED and name not in _CLIENT_OPTIONS
    }
    if more := more | dict(request.get("extra_body") or {}):
        made["additionalModelRequestFields"] = more
    return _with_accepted_cache_points(made, detect_model_family(request["model"]))


def _with_accepted_cache_points(made: dict[str, Any], family: str) -> dict[str, Any]:
    """Without the cache points that the model's family refuses. A name that tells no family, such
    as the ARN of a profile of one's own, gets none."""
    places = _CACHE_POINTS_BY_FAMILY.get(family, frozenset())
    if "system" in made and "system" not in places:
        made["system"] = _without_cache_points(made["system"])
    if "toolConfig" in made and "tools" not in places:
        made["toolConfig"]["tools"] = _without_cache_points(made["toolConfig"]["tools"])
    if "messages" not in places:
        for message in made["messages"]:
            message["content"] = _without_cache_points(message["content"])
    return made


def _without_cache_points(blocks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [block for block in blocks if "cachePoint" not in block]


def _build_messages(messages: Sequence[_JsonObject]) -> list[dict[str, Any]]:
    """Each role's messages in a row are one: Converse wants the roles to alternate."""
    made: list[dict[str, Any]] = []
    documents = 0
    for message in messages:
        # Only Anthropic itself takes a system message among the others.
        role = "assistant" if message["role"] == "assistant" else "user"
        content: list[dict[str, Any]] = []
        for block in _list_blocks(message.get("content")):
            documents += block.get("type") == "document"
            content += [_build_block(block, documents), *_build_cache_point(block)]
        if made and made[-1]["role"] == role:
            made[-1]["content"] += content
        else:
            made.append({"role": role, "content": content})
    return made


def _list_blocks(content: Any) -> list[_JsonObject]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [*dicts_in_list(content)]


def _build_block(block: _JsonObject, number: int) -> dict[str, Any]:
    match block.get("type"):
        case "text":
            return {"text": block["text"]}
        case "tool_use":
            use = {"toolUseId": block["id"], "name": block["name"], "input": block["input"]}
            return {"toolUse": use}
        case "tool_result":
            return {"toolResult": _build_result(block, number)}
        case "image":
            return {"image": _build_media(block, _image_format(block))}
        case "document":
            kind = _DOCUMENT_FORMATS.get(_read_source(block).get("media_type", ""))
            return {"document": {"name": f"document {number}", **_build_media(block, kind)}}
        case "thinking":
            thought = {"text": block["thinking"], "signature": block["signature"]}
            return {"reasoningContent": {"reasoningText": thought}}
        case "redacted_thinking":
            hidden = base64.b64decode(block["data"])
            return {"reasoningContent": {"redactedContent": hidden}}
        case other:
            raise _reject(f"Converse has no form for a block of type {other!r}")


def _build_result(block: _JsonObject, number: int) -> dict[str, Any]:
    parts = _list_blocks(block.get("content"))
    # A result may be empty; a blank text is refused, and so is a list of nothing.
    inner = [_build_block(part, number) for part in parts if str(part.get("text", "…")).strip()]
    result = {"toolUseId": block["tool_use_id"], "content": inner or [{"text": "(no output)"}]}
    return {**result, "status": "error"} if block.get("is_error") else result


def _read_source(block: _JsonObject) -> dict[str, Any]:
    return dict(dict_or_none(block.get("source")) or {})


def _image_format(block: _JsonObject) -> str:
    return str(_read_source(block).get("media_type", "")).removeprefix("image/")


def _build_media(block: _JsonObject, format_name: str | None) -> dict[str, Any]:
    source = _read_source(block)
    if not format_name or source.get("type") not in ("base64", "text"):
        told = source.get("media_type") or source.get("type")
        raise _reject(f"Converse takes no {block['type']} of {told!r}: send its bytes as base64")
    data = source["data"]
    raw = data.encode() if source["type"] == "text" else base64.b64decode(data)
    return {"format": format_name, "source": {"bytes": raw}}


def _reject(message: str) -> ProviderError:
    return ProviderError(ProviderFailureDetails(kind="rejected", message=message))


def _build_cache_point(block: _JsonObject) -> list[dict[str, Any]]:
    """The mark behind a block that carries one, or has one inside."""
    inside = dicts_in_list(block.get("content")) if block.get("type") == "tool_result" else []
    for holder in (block, *reversed(inside)):
        if (control := dict_or_none(holder.get("cache_control"))) is not None:
            ttl = {"ttl": control["ttl"]} if control.get("ttl") else {}
            return [{"cachePoint": {"type": "default", **ttl}}]
    return []


def _build_system(system: Any) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for block in _list_blocks(system):
        made += [{"text": block["text"]}, *_build_cache_point(block)]
    return made


def _build_tools(tools: Sequence[_JsonObject]) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for tool in tools:
        described = {"description": tool["description"]} if tool.get("description") else {}
        spec = {"name": tool["name"], **described, "inputSchema": {"json": tool["input_schema"]}}
        made += [{"toolSpec": spec}, *_build_cache_point(tool)]
    return made


def _build_choice(request: _JsonObject) -> dict[str, Any]:
    choice = dict_or_none(request.get("tool_choice")) or {}
    match choice.get("type"):
        case "auto" | "any":
            return {"toolChoice": {choice["type"]: {}}}
        case "tool":
            return {"toolChoice": {"tool": {"name": choice["name"]}}}
        case _:
            # It has no word for `none`: the tools must stand there where calls do.
            return {}


def parse_converse_reply(answer: _JsonObject, model: str) -> dict[str, Any]:
    """A whole reply of Converse as one of the Messages API."""
    message = cast("_JsonObject", answer["output"]["message"])
    return {
        "id": _read_request_id(answer),
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [_parse_block(block) for block in message["content"]],
        "stop_reason": _parse_stop(answer.get("stopReason")),
        "stop_sequence": None,
        "usage": _parse_usage(answer.get("usage")),
    }


def _read_request_id(answer: _JsonObject) -> str:
    metadata = dict_or_none(answer.get("ResponseMetadata")) or {}
    return f"msg_{metadata.get('RequestId', 'bedrock')}"


def _parse_stop(reason: Any) -> Any:
    return _STOP_REASONS.get(reason, reason)


def _parse_usage(usage: Any) -> dict[str, int]:
    """Like Anthropic's, `inputTokens` leaves what was read from and written to the cache out."""
    told: _JsonObject = usage or {}
    return {
        "input_tokens": told.get("inputTokens", 0),
        "output_tokens": told.get("outputTokens", 0),
        "cache_read_input_tokens": told.get("cacheReadInputTokens", 0),
        "cache_creation_input_tokens": told.get("cacheWriteInputTokens", 0),
    }


def _parse_block(block: _JsonObject) -> dict[str, Any]:
    if "toolUse" in block:
        use = block["toolUse"]
        return {
            "type": "tool_use",
            "id": use["toolUseId"],
            "name": use["name"],
            "input": use["input"],
        }
    if "reasoningContent" in block:
        return _parse_reasoning(block["reasoningContent"])
    return {"type": "text", "text": block.get("text", "")}


def _parse_reasoning(content: _JsonObject) -> dict[str, Any]:
    if "redactedContent" in content:
        data = base64.b64encode(content["redactedContent"]).decode()
        return {"type": "redacted_thinking", "data": data}
    thought = content["reasoningText"]
    signature = thought.get("signature", "")
    return {"type": "thinking", "thinking": thought["text"], "signature": signature}


class ConverseStreamParser:
    """The events of a ConverseStream, one after the other, as events of the Messages API."""

    def __init__(self, model: str, message_id: str) -> None:
        self._model = model
        self._id = message_id
        self._open: set[int] = set()
        self._stop: Any = None
        self.ended = False
        """Whether the reply is whole: its end was said, with or without the usage."""

    def feed(self, event: _JsonObject) -> Iterator[dict[str, Any]]:
        """The events that one event stands for."""
        [(name, value)] = event.items()
        told = cast("dict[str, Any]", value)
        match name:
            case "messageStart":
                yield {"type": "message_start", "message": self._build_start()}
            case "contentBlockStart":
                index = told["contentBlockIndex"]
                use = dict_or_none((dict_or_none(told.get("start")) or {}).get("toolUse"))
                if use is not None:
                    block = {"type": "tool_use", "id": use["toolUseId"], "name": use["name"]}
                    yield self._start_block(index, {**block, "input": {}})
            case "contentBlockDelta":
                yield from self._feed_delta(told["contentBlockIndex"], told["delta"])
            case "contentBlockStop":
                if (index := told["contentBlockIndex"]) in self._open:
                    yield {"type": "content_block_stop", "index": index}
            case "messageStop":
                self.ended, self._stop = True, _parse_stop(told.get("stopReason"))
            case "metadata":
                yield from self._finish(_parse_usage(told.get("usage")))
            case _:
                return

    def finish(self) -> Iterator[dict[str, Any]]:
        """The end of a stream that ended without its usage."""
        if self.ended and self._stop is not None:
            yield from self._finish({})

    def _finish(self, usage: Mapping[str, int]) -> Iterator[dict[str, Any]]:
        ending = {"stop_reason": self._stop, "stop_sequence": None}
        self._stop = None
        yield {"type": "message_delta", "delta": ending, "usage": dict(usage)}
        yield {"type": "message_stop"}

    def _build_start(self) -> dict[str, Any]:
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 0, "output_tokens": 0},
        }

    def _start_block(self, index: int, block: _JsonObject) -> dict[str, Any]:
        self._open.add(index)
        return {"type": "content_block_start", "index": index, "content_block": block}

    def _feed_delta(self, index: int, delta: _JsonObject) -> Iterator[dict[str, Any]]:
        begun, parsed = _parse_delta(delta)
        if index not in self._open:
            yield self._start_block(index, begun)
        if parsed is not None:
            yield {"type": "content_block_delta", "index": index, "delta": parsed}


def _parse_delta(delta: _JsonObject) -> tuple[_JsonObject, dict[str, Any] | None]:
    """The block that a first such delta begins, and the delta itself."""
    if "toolUse" in delta:
        return {}, {"type": "input_json_delta", "partial_json": delta["toolUse"]["input"]}
    thought: _JsonObject = delta.get("reasoningContent") or {}
    if "redactedContent" in thought:
        return _parse_reasoning(thought), None
    if thought:
        begun = {"type": "thinking", "thinking": "", "signature": ""}
        if "signature" in thought:
            return begun, {"type": "signature_delta", "signature": thought["signature"]}
        return begun, {"type": "thinking_delta", "thinking": thought.get("text", "")}
    text = {"type": "text_delta", "text": delta.get("text", "")}
    return {"type": "text", "text": ""}, text
