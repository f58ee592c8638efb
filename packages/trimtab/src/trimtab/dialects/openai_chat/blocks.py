"""Chat Completions content parts and tool calls: read, written back, rendered from other
dialects."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from trimtab.dialects.json_values import collect_extra_keys, dict_or_none, to_compact_json
from trimtab.dialects.provider_safe_values import (
    ensure_arguments_json,
    make_valid_call_id,
    make_valid_tool_name,
    media_to_url,
    omitted_media_text,
    parse_data_url,
)
from trimtab.engine.log.message import Media, MediaKind, OpaqueBlock, Text, ToolCall, ToolResult
from trimtab.engine.tokens.pictures import read_picture_detail

MAX_CALL_ID_CHARS = 40
CALL_ID_PATTERN = re.compile(rf".{{1,{MAX_CALL_ID_CHARS}}}", re.DOTALL)
MAX_TOOL_NAME_CHARS = 64
_MEDIA_KIND_BY_URL_TYPE: Mapping[str, MediaKind] = {"image_url": "image", "video_url": "video"}
_AUDIO_FORMAT_BY_MIME_TYPE = {
    "audio/wav": "wav",
    "audio/x-wav": "wav",
    "audio/mp3": "mp3",
    "audio/mpeg": "mp3",
}


def parse_chat_part(part: Mapping[str, Any]) -> Text | Media | OpaqueBlock:
    kind = part.get("type", "")
    if kind == "text" and isinstance(part.get("text"), str):
        return Text(text=part["text"], extra=collect_extra_keys(part, "type", "text"))
    body = dict_or_none(part.get(kind))
    if body is None:
        return OpaqueBlock(data=part)
    extra = collect_extra_keys(part, "type", kind) or {}
    if kind in _MEDIA_KIND_BY_URL_TYPE and isinstance(body.get("url"), str):
        return _parse_media_url(_MEDIA_KIND_BY_URL_TYPE[kind], kind, body, extra)
    if kind == "input_audio" and _all_text(body, "data", "format"):
        leftover = collect_extra_keys(body, "data", "format")
        return Media(
            kind="audio",
            mime=f"audio/{body['format']}",
            data=body["data"],
            extra=_with_leftover(extra, kind, leftover),
        )
    if kind == "file":
        return _parse_file(body, extra)
    return OpaqueBlock(data=part)


def _all_text(body: Mapping[str, Any], *keys: str) -> bool:
    return all(isinstance(body.get(key), str) for key in keys)


def _with_leftover(
    extra: dict[str, Any], key: str, left: Mapping[str, Any] | None
) -> dict[str, Any] | None:
    if left is not None:
        extra[key] = left
    return extra or None


def _parse_media_url(
    kind: MediaKind, key: str, body: Mapping[str, Any], extra: dict[str, Any]
) -> Media:
    split = parse_data_url(body["url"])
    mime, data = split or (None, None)
    url = body["url"] if split is None else None
    return Media(
        kind=kind,
        mime=mime,
        data=data,
        url=url,
        extra=_with_leftover(extra, key, collect_extra_keys(body, "url")),
    )


def _parse_file(body: Mapping[str, Any], extra: dict[str, Any]) -> Media:
    file_data = body.get("file_data")
    split = parse_data_url(file_data) if isinstance(file_data, str) else None
    if split is None:
        return Media(kind="file", extra={**extra, "file": body})
    kind: MediaKind = "document" if split[0] == "application/pdf" else "file"
    leftover = collect_extra_keys(body, "file_data")
    return Media(
        kind=kind, mime=split[0], data=split[1], extra=_with_leftover(extra, "file", leftover)
    )


def serialize_chat_part(part: Text | Media | OpaqueBlock) -> dict[str, Any]:
    """Return the original content part; the inverse of `parse_chat_part`."""
    if isinstance(part, Text):
        return {**(part.extra or {}), "type": "text", "text": part.text}
    if isinstance(part, OpaqueBlock):
        return cast("dict[str, Any]", part.data)
    extra = dict(part.extra or {})
    if part.kind in ("image", "video"):
        key = f"{part.kind}_url"
        return {**extra, "type": key, key: {"url": media_to_url(part), **extra.get(key, {})}}
    if part.kind == "audio":
        form = (part.mime or "").removeprefix("audio/")
        body = {"data": part.data, "format": form, **extra.get("input_audio", {})}
        return {**extra, "type": "input_audio", "input_audio": body}
    body = dict(extra.get("file", {}))
    if part.data is not None:
        body["file_data"] = media_to_url(part)
    return {**extra, "type": "file", "file": body}


def parse_chat_tool_call(wire_call: Mapping[str, Any]) -> ToolCall:
    """Read a function call, or a custom tool's call, whose input is any text."""
    kind, key = (
        ("custom", "input") if wire_call.get("type") == "custom" else ("function", "arguments")
    )
    body = dict_or_none(wire_call.get(kind)) or {}
    extra = collect_extra_keys(wire_call, "id", "type", kind) or {}
    if kind == "custom":
        extra["type"] = "custom"
    arguments = body.get(key, "")
    return ToolCall(
        id=wire_call.get("id") or "",
        name=body.get("name") or "",
        arguments=arguments if isinstance(arguments, str) else to_compact_json(arguments),
        extra=_with_leftover(extra, kind, collect_extra_keys(body, "name", key)),
    )


def serialize_chat_tool_call(call: ToolCall) -> dict[str, Any]:
    extra = dict(call.extra or {})
    kind = extra.pop("type", "function")
    body = {"name": call.name, "input" if kind == "custom" else "arguments": call.arguments}
    return {**extra, "id": call.id, "type": kind, kind: {**body, **extra.get(kind, {})}}


def render_chat_tool_call(call: ToolCall, is_native: bool) -> dict[str, Any]:
    if is_native:
        wire = serialize_chat_tool_call(call)
        wire["id"] = make_valid_call_id(call.id, CALL_ID_PATTERN)
        return wire
    function = {
        "name": make_valid_tool_name(call.name, MAX_TOOL_NAME_CHARS),
        "arguments": ensure_arguments_json(call.arguments),
    }
    return {
        "id": make_valid_call_id(call.id, CALL_ID_PATTERN),
        "type": "function",
        "function": function,
    }


def render_chat_result_content(result: ToolResult, is_native: bool) -> str | list[dict[str, Any]]:
    """Return the content of a tool message: only text, because media of other dialects do not fit
    in it."""
    content = result.content
    if is_native and not (result.plain and len(content) <= 1):
        return [serialize_chat_part(part) for part in content]
    texts = [text for part in content if (text := _as_text(part)) is not None]
    return "\n".join(texts)


def _as_text(part: Text | Media | OpaqueBlock) -> str | None:
    if isinstance(part, Text):
        return part.text
    return omitted_media_text(part) if isinstance(part, Media) else None


def render_chat_content(
    parts: Sequence[Text | Media | OpaqueBlock], *, allow_media: bool
) -> str | list[dict[str, Any]]:
    """Return parts of other dialects as content: a string for one text, otherwise a list."""
    out: list[dict[str, Any]] = []
    for part in parts:
        if isinstance(part, Text):
            if part.text:
                out.append({"type": "text", "text": part.text})
        elif isinstance(part, Media):
            media_part = _render_media(part) if allow_media else None
            out.append(media_part or {"type": "text", "text": omitted_media_text(part)})
    if len(out) == 1 and out[0]["type"] == "text":
        return out[0]["text"]
    return out or ""


def _render_media(part: Media) -> dict[str, Any] | None:
    url = media_to_url(part)
    if part.kind == "image" and url is not None:
        detail = read_picture_detail(part.extra)
        detail_keys = {} if detail == "auto" else {"detail": detail}
        return {"type": "image_url", "image_url": {"url": url, **detail_keys}}
    if part.kind == "audio" and part.data is not None and part.mime in _AUDIO_FORMAT_BY_MIME_TYPE:
        body = {"data": part.data, "format": _AUDIO_FORMAT_BY_MIME_TYPE[part.mime]}
        return {"type": "input_audio", "input_audio": body}
    if part.kind in ("document", "file") and part.data is not None and url is not None:
        name = "document.pdf" if part.mime == "application/pdf" else "file"
        return {"type": "file", "file": {"filename": name, "file_data": url}}
    return None
