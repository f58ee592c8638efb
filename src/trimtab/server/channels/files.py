"""Files from a chat as parts of a message; what the model cannot take is told in words."""

from __future__ import annotations

import base64
import mimetypes
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from trimtab.dialects.media_validation import AcceptedMedia, UnsupportedMedia, normalize_media
from trimtab.log.message import Media, MediaKind, Text

TEXT_MIME_PREFIXES = ("text/", "application/json", "application/xml", "application/x-yaml")
"""Beginnings of media types whose files are read out as text."""


class FileFetchFailed(Exception):
    """The platform does not give a file away."""


class FileTooLarge(Exception):
    """A file has more bytes than are taken."""

    def __init__(self, size: int) -> None:
        self.size = size
        """Its bytes."""
        super().__init__(f"{size:,} bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatFile:
    """A file that a platform keeps for us."""

    kind: str
    """What it is, in plain words: `photo`, `voice message`, `file`."""
    fetch: Callable[[], Awaitable[bytes]]
    """Gets it. Raises `FileFetchFailed`, and `FileTooLarge` where that is known before all is
    there."""
    mime: str | None = None
    """Its media type, where it is known."""
    name: str | None = None
    """What its sender calls it."""
    size: int | None = None
    """Bytes, where it is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileConversion:
    """What became of a file."""

    part: Text | Media
    """The file as a part, or what the model is told in its place."""
    refusal: str = ""
    """What its sender is told where it was not taken; empty where it was."""


async def convert_file_to_message_part(
    file: ChatFile, *, accepted_media: AcceptedMedia, max_bytes: int
) -> FileConversion:
    """The file as a part; never fails: what cannot be taken is told to the model and its sender."""
    name = " ".join((file.name or "").split())
    mime = (file.mime or mimetypes.guess_type(name)[0] or "").partition(";")[0].strip().lower()
    told = (
        f"{file.kind} ({about})" if (about := ", ".join(filter(None, (name, mime)))) else file.kind
    )
    kind, is_text = _media_kind(mime), mime.startswith(TEXT_MIME_PREFIXES)
    if not is_text and not (kind is not None and accepted_media.accepts_type(kind, mime)):
        return _refused_file(told, "this model cannot be given such files")
    try:
        data = await _fetch_within_limit(file, max_bytes)
    except FileFetchFailed:
        return _refused_file(told, "it could not be fetched")
    except FileTooLarge as error:
        return _refused_file(
            told, f"it has {error.size:,} bytes, and at most {max_bytes:,} are taken"
        )
    if is_text:
        title = f"{file.kind} {name}" if name else file.kind
        return FileConversion(part=Text(text=f"[{title}]\n{data.decode('utf-8', 'replace')}"))
    assert kind is not None  # noqa: S101 - what is neither has been told
    whole = Media(kind=kind, mime=mime, data=base64.b64encode(data).decode())
    try:
        return FileConversion(part=normalize_media(whole, accepted_media))
    except UnsupportedMedia as error:
        return _refused_file(told, error.reason)


def _media_kind(mime: str) -> MediaKind | None:
    match mime.partition("/")[0]:
        case "image":
            return "image"
        case "audio":
            return "audio"
        case _:
            return "document" if mime == "application/pdf" else None


def _refused_file(description: str, reason: str) -> FileConversion:
    return FileConversion(
        part=Text(text=f"[{description}: {reason}]"),
        refusal=f"I cannot take the {description}: {reason}.",
    )


async def _fetch_within_limit(file: ChatFile, max_bytes: int) -> bytes:
    if file.size is not None and file.size > max_bytes:
        raise FileTooLarge(file.size)
    data = await file.fetch()
    if len(data) > max_bytes:
        raise FileTooLarge(len(data))
    return data
