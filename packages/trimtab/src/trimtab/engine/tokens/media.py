"""Estimate the tokens of images, recordings and documents, as the providers document them.

A picture's dimensions are read from the first bytes of its payload. Nothing else is decoded.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable

from trimtab.engine.log.message import Media
from trimtab.engine.log.sniff import read_image_dimensions
from trimtab.engine.tokens.pictures import estimate_picture_tokens, read_picture_detail

MIN_AUDIO_TOKENS = 1_600
"""Minimum tokens of any recording: 50 seconds."""

MIN_DOCUMENT_TOKENS = 3_000
"""Minimum tokens of any document: one page as text and as a picture."""

DOCUMENT_BYTES_PER_TOKEN = 8
"""Payload bytes of a PDF for each token. The estimate is too low for many pages of plain text and
too high for scans."""

AUDIO_BYTES_PER_TOKEN = 60
"""Gemini counts 32 tokens a second of audio, and a second of 16 kbit/s speech takes 2,000 bytes."""

VIDEO_BYTES_PER_TOKEN = 100
"""Gemini counts about 300 tokens a second of video. A video below 240 kbit/s costs more than this
estimate."""

MAX_DESCRIBED_URL_CHARS = 200
"""Maximum characters of a URL in a description of a picture."""

_HEADER_BASE64_CHARS = 4 * 1024
_JPEG_HEADER_BASE64_CHARS = 128 * 1024


def estimate_media_tokens(
    part: Media, count_tokens: Callable[[str], int], picture_rule: str = ""
) -> int:
    """Return the tokens of a media part without the block around it. Pictures follow a rule."""
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
    """Describe a picture or a file in words: its kind, type, bytes and pixels."""
    mime = part.mime or ""
    facts = [mime if mime.startswith(f"{part.kind}/") else f"{part.kind} {mime}".rstrip()]
    if part.data is not None:
        size = len(part.data) if mime.startswith("text/") else count_decoded_bytes(part.data)
        facts.append(f"{size:,} bytes")
    elif part.url is not None:
        facts.append(part.url[:MAX_DESCRIBED_URL_CHARS])
    if part.kind == "image" and (sides := read_base64_image_dimensions(part.data or "")):
        facts.append(f"{sides[0]:,} × {sides[1]:,} pixels")
    return ", ".join(facts)


def count_decoded_bytes(base64_text: str) -> int:
    """Return the number of bytes that a Base64 text encodes."""
    return len(base64_text) * 3 // 4 - base64_text[-2:].count("=")


def read_base64_image_dimensions(base64_image: str) -> tuple[int, int] | None:
    """Return width and height of a Base64 PNG, GIF, WebP or JPEG; None if they cannot be read."""
    # A camera's preview and colour profile may stand before the frame header of a JPEG.
    return read_image_dimensions(
        _decode_base64_prefix(base64_image[:_HEADER_BASE64_CHARS])
    ) or read_image_dimensions(_decode_base64_prefix(base64_image[:_JPEG_HEADER_BASE64_CHARS]))


def _decode_base64_prefix(data: str) -> bytes:
    try:
        return base64.b64decode(data[: len(data) // 4 * 4])
    except (binascii.Error, ValueError):
        return b""
