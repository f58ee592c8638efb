"""Detect what the bytes of a picture or another file are, whatever its name says.

Only headers and the division into blocks are read; nothing is decoded. That is enough to know the
type, the dimensions and whether the file is complete.
"""

from __future__ import annotations

from collections.abc import Iterator

TIFF_SIGNATURES = (b"II*\x00", b"MM\x00*")
_SIGNATURES: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"),
    (8, b"WEBP", "image/webp"),
    (0, b"BM", "image/bmp"),
    (0, TIFF_SIGNATURES[0], "image/tiff"),
    (0, TIFF_SIGNATURES[1], "image/tiff"),
    (8, b"WAVE", "audio/wav"),
    (0, b"ID3", "audio/mp3"),
    (0, b"OggS", "audio/ogg"),
    (0, b"fLaC", "audio/flac"),
    (8, b"AIFF", "audio/aiff"),
    (0, b"\x1aE\xdf\xa3", "video/webm"),
    (0, b"PK\x03\x04", "application/zip"),
    (0, b"\x1f\x8b", "application/gzip"),
)
"""Offset, bytes and type."""
_RIFF_TYPES = ("image/webp", "audio/wav")
_TYPE_BY_FTYP_BRAND = {
    **dict.fromkeys((b"heic", b"heix", b"hevc", b"hevx"), "image/heic"),
    **dict.fromkeys((b"mif1", b"msf1"), "image/heif"),
    **dict.fromkeys((b"avif", b"avis"), "image/avif"),
    b"M4A ": "audio/mp4",
    b"qt  ": "video/quicktime",
}
"""Types of files that begin with an `ftyp` box. All other brands are videos."""
_PDF_HEADER_WITHIN_BYTES = 1_024
"""Bytes from the start in which readers look for the header of a PDF."""
_JPEG_FRAME_MARKERS = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JPEG_MARKERS_WITHOUT_LENGTH = frozenset((0x01, *range(0xD0, 0xD8)))
"""JPEG markers that are not followed by a length."""
_JPEG_SCAN_MARKER = 0xDA

INSPECTED_IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""Types that `find_image_defect` and `read_image_dimensions` read beyond the first bytes."""


def detect_media_type(file_bytes: bytes) -> str | None:
    """Return the media type of the bytes; None if they do not begin like a known type."""
    for offset, signature, mime in _SIGNATURES:
        if file_bytes[offset : offset + len(signature)] == signature:
            if mime in _RIFF_TYPES and file_bytes[:4] != b"RIFF":
                continue
            return mime
    if file_bytes[4:8] == b"ftyp":
        return _TYPE_BY_FTYP_BRAND.get(file_bytes[8:12], "video/mp4")
    # Two bits say that it is of layer III: AAC has the same first bits.
    if len(file_bytes) > 2 and file_bytes[0] == 0xFF and file_bytes[1] & 0xE6 == 0xE2:
        return "audio/mp3"
    if b"%PDF-" in file_bytes[:_PDF_HEADER_WITHIN_BYTES]:
        return "application/pdf"
    start = file_bytes[:_PDF_HEADER_WITHIN_BYTES].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if start.startswith(b"<svg") or (start.startswith(b"<?xml") and b"<svg" in start):
        return "image/svg+xml"
    return None


def read_image_dimensions(image_bytes: bytes) -> tuple[int, int] | None:
    """Return width and height of a PNG, JPEG, GIF or WebP from its first bytes; None for other
    files."""
    match detect_media_type(image_bytes):
        case "image/png" if len(image_bytes) >= 24:
            return int.from_bytes(image_bytes[16:20], "big"), int.from_bytes(
                image_bytes[20:24], "big"
            )
        case "image/gif" if len(image_bytes) >= 10:
            return int.from_bytes(image_bytes[6:8], "little"), int.from_bytes(
                image_bytes[8:10], "little"
            )
        case "image/webp" if len(image_bytes) >= 30:
            return _read_webp_dimensions(image_bytes)
        case "image/jpeg":
            return _read_jpeg_dimensions(image_bytes)
        case _:
            return None


def find_image_defect(image_bytes: bytes) -> str | None:
    """Say why a PNG, JPEG, GIF or WebP cannot be drawn: it is cut off or has no pixels. None if it
    can."""
    match detect_media_type(image_bytes):
        case "image/png":
            why = _find_png_defect(image_bytes)
        case "image/gif":
            why = _find_gif_defect(image_bytes)
        case "image/webp":
            why = _find_webp_defect(image_bytes)
        case "image/jpeg":
            why = _find_jpeg_defect(image_bytes)
        case _:
            return None
    if why is not None:
        return why
    sides = read_image_dimensions(image_bytes)
    if sides is None:
        return "it does not state its width and height"
    width, height = sides
    return None if width and height else f"it is {width} × {height} pixels large"


def _find_png_defect(data: bytes) -> str | None:
    at = 8
    has_picture = False
    while at + 12 <= len(data):
        kind = data[at + 4 : at + 8]
        if at == 8 and kind != b"IHDR":
            return "its header is missing"
        has_picture = has_picture or kind == b"IDAT"
        at += 12 + int.from_bytes(data[at : at + 4], "big")
        if kind == b"IEND":
            return None if has_picture else "it contains no picture"
    return f"it is cut off after {len(data):,} bytes"


def _find_gif_defect(data: bytes) -> str | None:
    flags = data[10] if len(data) > 10 else 0
    at = 13 + (3 << (flags & 7) + 1 if flags & 0x80 else 0)
    while at + 2 < len(data):
        if data[at] == 0x2C:
            return None
        if data[at] != 0x21:
            return "it contains no picture"
        at += 2
        while at < len(data) and data[at]:
            at += 1 + data[at]
        at += 1
    return f"it is cut off after {len(data):,} bytes"


def _find_webp_defect(data: bytes) -> str | None:
    declared_size = 8 + int.from_bytes(data[4:8], "little")
    if len(data) < 30 or declared_size > len(data):
        return f"it is cut off after {len(data):,} bytes"
    return None


def _read_webp_dimensions(data: bytes) -> tuple[int, int] | None:
    match data[12:16]:
        case b"VP8 ":
            width = data[26:28]
            height = data[28:30]
            return (
                int.from_bytes(width, "little") & 0x3FFF,
                int.from_bytes(height, "little") & 0x3FFF,
            )
        case b"VP8L":
            bits = int.from_bytes(data[21:25], "little")
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8X":
            width = data[24:27]
            height = data[27:30]
            return int.from_bytes(width, "little") + 1, int.from_bytes(height, "little") + 1
        case _:
            return None


def _find_jpeg_defect(data: bytes) -> str | None:
    offsets = {marker: at for at, marker in _iter_jpeg_segments(data)}
    scan = offsets.get(_JPEG_SCAN_MARKER, len(data))
    # The picture itself stands behind the header of its scan.
    begins = scan + 2 + int.from_bytes(data[scan + 2 : scan + 4], "big")
    if not _JPEG_FRAME_MARKERS & offsets.keys() or begins >= len(data):
        return f"it is cut off after {len(data):,} bytes"
    return None


def _read_jpeg_dimensions(data: bytes) -> tuple[int, int] | None:
    for at, marker in _iter_jpeg_segments(data):
        if marker in _JPEG_FRAME_MARKERS and at + 9 <= len(data):
            height = data[at + 5 : at + 7]
            width = data[at + 7 : at + 9]
            return int.from_bytes(width, "big"), int.from_bytes(height, "big")
    return None


def _iter_jpeg_segments(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield the position and the marker of each segment before the picture data."""
    at = 2
    while at + 4 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:
            at += 1  # filling
            continue
        yield at, marker
        if marker == _JPEG_SCAN_MARKER:
            return
        at += (
            2
            if marker in _JPEG_MARKERS_WITHOUT_LENGTH
            else 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        )
