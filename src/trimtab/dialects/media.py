"""Which pictures and files a model can be given, and whether one of them is such.

What its provider would refuse is refused here, in words, before it is kept: in the log it would be
sent with every later message, and each of these would be refused with it. Where the bytes are fine
and only their name is wrong, as of a JPEG that is called `image/png`, the name is put right.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, cast

from trimtab.core.media_formats import PICTURES, dimensions, fault, type_of
from trimtab.core.message import Media, MediaKind, Message, Opaque, Part, Text, ToolResult

MB = 1_048_576
PDF = "application/pdf"
PLAIN = "text/plain"

_ALIASES = {
    "image/jpg": "image/jpeg",
    "image/pjpeg": "image/jpeg",
    "image/x-png": "image/png",
    "audio/mpeg": "audio/mp3",
    "audio/x-wav": "audio/wav",
    "audio/wave": "audio/wav",
}
_CLAUDE = re.compile(r"claude", re.IGNORECASE)
_GEMINI = re.compile(r"gemini|gemma", re.IGNORECASE)
_OPENAI = re.compile(r"(?:^|/)(?:gpt-(?!oss)|chatgpt|o\d)", re.IGNORECASE)

Field = Literal["mime", "data", "url"]
_Act = Callable[[Media, str], Media | Text]
"""What is done with a media part, given its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Takes:
    """What a model can be given."""

    types: Mapping[MediaKind, tuple[str, ...]]
    """Media types, by what a model perceives in them."""
    most: Mapping[MediaKind, int] = field(default_factory=dict["MediaKind", int])
    """Bytes that one of them may have, decoded; no limit where it is missing."""
    side: int | None = None
    """Pixels that a picture may be wide or high; None for any."""

    def type_taken(self, kind: MediaKind, mime: str) -> bool:
        """Whether something that is said to be of a type can be given to it."""
        return _canonical(mime) in self.types.get(kind, ())

    def listed(self, kind: MediaKind) -> str:
        """The types of a kind, or of all kinds where it has none, in words."""
        own = self.types.get(kind) or [mime for each in self.types.values() for mime in each]
        return ", ".join(dict.fromkeys(own))


_DOCUMENTS = (PDF, PLAIN)
_ANTHROPIC = Takes(
    types={"image": PICTURES, "document": _DOCUMENTS, "file": _DOCUMENTS},
    # A request has 32 MB at most, and base64 makes four bytes of three.
    most={"image": 5 * MB, "document": 24 * MB, "file": 24 * MB},
    side=8_000,
)
_RESPONSES = Takes(
    types={"image": PICTURES, "document": _DOCUMENTS, "file": _DOCUMENTS},
    most={"image": 20 * MB, "document": 32 * MB, "file": 32 * MB},
)
_CHAT = replace(
    _RESPONSES,
    types={**_RESPONSES.types, "audio": ("audio/wav", "audio/mp3")},
    most={**_RESPONSES.most, "audio": 20 * MB},
)
_GOOGLE = Takes(
    types={
        "image": ("image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"),
        "document": _DOCUMENTS,
        "file": _DOCUMENTS,
        "audio": ("audio/wav", "audio/mp3"),
    },
    most={"image": 7 * MB, "document": 15 * MB, "file": 15 * MB, "audio": 15 * MB},
)
_OTHERS = replace(
    _CHAT,
    types={
        **_CHAT.types,
        "image": (*PICTURES, "image/bmp", "image/tiff", "image/heic", "image/heif", "image/avif"),
    },
)
"""Of servers of one's own: what they decode, they decide."""


def takes_of(dialect: str, model: str) -> Takes:
    """What a model can be given: by its maker where the name tells, else by the dialect."""
    if dialect == "anthropic" or _CLAUDE.search(model):
        return _ANTHROPIC
    if _GEMINI.search(model):
        return _GOOGLE
    if dialect == "openai_responses":
        return _RESPONSES
    return _CHAT if _OPENAI.search(model) else _OTHERS


class UnfitMedia(ValueError):
    """A picture or a file that the model's provider would refuse."""

    def __init__(self, why: str, *, about: Field = "data") -> None:
        self.about: Field = about
        """Which field of it is wrong."""
        self.why = why
        """What is wrong with it, and what is taken."""
        super().__init__(why)


def fitted(part: Media, takes: Takes, *, own: bool = False) -> Media | Text:
    """The same as it can be sent: with the type that its bytes have; a plain text as text.

    What is to be fetched from a URL, or is known by a file's id, is left alone. So is, in a message
    of the model's `own` wire format, what is neither a picture nor a PDF: its SDK may know more
    kinds than we do. Raises `UnfitMedia`.
    """
    if part.data is None:
        if (part.url or "").startswith("data:"):
            raise UnfitMedia("a data: URL must have base64 in it", about="url")
        return part
    told, whole = _canonical(part.mime), "".join(part.data.split())
    data = _decoded(whole)
    found = type_of(data)
    if own and part.kind != "image" and PDF not in (told, found):
        return part
    if told.startswith("text/") and PLAIN in takes.types.get(part.kind, ()):
        return Text(text=f"[{part.kind}, {told}]\n{_read(data)}")
    _refuse_type(part.kind, takes, told, found, data)
    if len(data) > (most := takes.most.get(part.kind, len(data))):
        raise UnfitMedia(f"it has {len(data):,} bytes; {most:,} are taken at most")
    if part.kind == "image":
        _refuse_picture(data, takes)
    mime = found if part.kind == "image" or found != told else part.mime
    return part if (mime, whole) == (part.mime, part.data) else replace(part, mime=mime, data=whole)


def fitted_message(message: Message, takes: Takes, *, own: str = "") -> Message:
    """The message with its media as they can be sent; `own` is the dialect that it is sent in.

    What a model has said itself is left alone. Raises `UnfitMedia` with the place.
    """

    def check(part: Media, place: str) -> Media | Text:
        try:
            return fitted(part, takes, own=bool(own) and message.origin == own)
        except UnfitMedia as error:
            kind = f"the {part.kind}" if part.mime is None else f"the {part.kind} ({part.mime})"
            told = f"{place} of the {message.role} message: {kind} cannot be sent: {error.why}"
            raise UnfitMedia(told, about=error.about) from None

    return _each(message, check)


def corrected_message(message: Message, takes: Takes, *, own: str = "") -> Message:
    """The same for a message that was let in before: what cannot be sent stays as it is."""

    def correct(part: Media, _: str) -> Media | Text:
        try:
            return fitted(part, takes, own=bool(own) and message.origin == own)
        except UnfitMedia:
            return part

    return _each(message, correct)


def softened_message(message: Message, takes: Takes) -> Message:
    """The message with a sentence in place of what cannot be sent; nothing is raised."""
    return _each(message, lambda part, _: softened(part, takes))


def softened(part: Media, takes: Takes) -> Media | Text:
    """The media, or a sentence that says why it was left out."""
    try:
        return fitted(part, takes)
    except UnfitMedia as error:
        about = part.kind if part.mime is None else f"{part.kind} ({part.mime})"
        return Text(text=f"[{about} left out: {error.why}]")


def _each(message: Message, act: _Act) -> Message:
    if message.role == "assistant":
        return message
    parts = tuple(_part(part, act, f"content[{n}]") for n, part in enumerate(message.parts))
    return message if parts == message.parts else replace(message, parts=parts)


def _part(part: Part, act: _Act, place: str) -> Part:
    if isinstance(part, Media):
        return act(part, place)
    if isinstance(part, ToolResult):
        content = tuple(
            cast("Text | Media | Opaque", _part(inner, act, f"{place}.content[{n}]"))
            for n, inner in enumerate(part.content)
        )
        return part if content == part.content else replace(part, content=content)
    return part


def _canonical(mime: str | None) -> str:
    named = (mime or "").partition(";")[0].strip().lower()
    return _ALIASES.get(named, named)


def _decoded(text: str) -> bytes:
    try:
        data = binascii.a2b_base64(text, strict_mode=True)
    except ValueError as error:
        raise UnfitMedia(f"its data is no base64: {str(error).lower()}") from None
    if not data:
        raise UnfitMedia("its data is empty")
    return data


def _read(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise UnfitMedia(f"it is no text in UTF-8: byte {error.start:,} is none") from None


def _refuse_type(kind: MediaKind, takes: Takes, told: str, found: str | None, data: bytes) -> None:
    accepted = takes.types.get(kind, ())
    if not accepted:
        raise UnfitMedia(f"this model takes no {kind}; it takes {takes.listed(kind)}", about="mime")
    if found in accepted:
        return
    if found is not None:
        raise UnfitMedia(
            f"its bytes are {found}; as {kind} this model takes {takes.listed(kind)}", about="mime"
        )
    if told in accepted:
        raise UnfitMedia(f"its bytes are no {told}: they begin with {data[:8].hex(' ')}")
    raise UnfitMedia(
        f"it is {told or 'of no named type'}; as {kind} this model takes {takes.listed(kind)}",
        about="mime",
    )


def _refuse_picture(data: bytes, takes: Takes) -> None:
    if (why := fault(data)) is not None:
        raise UnfitMedia(f"nobody can draw it: {why}")
    sides = dimensions(data)
    if sides is not None and takes.side is not None and max(sides) > takes.side:
        raise UnfitMedia(
            f"it is {sides[0]:,} × {sides[1]:,} pixels large; {takes.side:,} a side are taken at "
            "most"
        )
