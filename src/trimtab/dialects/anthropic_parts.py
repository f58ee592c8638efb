"""Anthropic content blocks, one at a time: read, written back, and rendered from elsewhere."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from trimtab.core.message import Media, Opaque, Part, Text, ToolCall, ToolResult
from trimtab.core.prompt import RENDERER
from trimtab.dialects.contents import named, output_of
from trimtab.dialects.foreign import (
    failed,
    is_object_text,
    omitted,
    tool_input,
    tool_name,
    wire_id,
)
from trimtab.dialects.shapes import as_dict, compact, rest

ID = re.compile(r"[a-zA-Z0-9_-]+")
THINKING = ("thinking", "redacted_thinking")
LONGEST_NAME = 128
_IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")


def read_part(block: Mapping[str, Any]) -> Part:
    kind = block.get("type")
    text = block.get("text")
    if kind == "text" and isinstance(text, str):
        return Text(text=text, extra=rest(block, "type", "text"))
    if kind == "tool_use" and isinstance(block.get("id"), str) and "input" in block:
        given = block["input"]
        call = ToolCall(
            id=block["id"],
            name=block.get("name", ""),
            # An object that was left as the text that it came in is still that object.
            arguments=given if is_object_text(given) else compact(given),
            extra=rest(block, "type", "id", "name", "input"),
        )
        return named(call)
    if kind == "tool_result" and isinstance(block.get("tool_use_id"), str):
        return _read_result(block)
    if kind in ("image", "document"):
        return _read_media(block)
    return Opaque(data=block, thinking=kind in THINKING)


def _read_result(block: Mapping[str, Any]) -> ToolResult:
    content = output_of(block, optional=True)
    held = ["type", "tool_use_id"]
    if content is not None:
        held.append("content")
    is_error = block.get("is_error") is True
    if is_error:
        held.append("is_error")
    parts: tuple[Text | Media | Opaque, ...] = ()
    if isinstance(content, str):
        parts = (Text(text=content),)
    elif content is not None:
        parts = tuple(_read_inner(inner) for inner in content)
    return ToolResult(
        call_id=block["tool_use_id"],
        content=parts,
        is_error=is_error,
        plain=not isinstance(content, list),
        extra=rest(block, *held),
    )


def _read_inner(block: Mapping[str, Any]) -> Text | Media | Opaque:
    part = read_part(block)
    return Opaque(data=block) if isinstance(part, ToolCall | ToolResult) else part


def _read_media(block: Mapping[str, Any]) -> Part:
    source = as_dict(block.get("source")) or {}
    extra = rest(block, "type", "source") or {}
    form, data = source.get("type"), source.get("data")
    if form == "text" and isinstance(data, str):
        # A document of plain text is text: sized, shortened and shown elsewhere like any other.
        head = {"type": "document", "source": rest(source, "data") or {}}
        return Text(text=data, extra={**extra, **head})
    mime = url = None
    if form == "base64" and isinstance(data, str) and isinstance(source.get("media_type"), str):
        mime = source["media_type"]
        left = rest(source, "type", "data", "media_type")
    elif form == "url" and isinstance(source.get("url"), str):
        data, url = None, source["url"]
        left = rest(source, "type", "url")
    elif form == "file":
        data, left = None, source
    else:
        return Opaque(data=block)
    if left is not None:
        extra["source"] = left
    return Media(kind=block["type"], mime=mime, data=data, url=url, extra=extra or None)


def write_part(part: Part) -> dict[str, Any]:
    """The block as it came; the inverse of `read_part`."""
    match part:
        case Text():
            return _write_text(part)
        case ToolCall():
            out: dict[str, Any] = {"type": "tool_use", "id": part.id, "name": part.name}
            out["input"] = _read_input(part.arguments)
        case ToolResult():
            out = {"type": "tool_result", "tool_use_id": part.call_id}
            if part.is_error:
                out["is_error"] = True
            if part.content or not part.plain:
                out["content"] = _write_content(part)
        case Media():
            return _write_media(part)
        case Opaque():
            return cast("dict[str, Any]", part.data)
    if part.extra is not None:
        return {**part.extra, **out}
    return out


def _read_input(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return tool_input(arguments)


def _write_text(part: Text) -> dict[str, Any]:
    if part.extra is None:
        return {"type": "text", "text": part.text}
    if part.extra.get("type") == "document":
        return {**part.extra, "source": {**part.extra["source"], "data": part.text}}
    return {**part.extra, "type": "text", "text": part.text}


def _write_content(result: ToolResult) -> Any:
    first = result.content[0] if len(result.content) == 1 else None
    if result.plain and isinstance(first, Text) and first.extra is None:
        return first.text
    return [write_part(part) for part in result.content]


def _write_media(part: Media) -> dict[str, Any]:
    extra = dict(part.extra or {})
    left = extra.pop("source", {})
    if part.data is not None:
        source = {"type": "base64", "media_type": part.mime, "data": part.data, **left}
    elif part.url is not None:
        source = {"type": "url", "url": part.url, **left}
    else:
        source = left
    return {**extra, "type": part.kind, "source": source}


def render_part(part: Part, own: bool, renderer: int = RENDERER) -> dict[str, Any] | None:
    """The block as it is sent; None for what Anthropic would refuse or does not know.

    `own` says that the message came in this dialect, so that its extras are understood here.
    """
    match part:
        case Text():
            if not part.text or part.text.isspace():
                return None
            return _write_text(part) if own else {"type": "text", "text": part.text}
        case ToolCall():
            as_said = own and renderer < 5
            name = part.name if as_said else tool_name(part.name, LONGEST_NAME)
            call_id = wire_id(part.id, ID)
            out: dict[str, Any] = {"type": "tool_use", "id": call_id, "name": name}
            out["input"] = tool_input(part.arguments)
        case ToolResult():
            out = _render_result(part, own, renderer)
        case Media():
            return _write_media(part) if own else _render_media(part)
        case Opaque():
            return cast("dict[str, Any]", part.data) if own else None
    if own and part.extra is not None:
        extra = dict(part.extra)
        if renderer > 4 and "content" in extra and extra["content"] is None:
            del extra["content"]  # a result that holds nothing has no content
        return {**extra, **out}
    return out


def _render_result(part: ToolResult, own: bool, renderer: int) -> dict[str, Any]:
    out: dict[str, Any] = {"type": "tool_result", "tool_use_id": wire_id(part.call_id, ID)}
    if renderer > 4 and part.is_error and any(isinstance(each, Media) for each in part.content):
        # With a picture in it, a result may not be called an error: its words say so instead.
        part = replace(failed(part), is_error=False)
    if part.is_error:
        out["is_error"] = True
    first = part.content[0] if len(part.content) == 1 else None
    if part.plain and isinstance(first, Text) and (first.extra is None or not own):
        out["content"] = first.text
    elif part.content:
        rendered = (render_part(each, own, renderer) for each in part.content)
        inner = [block for block in rendered if block is not None]
        if inner:
            out["content"] = inner
    return out


def _render_media(part: Media) -> dict[str, Any]:
    kind = "document" if part.kind == "file" else part.kind
    mimes = _IMAGES if kind == "image" else ("application/pdf",)
    if kind in ("image", "document"):
        if part.data is not None and part.mime in mimes:
            source = {"type": "base64", "media_type": part.mime, "data": part.data}
            return {"type": kind, "source": source}
        if part.kind != "file" and part.url is not None and part.url.startswith("http"):
            return {"type": kind, "source": {"type": "url", "url": part.url}}
    return {"type": "text", "text": omitted(part)}
