"""What an image, a recording or a document costs, from the providers' documents.

A picture's dimensions are read from the first bytes of its payload; nothing is decoded further.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable

from trimtab.log.media_type_dimensions_and_defects import read_image_dimensions
from trimtab.log.message import Media
from trimtab.tokens.pictures import estimate_picture_tokens, read_picture_detail

MIN_AUDIO_TOKENS = 1_600
"""At least, for any recording: 50 seconds."""

MIN_DOCUMENT_TOKENS = 3_000
"""At least, for any document: one page as text and as a picture."""

DOCUMENT_BYTES_PER_TOKEN = 8
"""Payload of a PDF for each token: too few for many pages of bare text, too many for scans."""

AUDIO_BYTES_PER_TOKEN = 60
"""Gemini hears 32 tokens a second, and 16 kbit/s speech takes 2,000 bytes for one."""

VIDEO_BYTES_PER_TOKEN = 100
"""Gemini sees about 300 tokens a second; below 240 kbit/s a video costs more than this says."""

MAX_DESCRIBED_URL_CHARS = 200
"""Of an address that says what a picture is."""

_HEADER_BASE64_CHARS = 4 * 1024
_JPEG_HEADER_BASE64_CHARS = 128 * 1024


def estimate_media_tokens(
    part: Media, count_tokens: Callable[[str], int], picture_rule: str = ""
) -> int:
    """Tokens of a media part, without the block around it; of a picture by a rule."""
    data = part.data or ""
    if part.mime is not None and part.mime.startswith("text/") and data:
        return count_tokens(data)
    payload = len(data) * 3 // 4
    match part.kind:
        case "image":
            return estimate_picture_tokens(
                picture_rule, read_base64_image_dimensions(data), read_picture_detail(part.extra)
            )
        case "audio":
            return max(MIN_AUDIO_TOKENS, payload // AUDIO_BYTES_PER_TOKEN)
        case "video":
            return max(MIN_DOCUMENT_TOKENS, payload // VIDEO_BYTES_PER_TOKEN)
        case "document" | "file":
            return max(MIN_DOCUMENT_TOKENS, payload // DOCUMENT_BYTES_PER_TOKEN)


def describe_media(part: Media) -> str:
    """What a picture or a file is, in words: its kind, type, bytes and pixels."""
    mime = part.mime or ""
    told = [mime if mime.startswith(f"{part.kind}/") else f"{part.kind} {mime}".rstrip()]
    if part.data is not None:
        size = len(part.data) if mime.startswith("text/") else count_decoded_bytes(part.data)
        told.append(f"{size:,} bytes")
    elif part.url is not None:
        told.append(part.url[:MAX_DESCRIBED_URL_CHARS])
    if part.kind == "image" and (sides := read_base64_image_dimensions(part.data or "")):
        told.append(f"{sides[0]:,} × {sides[1]:,} pixels")
    return ", ".join(told)


def count_decoded_bytes(base64_text: str) -> int:
    """Bytes that a base64 text stands for."""
    return len(base64_text) * 3 // 4 - base64_text[-2:].count("=")


def read_base64_image_dimensions(base64_image: str) -> tuple[int, int] | None:
    """Width and height of a base64 PNG, GIF, WebP or JPEG; None where they cannot be read."""
    # A camera's preview and colour profile may stand before the frame header of a JPEG.
    return read_image_dimensions(
        _decode_base64_prefix(base64_image[:_HEADER_BASE64_CHARS])
    ) or read_image_dimensions(_decode_base64_prefix(base64_image[:_JPEG_HEADER_BASE64_CHARS]))


def _decode_base64_prefix(data: str) -> bytes:
    try:
        return base64.b64decode(data[: len(data) // 4 * 4])
    except (binascii.Error, ValueError):
        return b""
