"""The pictures of a study, drawn once for paper and screen.

Colours are drawn as the light theme has them. In SVG each becomes a CSS variable, so that a page
may show the same picture light or dark.
"""

# matplotlib types the arguments it passes on only in part.
# pyright: reportUnknownMemberType=false
from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from matplotlib.typing import RcKeyType

from trimtab.replay.conversation import Conversation
from trimtab.replay.costs import cost
from trimtab.replay.references import needs
from trimtab.replay.run import CallRecord, Setup, replay
from trimtab.replay.sections import SECTIONS
from trimtab.replay.study import Study

COLOURS = {
    "ink": "#1d2330",
    "soft": "#6b7386",
    "grid": "#e3e6ec",
    "paper": "#fefefe",
    "c0": "#3567c9",
    "c1": "#d9722a",
    "c2": "#2f9468",
    "c3": "#b8449a",
    "c4": "#8a6d1f",
    "c5": "#7454c8",
    "c6": "#c63d4a",
    "c7": "#25909f",
    "c8": "#5c6675",
    "c9": "#8fa62c",
    "s0": "#9aa3b5",
    "s1": "#e0a13a",
    "s2": "#4a7fd6",
    "s3": "#5bb08a",
    "s4": "#c0c7d4",
    "s5": "#b06ac0",
}
"""By the name of their CSS variable; no two may be equal."""
_HEX = {colour: name for name, colour in COLOURS.items()}
_LINES = [COLOURS[f"c{i}"] for i in range(10)]
_STYLE: dict[RcKeyType, Any] = {
    "axes.edgecolor": COLOURS["soft"],
    "axes.facecolor": "none",
    "axes.labelcolor": COLOURS["soft"],
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.grid": True,
    "grid.color": COLOURS["grid"],
    "axes.axisbelow": True,
    "figure.facecolor": COLOURS["paper"],
    "font.family": "sans-serif",
    "font.size": 10,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "text.color": COLOURS["ink"],
    "xtick.color": COLOURS["soft"],
    "ytick.color": COLOURS["soft"],
}

Draw = Callable[[], Figure]


def pictures(study: Study) -> dict[str, Draw]:
    """By file name: what draws it."""
    one = longest(study)
    found: dict[str, Draw] = {"cost_recall": partial(cost_recall, study)}
    for setup in edited(study):
        found[file_name("context", setup)] = partial(context_over_time, study, one, setup)
    found["cumulative"] = partial(cumulative, study, one)
    return found


def edited(study: Study) -> list[Setup]:
    """The setups whose requests differ; naive marks change what is paid, not what is sent."""
    known: list[Setup] = []
    for setup in study.setups:
        if all(setup.options != other.options for other in known):
            known.append(setup)
    return known


def file_name(kind: str, setup: Setup) -> str:
    """Of a picture of one setup."""
    return f"{kind}_{setup.name.replace(':', '_')}"


def longest(study: Study) -> Conversation:
    """The conversation with the most calls, which the pictures over time are of."""
    return max(study.conversations, key=lambda one: one.calls)


def svg(name: str, draw: Draw) -> str:
    """A picture as SVG to be put into a page, its colours as CSS variables."""
    text = io.StringIO()
    # Ids are salted by the name: pictures of one page must not share them.
    with mpl.rc_context({**_STYLE, "svg.hashsalt": name}):
        draw().savefig(text, format="svg", transparent=True, metadata={"Date": None})
    body = text.getvalue()
    body = body[body.index("<svg") :]
    # The page's own width and font hold; metadata names the drawing program only.
    body = re.sub(
        r'(<svg[^>]*?) width="[^"]*" height="[^"]*"', r"\1", body.replace("\n", " "), count=1
    )
    body = re.sub(r"<metadata>.*?</metadata>", "", body)
    body = re.sub(r" (?:xmlns:xlink|version)=\"[^\"]*\"", "", body, count=2)
    return re.sub(r"#[0-9a-f]{6}", lambda hit: _variable(hit.group()), body)


def write_png(study: Study, folder: Path) -> Iterator[Path]:
    """Every picture as a file, light, at twice the screen's resolution."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in pictures(study).items():
        path = folder / f"{name}.png"
        with mpl.rc_context(_STYLE):
            draw().savefig(path, dpi=200)
        yield path


def cost_recall(study: Study) -> Figure:
    """Each setup by what it costs and what it still shows; those no other beats are joined."""
    figure, axes = _axes(8.0, 4.2)
    own = study.providers[0]
    points = [
        (row.prices[own.name].cost, row.recall, row.setup)
        for row in study.rows
        if row.recall is not None
    ]
    front = pareto([(spent, seen) for spent, seen, _ in points])
    axes.plot(*zip(*front, strict=True), color=COLOURS["soft"], linestyle=":", zorder=1)
    for index, (spent, seen, name) in enumerate(points):
        colour = _LINES[index % len(_LINES)]
        best = (spent, seen) in front
        face = colour if best else COLOURS["paper"]
        axes.plot(
            [spent],
            [seen],
            marker="o",
            markersize=9,
            linestyle="",
            color=colour,
            markerfacecolor=face,
            markeredgewidth=2,
            label=name,
            zorder=2,
        )
    axes.set_xlabel(f"cost per call, in fresh input tokens ({own.name})")
    axes.set_ylabel("recall")
    axes.set_xlim(left=0)
    axes.margins(x=0.15, y=0.12)
    axes.xaxis.set_major_formatter(FuncFormatter(_short))
    if points:
        # Beside the points names would hide one another: good setups stand close together.
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.02), fontsize=9)
    return figure


def pareto(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points that no other is both cheaper and better than, cheapest first."""
    front: list[tuple[float, float]] = []
    for spent, seen in sorted(points, key=lambda point: (point[0], -point[1])):
        if not front or seen > front[-1][1]:
            front.append((spent, seen))
    return front


def context_over_time(study: Study, conversation: Conversation, setup: Setup) -> Figure:
    """What each request was made of, call by call, and where the prompt was broken."""
    figure, axes = _axes(6.0, 3.2)
    providers = {provider.name: provider.rules for provider in study.providers}
    wanted = needs(conversation.messages)
    calls = replay(conversation, setup, providers, wanted, sections=True).calls
    steps = range(1, len(calls) + 1)
    stacks = [[(call.sections or {}).get(name, 0) for call in calls] for name in SECTIONS]
    colours = [COLOURS[f"s{i}"] for i in range(len(SECTIONS))]
    axes.stackplot(steps, *stacks, colors=colours, labels=SECTIONS, linewidth=0)
    broken = [step for step, call in zip(steps, calls, strict=True) if call.broke]
    axes.plot(
        broken,
        [0] * len(broken),
        marker=2,
        linestyle="",
        color=COLOURS["c6"],
        label="prompt broken",
        clip_on=False,
    )
    axes.set_xlabel("call")
    axes.set_ylabel("tokens sent")
    axes.margins(x=0)
    # One scale for all setups: they are looked at side by side.
    axes.set_ylim(0, 1.05 * _largest(study, conversation))
    axes.yaxis.set_major_formatter(FuncFormatter(_short))
    figure.legend(loc="outside upper center", ncols=4, fontsize=8.5)
    return figure


def cumulative(study: Study, conversation: Conversation) -> Figure:
    """What one conversation has cost so far, call by call, under each setup."""
    figure, axes = _axes(8.0, 4.0)
    own = study.providers[0]
    for index, setup in enumerate(study.setups):
        calls = _calls(study, conversation, setup)
        spent = list(accumulate(cost(call, own.name, own.rules) for call in calls))
        steps = range(1, len(spent) + 1)
        axes.plot(steps, spent, color=_LINES[index % len(_LINES)], label=setup.name, linewidth=1.8)
    axes.set_xlabel("call")
    axes.set_ylabel(f"fresh input tokens so far ({own.name})")
    axes.margins(x=0)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FuncFormatter(_short))
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.02), fontsize=9)
    return figure


def _largest(study: Study, conversation: Conversation) -> int:
    """Tokens of the largest request that any setup made of a conversation."""
    runs = (run for run in study.runs if run.conversation == conversation.id)
    return max((call.tokens for run in runs for call in run.calls), default=1)


def _calls(study: Study, conversation: Conversation, setup: Setup) -> Sequence[CallRecord]:
    return next(
        run.calls
        for run in study.runs
        if run.conversation == conversation.id and run.setup == setup.name
    )


def _axes(width: float, height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def _variable(colour: str) -> str:
    name = _HEX.get(colour)
    return f"var(--{name})" if name else colour


def _short(value: float, _place: int | None = None) -> str:
    if value >= 1_000_000:
        return f"{value / 1_000_000:g}M"
    return f"{value / 1_000:g}k" if value >= 1_000 else f"{value:g}"
