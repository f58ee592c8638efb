"""Cost against far recall as a small SVG: further left is cheaper, further up is less hidden.

python -m benchmarks.peers.plot     # draws docs/img/peers.svg from the stored results
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from benchmarks.claims import Row, list_peer_rows, load_results
from trimtab.replay.calls import EVERYTHING

PICTURE = Path(__file__).parents[2] / "docs" / "img" / "peers.svg"
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 880, 460, 62, 26, 24, 60
LINE = 18
LABEL_WIDTH, LABEL_HEIGHT, RADIUS = 17, 13, 4
TICK = 2_000
MAX_COST = 1.3
"""Times the cost of everything. What costs more stands at the right edge, with its cost beside."""
STYLE = """
text { font-family: -apple-system, "Segoe UI", "DejaVu Sans", sans-serif }
text { font-size: 12px; fill: #1f2328 }
.soft { fill: #59636e }
.paper { fill: #ffffff }
.grid { stroke: #d1d9e0 }
.front { stroke: #59636e; stroke-dasharray: 4 3; fill: none }
.own { fill: #b3261e }
.everything { fill: #59636e }
.peer { fill: #2c5f8a }
.rule { fill: #8a6d1f }
.leader { stroke: #9198a1; stroke-width: 0.7 }
@media (prefers-color-scheme: dark) {
 text { fill: #f0f6fc }
 .soft { fill: #9198a1 }
 .paper { fill: #0d1117 }
 .grid { stroke: #30363d }
 .front { stroke: #9198a1 }
 .own { fill: #ff7b72 }
 .peer { fill: #79c0ff }
 .rule { fill: #e3b341 }
}
"""


class Point(NamedTuple):
    number: int
    name: str
    cost: float
    far: float
    kind: str
    """The class of its colour: `own`, `peer` or `rule`."""


class Box(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: Box) -> bool:
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )


class Scale(NamedTuple):
    costs: tuple[float, float]
    """The ends of the axis."""
    least_far: float
    """The lowest recall of the axis."""

    def x(self, cost: float) -> float:
        low, high = self.costs
        return LEFT + (min(cost, high) - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    def y(self, far: float) -> float:
        return TOP + (1.0 - far) / (1.0 - self.least_far) * (HEIGHT - TOP - BOTTOM)


def draw(rows: Sequence[Row]) -> str:
    """Draw numbered points, a line through those that nothing beats in both, and their names."""
    points = [
        Point(number, row["setup"], row["cost"], row["far"], _kind(row))
        for number, row in enumerate(rows, 1)
    ]
    everything = next(point for point in points if point.name == EVERYTHING)
    least = min(point.cost for point in points) // TICK * TICK
    scale = Scale((least, everything.cost * MAX_COST), min(point.far for point in points) - 0.03)
    lines = (len(points) + 1) // 2
    height = HEIGHT + LINE * lines + 8
    front = "L".join(f"{scale.x(p.cost):.1f} {scale.y(p.far):.1f}" for p in list_unbeaten(points))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        "<title>Cost per call against far recall</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="paper" width="{WIDTH}" height="{height}"/>',
        *_draw_axes(scale),
        f'<path class="front" d="M{front}"/>',
        *_draw_points(points, scale),
    ]
    for point in points:
        column, line = divmod(point.number - 1, lines)
        x, y = 12 + column * WIDTH // 2, HEIGHT + 12 + line * LINE
        beyond = f" ({point.cost:,.0f})" if point.cost > scale.costs[1] else ""
        parts += [
            f'<circle class="{point.kind}" cx="{x}" cy="{y - 4}" r="{RADIUS}"/>',
            f'<text x="{x + 10}" y="{y}">{point.number} {escape(point.name)}{beyond}</text>',
        ]
    return "\n".join([*parts, "</svg>\n"])


def list_unbeaten(points: Sequence[Point]) -> list[Point]:
    """Return the points for which no other is both cheaper and better, cheapest first."""
    front: list[Point] = []
    for point in sorted(points, key=lambda one: (one.cost, -one.far)):
        if not front or point.far > front[-1].far:
            front.append(point)
    return front


def _kind(row: Row) -> str:
    if row["setup"] == EVERYTHING:
        return "everything"
    if row["setup"].startswith("Trimtab"):
        return "own"
    return "rule" if row["version"].startswith("documented") else "peer"


def _draw_axes(scale: Scale) -> list[str]:
    bottom = HEIGHT - BOTTOM
    parts: list[str] = []
    low, high = map(int, scale.costs)
    for tick in range(low, high + 1, TICK):
        x = scale.x(tick)
        parts += [
            f'<path class="grid" d="M{x:.0f} {TOP}V{bottom}"/>',
            (
                f'<text class="soft" x="{x:.0f}" y="{bottom + 16}" '
                f'text-anchor="middle">{tick:,}</text>'
            ),
        ]
    for tenth in range(int(scale.least_far * 10) + 1, 11):
        y = scale.y(tenth / 10)
        parts += [
            f'<path class="grid" d="M{LEFT} {y:.0f}H{WIDTH - RIGHT}"/>',
            (
                f'<text class="soft" x="{LEFT - 8}" y="{y + 4:.0f}" text-anchor="end">'
                f"{tenth / 10:.1f}</text>"
            ),
        ]
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts += [
        (
            f'<text x="{middle:.0f}" y="{bottom + 36}" text-anchor="middle">'
            "cost of a call, in fresh input tokens (Anthropic), system "
            "prompt and tools included</text>"
        ),
        (
            f'<text transform="translate(18 {(TOP + bottom) / 2:.0f}) rotate(-90)" '
            'text-anchor="middle">far recall</text>'
        ),
    ]
    return parts


def _draw_points(points: Sequence[Point], scale: Scale) -> list[str]:
    """Draw the points, each with its number at the nearest free place."""
    places = [(scale.x(point.cost), scale.y(point.far)) for point in points]
    boxes = [Box(x - RADIUS, y - RADIUS, x + RADIUS, y + RADIUS) for x, y in places]
    parts: list[str] = []
    for point, (x, y) in zip(points, places, strict=True):
        label = _find_free_box(x, y, boxes)
        boxes.append(label)
        middle = (label.left + label.right) / 2
        if abs(middle - x) > LABEL_WIDTH or abs(label.bottom - LABEL_HEIGHT / 2 - y) > LABEL_HEIGHT:
            parts.append(
                f'<path class="leader" d="M{x:.1f} {y:.1f}L{middle:.1f} '
                f'{(label.top + label.bottom) / 2:.1f}"/>'
            )
        parts += [
            f'<circle class="{point.kind}" cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS}"/>',
            (
                f'<text x="{middle:.1f}" y="{label.bottom - 2:.1f}" text-anchor="middle">'
                f"{point.number}</text>"
            ),
        ]
    return parts


def _find_free_box(x: float, y: float, boxes: Sequence[Box]) -> Box:
    """Return the place of a label that overlaps nothing, as near to its point as there is one."""
    frame = Box(LEFT, 4, WIDTH - 4, HEIGHT - BOTTOM - 2)
    steps = sorted(
        itertools.product(range(-9, 10), range(-9, 10)),
        key=lambda step: step[0] ** 2 + step[1] ** 2,
    )
    for across, down in steps:
        left, top = x + across * 9 - LABEL_WIDTH / 2, y + down * 9 - LABEL_HEIGHT / 2
        box = Box(left, top, left + LABEL_WIDTH, top + LABEL_HEIGHT)
        inside = box.left >= frame.left and box.right <= frame.right and box.top >= frame.top
        if inside and box.bottom <= frame.bottom and not any(map(box.overlaps, boxes)):
            return box
    return Box(x, y, x + LABEL_WIDTH, y + LABEL_HEIGHT)


def main() -> int:
    rows = list_peer_rows(load_results("auto_evidence"), load_results("peers"))
    PICTURE.write_text(draw(rows), encoding="utf-8")
    print(PICTURE.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
