"""The context bar as a picture: how full the window is, and of what."""

from __future__ import annotations

import io
from typing import Any

from trimtab.core.ledger import Ledger

WIDE, EDGE, BAR, ROW = 880, 40, 56, 46
"""Pixels: the picture, its edge, the bar, a line under it."""
GROUND, INK, PALE, TRACK = "#17212b", "#f5f7fa", "#8fa3b5", "#2b3948"
KINDS = (
    ("system", "System", "#7f8ea3"),
    ("summary", "Context summary", "#c792ea"),
    ("tools", "Tool output", "#f2a65a"),
    ("messages", "Messages", "#5aa9e6"),
)
LEVELS = {"normal": "#6cc788", "high": "#f2c14e", "critical": "#ef6461"}


def picture(ledger: Ledger) -> bytes | None:
    """A PNG; None where Pillow is not installed."""
    try:
        from PIL import Image, ImageDraw
    except ImportError:
        return None
    rows = [(name, ledger.tokens(kind), colour) for kind, name, colour in KINDS]
    rows = [row for row in rows if row[1] or row[0] != "Context summary"]
    rows.append(("Free space", max(0, ledger.limit - ledger.used), TRACK))
    high = EDGE + 60 + BAR + 36 + ROW * len(rows) + EDGE - 10
    image = Image.new("RGB", (WIDE, high), GROUND)
    draw = ImageDraw.Draw(image)
    _head(draw, ledger)
    _bar(draw, ledger, rows[:-1])
    top = EDGE + 60 + BAR + 36
    for number, row in enumerate(rows):
        _row(draw, top + number * ROW, row, ledger.limit)
    out = io.BytesIO()
    image.save(out, "PNG", optimize=True)
    return out.getvalue()


def _head(draw: Any, ledger: Ledger) -> None:
    level = LEVELS[ledger.level]
    draw.text((EDGE, EDGE - 6), "Context Usage", INK, font=_font(34))
    share = f"{ledger.share:.1%}"
    draw.text((WIDE - EDGE, EDGE - 6), share, level, font=_font(34), anchor="ra")
    told = f"{short(ledger.used)} of {short(ledger.limit)} tokens"
    left = WIDE - EDGE - draw.textlength(share, font=_font(34)) - 20
    draw.text((left, EDGE + 4), told, PALE, font=_font(24), anchor="ra")


def _bar(draw: Any, ledger: Ledger, rows: list[tuple[str, int, str]]) -> None:
    top, left, right = EDGE + 60, EDGE, WIDE - EDGE
    draw.rounded_rectangle((left, top, right, top + BAR), 12, TRACK)
    at = float(left)
    for _, tokens, colour in rows:
        wide = (right - left) * tokens / max(1, ledger.limit)
        end = min(float(right), at + wide)
        if end - at >= 1:
            draw.rectangle((at, top + 4, end, top + BAR - 4), colour)
        at = end
    for share in (0.7, 0.9):
        x = left + (right - left) * share
        draw.line((x, top - 6, x, top + BAR + 6), PALE, 2)


def _row(draw: Any, top: int, row: tuple[str, int, str], limit: int) -> None:
    name, tokens, colour = row
    draw.rounded_rectangle((EDGE, top + 5, EDGE + 26, top + 31), 6, colour)
    draw.text((EDGE + 44, top), name, INK, font=_font(28))
    draw.text((WIDE - EDGE - 130, top), short(tokens), INK, font=_font(28), anchor="ra")
    share = f"{tokens / max(1, limit):.1%}"
    draw.text((WIDE - EDGE, top), share, PALE, font=_font(28), anchor="ra")


def _font(size: int) -> Any:
    from PIL import ImageFont

    return ImageFont.load_default(size)


def short(tokens: int) -> str:
    """`60.9k` for 60,900."""
    return f"{tokens / 1000:.1f}k" if tokens >= 1000 else str(tokens)
