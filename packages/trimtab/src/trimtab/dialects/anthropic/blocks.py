"""Anthropic content blocks, one at a time: read, written back, and rendered from other dialects."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from trimtab.dialects.json_values import collect_extra_keys, dict_or_none, to_compact_json
from trimtab.dialects.provider_safe_values import (
    is_json_object_text,
    make_valid_call_id,
    make_valid_tool_name,
    omitted_media_text,
    parse_tool_arguments,
    with_error_prefix,
)
from trimtab.dialects.wire_content import convert_tool_output_to_content, require_string_call_fields
from trimtab.engine.log.message import Media, OpaqueBlock, Part, Text, ToolCall, ToolResult

CALL_ID_PATTERN = re.compile(r"[a-zA-Z0-9_-]+")
THINKING_BLOCK_TYPES = ("thinking", "redacted_thinking")
BLOCK_TYPES = (
    "text",
    "image",
    "document",
    "search_result",
    *THINKING_BLOCK_TYPES,
    "tool_use",
    "tool_result",
    "tool_reference",
    "tool_search_tool_result",
    "tool_addition",
    "tool_removal",
    "server_tool_use",
    "web_search_tool_result",
    "web_fetch_tool_result",
    "code_execution_tool_result",
    "bash_code_execution_tool_result",
    "text_editor_code_execution_tool_result",
    "mcp_tool_use",
    "mcp_tool_result",
    "container_upload",
    "compaction",
)
"""The types of content blocks that the Messages API has."""
MAX_TOOL_NAME_CHARS = 128
_IMAGE_MIME_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")


def parse_anthropic_block(block: Mapping[str, Any]) -> Part:
    kind = block.get("type")
    text = block.get("text")
    if kind == "text" and isinstance(text, str):
        return Text(text=text, extra=collect_extra_keys(block, "type", "text"))
    if kind == "tool_use" and isinstance(block.get("id"), str) and "input" in block:
        tool_input = block["input"]
        call = ToolCall(
            id=block["id"],
            name=block.get("name", ""),
            # An object that was left as the text that it came in is still that object.
            arguments=tool_input
            if is_json_object_text(tool_input)
            else to_compact_json(tool_input),
            extra=collect_extra_keys(block, "type", "id", "name", "input"),
        )
        return require_string_call_fields(call)
    if kind == "tool_result" and isinstance(block.get("tool_use_id"), str):
        return _parse_result(block)
    if kind in ("image", "document"):
        return _parse_media(block)
    return OpaqueBlock(data=block, thinking=kind in THINKING_BLOCK_TYPES)


def _parse_result(block: Mapping[str, Any]) -> ToolResult:
    content = convert_tool_output_to_content(block, optional=True)
    keys = ["type", "tool_use_id"]
    if content is not None:
        keys.append("content")
    is_error = block.get("is_error") is True
    if is_error:
        keys.append("is_error")
    parts: tuple[Text | Media | OpaqueBlock, ...] = ()
    if isinstance(content, str):
        parts = (Text(text=content),)
    elif content is not None:
        parts = tuple(_parse_result_content(inner) for inner in content)
    return ToolResult(
        call_id=block["tool_use_id"],
        content=parts,
        is_error=is_error,
        plain=not isinstance(content, list),
        extra=collect_extra_keys(block, *keys),
    )


def _parse_result_content(block: Mapping[str, Any]) -> Text | Media | OpaqueBlock:
    part = parse_anthropic_block(block)
    return OpaqueBlock(data=block) if isinstance(part, ToolCall | ToolResult) else part


def _parse_media(block: Mapping[str, Any]) -> Part:
    source = dict_or_none(block.get("source")) or {}
    extra = collect_extra_keys(block, "type", "source") or {}
    form = source.get("type")
    data = source.get("data")
    if form == "text" and isinstance(data, str):
        # A document of plain text is text: sized, shortened and shown elsewhere like any other.
        head = {"type": "document", "source": collect_extra_keys(source, "data") or {}}
        return Text(text=data, extra={**extra, **head})
    mime = url = None
    if form == "base64" and isinstance(data, str) and isinstance(source.get("media_type"), str):
        mime = source["media_type"]
        source_extra = collect_extra_keys(source, "type", "data", "media_type")
    elif form == "url" and isinstance(source.get("url"), str):
        data = None
        url = source["url"]
        source_extra = collect_extra_keys(source, "type", "url")
    elif form == "file":
        data = None
        source_extra = source
    else:
        return OpaqueBlock(data=block)
    if source_extra is not None:
        extra["source"] = source_extra
    return Media(kind=block["type"], mime=mime, data=data, url=url, extra=extra or None)


def serialize_anthropic_block(part: Part) -> dict[str, Any]:
    """Return the original block; the inverse of `parse_anthropic_block`."""
    match part:
        case Text():
            return _serialize_text(part)
        case ToolCall():
            out: dict[str, Any] = {"type": "tool_use", "id": part.id, "name": part.name}
            out["input"] = _load_arguments(part.arguments)
        case ToolResult():
            out = {"type": "tool_result", "tool_use_id": part.call_id}
            if part.is_error:
                out["is_error"] = True
            if part.content or not part.plain:
                out["content"] = _serialize_result_content(part)
        case Media():
            return _serialize_media(part)
        case OpaqueBlock():
            return cast("dict[str, Any]", part.data)
    if part.extra is not None:
        return {**part.extra, **out}
    return out


def _load_arguments(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return parse_tool_arguments(arguments)


def _serialize_text(part: Text) -> dict[str, Any]:
    if part.extra is None:
        return {"type": "text", "text": part.text}
    if part.extra.get("type") == "document":
        return {**part.extra, "source": {**part.extra["source"], "data": part.text}}
    return {**part.extra, "type": "text", "text": part.text}


def _serialize_result_content(result: ToolResult) -> Any:
    first = result.content[0] if len(result.content) == 1 else None
    if result.plain and isinstance(first, Text) and first.extra is None:
        return first.text
    return [serialize_anthropic_block(part) for part in result.content]


def _serialize_media(part: Media) -> dict[str, Any]:
    extra = dict(part.extra or {})
    source_extra = extra.pop("source", {})
    if part.data is not None:
        source = {"type": "base64", "media_type": part.mime, "data": part.data, **source_extra}
    elif part.url is not None:
        source = {"type": "url", "url": part.url, **source_extra}
    else:
        source = source_extra
    return {**extra, "type": part.kind, "source": source}


def render_anthropic_block(part: Part, is_native: bool) -> dict[str, Any] | None:
    """Render the block for a request; return None for one that Anthropic would reject or does not
    know.

    `is_native` says that the message came in this dialect, so that its extras are understood here.
    """
    match part:
        case Text():
            if not part.text or part.text.isspace():
                return None
            return _serialize_text(part) if is_native else {"type": "text", "text": part.text}
        case ToolCall():
            name = make_valid_tool_name(part.name, MAX_TOOL_NAME_CHARS)
            call_id = make_valid_call_id(part.id, CALL_ID_PATTERN)
            out: dict[str, Any] = {"type": "tool_use", "id": call_id, "name": name}
            out["input"] = parse_tool_arguments(part.arguments)
        case ToolResult():
            out = _render_result(part, is_native)
        case Media():
            return _serialize_media(part) if is_native else _render_media(part)
        case OpaqueBlock():
            return cast("dict[str, Any]", part.data) if is_native else None
    if is_native and part.extra is not None:
        extra = dict(part.extra)
        if "content" in extra and extra["content"] is None:
            del extra["content"]  # a result that holds nothing has no content
        return {**extra, **out}
    return out


def _render_result(part: ToolResult, is_native: bool) -> dict[str, Any]:
    out: dict[str, Any] = {
        "type": "tool_result",
        "tool_use_id": make_valid_call_id(part.call_id, CALL_ID_PATTERN),
    }
    if part.is_error and any(isinstance(item, Media) for item in part.content):
        # With a picture in it, a result may not be called an error: its words say so instead.
        part = replace(with_error_prefix(part), is_error=False)
    if part.is_error:
        out["is_error"] = True
    first = part.content[0] if len(part.content) == 1 else None
    if part.plain and isinstance(first, Text) and (first.extra is None or not is_native):
        out["content"] = first.text
    elif part.content:
        bodies = (render_anthropic_block(item, is_native) for item in part.content)
        blocks = [body for body in bodies if body is not None]
        if blocks:
            out["content"] = blocks
    return out


def _render_media(part: Media) -> dict[str, Any]:
    kind = "document" if part.kind == "file" else part.kind
    mimes = _IMAGE_MIME_TYPES if kind == "image" else ("application/pdf",)
    if kind in ("image", "document"):
        if part.data is not None and part.mime in mimes:
            source = {"type": "base64", "media_type": part.mime, "data": part.data}
            return {"type": kind, "source": source}
        if part.kind != "file" and part.url is not None and part.url.startswith("http"):
            return {"type": kind, "source": {"type": "url", "url": part.url}}
    return {"type": "text", "text": omitted_media_text(part)}
