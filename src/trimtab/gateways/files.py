"""Files from a chat as parts of a message; what the model cannot take is told in words."""

from __future__ import annotations

import base64
import mimetypes
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from trimtab.core.message import Media, MediaKind, Text

TEXTS = ("text/", "application/json", "application/xml", "application/x-yaml")
"""Beginnings of media types whose files are read out as text."""
_KINDS: dict[str, MediaKind] = {
    "image/jpeg": "image",
    "image/png": "image",
    "image/gif": "image",
    "image/webp": "image",
    "application/pdf": "document",
    "audio/mpeg": "audio",
    "audio/wav": "audio",
    "audio/x-wav": "audio",
}
_TAKES: dict[str, tuple[MediaKind, ...]] = {
    "anthropic": ("image", "document"),
    "openai_chat": ("image", "document", "audio"),
    "openai_responses": ("image", "document"),
}
"""By dialect: what its models can be given."""


class NotFetched(Exception):
    """The platform does not give a file away."""


class TooLarge(Exception):
    """A file has more bytes than are taken."""

    def __init__(self, size: int) -> None:
        self.size = size
        """Its bytes."""
        super().__init__(f"{size:,} bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file that a platform keeps for us."""

    kind: str
    """What it is, in plain words: `photo`, `voice message`, `file`."""
    fetch: Callable[[], Awaitable[bytes]]
    """Gets it. Raises `NotFetched`, and `TooLarge` where that is known before all is there."""
    mime: str | None = None
    """Its media type, where it is known."""
    name: str | None = None
    """What its sender calls it."""
    size: int | None = None
    """Bytes, where it is known."""


async def part_of(file: File, *, dialect: str, most: int) -> Text | Media:
    """The file as a part; never fails: what cannot be fetched is told as well."""
    name = " ".join((file.name or "").split())
    mime = (file.mime or mimetypes.guess_type(name)[0] or "").partition(";")[0].strip().lower()
    told = (
        f"{file.kind} ({about})" if (about := ", ".join(filter(None, (name, mime)))) else file.kind
    )
    kind, is_text = _KINDS.get(mime), mime.startswith(TEXTS)
    if not is_text and (kind is None or kind not in _TAKES.get(dialect, ())):
        return Text(text=f"[{told}: this model cannot be given such files]")
    try:
        data = await _fetched(file, most)
    except NotFetched:
        return Text(text=f"[{told}: it could not be fetched]")
    except TooLarge as error:
        why = f"it has {error.size:,} bytes, and at most {most:,} are taken"
        return Text(text=f"[{told}: {why}]")
    if is_text:
        title = f"{file.kind} {name}" if name else file.kind
        return Text(text=f"[{title}]\n{data.decode('utf-8', 'replace')}")
    assert kind is not None  # noqa: S101 - what is neither has been told
    return Media(kind=kind, mime=mime, data=base64.b64encode(data).decode())


async def _fetched(file: File, most: int) -> bytes:
    if file.size is not None and file.size > most:
        raise TooLarge(file.size)
    data = await file.fetch()
    if len(data) > most:
        raise TooLarge(len(data))
    return data
