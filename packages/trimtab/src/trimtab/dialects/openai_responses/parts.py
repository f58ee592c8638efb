"""Content parts of Responses items: read, written back, rendered from other dialects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from trimtab.dialects.json_values import collect_extra_keys, dict_or_none
from trimtab.dialects.provider_safe_values import media_to_url, omitted_media_text, parse_data_url
from trimtab.engine.log.message import Media, MediaKind, OpaqueBlock, Text
from trimtab.engine.tokens.pictures import read_picture_detail


def parse_responses_part(part: Mapping[str, Any]) -> Text | Media | OpaqueBlock:
    kind = part.get("type")
    if kind in ("input_text", "output_text", "text") and isinstance(part.get("text"), str):
        # Text of another API is sent as this one's, and the keys beside it are unknown here.
        keys = ("type", "text") if kind == "input_text" else part
        return Text(text=part["text"], extra=collect_extra_keys(part, *keys))
    if kind == "input_image" and isinstance(part.get("image_url"), str):
        return _media_from_url("image", part, "image_url")
    if kind == "input_image":
        return Media(kind="image", extra=collect_extra_keys(part, "type"))
    if kind == "input_file":
        return _parse_file(part)
    audio = dict_or_none(part.get("input_audio"))
    if kind == "input_audio" and audio is not None and set(audio) == {"data", "format"}:
        mime = f"audio/{audio['format']}"
        extra = collect_extra_keys(part, "type", "input_audio")
        return Media(kind="audio", mime=mime, data=audio["data"], extra=extra)
    return OpaqueBlock(data=part)


def _media_from_url(kind: MediaKind, part: Mapping[str, Any], key: str) -> Media:
    mime, data = parse_data_url(part[key]) or (None, None)
    url = part[key] if data is None else None
    return Media(
        kind=kind, mime=mime, data=data, url=url, extra=collect_extra_keys(part, "type", key)
    )


def _parse_file(part: Mapping[str, Any]) -> Media:
    file_data = part.get("file_data")
    if isinstance(file_data, str) and (split := parse_data_url(file_data)) is not None:
        kind: MediaKind = "document" if split[0] == "application/pdf" else "file"
        return _media_from_url(kind, part, "file_data")
    url = part.get("file_url")
    if isinstance(url, str) and not url.startswith("data:"):
        return _media_from_url("document", part, "file_url")
    return Media(kind="file", extra=collect_extra_keys(part, "type"))


def serialize_responses_part(part: Text | Media | OpaqueBlock) -> dict[str, Any]:
    """Return the original content part; the inverse of `parse_responses_part`."""
    if isinstance(part, Text):
        return {"type": "input_text", "text": part.text, **(part.extra or {})}
    if isinstance(part, OpaqueBlock):
        return cast("dict[str, Any]", part.data)
    out: dict[str, Any] = dict(part.extra or {})
    if part.kind == "audio":
        form = (part.mime or "").removeprefix("audio/")
        return {**out, "type": "input_audio", "input_audio": {"data": part.data, "format": form}}
    out["type"] = "input_image" if part.kind == "image" else "input_file"
    url = media_to_url(part)
    if url is not None:
        key = "file_data" if part.data is not None else "file_url"
        out["image_url" if part.kind == "image" else key] = url
    return out


def render_responses_content(
    parts: Sequence[Text | Media | OpaqueBlock], *, allow_media: bool
) -> str | list[dict[str, Any]]:
    """Return parts of other dialects as content: a string for one text, otherwise a list."""
    out: list[dict[str, Any]] = []
    for part in parts:
        if isinstance(part, Text):
            if part.text:
                out.append({"type": "input_text", "text": part.text})
        elif isinstance(part, Media):
            media_part = _render_media(part) if allow_media else None
            out.append(media_part or {"type": "input_text", "text": omitted_media_text(part)})
    if len(out) == 1 and "text" in out[0]:
        return out[0]["text"]
    return out or ""


def _render_media(part: Media) -> dict[str, Any] | None:
    url = media_to_url(part)
    if part.kind == "image" and url is not None:
        return {"type": "input_image", "image_url": url, "detail": read_picture_detail(part.extra)}
    if part.kind not in ("document", "file") or url is None:
        return None
    if part.data is None:
        return {"type": "input_file", "file_url": url}
    name = "document.pdf" if part.mime == "application/pdf" else "file"
    return {"type": "input_file", "filename": name, "file_data": url}
