"""Cost against far recall as a small SVG: further left is cheaper, further up is less hidden."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from trimtab.replay.setup_costs import SetupResult

WIDE, HIGH, LEFT, TOP, LINE = 720, 340, 56, 16, 15
OWN = "Trimtab"
Place = Callable[[float, float], tuple[float, float]]
"""From cost and recall to a point of the picture."""


def svg(rows: Sequence[SetupResult], provider: str = "Anthropic") -> str:
    """Numbered points, a line through those that nothing beats in both, and what they are."""
    points = [(row.prices[provider].cost, row.far or 0.0, row.setup) for row in rows]
    most = max(cost for cost, _, _ in points) * 1.05
    least = min(far for _, far, _ in points) - 0.02

    def place(cost: float, far: float) -> tuple[float, float]:
        across = LEFT + cost / most * (WIDE - LEFT - 16)
        return across, TOP + (1.0 - far) / (1.0 - least) * (HIGH - TOP - 40)

    height = HIGH + LINE * ((len(points) + 1) // 2) + 12
    size = f'viewBox="0 0 {WIDE} {height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDE}" height="{height}" fill="#fff"/>',
        *_axes(most, least, place),
        _front([place(cost, far) for cost, far, _ in _unbeaten(points)]),
    ]
    for number, (cost, far, name) in enumerate(points, 1):
        parts += _point(number, name, *place(cost, far))
        column, line = divmod(number - 1, (len(points) + 1) // 2)
        at = 8 + column * WIDE // 2, HIGH + 12 + line * LINE
        parts.append(f'<text x="{at[0]}" y="{at[1]}">{number} {escape(name)}</text>')
    return "\n".join([*parts, "</svg>\n"])


def _unbeaten(points: Sequence[tuple[float, float, str]]) -> list[tuple[float, float, str]]:
    found: list[tuple[float, float, str]] = []
    for point in sorted(points, key=lambda one: (one[0], -one[1])):
        if not found or point[1] > found[-1][1]:
            found.append(point)
    return found


def _axes(most: float, least: float, place: Place) -> list[str]:
    parts: list[str] = []
    for tick in range(0, int(most) + 1, 5_000):
        x, y = place(tick, least)
        parts.append(f'<path d="M{x:.0f} {TOP}V{y:.0f}" stroke="#eee"/>')
        parts.append(f'<text x="{x:.0f}" y="{y + 13:.0f}" text-anchor="middle">{tick:,}</text>')
    for step in range(int(least * 20) + 1, 21):
        x, y = place(0, step / 20)
        parts.append(f'<path d="M{x:.0f} {y:.0f}H{WIDE - 16}" stroke="#eee"/>')
        parts.append(
            f'<text x="{x - 6:.0f}" y="{y + 4:.0f}" text-anchor="end">{step / 20:.2f}</text>'
        )
    x, y = place(most / 2, least)
    parts.append(
        f'<text x="{x:.0f}" y="{y + 28:.0f}" text-anchor="middle">'
        "cost per call, fresh input tokens (Anthropic's cache)</text>"
    )
    middle = TOP + (HIGH - TOP - 40) / 2
    parts.append(
        f'<text transform="translate(12 {middle:.0f}) rotate(-90)" text-anchor="middle">'
        "far recall</text>"
    )
    return parts


def _front(places: Sequence[tuple[float, float]]) -> str:
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    return f'<path d="M{path}" fill="none" stroke="#888" stroke-dasharray="4 3"/>'


def _point(number: int, name: str, x: float, y: float) -> list[str]:
    colour = "#c0392b" if name.startswith(OWN) else "#2c5f8a"
    return [
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>',
        f'<text x="{x + 5:.1f}" y="{y - 4:.1f}" fill="{colour}">{number}</text>',
    ]
