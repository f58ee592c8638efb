"""The figures of a study, for reports and for PNG files.

Figures are drawn in the colours of the light theme. In SVG each colour becomes a CSS variable, so
that a page can show the same figure in light or dark.
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
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from trimtab.replay.needs import find_needs
from trimtab.replay.results import ReplayStudy
from trimtab.replay.runner import (
    PROMPT_SECTIONS,
    ReplayedCall,
    ReplaySetup,
    learn_recorded_scale,
    replay_conversation,
)
from trimtab.replay.selection import RecordedConversation
from trimtab.replay.setup_costs import compute_call_cost_in_input_tokens

if TYPE_CHECKING:
    from matplotlib.typing import RcKeyType

COLOURS_BY_CSS_NAME = {
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
"""Colours by the names of their CSS variables. No two may be equal."""
_CSS_NAME_BY_COLOUR = {colour: name for name, colour in COLOURS_BY_CSS_NAME.items()}
_LINE_COLOURS = [COLOURS_BY_CSS_NAME[f"c{i}"] for i in range(10)]
_STYLE: dict[RcKeyType, Any] = {
    "axes.edgecolor": COLOURS_BY_CSS_NAME["soft"],
    "axes.facecolor": "none",
    "axes.labelcolor": COLOURS_BY_CSS_NAME["soft"],
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.grid": True,
    "grid.color": COLOURS_BY_CSS_NAME["grid"],
    "axes.axisbelow": True,
    "figure.facecolor": COLOURS_BY_CSS_NAME["paper"],
    "font.family": "sans-serif",
    "font.size": 10,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "text.color": COLOURS_BY_CSS_NAME["ink"],
    "xtick.color": COLOURS_BY_CSS_NAME["soft"],
    "ytick.color": COLOURS_BY_CSS_NAME["soft"],
}

DrawFigure = Callable[[], Figure]


def build_figure_drawers(study: ReplayStudy) -> dict[str, DrawFigure]:
    """Return the functions that draw the figures, by file name."""
    one = find_longest_conversation(study)
    drawers: dict[str, DrawFigure] = {"cost_recall": partial(draw_cost_vs_recall, study)}
    for setup in list_distinct_setups(study):
        drawers[make_figure_name("context", setup)] = partial(
            draw_context_over_time, study, one, setup
        )
    drawers["cumulative"] = partial(draw_cumulative_cost, study, one)
    return drawers


def list_distinct_setups(study: ReplayStudy) -> list[ReplaySetup]:
    """Return the setups whose requests differ. Naive marks change the price, not the request."""
    setups: list[ReplaySetup] = []
    for setup in study.setups:
        if all(setup.options != other.options for other in setups):
            setups.append(setup)
    return setups


def make_figure_name(kind: str, setup: ReplaySetup) -> str:
    """Return the name of a figure of one setup."""
    return f"{kind}_{setup.name.replace(':', '_')}"


def find_longest_conversation(study: ReplayStudy) -> RecordedConversation:
    """Return the conversation with the most calls, which the figures over time show."""
    return max(study.conversations, key=lambda one: one.calls)


def render_svg(figure_name: str, draw: DrawFigure) -> str:
    """Render a figure as SVG for a page, with its colours as CSS variables."""
    text = io.StringIO()
    # Ids are salted by the name: pictures of one page must not share them.
    with mpl.rc_context({**_STYLE, "svg.hashsalt": figure_name}):
        draw().savefig(text, format="svg", transparent=True, metadata={"Date": None})
    body = text.getvalue()
    body = body[body.index("<svg") :]
    # The page's own width and font hold; metadata names the drawing program only.
    body = re.sub(
        r'(<svg[^>]*?) width="[^"]*" height="[^"]*"', r"\1", body.replace("\n", " "), count=1
    )
    body = re.sub(r"<metadata>.*?</metadata>", "", body)
    body = re.sub(r" (?:xmlns:xlink|version)=\"[^\"]*\"", "", body, count=2)
    return re.sub(r"#[0-9a-f]{6}", lambda hit: _to_css_variable(hit.group()), body)


def write_png_files(study: ReplayStudy, folder: Path) -> Iterator[Path]:
    """Write every figure as a file in the light theme, at twice the screen's resolution."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in build_figure_drawers(study).items():
        path = folder / f"{name}.png"
        with mpl.rc_context(_STYLE):
            draw().savefig(path, dpi=200)
        yield path


def draw_cost_vs_recall(study: ReplayStudy) -> Figure:
    """Draw each setup by its cost and recall. A line joins those that no other setup beats."""
    figure, axes = _create_axes(8.0, 4.2)
    own_provider = study.providers[0]
    points = [
        (row.prices[own_provider.name].cost, row.recall, row.setup)
        for row in study.rows
        if row.recall is not None
    ]
    front = find_pareto_front([(cost, recall) for cost, recall, _ in points])
    axes.plot(*zip(*front, strict=True), color=COLOURS_BY_CSS_NAME["soft"], linestyle=":", zorder=1)
    for index, (cost, recall, name) in enumerate(points):
        colour = _LINE_COLOURS[index % len(_LINE_COLOURS)]
        best = (cost, recall) in front
        face = colour if best else COLOURS_BY_CSS_NAME["paper"]
        axes.plot(
            [cost],
            [recall],
            marker="o",
            markersize=9,
            linestyle="",
            color=colour,
            markerfacecolor=face,
            markeredgewidth=2,
            label=name,
            zorder=2,
        )
    axes.set_xlabel(f"cost per call, in fresh input tokens ({own_provider.name})")
    axes.set_ylabel("recall")
    axes.set_xlim(left=0)
    axes.margins(x=0.15, y=0.12)
    axes.xaxis.set_major_formatter(FuncFormatter(_format_short_number))
    if points:
        # Beside the points names would hide one another: good setups stand close together.
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.02), fontsize=9)
    return figure


def find_pareto_front(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points for which no other is both cheaper and better, cheapest first."""
    front: list[tuple[float, float]] = []
    for cost, recall in sorted(points, key=lambda point: (point[0], -point[1])):
        if not front or recall > front[-1][1]:
            front.append((cost, recall))
    return front


def draw_context_over_time(
    study: ReplayStudy, conversation: RecordedConversation, setup: ReplaySetup
) -> Figure:
    """Draw the sections of each request, call by call, and mark calls that broke the prefix."""
    figure, axes = _create_axes(6.0, 3.2)
    providers = {provider.name: provider.rules for provider in study.providers}
    needs = find_needs(conversation.messages)
    scale = learn_recorded_scale(conversation, setup.model)
    calls = replay_conversation(
        conversation, setup, providers, needs, scale=scale, with_sections=True
    ).calls
    steps = range(1, len(calls) + 1)
    stacks = [[(call.sections or {}).get(name, 0) for call in calls] for name in PROMPT_SECTIONS]
    colours = [COLOURS_BY_CSS_NAME[f"s{i}"] for i in range(len(PROMPT_SECTIONS))]
    axes.stackplot(steps, *stacks, colors=colours, labels=PROMPT_SECTIONS, linewidth=0)
    broken = [step for step, call in zip(steps, calls, strict=True) if call.broke]
    axes.plot(
        broken,
        [0] * len(broken),
        marker=2,
        linestyle="",
        color=COLOURS_BY_CSS_NAME["c6"],
        label="prefix broken",
        clip_on=False,
    )
    axes.set_xlabel("call")
    axes.set_ylabel("tokens sent")
    axes.margins(x=0)
    # One scale for all setups: they are looked at side by side.
    axes.set_ylim(0, 1.05 * _largest_request_tokens(study, conversation))
    axes.yaxis.set_major_formatter(FuncFormatter(_format_short_number))
    figure.legend(loc="outside upper center", ncols=4, fontsize=8.5)
    return figure


def draw_cumulative_cost(study: ReplayStudy, conversation: RecordedConversation) -> Figure:
    """Draw the cumulative cost of one conversation, call by call, under each setup."""
    figure, axes = _create_axes(8.0, 4.0)
    own_provider = study.providers[0]
    for index, setup in enumerate(study.setups):
        calls = _find_calls(study, conversation, setup)
        costs = list(
            accumulate(
                compute_call_cost_in_input_tokens(call, own_provider.name, own_provider.rules)
                for call in calls
            )
        )
        steps = range(1, len(costs) + 1)
        axes.plot(
            steps,
            costs,
            color=_LINE_COLOURS[index % len(_LINE_COLOURS)],
            label=setup.name,
            linewidth=1.8,
        )
    axes.set_xlabel("call")
    axes.set_ylabel(f"fresh input tokens so far ({own_provider.name})")
    axes.margins(x=0)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FuncFormatter(_format_short_number))
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.02), fontsize=9)
    return figure


def _largest_request_tokens(study: ReplayStudy, conversation: RecordedConversation) -> int:
    """Return the tokens of the largest request of a conversation under any setup."""
    runs = (run for run in study.runs if run.conversation == conversation.id)
    return max((call.tokens for run in runs for call in run.calls), default=1)


def _find_calls(
    study: ReplayStudy, conversation: RecordedConversation, setup: ReplaySetup
) -> Sequence[ReplayedCall]:
    return next(
        run.calls
        for run in study.runs
        if run.conversation == conversation.id and run.setup == setup.name
    )


def _create_axes(width: float, height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def _to_css_variable(colour: str) -> str:
    name = _CSS_NAME_BY_COLOUR.get(colour)
    return f"var(--{name})" if name else colour


def _format_short_number(value: float, _place: int | None = None) -> str:
    if value >= 1_000_000:
        return f"{value / 1_000_000:g}M"
    return f"{value / 1_000:g}k" if value >= 1_000 else f"{value:g}"
