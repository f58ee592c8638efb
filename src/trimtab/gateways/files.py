"""Files from a chat as parts of a message; what the model cannot take is told in words."""

from __future__ import annotations

import base64
import mimetypes
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from trimtab.core.message import Media, MediaKind, Text
from trimtab.dialects.media import Takes, UnfitMedia, fitted

TEXTS = ("text/", "application/json", "application/xml", "application/x-yaml")
"""Beginnings of media types whose files are read out as text."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What became of a file."""

    part: Text | Media
    """The file as a part, or what the model is told in its place."""
    refusal: str = ""
    """What its sender is told where it was not taken; empty where it was."""


async def taken(file: File, *, takes: Takes, most: int) -> Taken:
    """The file as a part; never fails: what cannot be taken is told to the model and its sender."""
    name = " ".join((file.name or "").split())
    mime = (file.mime or mimetypes.guess_type(name)[0] or "").partition(";")[0].strip().lower()
    told = (
        f"{file.kind} ({about})" if (about := ", ".join(filter(None, (name, mime)))) else file.kind
    )
    kind, is_text = _kind(mime), mime.startswith(TEXTS)
    if not is_text and not (kind is not None and takes.type_taken(kind, mime)):
        return _not_taken(told, "this model cannot be given such files")
    try:
        data = await _fetched(file, most)
    except NotFetched:
        return _not_taken(told, "it could not be fetched")
    except TooLarge as error:
        return _not_taken(told, f"it has {error.size:,} bytes, and at most {most:,} are taken")
    if is_text:
        title = f"{file.kind} {name}" if name else file.kind
        return Taken(part=Text(text=f"[{title}]\n{data.decode('utf-8', 'replace')}"))
    assert kind is not None  # noqa: S101 - what is neither has been told
    whole = Media(kind=kind, mime=mime, data=base64.b64encode(data).decode())
    try:
        return Taken(part=fitted(whole, takes))
    except UnfitMedia as error:
        return _not_taken(told, error.why)


def _kind(mime: str) -> MediaKind | None:
    match mime.partition("/")[0]:
        case "image":
            return "image"
        case "audio":
            return "audio"
        case _:
            return "document" if mime == "application/pdf" else None


def _not_taken(told: str, why: str) -> Taken:
    return Taken(part=Text(text=f"[{told}: {why}]"), refusal=f"I cannot take the {told}: {why}.")


async def _fetched(file: File, most: int) -> bytes:
    if file.size is not None and file.size > most:
        raise TooLarge(file.size)
    data = await file.fetch()
    if len(data) > most:
        raise TooLarge(len(data))
    return data
