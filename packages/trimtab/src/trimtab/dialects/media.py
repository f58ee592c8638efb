"""Which pictures and files a model accepts, and whether one of them can be sent.

Media that the provider would reject are rejected here, with a reason, before they are stored. In
the log they would be sent with every later message, and each of these would be rejected. If only
the type is wrong, as for a JPEG that is called `image/png`, the type is corrected.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import cast

from trimtab.engine.log.message import (
    Media,
    MediaKind,
    Message,
    OpaqueBlock,
    Part,
    Text,
    ToolResult,
)
from trimtab.engine.log.sniff import (
    INSPECTED_IMAGE_TYPES,
    detect_media_type,
    find_image_defect,
    read_image_dimensions,
)
from trimtab.engine.text.quoting import indent_lines
from trimtab.errors import UnsupportedMedia

BYTES_PER_MIB = 1_048_576
PDF_MIME_TYPE = "application/pdf"
PLAIN_TEXT_MIME_TYPE = "text/plain"

_MIME_TYPE_ALIASES = {
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

_TransformMedia = Callable[[Media, str], Media | Text]
"""Converts a media part, given its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedMedia:
    """The media that a model accepts."""

    types: Mapping[MediaKind, tuple[str, ...]]
    """Media types, by what a model perceives in them."""
    max_bytes: Mapping[MediaKind, int] = field(default_factory=dict["MediaKind", int])
    """Maximum number of decoded bytes of one of them; no limit if it is missing."""
    max_side_px: int | None = None
    """Maximum width and height of a picture in pixels; None for no limit."""

    def accepts_type(self, kind: MediaKind, mime: str) -> bool:
        """Whether the model accepts media of a declared type."""
        return _canonical_mime_type(mime) in self.types.get(kind, ())

    def describe_types(self, kind: MediaKind) -> str:
        """Describe the types of a kind, or of all kinds if it has none."""
        types = self.types.get(kind) or [*chain(*self.types.values())]
        return ", ".join(dict.fromkeys(types))


_DOCUMENT_MIME_TYPES = (PDF_MIME_TYPE, PLAIN_TEXT_MIME_TYPE)
_ANTHROPIC_MEDIA = AcceptedMedia(
    types={
        "image": INSPECTED_IMAGE_TYPES,
        "document": _DOCUMENT_MIME_TYPES,
        "file": _DOCUMENT_MIME_TYPES,
    },
    # A request has 32 MB at most, and base64 makes four bytes of three.
    max_bytes={
        "image": 5 * BYTES_PER_MIB,
        "document": 24 * BYTES_PER_MIB,
        "file": 24 * BYTES_PER_MIB,
    },
    max_side_px=8_000,
)
_RESPONSES_MEDIA = AcceptedMedia(
    types={
        "image": INSPECTED_IMAGE_TYPES,
        "document": _DOCUMENT_MIME_TYPES,
        "file": _DOCUMENT_MIME_TYPES,
    },
    max_bytes={
        "image": 20 * BYTES_PER_MIB,
        "document": 32 * BYTES_PER_MIB,
        "file": 32 * BYTES_PER_MIB,
    },
)
_CHAT_MEDIA = replace(
    _RESPONSES_MEDIA,
    types={**_RESPONSES_MEDIA.types, "audio": ("audio/wav", "audio/mp3")},
    max_bytes={**_RESPONSES_MEDIA.max_bytes, "audio": 20 * BYTES_PER_MIB},
)
_GEMINI_MEDIA = AcceptedMedia(
    types={
        "image": ("image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"),
        "document": _DOCUMENT_MIME_TYPES,
        "file": _DOCUMENT_MIME_TYPES,
        "audio": ("audio/wav", "audio/mp3"),
    },
    max_bytes={
        "image": 7 * BYTES_PER_MIB,
        "document": 15 * BYTES_PER_MIB,
        "file": 15 * BYTES_PER_MIB,
        "audio": 15 * BYTES_PER_MIB,
    },
)
_OTHER_SERVERS_MEDIA = replace(
    _CHAT_MEDIA,
    types={
        **_CHAT_MEDIA.types,
        "image": (
            *INSPECTED_IMAGE_TYPES,
            "image/bmp",
            "image/tiff",
            "image/heic",
            "image/heif",
            "image/avif",
        ),
    },
)
"""For other servers: each decides itself what it decodes."""


def find_accepted_media(dialect: str, model: str) -> AcceptedMedia:
    """Return the media that a model accepts: by its maker if the name says it, otherwise by the
    dialect."""
    if dialect == "anthropic" or _CLAUDE.search(model):
        return _ANTHROPIC_MEDIA
    if _GEMINI.search(model):
        return _GEMINI_MEDIA
    if dialect == "openai_responses":
        return _RESPONSES_MEDIA
    return _CHAT_MEDIA if _OPENAI.search(model) else _OTHER_SERVERS_MEDIA


def validate_and_convert_media(
    part: Media, accepted: AcceptedMedia, *, is_native: bool = False
) -> Media | Text:
    """Return media as it can be sent: with the type of its bytes, and a plain text as text.

    Media with a URL or a file id are not checked. In a message of the model's own wire format,
    media other than pictures, PDFs and plain texts are also not checked, because its SDK may know
    more kinds.
    Raises `UnsupportedMedia`.
    """
    if part.data is None:
        if (part.url or "").startswith("data:"):
            raise UnsupportedMedia("a data: URL must contain base64", media_field="url")
        return part
    declared_type = _canonical_mime_type(part.mime)
    base64 = "".join(part.data.split())
    data = _decode_base64(base64)
    detected_type = detect_media_type(data)
    types = {declared_type, detected_type}
    if is_native and part.kind != "image" and types.isdisjoint(_DOCUMENT_MIME_TYPES):
        return part
    if declared_type.startswith("text/") and PLAIN_TEXT_MIME_TYPE in accepted.types.get(
        part.kind, ()
    ):
        text = indent_lines(_decode_utf8(data))  # others may have written it
        return Text(text=f"[{part.kind}, {declared_type}]\n{text}")
    _require_accepted_type(part.kind, accepted, declared_type, detected_type, data)
    if len(data) > (max_bytes := accepted.max_bytes.get(part.kind, len(data))):
        raise UnsupportedMedia(f"it has {len(data):,} bytes; at most {max_bytes:,} are allowed")
    if part.kind == "image":
        _require_sendable_picture(data, accepted)
    mime = detected_type if part.kind == "image" or detected_type != declared_type else part.mime
    is_same = (mime, base64) == (part.mime, part.data)
    return part if is_same else replace(part, mime=mime, data=base64)


def normalize_message_media(
    message: Message, accepted: AcceptedMedia, *, request_dialect: str = ""
) -> Message:
    """Return the message with its media as they can be sent in `request_dialect`.

    A model's own messages are not changed. Raises `UnsupportedMedia` with the place.
    """

    def check(part: Media, place: str) -> Media | Text:
        try:
            return validate_and_convert_media(
                part,
                accepted,
                is_native=bool(request_dialect) and message.origin == request_dialect,
            )
        except UnsupportedMedia as error:
            kind = f"the {part.kind}" if part.mime is None else f"the {part.kind} ({part.mime})"
            text = f"{place} of the {message.role} message: {kind} cannot be sent: {error.reason}"
            raise UnsupportedMedia(text, media_field=error.media_field) from None

    return _transform_media(message, check)


def normalize_media_where_possible(
    message: Message, accepted: AcceptedMedia, *, request_dialect: str = ""
) -> Message:
    """Do the same for a stored message: media that cannot be sent stay unchanged."""

    def correct(part: Media, _: str) -> Media | Text:
        try:
            return validate_and_convert_media(
                part,
                accepted,
                is_native=bool(request_dialect) and message.origin == request_dialect,
            )
        except UnsupportedMedia:
            return part

    return _transform_media(message, correct)


def replace_unsupported_media(message: Message, accepted: AcceptedMedia) -> Message:
    """Replace media that cannot be sent by a sentence; raise nothing."""
    return _transform_media(message, lambda part, _: normalize_or_replace_media(part, accepted))


def normalize_or_replace_media(part: Media, accepted: AcceptedMedia) -> Media | Text:
    """Return the media, or a sentence that says why it was left out."""
    try:
        return validate_and_convert_media(part, accepted)
    except UnsupportedMedia as error:
        about = part.kind if part.mime is None else f"{part.kind} ({part.mime})"
        return Text(text=f"[{about} left out: {error.reason}]")


def _transform_media(message: Message, act: _TransformMedia) -> Message:
    if message.role == "assistant":
        return message
    parts = tuple(
        _transform_part_media(part, act, f"content[{n}]") for n, part in enumerate(message.parts)
    )
    return message if parts == message.parts else replace(message, parts=parts)


def _transform_part_media(part: Part, act: _TransformMedia, place: str) -> Part:
    if isinstance(part, Media):
        return act(part, place)
    if isinstance(part, ToolResult):
        content = tuple(
            cast(
                "Text | Media | OpaqueBlock",
                _transform_part_media(inner, act, f"{place}.content[{n}]"),
            )
            for n, inner in enumerate(part.content)
        )
        return part if content == part.content else replace(part, content=content)
    return part


def _canonical_mime_type(mime: str | None) -> str:
    lower_mime = (mime or "").partition(";")[0].strip().lower()
    return _MIME_TYPE_ALIASES.get(lower_mime, lower_mime)


def _decode_base64(text: str) -> bytes:
    try:
        data = binascii.a2b_base64(text, strict_mode=True)
    except ValueError as error:
        raise UnsupportedMedia(f"its data is not base64: {str(error).lower()}") from None
    if not data:
        raise UnsupportedMedia("its data is empty")
    return data


def _decode_utf8(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise UnsupportedMedia(f"it is not UTF-8 text: byte {error.start:,} is invalid") from None


def _require_accepted_type(
    kind: MediaKind,
    accepted_media: AcceptedMedia,
    declared_type: str,
    detected_type: str | None,
    data: bytes,
) -> None:
    types = accepted_media.types.get(kind, ())
    if not types:
        raise UnsupportedMedia(
            f"this model does not accept {kind}; it accepts {accepted_media.describe_types(kind)}",
            media_field="mime",
        )
    if detected_type in types:
        return
    if detected_type is not None:
        raise UnsupportedMedia(
            (
                f"its bytes are {detected_type}; as {kind} this model accepts "
                f"{accepted_media.describe_types(kind)}"
            ),
            media_field="mime",
        )
    if declared_type in types:
        raise UnsupportedMedia(
            f"its bytes are not {declared_type}: they begin with {data[:8].hex(' ')}"
        )
    raise UnsupportedMedia(
        (
            f"its type is {declared_type or 'missing'}; as {kind} this model accepts "
            f"{accepted_media.describe_types(kind)}"
        ),
        media_field="mime",
    )


def _require_sendable_picture(data: bytes, accepted_media: AcceptedMedia) -> None:
    if (why := find_image_defect(data)) is not None:
        raise UnsupportedMedia(f"it cannot be decoded: {why}")
    sides = read_image_dimensions(data)
    if (
        sides is not None
        and accepted_media.max_side_px is not None
        and max(sides) > accepted_media.max_side_px
    ):
        raise UnsupportedMedia(
            f"it is {sides[0]:,} × {sides[1]:,} pixels large; at most "
            f"{accepted_media.max_side_px:,} a side are allowed"
        )
