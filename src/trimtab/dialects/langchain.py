"""LangChain's messages as dicts of Chat Completions, or of Anthropic where they hold its blocks.

They are known by their shape: nothing of LangChain is imported.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from trimtab.dialects.shapes import as_int

Wire = dict[str, Any]
_ROLES = {"human": "user", "system": "system", "ai": "assistant", "tool": "tool"}
_ANTHROPIC = ("thinking", "redacted_thinking", "server_tool_use", "tool_use")
"""Blocks that Chat Completions has no place for."""
_KINDS = {"image": "image_url", "audio": "input_audio", "file": "file"}


def is_langchain(value: Any) -> bool:
    """Whether it is one of LangChain's messages."""
    named = ("type", "content", "additional_kwargs", "response_metadata")
    return not isinstance(value, type | Mapping) and all(hasattr(value, name) for name in named)


def message_of(value: Any) -> Wire:
    """The message as a dict of the dialect that can say all of it."""
    kind = str(value.type).removesuffix("MessageChunk").lower()
    if kind not in _ROLES:
        raise ValueError(
            f"a LangChain message of type {value.type!r} is nothing that is said to a model; "
            f"types that are: {', '.join(_ROLES)}"
        )
    role, content = _ROLES[kind], _content(value.content)
    if kind == "system":
        return {"role": value.additional_kwargs.get("__openai_role__", role), "content": content}
    if kind == "tool":
        return _result(value, content)
    if kind == "human":
        return {"role": role, "content": content}
    calls = [*value.tool_calls, *value.invalid_tool_calls]
    if any(block.get("type") in _ANTHROPIC for block in _blocks(content)):
        known = {block.get("id") for block in _blocks(content)}
        missing = [call for call in calls if call["id"] not in known]
        return {"role": role, "content": [*_blocks(content), *map(_tool_use, missing)]}
    made: Wire = {"role": role, "content": content or None}
    return made | ({"tool_calls": [_call(call) for call in calls]} if calls else {})


def reply_of(value: Any) -> Wire:
    """The same as a whole reply with its usage, where the message has one."""
    message, usage = message_of(value), getattr(value, "usage_metadata", None)
    if message["role"] != "assistant" or not usage:
        return message
    about: Mapping[str, Any] = value.response_metadata
    model = str(about.get("model_name") or about.get("model") or "")
    stop = about.get("finish_reason") or about.get("stop_reason") or "stop"
    details: Mapping[str, Any] = usage.get("input_token_details") or {}
    read, made = as_int(details.get("cache_read")), as_int(details.get("cache_creation"))
    told, written = as_int(usage.get("input_tokens")), as_int(usage.get("output_tokens"))
    if isinstance(message["content"], list) and "tool_calls" not in message:
        counts = {
            "input_tokens": max(0, told - read - made),
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": made,
            "output_tokens": written,
        }
        whole = {"type": "message", "id": value.id, "model": model, "stop_reason": stop}
        return {**whole, **message, "usage": counts}
    counts = {
        "prompt_tokens": told,
        "completion_tokens": written,
        "total_tokens": told + written,
        "prompt_tokens_details": {"cached_tokens": read},
    }
    choice = {"index": 0, "message": message, "finish_reason": stop}
    whole = {"object": "chat.completion", "id": value.id, "model": model}
    return {**whole, "choices": [choice], "usage": counts}


def _result(value: Any, content: Any) -> Wire:
    if getattr(value, "status", "success") != "error":
        return {"role": "tool", "tool_call_id": value.tool_call_id, "content": content}
    block = {"type": "tool_result", "tool_use_id": value.tool_call_id, "content": content}
    return {"role": "user", "content": [{**block, "is_error": True}]}


def _call(call: Mapping[str, Any]) -> Wire:
    function = {"name": call["name"], "arguments": _arguments(call["args"])}
    return {"id": call["id"], "type": "function", "function": function}


def _tool_use(call: Mapping[str, Any]) -> Wire:
    return {"type": "tool_use", "id": call["id"], "name": call["name"], "input": call["args"]}


def _arguments(args: Any) -> str:
    """As a text; what could not be parsed is one already."""
    return args if isinstance(args, str) else json.dumps(args or {}, ensure_ascii=False)


def _blocks(content: Any) -> list[Wire]:
    return cast("list[Wire]", content) if isinstance(content, list) else []


def _content(content: Any) -> Any:
    """Texts and blocks; LangChain's own blocks of media as Chat Completions has them."""
    if not isinstance(content, list):
        return content
    blocks: list[Wire] = []
    for index, block in enumerate(cast("list[Any]", content)):
        if not isinstance(block, str | Mapping):
            kind = type(block).__name__
            raise TypeError(f"content[{index}] is {kind}; it must be a text or a block")
        is_text = isinstance(block, str)
        blocks.append({"type": "text", "text": block} if is_text else _block(cast("Wire", block)))
    return blocks


def _block(block: Wire) -> Wire:
    kind = block.get("type", "")
    data = block.get("base64") or (block.get("data") if "source_type" in block else None)
    if kind not in _KINDS or not (data or block.get("url")) or "source" in block:
        return block
    mime = block.get("mime_type") or "application/octet-stream"
    url = block.get("url") or f"data:{mime};base64,{data}"
    match kind:
        case "image":
            return {"type": "image_url", "image_url": {"url": url}}
        case "audio":
            given = {"data": data, "format": mime.partition("/")[2]}
            return {"type": "input_audio", "input_audio": given}
        case _:
            name = block.get("filename") or block.get("extras", {}).get("filename") or "file"
            return {"type": "file", "file": {"filename": name, "file_data": url}}
