"""Check the images and documents of a request as providers do, independently of Trimtab's code.

A PNG is unpacked, so that wrong pixels after a valid header are also found.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trimtab.dialects.json_values import dict_or_none
from trimtab.models.catalog import find_model_info
from trimtab.testing.request_counter import list_array_objects

JsonObject = Mapping[str, Any]
IMAGE_MEDIA_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")
MAX_IMAGE_BYTES = 5_242_880
"""Maximum size of an image for Anthropic, in bytes."""
MAX_IMAGE_SIDE_PX = 8_000
"""Maximum length of a side for Anthropic, in pixels."""
MANY_IMAGES = 20
"""Number of images in a request above which Anthropic's limits are lower."""
MAX_SIDE_OF_MANY_PX = 2_000
MAX_IMAGES = 600
"""Maximum number of images in a request to Anthropic."""
MAX_IMAGES_OF_SMALL_WINDOWS = 100
"""The same for models with a window of 200,000 tokens."""
SMALL_WINDOW_TOKENS = 200_000
MAX_OPENAI_IMAGES = 1_500
"""Maximum number of images in a request to OpenAI."""
MAX_OPENAI_IMAGE_MB = 50.0
"""Maximum size of all images together in megabytes, as OpenAI counts."""
OPENAI_IMAGE_SIZE_FACTOR = 1.026
"""Measured ratio of OpenAI's size of images to their size in base64."""
_UNSUPPORTED = "You uploaded an unsupported image. Please make sure your image "
_BYTES_A_PIXEL = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaRefusal:
    """The error of a provider about an image or a document."""

    message: str
    """The message."""
    param: str | None = None
    """The place in the request, in OpenAI's form."""
    code: str | None = None
    """OpenAI's code."""


def find_media_error(request: JsonObject, dialect: str) -> MediaRefusal | None:
    """Return the first error in an image or a document. None if there is none."""
    if dialect == "anthropic":
        fault = next(_anthropic(request), None)
        return None if fault is None else MediaRefusal(message=fault)
    key = "messages" if dialect == "openai_chat" else "input"
    return next(_openai(request, key), None)


def _anthropic(request: JsonObject) -> Iterator[str]:
    blocks = [*_blocks(request)]
    pictures = sum(block.get("type") == "image" for _, block in blocks)
    entry = find_model_info(str(request.get("model")))
    small = entry is None or entry.context_window <= SMALL_WINDOW_TOKENS
    most = MAX_IMAGES_OF_SMALL_WINDOWS if small else MAX_IMAGES
    if pictures > most:
        yield f"messages: Too much media: 0 document pages + {pictures} images > {most}"
    for place, block in blocks:
        source = dict_or_none(block.get("source")) or {}
        if source.get("type") != "base64":
            continue
        if block.get("type") == "document":
            yield from _document(f"{place}.document.source.base64", source)
        else:
            yield from _picture(f"{place}.image.source.base64", source, many=pictures > MANY_IMAGES)


def _blocks(request: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    for index, message in enumerate(list_array_objects(request.get("messages"))):
        for number, block in enumerate(list_array_objects(message.get("content"))):
            place = f"messages.{index}.content.{number}"
            if block.get("type") in ("image", "document"):
                yield place, block
            for inside, inner in enumerate(list_array_objects(block.get("content"))):
                if inner.get("type") in ("image", "document"):
                    yield f"{place}.tool_result.content.{inside}", inner


def _document(place: str, source: JsonObject) -> Iterator[str]:
    if source.get("media_type") != "application/pdf":
        yield f"{place}.media_type: Input should be 'application/pdf'"
        return
    data = _decoded(source.get("data"))
    if data is None or not data.startswith(b"%PDF-"):
        yield f"{place}.data: The PDF specified was not valid."


def _picture(place: str, source: JsonObject, *, many: bool) -> Iterator[str]:
    declared_type = source.get("media_type")
    if declared_type not in IMAGE_MEDIA_TYPES:
        *first, last = (f"'{each}'" for each in IMAGE_MEDIA_TYPES)
        yield f"{place}.media_type: Input should be {', '.join(first)} or {last}"
        return
    data = _decoded(source.get("data"))
    if data is None:
        yield f"{place}.data: Input should be valid base64"
        return
    if len(data) > MAX_IMAGE_BYTES:
        yield f"{place}: image exceeds 5 MB maximum: {len(data)} bytes > {MAX_IMAGE_BYTES} bytes"
        return
    detected_type = _detect_image_type(data)
    if detected_type is not None and detected_type != declared_type:
        yield (
            f"{place}: The image was specified using the {declared_type} media type, but the image "
            f"appears to be a {detected_type} image"
        )
        return
    sides = _decode_image_size(data, detected_type)
    if sides is None:
        yield "Could not process image"
    elif max(sides) > (most := MAX_SIDE_OF_MANY_PX if many else MAX_IMAGE_SIDE_PX):
        kind = " for many-image requests" if many else ""
        yield (
            f"{place}.data: At least one of the image dimensions exceed max allowed size{kind}: "
            f"{most} pixels"
        )


def _openai(request: JsonObject, key: str) -> Iterator[MediaRefusal]:
    pictures = [*_openai_picture_urls(request, key)]
    size = OPENAI_IMAGE_SIZE_FACTOR * sum(map(len, pictures)) / 1_000_000
    if size > MAX_OPENAI_IMAGE_MB:
        words = (
            f"Total image size is {size:.2f}MB, which exceeds the allowed limit of "
            f"{MAX_OPENAI_IMAGE_MB:.0f}MB."
        )
        yield MediaRefusal(message=words, param=key)
    if len(pictures) > MAX_OPENAI_IMAGES:
        words = f"Too many images in the request: at most {MAX_OPENAI_IMAGES} images are taken."
        yield MediaRefusal(message=words, param=key)
    for index, holder in enumerate(list_array_objects(request.get(key))):
        inner = "output" if "output" in holder else "content"
        for number, part in enumerate(list_array_objects(holder.get(inner))):
            place = f"{key}[{index}].{inner}[{number}]"
            yield from _openai_part(part, place)


def _openai_picture_urls(request: JsonObject, key: str) -> Iterator[str]:
    for holder in list_array_objects(request.get(key)):
        for part in list_array_objects(holder.get("output", holder.get("content"))):
            if part.get("type") in ("image_url", "input_image"):
                image_url = part.get("image_url")
                url = (dict_or_none(image_url) or {}).get("url", image_url)
                yield url if isinstance(url, str) and url.startswith("data:") else ""


def _openai_part(part: JsonObject, place: str) -> Iterator[MediaRefusal]:
    match part.get("type"):
        case "image_url":
            url = (dict_or_none(part.get("image_url")) or {}).get("url")
            yield from _openai_picture(str(url), f"{place}.image_url")
        case "input_image" if isinstance(part.get("image_url"), str):
            yield from _openai_picture(part["image_url"], f"{place}.image_url")
        case "file" | "input_file":
            data = str((dict_or_none(part.get("file")) or part).get("file_data") or "")
            if data.startswith("data:application/pdf") and not _is_pdf(data):
                words = "Invalid file data: the file could not be read as a PDF."
                yield MediaRefusal(message=words, param=f"{place}.file_data", code="invalid_file")
        case _:
            pass


def _openai_picture(url: str, place: str) -> Iterator[MediaRefusal]:
    if not url.startswith("data:"):
        return
    data = _decoded(url.partition(",")[2]) if ";base64," in url else None
    if data is None:
        words = f"Invalid '{place}'. Expected a base64-encoded data URL with an image MIME type."
        yield MediaRefusal(message=words, param=place, code="invalid_value")
    elif (detected_type := _detect_image_type(data)) is None:
        words = f"{_UNSUPPORTED}has of one the following formats: ['png', 'jpeg', 'gif', 'webp']."
        yield MediaRefusal(message=words, code="invalid_image_format")
    elif _decode_image_size(data, detected_type) is None:
        yield MediaRefusal(message=f"{_UNSUPPORTED}is valid.", code="image_parse_error")


def _is_pdf(url: str) -> bool:
    return (_decoded(url.partition(",")[2]) or b"").startswith(b"%PDF-")


def _decoded(data: Any) -> bytes | None:
    try:
        return base64.b64decode(str(data), validate=True)
    except (binascii.Error, ValueError):
        return None


def _detect_image_type(data: bytes) -> str | None:
    if data.startswith(b"\x89PNG"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith(b"GIF8"):
        return "image/gif"
    return "image/webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else None


def _decode_image_size(data: bytes, kind: str | None) -> tuple[int, int] | None:
    """Return width and height. None if a decoder would fail."""
    match kind:
        case "image/png":
            sides = _decode_png_size(data)
        case "image/gif" if data.endswith(b";") and b"," in data[13:]:
            sides = (int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little"))
        case "image/jpeg" if b"\xff\xda" in data and b"\xff\xd9" in data[-64:]:
            sides = _read_jpeg_size(data)
        case "image/webp" if int.from_bytes(data[4:8], "little") == len(data) - 8:
            sides = (1, 1)  # nothing here knows how it is packed
        case _:
            sides = None
    return sides if sides is not None and all(sides) else None


def _decode_png_size(data: bytes) -> tuple[int, int] | None:
    """Return the size of a PNG. None if its chunks or pixels are incomplete."""
    at = 8
    pixels = b""
    header = b""
    while data[at + 4 : at + 8] != b"IEND":
        length = int.from_bytes(data[at : at + 4], "big")
        body = data[at + 8 : at + 8 + length]
        check = data[at + 8 + length : at + 12 + length]
        if len(check) < 4 or zlib.crc32(data[at + 4 : at + 8] + body) != int.from_bytes(
            check, "big"
        ):
            return None
        if data[at + 4 : at + 8] == b"IHDR":
            header = body
        elif data[at + 4 : at + 8] == b"IDAT":
            pixels += body
        at += 12 + length
    if len(header) != 13:
        return None
    width = int.from_bytes(header[:4], "big")
    height = int.from_bytes(header[4:8], "big")
    samples = _BYTES_A_PIXEL.get(header[9], 1)
    row = (width * samples * header[8] + 7) // 8 + 1
    try:
        whole = len(zlib.decompress(pixels)) >= (row * height if header[12] == 0 else 1)
    except zlib.error:
        return None
    return (width, height) if whole else None


def _read_jpeg_size(data: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 < len(data) and data[at] == 0xFF:
        if data[at + 1] in (0xC0, 0xC1, 0xC2):
            return int.from_bytes(data[at + 7 : at + 9], "big"), int.from_bytes(
                data[at + 5 : at + 7], "big"
            )
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return None
