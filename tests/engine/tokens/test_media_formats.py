"""What the bytes of a file are, and whether a picture is whole."""

import io
import random

import pytest

from tests.pictures import BROKEN_INSIDE, GIF, PDF, WAV, WEBP, chunk, jpeg, png
from trimtab.engine.log.sniff import (
    INSPECTED_IMAGE_TYPES,
    detect_media_type,
    find_image_defect,
    read_image_dimensions,
)

KINDS = {
    "image/png": png(),
    "image/jpeg": jpeg(),
    "image/gif": GIF,
    "image/webp": WEBP,
    "image/bmp": b"BM\x00\x00",
    "image/tiff": b"II*\x00\x08",
    "image/svg+xml": b'<?xml version="1.0"?>\n<svg/>',
    "image/heic": b"\x00\x00\x00\x18ftypheic\x00",
    "image/avif": b"\x00\x00\x00\x18ftypavif\x00",
    "video/mp4": b"\x00\x00\x00\x18ftypisom\x00",
    "application/pdf": PDF,
    "application/zip": b"PK\x03\x04",
    "audio/wav": WAV,
    "audio/mp3": b"\xff\xfb\x90\x00",
    "audio/ogg": b"OggS\x00",
}


@pytest.mark.parametrize("mime", KINDS)
def test_a_file_is_known_by_its_first_bytes(mime):
    assert detect_media_type(KINDS[mime]) == mime


@pytest.mark.parametrize(
    "data", [b"", b"AB", b"\x89P", b"RIFF\x00\x00\x00\x00AVI ", b"plain words"]
)
def test_what_begins_like_no_known_file_is_of_no_type(data):
    assert detect_media_type(data) is None


FAULTS = {
    "cut off after 12 bytes": [png()[:12], jpeg()[:12], GIF[:12], WEBP[:12]],
    "header is missing": [png()[:8] + chunk(b"IDAT", b"x") + chunk(b"IEND", b"")],
    "it contains no picture": [png()[:33] + chunk(b"IEND", b""), GIF[:13] + b"\x00" * 6 + b";;;"],
    "0 × 5": [png(0, 5), jpeg(0, 5)],
    "5 × 0": [png(5, 0), jpeg(5, 0)],
    "cut off": [png()[:-5], jpeg()[:-8], WEBP[:-3]],
}


@pytest.mark.parametrize(
    ("words", "data"), [(words, each) for words, all_of in FAULTS.items() for each in all_of]
)
def test_a_picture_that_nobody_can_draw_says_why(words, data):
    assert words in (find_image_defect(data) or "")


@pytest.mark.parametrize("data", [png(3, 2), jpeg(3, 2), GIF, WEBP, BROKEN_INSIDE])
def test_of_a_whole_one_only_the_frame_is_looked_at(data):
    assert find_image_defect(data) is None


def test_whatever_a_library_for_pictures_writes_is_whole_and_of_its_size():
    image = pytest.importorskip("PIL.Image")
    noise = random.Random(7).randbytes(64 * 48 * 3)  # noqa: S311 - to be repeated
    drawn = image.frombytes("RGB", (64, 48), noise)
    ways = [
        ("PNG", {}, "RGB"),
        ("PNG", {"optimize": True}, "P"),
        ("PNG", {}, "I;16"),
        ("JPEG", {"quality": 90}, "RGB"),
        ("JPEG", {"progressive": True, "comment": b"c" * 3_000}, "RGB"),
        ("JPEG", {"exif": b"Exif\x00\x00" + b"e" * 60_000}, "CMYK"),
        ("GIF", {}, "P"),
        ("GIF", {"save_all": True, "append_images": [drawn.convert("P")], "comment": b"c"}, "P"),
        ("WEBP", {"lossless": True}, "RGB"),
        ("WEBP", {"quality": 50}, "RGB"),
        ("WEBP", {"save_all": True, "append_images": [drawn]}, "RGBA"),
    ]
    for kind, options, mode in ways:
        out = io.BytesIO()
        (drawn.convert("L") if mode == "I;16" else drawn).convert(mode).save(out, kind, **options)
        data = out.getvalue()
        assert detect_media_type(data) in INSPECTED_IMAGE_TYPES, kind
        assert (find_image_defect(data), read_image_dimensions(data)) == (None, (64, 48)), (
            kind,
            options,
        )
        assert find_image_defect(data[:20]) is not None, (kind, options)


def test_no_bytes_make_it_fail():
    dice = random.Random(3)  # noqa: S311 - to be repeated
    starts = [data[:16] for data in KINDS.values()]
    for _ in range(2_000):
        data = dice.choice(starts) + dice.randbytes(dice.randrange(40))
        assert find_image_defect(data) is None or isinstance(find_image_defect(data), str)
        read_image_dimensions(data)
