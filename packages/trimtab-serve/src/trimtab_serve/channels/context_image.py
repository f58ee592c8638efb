"""Draw the context bar as a picture: how full the window is, and with what."""

from __future__ import annotations

import io
from typing import Any

from trimtab.engine.prompt.report import ContextReport

IMAGE_WIDTH_PX = 880
MARGIN_PX = 40
BAR_HEIGHT_PX = 56
ROW_HEIGHT_PX = 46
"""Sizes in pixels: the picture, its margin, the bar, and a line under it."""
BACKGROUND_COLOUR = "#17212b"
TEXT_COLOUR = "#f5f7fa"
MUTED_TEXT_COLOUR = "#8fa3b5"
EMPTY_BAR_COLOUR = "#2b3948"
LEGEND_SECTIONS = (
    ("system", "System", "#7f8ea3"),
    ("summary", "Context summary", "#c792ea"),
    ("tools", "Tool output", "#f2a65a"),
    ("messages", "Messages", "#5aa9e6"),
)
LEVEL_COLOURS = {"normal": "#6cc788", "high": "#f2c14e", "critical": "#ef6461"}


def draw_context_png(report: ContextReport) -> bytes | None:
    """Return a PNG. None if Pillow is not installed."""
    try:
        from PIL import Image, ImageDraw
    except ImportError:
        return None
    rows = [(name, report.tokens(kind), colour) for kind, name, colour in LEGEND_SECTIONS]
    rows = [row for row in rows if row[1] or row[0] != "Context summary"]
    rows.append(("Free space", max(0, report.limit - report.used), EMPTY_BAR_COLOUR))
    high = MARGIN_PX + 60 + BAR_HEIGHT_PX + 36 + ROW_HEIGHT_PX * len(rows) + MARGIN_PX - 10
    image = Image.new("RGB", (IMAGE_WIDTH_PX, high), BACKGROUND_COLOUR)
    draw = ImageDraw.Draw(image)
    _draw_header(draw, report)
    _draw_bar(draw, report, rows[:-1])
    top = MARGIN_PX + 60 + BAR_HEIGHT_PX + 36
    for number, row in enumerate(rows):
        _draw_legend_row(draw, top + number * ROW_HEIGHT_PX, row, report.limit)
    out = io.BytesIO()
    image.save(out, "PNG", optimize=True)
    return out.getvalue()


def _draw_header(draw: Any, report: ContextReport) -> None:
    level = LEVEL_COLOURS[report.level]
    draw.text((MARGIN_PX, MARGIN_PX - 6), "Context Usage", TEXT_COLOUR, font=_load_font(34))
    share = f"{report.share:.1%}"
    draw.text(
        (IMAGE_WIDTH_PX - MARGIN_PX, MARGIN_PX - 6), share, level, font=_load_font(34), anchor="ra"
    )
    usage_text = f"{format_token_count(report.used)} of {format_token_count(report.limit)} tokens"
    left_px = IMAGE_WIDTH_PX - MARGIN_PX - draw.textlength(share, font=_load_font(34)) - 20
    draw.text(
        (left_px, MARGIN_PX + 4), usage_text, MUTED_TEXT_COLOUR, font=_load_font(24), anchor="ra"
    )


def _draw_bar(draw: Any, report: ContextReport, rows: list[tuple[str, int, str]]) -> None:
    top = MARGIN_PX + 60
    left_px = MARGIN_PX
    right = IMAGE_WIDTH_PX - MARGIN_PX
    draw.rounded_rectangle((left_px, top, right, top + BAR_HEIGHT_PX), 12, EMPTY_BAR_COLOUR)
    at = float(left_px)
    for _, tokens, colour in rows:
        wide = (right - left_px) * tokens / max(1, report.limit)
        end = min(float(right), at + wide)
        if end - at >= 1:
            draw.rectangle((at, top + 4, end, top + BAR_HEIGHT_PX - 4), colour)
        at = end
    for share in (0.7, 0.9):
        x = left_px + (right - left_px) * share
        draw.line((x, top - 6, x, top + BAR_HEIGHT_PX + 6), MUTED_TEXT_COLOUR, 2)


def _draw_legend_row(draw: Any, top: int, row: tuple[str, int, str], limit: int) -> None:
    name, tokens, colour = row
    draw.rounded_rectangle((MARGIN_PX, top + 5, MARGIN_PX + 26, top + 31), 6, colour)
    draw.text((MARGIN_PX + 44, top), name, TEXT_COLOUR, font=_load_font(28))
    draw.text(
        (IMAGE_WIDTH_PX - MARGIN_PX - 130, top),
        format_token_count(tokens),
        TEXT_COLOUR,
        font=_load_font(28),
        anchor="ra",
    )
    share = f"{tokens / max(1, limit):.1%}"
    draw.text(
        (IMAGE_WIDTH_PX - MARGIN_PX, top),
        share,
        MUTED_TEXT_COLOUR,
        font=_load_font(28),
        anchor="ra",
    )


def _load_font(size: int) -> Any:
    from PIL import ImageFont

    return ImageFont.load_default(size)


def format_token_count(tokens: int) -> str:
    """`60.9k` for 60,900."""
    return f"{tokens / 1000:.1f}k" if tokens >= 1000 else str(tokens)
