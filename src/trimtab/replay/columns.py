"""The columns of a study's table, for every place that shows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from trimtab.replay.study import Study
from trimtab.replay.table import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    name: str
    """The heading."""
    unit: str = ""
    """The heading's second line."""
    text: Callable[[Row], str]
    """A cell."""
    value: Callable[[Row], float | None]
    """What the cell shows, as a number."""
    best: Literal["low", "high"] | None = None
    """Which end is the better one; None where neither is."""


def money(study: Study) -> list[Column]:
    """What a setup costs."""
    own = study.providers[0].name
    return [
        *(_cost(provider.name) for provider in study.providers),
        Column(
            name="× cheaper",
            unit=own,
            text=lambda row: _cheaper(row, own),
            value=lambda row: row.cheaper[own].value if own in row.cheaper else 1.0,
        ),
        Column(
            name="re-fetch",
            unit="/call",
            text=lambda row: f"{row.prices[own].with_refetch:,.0f}",
            value=lambda row: row.prices[own].with_refetch,
            best="low",
        ),
        Column(
            name="$/1k",
            unit="calls",
            text=lambda row: _dollars(row.prices[own].dollars),
            value=lambda row: row.prices[own].dollars,
        ),
    ]


def seen(study: Study) -> list[Column]:
    """What a setup shows, and how it treats the cache."""
    own = study.providers[0].name
    return [
        Column(
            name="recall", text=lambda r: _share(r.recall), value=lambda r: r.recall, best="high"
        ),
        Column(name="far", text=lambda r: _share(r.far), value=lambda r: r.far, best="high"),
        Column(name="tool", text=lambda r: _share(r.tool), value=lambda r: r.tool, best="high"),
        Column(
            name="cache hit",
            text=lambda row: f"{row.prices[own].cache_hit:.1%}",
            value=lambda row: row.prices[own].cache_hit,
        ),
        Column(
            name="uncached",
            unit="/call",
            text=lambda row: f"{row.prices[own].uncached:,.0f}",
            value=lambda row: row.prices[own].uncached,
            best="low",
        ),
        Column(
            name="tokens",
            unit="/call",
            text=lambda row: f"{row.tokens:,.0f}",
            value=lambda row: row.tokens,
        ),
        Column(name="breaks", text=lambda row: f"{row.breaks:.1%}", value=lambda row: row.breaks),
    ]


def best_of(column: Column, study: Study) -> str | None:
    """The setup that is best in a column; None where there is no best, or only one setup."""
    values = [(v, row.setup) for row in study.rows if (v := column.value(row)) is not None]
    if column.best is None or len(values) < 2:
        return None
    return (min if column.best == "low" else max)(values, key=lambda pair: pair[0])[1]


def _cost(name: str) -> Column:
    return Column(
        name=name,
        unit="/call",
        text=lambda row: f"{row.prices[name].cost:,.0f}",
        value=lambda row: row.prices[name].cost,
        best="low",
    )


def _share(value: float | None) -> str:
    """`.987`, as tables of recall have it."""
    if value is None:
        return "–"
    return "1.000" if value >= 0.9995 else f"{value:.3f}"[1:]


def _cheaper(row: Row, provider: str) -> str:
    ratio = row.cheaper.get(provider)
    return f"{ratio.value:.2f} [{ratio.low:.2f}–{ratio.high:.2f}]" if ratio else "1"


def _dollars(value: float | None) -> str:
    return "?" if value is None else f"{value:,.2f}"
