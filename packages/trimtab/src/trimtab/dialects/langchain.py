"""Converts LangChain's messages to dicts of Chat Completions, or of Anthropic if they have its
blocks.

They are recognised by their shape: nothing of LangChain is imported.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from trimtab.dialects.json_values import int_or_zero

MessageDict = dict[str, Any]
_ROLES = {"human": "user", "system": "system", "ai": "assistant", "tool": "tool"}
_ANTHROPIC_ONLY_BLOCK_TYPES = ("thinking", "redacted_thinking", "server_tool_use", "tool_use")
"""Blocks that Chat Completions does not support."""
_CHAT_PART_TYPE_BY_KIND = {"image": "image_url", "audio": "input_audio", "file": "file"}


def is_langchain_message(value: Any) -> bool:
    """Whether it is one of LangChain's messages."""
    named = ("type", "content", "additional_kwargs", "response_metadata")
    return not isinstance(value, type | Mapping) and all(hasattr(value, name) for name in named)


def convert_langchain_message_to_wire(langchain_message: Any) -> MessageDict:
    """Convert the message to a dict of the dialect that can express all of it."""
    kind = str(langchain_message.type).removesuffix("MessageChunk").lower()
    if kind not in _ROLES:
        raise ValueError(
            f"a LangChain message of type {langchain_message.type!r} cannot be sent to a model; "
            f"supported types: {', '.join(_ROLES)}"
        )
    role, content = _ROLES[kind], _content(langchain_message.content)
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
    if any(block.get("type") in _ANTHROPIC_ONLY_BLOCK_TYPES for block in _blocks(content)):
        known = {block.get("id") for block in _blocks(content)}
        missing = [call for call in calls if call["id"] not in known]
        return {"role": role, "content": [*_blocks(content), *map(_tool_use, missing)]}
    made: MessageDict = {"role": role, "content": content or None}
    return made | ({"tool_calls": [_call(call) for call in calls]} if calls else {})


def convert_langchain_reply_to_wire(langchain_message: Any) -> MessageDict:
    """Convert a message to a whole reply with its usage, if it has one."""
    message, usage = (
        convert_langchain_message_to_wire(langchain_message),
        getattr(langchain_message, "usage_metadata", None),
    )
    if message["role"] != "assistant" or not usage:
        return message
    about: Mapping[str, Any] = langchain_message.response_metadata
    model = str(about.get("model_name") or about.get("model") or "")
    stop = about.get("finish_reason") or about.get("stop_reason") or "stop"
    details: Mapping[str, Any] = usage.get("input_token_details") or {}
    read, made = int_or_zero(details.get("cache_read")), int_or_zero(details.get("cache_creation"))
    told, written = int_or_zero(usage.get("input_tokens")), int_or_zero(usage.get("output_tokens"))
    if isinstance(message["content"], list) and "tool_calls" not in message:
        counts = {
            "input_tokens": max(0, told - read - made),
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": made,
            "output_tokens": written,
        }
        whole = {"type": "message", "id": langchain_message.id, "model": model, "stop_reason": stop}
        return {**whole, **message, "usage": counts}
    counts = {
        "prompt_tokens": told,
        "completion_tokens": written,
        "total_tokens": told + written,
        "prompt_tokens_details": {"cached_tokens": read},
    }
    choice = {"index": 0, "message": message, "finish_reason": stop}
    whole = {"object": "chat.completion", "id": langchain_message.id, "model": model}
    return {**whole, "choices": [choice], "usage": counts}


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
    data = block.get("base64") or (block.get("data") if "source_type" in block else None)
    if kind not in _CHAT_PART_TYPE_BY_KIND or not (data or block.get("url")) or "source" in block:
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
