"""Converts requests of the `anthropic` dialect for Bedrock's Converse, and its replies back.

Both have the same parts with different names. Converse puts a cache mark after a block, as a
separate block. Text blocks of a stream begin without an event, and the usage of a stream comes
after its end.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from trimtab.dialects.json_values import dict_or_none, dicts_in_list, to_compact_json
from trimtab.dialects.provider_safe_values import (
    ERROR_RESULT_PREFIX,
    make_valid_call_id,
    make_valid_tool_name,
)
from trimtab.errors import ProviderError, ProviderFailureDetails
from trimtab.models.families import detect_model_family

MAX_DOCUMENTS = 5
"""Maximum number of documents that Converse accepts in one request."""
MAX_TOOL_NAME_CHARS = 64
NO_OUTPUT_TEXT = "(no output)"
"""The text of an empty result, because Converse accepts no blank text and no empty list."""
DOCUMENT_TEXT = "(a document)"
"""The text next to a document, because Converse accepts no document without a text."""

_JsonObject = Mapping[str, Any]
_CALL_ID = re.compile(r"[a-zA-Z0-9_.:-]{1,64}")
_INFERENCE_NAMES = {
    "max_tokens": "maxTokens",
    "temperature": "temperature",
    "top_p": "topP",
    "stop_sequences": "stopSequences",
}
_TRANSLATED = frozenset({*_INFERENCE_NAMES, "model", "messages", "system", "tools", "tool_choice"})
_CLIENT_OPTIONS = frozenset({"stream", "timeout", "extra_headers", "extra_query", "extra_body"})
"""Parameters for the client itself, which are not sent."""
_CACHE_POINTS_BY_FAMILY = {
    "claude": frozenset({"system", "tools", "messages"}),
    "nova": frozenset({"system", "messages"}),
}
"""By family: which places accept cache points. Other models reject a request with one."""
_FAMILIES_WITH_RESULT_STATUS = frozenset({"claude", "nova"})
"""Models of other families reject a result with an error flag."""
_STOP_REASONS = {"guardrail_intervened": "refusal", "content_filtered": "refusal"}
_MALFORMED_STOP_REASONS = ("malformed_model_output", "malformed_tool_use")
"""The model wrote neither a text nor a call. It may do better when called again."""
_DOCUMENT_FORMATS = {"application/pdf": "pdf", "text/plain": "txt"}


def build_converse_request(request: _JsonObject) -> dict[str, Any]:
    """Build the keyword arguments of boto3's `converse` and `converse_stream`.

    Raises `ProviderError`, kind `rejected`, for content that Converse does not support.
    """
    family = detect_model_family(request["model"])
    messages = dicts_in_list(request.get("messages"))
    converse_request: dict[str, Any] = {"modelId": request["model"]}
    converse_request["messages"] = _build_messages(messages, family)
    if system := _build_system(request.get("system")):
        converse_request["system"] = system
    limits = {theirs: request[ours] for ours, theirs in _INFERENCE_NAMES.items() if ours in request}
    if limits:
        converse_request["inferenceConfig"] = limits
    if tools := _build_tools(dicts_in_list(request.get("tools"))):
        converse_request["toolConfig"] = {"tools": tools, **_build_choice(request)}
    elif called_tools := _build_called_tools(converse_request["messages"]):
        converse_request["toolConfig"] = {"tools": called_tools}
    more = {
        name: value
        for name, value in request.items()
        if name not in _TRANSLATED and name not in _CLIENT_OPTIONS
    }
    if more := more | dict(request.get("extra_body") or {}):
        converse_request["additionalModelRequestFields"] = more
    return _with_accepted_cache_points(converse_request, family)


def _build_called_tools(messages: Sequence[_JsonObject]) -> list[dict[str, Any]]:
    """Define the tools that earlier calls name, for a request that no longer has tools.

    Converse rejects calls if no tools are defined.
    """
    blocks = (block for message in messages for block in message["content"])
    names = dict.fromkeys(block["toolUse"]["name"] for block in blocks if "toolUse" in block)
    schema = {"json": {"type": "object"}}
    return [{"toolSpec": {"name": name, "inputSchema": schema}} for name in names]


def _with_accepted_cache_points(made: dict[str, Any], family: str) -> dict[str, Any]:
    """Remove the cache points that the model's family rejects.

    A name that does not say the family, such as the ARN of a custom profile, gets none.
    """
    places = _CACHE_POINTS_BY_FAMILY.get(family, frozenset())
    if "system" in made and "system" not in places:
        made["system"] = _without_cache_points(made["system"])
    if "toolConfig" in made and "tools" not in places:
        made["toolConfig"]["tools"] = _without_cache_points(made["toolConfig"]["tools"])
    if "messages" not in places:
        for message in made["messages"]:
            message["content"] = _without_cache_points(message["content"])
    if family == "nova":
        _move_cache_points_to_texts([made.get("system", [])])
        _move_cache_points_to_texts([message["content"] for message in made["messages"]])
    return made


def _without_cache_points(blocks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [block for block in blocks if "cachePoint" not in block]


def _move_cache_points_to_texts(lists: Sequence[list[dict[str, Any]]]) -> None:
    """Move cache points to texts: Nova accepts them only after a text, and without a lifetime.

    A cache point after a result or a picture moves to the nearest text before it.
    """
    place_without_mark: tuple[list[dict[str, Any]], int] | None = None
    for blocks in lists:
        old_blocks = [*blocks]
        blocks.clear()
        for block in old_blocks:
            if "cachePoint" not in block:
                blocks.append(block)
                place_without_mark = (
                    (blocks, len(blocks)) if "text" in block else place_without_mark
                )
            elif place_without_mark is not None:
                holder, place = place_without_mark
                holder.insert(place, {"cachePoint": {"type": "default"}})
                place_without_mark = None


def _build_messages(messages: Sequence[_JsonObject], family: str) -> list[dict[str, Any]]:
    """Join adjacent messages of one role, because Converse wants the roles to alternate."""
    joint_messages: list[dict[str, Any]] = []
    builder = _BlockBuilder(family, left_out=_count_documents(messages) - MAX_DOCUMENTS)
    for message in messages:
        # Only Anthropic itself takes a system message among the others.
        role = "assistant" if message["role"] == "assistant" else "user"
        content = builder.build_blocks(message.get("content"))
        if not content:
            continue
        if joint_messages and joint_messages[-1]["role"] == role:
            joint_messages[-1]["content"] += content
        else:
            joint_messages.append({"role": role, "content": content})
    for message in joint_messages:
        if _has_block(message, "document") and not _has_block(message, "text"):
            message["content"].append({"text": DOCUMENT_TEXT})
    if joint_messages and joint_messages[-1]["role"] == "assistant":
        # What followed may have been thinking. A reply to go on with does not end in a space.
        last_content = [
            block for block in joint_messages[-1]["content"] if "cachePoint" not in block
        ]
        if "text" in last_content[-1]:
            last_content[-1]["text"] = last_content[-1]["text"].rstrip()
    return joint_messages


def _has_block(message: _JsonObject, kind: str) -> bool:
    return any(kind in block for block in message["content"])


def _count_documents(messages: Sequence[_JsonObject]) -> int:
    blocks = [block for message in messages for block in _list_blocks(message.get("content"))]
    inner = [part for block in blocks for part in _list_result_parts(block)]
    return sum(block.get("type") == "document" for block in (*blocks, *inner))


def _list_blocks(content: Any) -> list[_JsonObject]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [*dicts_in_list(content)]


def _list_result_parts(block: _JsonObject) -> list[_JsonObject]:
    return _list_blocks(block.get("content")) if block.get("type") == "tool_result" else []


class _BlockBuilder:
    """Builds the blocks of one request in order.

    Documents get unique names, and the oldest of too many are left out.
    """

    def __init__(self, family: str, *, left_out: int) -> None:
        self._family = family
        self._left_out = left_out
        self._documents = 0

    def build_blocks(self, content: Any) -> list[dict[str, Any]]:
        """Convert a message's content; each cache mark becomes a separate block after the marked
        one."""
        wire_blocks: list[dict[str, Any]] = []
        for block in _list_blocks(content):
            if (wire_block := self._build_block(block)) is not None:
                wire_blocks += [wire_block, *_build_cache_point(block)]
        return wire_blocks

    def _build_block(self, block: _JsonObject) -> dict[str, Any] | None:
        """Convert a block; return None for an empty one, and for thinking that Converse would
        reject."""
        kind = block.get("type")
        if self._family == "deepseek" and kind in ("thinking", "redacted_thinking"):
            return None  # it refuses its own too
        match kind:
            case "text":
                return {"text": block["text"]} if block["text"].strip() else None
            case "tool_use":
                return {"toolUse": _build_call(block)}
            case "tool_result":
                return {"toolResult": self._build_result(block)}
            case "image":
                return {"image": _build_media(block, _image_format(block))}
            case "document":
                return self._build_document(block)
            case "thinking":
                # Claude refuses thinking without a signature, Nova refuses an empty signature.
                if not block.get("signature"):
                    return None
                reasoning = {"text": block["thinking"], "signature": block["signature"]}
                return {"reasoningContent": {"reasoningText": reasoning}}
            case "redacted_thinking":
                redacted_bytes = base64.b64decode(block["data"])
                return {"reasoningContent": {"redactedContent": redacted_bytes}}
            case other:
                raise _reject(f"Converse does not support blocks of type {other!r}")

    def _build_document(self, block: _JsonObject) -> dict[str, Any]:
        self._documents += 1
        if self._documents <= self._left_out:
            return {
                "text": f"[document {self._documents} omitted: only the newest {MAX_DOCUMENTS} "
                "documents are sent]"
            }
        kind = _DOCUMENT_FORMATS.get(_read_source(block).get("media_type", ""))
        name = f"document {self._documents}"
        return {"document": {"name": name, **_build_media(block, kind)}}

    def _build_result(self, block: _JsonObject) -> dict[str, Any]:
        wire_parts = [self._build_block(part) for part in _list_result_parts(block)]
        inner = [part for part in wire_parts if part is not None] or [{"text": NO_OUTPUT_TEXT}]
        result = {"toolUseId": make_valid_call_id(block["tool_use_id"], _CALL_ID)}
        if not block.get("is_error"):
            return {**result, "content": inner}
        if self._family in _FAMILIES_WITH_RESULT_STATUS:
            return {**result, "content": inner, "status": "error"}
        return {**result, "content": _with_error_prefix(inner)}


def _build_call(block: _JsonObject) -> dict[str, Any]:
    return {
        "toolUseId": make_valid_call_id(block["id"], _CALL_ID),
        "name": make_valid_tool_name(block["name"], MAX_TOOL_NAME_CHARS),
        "input": block["input"],
    }


def _with_error_prefix(parts: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the parts of a result with a first text that says that the tool has failed."""
    first = parts[0].get("text")
    if first is None:
        return [{"text": ERROR_RESULT_PREFIX}, *parts]
    if first[:5].lower() == "error" or (first.startswith("[") and first.endswith("]")):
        return [*parts]
    return [{"text": f"{ERROR_RESULT_PREFIX}: {first}"}, *parts[1:]]


def _read_source(block: _JsonObject) -> dict[str, Any]:
    return dict(dict_or_none(block.get("source")) or {})


def _image_format(block: _JsonObject) -> str:
    return str(_read_source(block).get("media_type", "")).removeprefix("image/")


def _build_media(block: _JsonObject, format_name: str | None) -> dict[str, Any]:
    source = _read_source(block)
    if not format_name or source.get("type") not in ("base64", "text"):
        media_type = source.get("media_type") or source.get("type")
        raise _reject(
            f"Converse does not accept {block['type']} of {media_type!r}: send its bytes as base64"
        )
    data = source["data"]
    raw = data.encode() if source["type"] == "text" else base64.b64decode(data)
    return {"format": format_name, "source": {"bytes": raw}}


def _reject(message: str) -> ProviderError:
    return ProviderError(ProviderFailureDetails(kind="rejected", message=message))


def _build_cache_point(block: _JsonObject) -> list[dict[str, Any]]:
    """Return the cache mark after a block that has one, itself or inside."""
    inside = dicts_in_list(block.get("content")) if block.get("type") == "tool_result" else []
    for holder in (block, *reversed(inside)):
        if (control := dict_or_none(holder.get("cache_control"))) is not None:
            ttl = {"ttl": control["ttl"]} if control.get("ttl") else {}
            return [{"cachePoint": {"type": "default", **ttl}}]
    return []


def _build_system(system: Any) -> list[dict[str, Any]]:
    wire_blocks: list[dict[str, Any]] = []
    for block in _list_blocks(system):
        if block["text"].strip():
            wire_blocks += [{"text": block["text"]}, *_build_cache_point(block)]
    return wire_blocks


def _build_tools(tools: Sequence[_JsonObject]) -> list[dict[str, Any]]:
    wire_tools: list[dict[str, Any]] = []
    for tool in tools:
        if "input_schema" not in tool:
            raise _reject(f"Converse does not support tools of type {tool.get('type')!r}")
        description = {"description": tool["description"]} if tool.get("description") else {}
        spec = {"name": tool["name"], **description, "inputSchema": {"json": tool["input_schema"]}}
        wire_tools += [{"toolSpec": spec}, *_build_cache_point(tool)]
    return wire_tools


def _build_choice(request: _JsonObject) -> dict[str, Any]:
    choice = dict_or_none(request.get("tool_choice")) or {}
    match choice.get("type"):
        case "auto" | "any":
            return {"toolChoice": {choice["type"]: {}}}
        case "tool":
            return {"toolChoice": {"tool": {"name": choice["name"]}}}
        case _:
            # Converse has no `none`: a request with calls must define their tools.
            return {}


def parse_converse_reply(answer: _JsonObject, model: str) -> dict[str, Any]:
    """Convert a whole reply of Converse to one of the Messages API."""
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
    if reason in _MALFORMED_STOP_REASONS:
        words = f"the reply ended with {reason}: Bedrock cannot read what the model wrote"
        raise ProviderError(ProviderFailureDetails(kind="server", message=words))
    return _STOP_REASONS.get(reason, reason)


def _parse_usage(usage: Any) -> dict[str, int]:
    """Convert the usage. Like Anthropic's, `inputTokens` excludes cache reads and writes."""
    counts: _JsonObject = usage or {}
    return {
        "input_tokens": counts.get("inputTokens", 0),
        "output_tokens": counts.get("outputTokens", 0),
        "cache_read_input_tokens": counts.get("cacheReadInputTokens", 0),
        "cache_creation_input_tokens": counts.get("cacheWriteInputTokens", 0),
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
    reasoning = content["reasoningText"]
    text = reasoning.get("text", "")
    signature = reasoning.get("signature", "")
    return {"type": "thinking", "thinking": text, "signature": signature}


class ConverseStreamParser:
    """Converts the events of a ConverseStream to events of the Messages API, one by one."""

    def __init__(self, model: str, message_id: str) -> None:
        self._model = model
        self._id = message_id
        self._open: set[int] = set()
        self._stop: Any = None
        self.ended = False
        """Whether the reply is complete: its end was received, with or without the usage."""

    def feed(self, event: _JsonObject) -> Iterator[dict[str, Any]]:
        """Return the events that one event corresponds to."""
        [(name, value)] = event.items()
        body = cast("dict[str, Any]", value)
        match name:
            case "messageStart":
                yield {"type": "message_start", "message": self._build_start()}
            case "contentBlockStart":
                index = body["contentBlockIndex"]
                use = dict_or_none((dict_or_none(body.get("start")) or {}).get("toolUse"))
                if use is not None:
                    block = {"type": "tool_use", "id": use["toolUseId"], "name": use["name"]}
                    yield self._start_block(index, {**block, "input": {}})
            case "contentBlockDelta":
                yield from self._feed_delta(body["contentBlockIndex"], body["delta"])
            case "contentBlockStop":
                if (index := body["contentBlockIndex"]) in self._open:
                    yield {"type": "content_block_stop", "index": index}
            case "messageStop":
                self.ended, self._stop = True, _parse_stop(body.get("stopReason"))
            case "metadata":
                yield from self._finish(_parse_usage(body.get("usage")))
            case _:
                return

    def finish(self) -> Iterator[dict[str, Any]]:
        """Return the end of a stream that ended without its usage."""
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
        first_block, wire_delta = _parse_delta(delta)
        if index not in self._open:
            yield self._start_block(index, first_block)
        if wire_delta is not None:
            yield {"type": "content_block_delta", "index": index, "delta": wire_delta}


def split_into_events(answer: _JsonObject) -> Iterator[dict[str, Any]]:
    """Split a whole reply into the events of a ConverseStream, for a model that does not stream."""
    yield {"messageStart": {"role": "assistant"}}
    for index, block in enumerate(answer["output"]["message"]["content"]):
        place = {"contentBlockIndex": index}
        if use := dict_or_none(block.get("toolUse")):
            start = {"toolUse": {"toolUseId": use["toolUseId"], "name": use["name"]}}
            yield {"contentBlockStart": {"start": start, **place}}
        for delta in _split_block(block):
            yield {"contentBlockDelta": {"delta": delta, **place}}
        yield {"contentBlockStop": place}
    yield {"messageStop": {"stopReason": answer.get("stopReason")}}
    yield {"metadata": {"usage": answer.get("usage")}}


def _split_block(block: _JsonObject) -> list[dict[str, Any]]:
    if use := dict_or_none(block.get("toolUse")):
        return [{"toolUse": {"input": to_compact_json(use["input"])}}]
    reasoning = dict_or_none(
        (dict_or_none(block.get("reasoningContent")) or {}).get("reasoningText")
    )
    if reasoning is None:
        return [dict(block)]
    return [{"reasoningContent": {name: reasoning[name]}} for name in reasoning]


def _parse_delta(delta: _JsonObject) -> tuple[_JsonObject, dict[str, Any] | None]:
    """Return the block that such a first delta begins, and the delta itself."""
    if "toolUse" in delta:
        return {}, {"type": "input_json_delta", "partial_json": delta["toolUse"]["input"]}
    reasoning: _JsonObject = delta.get("reasoningContent") or {}
    if "redactedContent" in reasoning:
        return _parse_reasoning(reasoning), None
    if reasoning:
        first_block = {"type": "thinking", "thinking": "", "signature": ""}
        if "signature" in reasoning:
            return first_block, {"type": "signature_delta", "signature": reasoning["signature"]}
        return first_block, {"type": "thinking_delta", "thinking": reasoning.get("text", "")}
    text = {"type": "text_delta", "text": delta.get("text", "")}
    return {"type": "text", "text": ""}, text
