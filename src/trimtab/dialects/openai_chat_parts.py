"""Chat Completions content parts and tool calls: read, written back, rendered from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from trimtab.core.message import Media, MediaKind, Opaque, Text, ToolCall, ToolResult
from trimtab.core.picture_tokens import detail_of
from trimtab.dialects.foreign import (
    data_url,
    omitted,
    split_data_url,
    tool_arguments,
    tool_name,
    wire_id,
)
from trimtab.dialects.shapes import as_dict, compact, rest

LONGEST_ID = 40
ID = re.compile(rf".{{1,{LONGEST_ID}}}", re.DOTALL)
LONGEST_NAME = 64
_URLS: Mapping[str, MediaKind] = {"image_url": "image", "video_url": "video"}
_FORMATS = {
    "audio/wav": "wav",
    "audio/x-wav": "wav",
    "audio/mp3": "mp3",
    "audio/mpeg": "mp3",
}


def read_part(part: Mapping[str, Any]) -> Text | Media | Opaque:
    kind = part.get("type", "")
    if kind == "text" and isinstance(part.get("text"), str):
        return Text(text=part["text"], extra=rest(part, "type", "text"))
    body = as_dict(part.get(kind))
    if body is None:
        return Opaque(data=part)
    extra = rest(part, "type", kind) or {}
    if kind in _URLS and isinstance(body.get("url"), str):
        return _read_url(_URLS[kind], kind, body, extra)
    if kind == "input_audio" and _all_text(body, "data", "format"):
        left = rest(body, "data", "format")
        return Media(
            kind="audio",
            mime=f"audio/{body['format']}",
            data=body["data"],
            extra=_with(extra, kind, left),
        )
    if kind == "file":
        return _read_file(body, extra)
    return Opaque(data=part)


def _all_text(body: Mapping[str, Any], *keys: str) -> bool:
    return all(isinstance(body.get(key), str) for key in keys)


def _with(extra: dict[str, Any], key: str, left: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if left is not None:
        extra[key] = left
    return extra or None


def _read_url(kind: MediaKind, key: str, body: Mapping[str, Any], extra: dict[str, Any]) -> Media:
    split = split_data_url(body["url"])
    mime, data = split or (None, None)
    url = body["url"] if split is None else None
    return Media(
        kind=kind, mime=mime, data=data, url=url, extra=_with(extra, key, rest(body, "url"))
    )


def _read_file(body: Mapping[str, Any], extra: dict[str, Any]) -> Media:
    given = body.get("file_data")
    split = split_data_url(given) if isinstance(given, str) else None
    if split is None:
        return Media(kind="file", extra={**extra, "file": body})
    kind: MediaKind = "document" if split[0] == "application/pdf" else "file"
    left = rest(body, "file_data")
    return Media(kind=kind, mime=split[0], data=split[1], extra=_with(extra, "file", left))


def write_part(part: Text | Media | Opaque) -> dict[str, Any]:
    """The content part as it came; the inverse of `read_part`."""
    if isinstance(part, Text):
        return {**(part.extra or {}), "type": "text", "text": part.text}
    if isinstance(part, Opaque):
        return cast("dict[str, Any]", part.data)
    extra = dict(part.extra or {})
    if part.kind in ("image", "video"):
        key = f"{part.kind}_url"
        return {**extra, "type": key, key: {"url": data_url(part), **extra.get(key, {})}}
    if part.kind == "audio":
        form = (part.mime or "").removeprefix("audio/")
        body = {"data": part.data, "format": form, **extra.get("input_audio", {})}
        return {**extra, "type": "input_audio", "input_audio": body}
    body = dict(extra.get("file", {}))
    if part.data is not None:
        body["file_data"] = data_url(part)
    return {**extra, "type": "file", "file": body}


def read_call(wire: Mapping[str, Any]) -> ToolCall:
    """A function call or a custom tool's call, whose input is text of any kind."""
    kind, key = ("custom", "input") if wire.get("type") == "custom" else ("function", "arguments")
    body = as_dict(wire.get(kind)) or {}
    extra = rest(wire, "id", "type", kind) or {}
    if kind == "custom":
        extra["type"] = "custom"
    given = body.get(key, "")
    return ToolCall(
        id=wire.get("id") or "",
        name=body.get("name") or "",
        arguments=given if isinstance(given, str) else compact(given),
        extra=_with(extra, kind, rest(body, "name", key)),
    )


def write_call(call: ToolCall) -> dict[str, Any]:
    extra = dict(call.extra or {})
    kind = extra.pop("type", "function")
    body = {"name": call.name, "input" if kind == "custom" else "arguments": call.arguments}
    return {**extra, "id": call.id, "type": kind, kind: {**body, **extra.get(kind, {})}}


def render_call(call: ToolCall, own: bool) -> dict[str, Any]:
    if own:
        wire = write_call(call)
        wire["id"] = wire_id(call.id, ID)
        return wire
    function = {
        "name": tool_name(call.name, LONGEST_NAME),
        "arguments": tool_arguments(call.arguments),
    }
    return {"id": wire_id(call.id, ID), "type": "function", "function": function}


def render_result(result: ToolResult, own: bool) -> str | list[dict[str, Any]]:
    """The content of a tool message: text only, for no other dialect's media fit in it."""
    content = result.content
    if own and not (result.plain and len(content) <= 1):
        return [write_part(part) for part in content]
    texts = [text for part in content if (text := _as_text(part)) is not None]
    return "\n".join(texts)


def _as_text(part: Text | Media | Opaque) -> str | None:
    if isinstance(part, Text):
        return part.text
    return omitted(part) if isinstance(part, Media) else None


def render_content(
    parts: Sequence[Text | Media | Opaque], *, media: bool
) -> str | list[dict[str, Any]]:
    """Foreign parts as content: one string where they are one text, else a list."""
    out: list[dict[str, Any]] = []
    for part in parts:
        if isinstance(part, Text):
            if part.text:
                out.append({"type": "text", "text": part.text})
        elif isinstance(part, Media):
            rendered = _render_media(part) if media else None
            out.append(rendered or {"type": "text", "text": omitted(part)})
    if len(out) == 1 and out[0]["type"] == "text":
        return out[0]["text"]
    return out or ""


def _render_media(part: Media) -> dict[str, Any] | None:
    url = data_url(part)
    if part.kind == "image" and url is not None:
        detail = detail_of(part.extra)
        told = {} if detail == "auto" else {"detail": detail}
        return {"type": "image_url", "image_url": {"url": url, **told}}
    if part.kind == "audio" and part.data is not None and part.mime in _FORMATS:
        body = {"data": part.data, "format": _FORMATS[part.mime]}
        return {"type": "input_audio", "input_audio": body}
    if part.kind in ("document", "file") and part.data is not None and url is not None:
        name = "document.pdf" if part.mime == "application/pdf" else "file"
        return {"type": "file", "file": {"filename": name, "file_data": url}}
    return None
