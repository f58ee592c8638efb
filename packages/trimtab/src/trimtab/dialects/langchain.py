"""Converts LangChain's messages to dicts of Chat Completions, or of Anthropic if they have its
blocks.

They are recognised by their shape: nothing of LangChain is imported.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from trimtab.dialects.json_values import int_or_zero
from trimtab.engine.log.event import Usage

MessageDict = dict[str, Any]
_NO_VALUES: Mapping[str, Any] = {}
_ROLES = {"human": "user", "system": "system", "ai": "assistant", "tool": "tool"}
_ANTHROPIC_ONLY_BLOCK_TYPES = ("thinking", "redacted_thinking", "server_tool_use", "tool_use")
"""Blocks that Chat Completions does not support."""
_REPEATED_CALL_BLOCK_TYPES = ("function_call", "custom_tool_call", "tool_call", "tool_call_chunk")
"""Blocks that repeat what `tool_calls` has, in replies of the Responses API and in LangChain's own
format."""
_STREAMING_KEYS = ("index", "partial_json")
"""Keys that a streamed reply leaves in its blocks. Providers reject them."""
_MEDIA_KINDS = ("image", "audio", "video", "file", "media")
"""Types of LangChain's own media blocks; `media` is that of Google's models."""


def is_langchain_message(value: Any) -> bool:
    """Whether it is one of LangChain's messages."""
    attributes = ("type", "content", "additional_kwargs", "response_metadata")
    return not isinstance(value, type | Mapping) and all(
        hasattr(value, name) for name in attributes
    )


def list_read_fields(langchain_message: Any) -> tuple[Any, ...] | None:
    """Return the values that `convert_langchain_message_to_wire` reads, not copied.

    Two messages of one class with equal values become equal dicts, and comparing the values is much
    faster. None for an object that does not keep its values in `__dict__`.
    """
    values: Mapping[str, Any] = getattr(langchain_message, "__dict__", _NO_VALUES)
    if "content" not in values or "additional_kwargs" not in values:
        return None
    # A message has no attribute for a value that its kind lacks, and looking for one is slow.
    return (
        values.get("type"),
        values["content"],
        values["additional_kwargs"].get("__openai_role__"),
        values.get("tool_calls"),
        values.get("invalid_tool_calls"),
        values.get("tool_call_id"),
        values.get("status"),
    )


def convert_langchain_message_to_wire(langchain_message: Any) -> MessageDict:
    """Convert the message to a dict of the dialect that can express all of it."""
    kind = str(langchain_message.type).removesuffix("MessageChunk").lower()
    if kind not in _ROLES:
        raise ValueError(
            f"a LangChain message of type {langchain_message.type!r} cannot be sent to a model; "
            f"supported types: {', '.join(_ROLES)}"
        )
    role = _ROLES[kind]
    content = _content(langchain_message.content)
    if kind == "system":
        return {
            "role": langchain_message.additional_kwargs.get("__openai_role__", role),
            "content": content,
        }
    if kind == "tool":
        return _result(langchain_message, content)
    if kind == "human":
        return {"role": role, "content": content}
    calls = [*langchain_message.tool_calls, *langchain_message.invalid_tool_calls]
    content = _reply_content(content, calls)
    if any(block.get("type") in _ANTHROPIC_ONLY_BLOCK_TYPES for block in _blocks(content)):
        call_ids = {block.get("id") for block in _blocks(content)}
        missing = [call for call in calls if call["id"] not in call_ids]
        return {"role": role, "content": [*_blocks(content), *map(_tool_use, missing)]}
    wire: MessageDict = {"role": role, "content": content or None}
    return wire | ({"tool_calls": [_call(call) for call in calls]} if calls else {})


def read_langchain_usage(langchain_message: Any) -> Usage | None:
    """Return the usage that a reply carries; None if it carries none, or is not a reply."""
    usage: Any = getattr(langchain_message, "usage_metadata", None)
    if not usage:
        return None
    details: Mapping[str, Any] = usage.get("input_token_details") or {}
    # Anthropic's writes stand either in the first or, by lifetime, in the others.
    short, long = (
        int_or_zero(details.get(f"ephemeral_{lifetime}_input_tokens")) for lifetime in ("5m", "1h")
    )
    return Usage(
        input=int_or_zero(usage.get("input_tokens")),
        output=int_or_zero(usage.get("output_tokens")),
        cache_read=int_or_zero(details.get("cache_read")),
        cache_write=int_or_zero(details.get("cache_creation")) + short + long,
        cache_write_long=long,
    )


def read_langchain_stop_reason(langchain_message: Any) -> str:
    """Return why the model stopped, as its provider names it."""
    about: Mapping[str, Any] = langchain_message.response_metadata
    return str(about.get("finish_reason") or about.get("stop_reason") or "stop")


def _reply_content(content: Any, calls: Sequence[Mapping[str, Any]]) -> Any:
    """Return a reply's content in which each call appears once, with its whole arguments."""
    if not isinstance(content, list):
        return content
    call_by_id = {call["id"]: call for call in calls}
    blocks: list[MessageDict] = []
    for block in _blocks(content):
        call = call_by_id.get(block.get("call_id") or block.get("id"))
        if call is not None and block.get("type") in _REPEATED_CALL_BLOCK_TYPES:
            continue
        wire_block = {key: value for key, value in block.items() if key not in _STREAMING_KEYS}
        if call is not None and block.get("type") == "tool_use":
            wire_block["input"] = call["args"]  # a streamed block has none
        blocks.append(wire_block)
    return blocks


def _result(value: Any, content: Any) -> MessageDict:
    if getattr(value, "status", "success") != "error":
        return {"role": "tool", "tool_call_id": value.tool_call_id, "content": content}
    block = {"type": "tool_result", "tool_use_id": value.tool_call_id, "content": content}
    return {"role": "user", "content": [{**block, "is_error": True}]}


def _call(call: Mapping[str, Any]) -> MessageDict:
    function = {"name": call["name"], "arguments": _arguments(call["args"])}
    return {"id": call["id"], "type": "function", "function": function}


def _tool_use(call: Mapping[str, Any]) -> MessageDict:
    return {"type": "tool_use", "id": call["id"], "name": call["name"], "input": call["args"]}


def _arguments(args: Any) -> str:
    """Return the arguments as text. Arguments that could not be parsed are already text."""
    return args if isinstance(args, str) else json.dumps(args or {}, ensure_ascii=False)


def _blocks(content: Any) -> list[MessageDict]:
    return cast("list[MessageDict]", content) if isinstance(content, list) else []


def _content(content: Any) -> Any:
    """Convert texts and blocks; LangChain's own media blocks become those of Chat Completions."""
    if not isinstance(content, list):
        return content
    blocks: list[MessageDict] = []
    for index, block in enumerate(cast("list[Any]", content)):
        if not isinstance(block, str | Mapping):
            kind = type(block).__name__
            raise TypeError(f"content[{index}] is {kind}; it must be a text or a block")
        is_text = isinstance(block, str)
        blocks.append(
            {"type": "text", "text": block} if is_text else _block(cast("MessageDict", block))
        )
    return blocks


def _block(block: MessageDict) -> MessageDict:
    kind = block.get("type", "")
    if kind == "text-plain" and isinstance(block.get("text"), str):
        return {"type": "text", "text": block["text"]}
    if kind == "image_url" and isinstance(block.get("image_url"), str):
        return {"type": "image_url", "image_url": {"url": block["image_url"]}}
    is_data = "source_type" in block or kind == "media"
    data = block.get("base64") or (block.get("data") if is_data else None)
    url = block.get("url") or block.get("file_uri")
    if kind not in _MEDIA_KINDS or not (data or url) or "source" in block:
        return block
    mime = block.get("mime_type") or "application/octet-stream"
    url = url or f"data:{mime};base64,{data}"
    kind = mime.partition("/")[0] if kind == "media" else kind
    match kind:
        case "image":
            return {"type": "image_url", "image_url": {"url": url}}
        case "video":
            return {"type": "video_url", "video_url": {"url": url}}
        case "audio":
            audio = {"data": data, "format": mime.partition("/")[2]}
            return {"type": "input_audio", "input_audio": audio}
        case _:
            name = block.get("filename") or block.get("extras", {}).get("filename") or "file"
            return {"type": "file", "file": {"filename": name, "file_data": url}}
