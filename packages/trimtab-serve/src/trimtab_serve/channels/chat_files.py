"""Convert files from a chat to parts of a message. A line of text replaces unsupported files."""

from __future__ import annotations

import base64
import mimetypes
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from trimtab.dialects.media import AcceptedMedia, validate_and_convert_media
from trimtab.engine.log.message import Media, MediaKind, Message, Part, Text
from trimtab.engine.text.quoting import indent_lines
from trimtab.errors import UnsupportedMedia
from trimtab_serve.channels.inbound_text import quote_in_notice, remove_invisible_characters

TEXT_MIME_PREFIXES = ("text/", "application/json", "application/xml", "application/x-yaml")
"""Prefixes of media types whose files are read as text."""


class FileFetchFailed(Exception):
    """The platform did not deliver a file."""


class FileTooLarge(Exception):
    """A file is larger than the limit."""

    def __init__(self, size: int) -> None:
        self.size = size
        """Size in bytes."""
        super().__init__(f"{size:,} bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchableChatFile:
    """A file that can be fetched from a platform."""

    kind: str
    """Its kind in plain words: `photo`, `voice message`, `file`."""
    fetch: Callable[[], Awaitable[bytes]]
    """Fetches the file. Raises `FileFetchFailed`, or `FileTooLarge` as soon as the size is
    known."""
    mime: str | None = None
    """Media type, if it is known."""
    name: str | None = None
    """The name that the sender gave it."""
    size: int | None = None
    """Size in bytes, if it is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileConversion:
    """The result of converting a file."""

    part: Text | Media
    """The file as a part, or the text that replaces it."""
    refusal: str = ""
    """The text for the sender if the file was refused. Empty otherwise."""


async def build_user_message(
    text: str,
    files: Iterable[FetchableChatFile],
    *,
    accepted_media: AcceptedMedia,
    max_bytes: int,
    files_allowed: bool = True,
) -> tuple[Message, str]:
    """Return the message for the agent, and a text for the sender about refused files.

    `max_bytes` is the limit of one file. Without `files_allowed`, no file is fetched, and only the
    message mentions them. The text of a file is indented, because others may have written it.
    """
    parts: list[Part] = [Text(text=text)] if text else []
    refusals: list[str] = []
    for file in files:
        if not files_allowed:
            parts.append(Text(text=f"[{file.kind}: not taken from this sender]"))
            continue
        part_or_refusal = await convert_file_to_message_part(
            file, accepted_media=accepted_media, max_bytes=max_bytes
        )
        parts.append(part_or_refusal.part)
        if part_or_refusal.refusal:
            refusals.append(part_or_refusal.refusal)
    is_plain = len(parts) == 1 and isinstance(parts[0], Text)
    return Message(role="user", parts=tuple(parts), plain=is_plain), "\n".join(refusals)


async def convert_file_to_message_part(
    file: FetchableChatFile, *, accepted_media: AcceptedMedia, max_bytes: int
) -> FileConversion:
    """Convert a file. If it is refused, the model and the sender read why. Never raises."""
    name = quote_in_notice(remove_invisible_characters(file.name or ""))
    mime = file.mime or mimetypes.guess_type(name)[0] or ""
    mime = quote_in_notice(remove_invisible_characters(mime.partition(";")[0])).lower()
    description = (
        f"{file.kind} ({about})" if (about := ", ".join(filter(None, (name, mime)))) else file.kind
    )
    kind = _media_kind(mime)
    is_text = mime.startswith(TEXT_MIME_PREFIXES)
    if not is_text and not (kind is not None and accepted_media.accepts_type(kind, mime)):
        return _refused_file(description, "this model cannot be given such files")
    try:
        data = await _fetch_within_limit(file, max_bytes)
    except FileFetchFailed:
        return _refused_file(description, "it could not be fetched")
    except FileTooLarge as error:
        return _refused_file(
            description, f"it has {error.size:,} bytes, and at most {max_bytes:,} are taken"
        )
    if is_text:
        title = f"{file.kind} {name}" if name else file.kind
        text = indent_lines(data.decode("utf-8", "replace"))
        return FileConversion(part=Text(text=f"[{title}]\n{text}"))
    assert kind is not None  # noqa: S101 - what is neither has been refused
    whole = Media(kind=kind, mime=mime, data=base64.b64encode(data).decode())
    try:
        return FileConversion(part=validate_and_convert_media(whole, accepted_media))
    except UnsupportedMedia as error:
        return _refused_file(description, error.reason)


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
        refusal=f"I cannot accept the {description}: {reason}.",
    )


async def _fetch_within_limit(file: FetchableChatFile, max_bytes: int) -> bytes:
    if file.size is not None and file.size > max_bytes:
        raise FileTooLarge(file.size)
    data = await file.fetch()
    if len(data) > max_bytes:
        raise FileTooLarge(len(data))
    return data
