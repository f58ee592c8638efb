"""Small pictures and documents that every provider takes, and some that none does."""

from __future__ import annotations

import base64
import struct
import zlib


def png(width: int = 1, height: int = 1, *, weight: int = 0) -> bytes:
    """A grey PNG, as small as it can be packed; `weight` bytes of it show nothing."""
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    pixels = zlib.compress((b"\x00" + b"\x80" * width) * height, 9)
    beside = ((b"prVt", b"\x00" * weight),) if weight else ()
    chunks = ((b"IHDR", header), *beside, (b"IDAT", pixels), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*each) for each in chunks)


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def jpeg(width: int = 1, height: int = 1) -> bytes:
    """The frame of a JPEG around a picture that nobody looks at."""
    app = b"\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00"
    frame = b"\xff\xc0\x00\x0b\x08" + struct.pack(">HH", height, width) + b"\x01\x01\x11\x00"
    scan = b"\xff\xda\x00\x08\x01\x01\x00\x00\x3f\x00" + b"\x00\x00"
    return b"\xff\xd8" + app + frame + scan + b"\xff\xd9"


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


GIF = base64.b64decode("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7")
WEBP = base64.b64decode("UklGRhoAAABXRUJQVlA4TA0AAAAvAAAAEAcQERGIiP4HAA==")
PDF = b"%PDF-1.4\n1 0 obj<</Type/Catalog>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n"
WAV = (
    b"RIFF"
    + struct.pack("<I", 36)
    + b"WAVEfmt "
    + struct.pack("<IHHIIHH", 16, 1, 1, 8000, 8000, 1, 8)
    + b"data"
    + struct.pack("<I", 0)
)
PNG_TEXT, JPEG_TEXT, PDF_TEXT, WAV_TEXT = text(png()), text(jpeg()), text(PDF), text(WAV)

BROKEN_INSIDE = png()[:41] + bytes(byte ^ 0xFF for byte in png()[41:45]) + png()[45:]
"""A PNG whose blocks are all there, and whose pixels cannot be unpacked."""
