"""The tokens of a picture, by the rule that its model's provider documents.

A rule is a short text, so that a catalog and the name of a counter can contain it:

- `squares:EDGE:MOST` (Anthropic): squares of 28 pixels, scaled to an edge and a number.
- `tiles:BASE:TILE` (OpenAI): tiles of 512 pixels. With detail `low`, the base alone.
- `patches:RATE:MOST` (OpenAI): patches of 32 pixels, scaled to a number, times a rate.
- `patches:RATE:MOST:WHOLE:AUTO`: the same for models that know detail `original`. It adds how many
  patches that detail keeps, and whether `auto` is `high` or `original`.
- `crops` (Gemini up to 2.5): tiles of at most 768 pixels.
- `flat:TOKENS` (Gemini from 3 on): the same for any picture.
- the empty text: unknown, the largest of the usual rules.

A picture of unknown size takes the maximum of its rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, cast

PixelSize = tuple[int, int]
"""Width and height in pixels."""
PictureTokenFunction = Callable[[PixelSize | None, str], int]
"""Returns the tokens of a picture for its size, or None if unknown, and its detail."""

FALLBACK_PICTURE_RULES = ("squares:2576:4784", "tiles:85:170", "patches:2.46:1536", "crops")
"""Rules for an unknown model: the largest result counts. The tiles of gpt-4o-mini, 33 times as
expensive as others, are left out, because only that one model has them."""

SQUARE_EDGE_PX = 28
PATCH_EDGE_PX = 32
TILE_EDGE_PX = 512
MAX_CROP_EDGE_PX = 768
TOKENS_PER_CROP = 258
UNKNOWN_SIZE_CROPS = 16
"""Number of crops of a picture of unknown size: 3,072 pixels squared."""


def read_picture_detail(wire_extra: Mapping[str, Any] | None) -> str:
    """Return the detail that a picture is sent with; `auto` if none is named."""
    keys: Any = wire_extra or {}
    image_url: Any = keys.get("image_url")
    image_url = cast("dict[str, Any]", image_url) if isinstance(image_url, dict) else {}
    detail = keys.get("detail") or image_url.get("detail")
    return detail if isinstance(detail, str) else "auto"


def remove_picture_detail(wire_extra: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the other keys beside a picture."""
    other_keys = {key: value for key, value in (wire_extra or {}).items() if key != "detail"}
    image_url: Any = other_keys.get("image_url")
    if isinstance(image_url, dict) and not cast("dict[str, Any]", image_url).keys() - {"detail"}:
        del other_keys["image_url"]
    return other_keys


def estimate_picture_tokens(
    picture_rule: str, pixel_size: PixelSize | None, detail: str = "auto"
) -> int:
    """Return the tokens of a picture. Raise `ValueError` for an unknown rule."""
    if pixel_size is not None and min(pixel_size) <= 0:
        pixel_size = None
    return _parse_picture_rule(picture_rule)(pixel_size, detail)


@cache
def _parse_picture_rule(rule: str) -> PictureTokenFunction:
    if not rule:
        usual = [_parse_picture_rule(each) for each in FALLBACK_PICTURE_RULES]
        return lambda sides, _: max(price(sides, "high") for price in usual)
    name, *figures = rule.split(":")
    try:
        match name, figures:
            case "squares", [edge, most]:
                return _make_squares_rule(int(edge), int(most))
            case "tiles", [base, tile]:
                return _make_tiles_rule(int(base), int(tile))
            case "patches", [rate, most]:
                return _make_patches_rule(float(rate), int(most))
            case "patches", [rate, most, whole, ("high" | "original") as auto]:
                return _make_patches_rule(float(rate), int(most), int(whole), auto)
            case "crops", []:
                return _count_crop_tokens
            case "flat", [tokens]:
                flat = int(tokens)
                return lambda _, __: flat
            case _:
                pass
    except ValueError:
        pass
    raise ValueError(
        f"picture_rule is {rule!r}; it must be like squares:1568:1568, tiles:85:170, "
        "patches:1.62:1536, crops or flat:1120"
    )


def _count_covering_squares(sides: PixelSize, unit: int) -> int:
    """Return the number of squares of a unit that cover a picture."""
    return math.ceil(sides[0] / unit) * math.ceil(sides[1] / unit)


def _scale_to_edge(sides: PixelSize, edge: int) -> PixelSize:
    """Scale a picture down, if necessary, so that its longer side has at most `edge` pixels."""
    scale = min(1.0, edge / max(sides))
    return max(1, round(sides[0] * scale)), max(1, round(sides[1] * scale))


def _make_squares_rule(edge: int, most: int) -> PictureTokenFunction:
    def price(sides: PixelSize | None, _: str) -> int:
        if sides is None:
            return most
        area = max(sides) * math.sqrt(
            most * SQUARE_EDGE_PX * SQUARE_EDGE_PX / (sides[0] * sides[1])
        )
        longer = min(max(sides), edge // SQUARE_EDGE_PX * SQUARE_EDGE_PX, max(1, math.ceil(area)))
        while (
            tokens := _count_covering_squares(_scale_to_edge(sides, longer), SQUARE_EDGE_PX)
        ) > most:
            longer -= 1
        return tokens

    return price


def _make_tiles_rule(base: int, tile: int) -> PictureTokenFunction:
    def price(sides: PixelSize | None, detail: str) -> int:
        if detail == "low":
            return base
        if sides is None:
            return base + tile * 8
        width, height = _scale_to_edge(sides, 2_048)
        scale = min(1.0, 768 / min(width, height))
        return base + tile * _count_covering_squares(
            (round(width * scale), round(height * scale)), TILE_EDGE_PX
        )

    return price


def _make_patches_rule(
    rate: float, most: int, whole: int = 0, auto: str = "high"
) -> PictureTokenFunction:
    def price(sides: PixelSize | None, detail: str) -> int:
        # Models that know no `original` were seen to bill `low` as `high`.
        if whole and detail == "low":
            return math.ceil(
                rate * _count_covering_squares((TILE_EDGE_PX, TILE_EDGE_PX), PATCH_EDGE_PX)
            )
        detail_or_auto = detail if detail in ("high", "original") else auto
        most_patches = whole if whole and detail_or_auto == "original" else most
        if sides is None:
            return math.ceil(rate * most_patches)
        if most_patches == most:
            sides = _scale_to_edge(sides, 2_048)
        return math.ceil(rate * _count_patches_within(sides, most_patches))

    return price


def _count_patches_within(sides: PixelSize, most: int) -> int:
    """Return the patches of a picture that is scaled down to at most `most` patches.

    It is scaled first to their area, then to a whole number of patches along the side that loses
    more.
    """
    if _count_covering_squares(sides, PATCH_EDGE_PX) <= most:
        return _count_covering_squares(sides, PATCH_EDGE_PX)
    width, height = sides
    scale = math.sqrt(most * PATCH_EDGE_PX * PATCH_EDGE_PX / (width * height))
    across = width * scale / PATCH_EDGE_PX
    down = height * scale / PATCH_EDGE_PX
    if across < 1 or down < 1:
        return most
    scale *= min(math.floor(across) / across, math.floor(down) / down)
    return min(
        most,
        _count_covering_squares(
            (int(width * scale + 1e-6), int(height * scale + 1e-6)), PATCH_EDGE_PX
        ),
    )


def _count_crop_tokens(sides: PixelSize | None, _: str) -> int:
    if sides is None:
        return TOKENS_PER_CROP * UNKNOWN_SIZE_CROPS
    if max(sides) <= 384:
        return TOKENS_PER_CROP
    unit = min(max(int(min(sides) / 1.5), 256), MAX_CROP_EDGE_PX)
    return TOKENS_PER_CROP * _count_covering_squares(sides, unit)
