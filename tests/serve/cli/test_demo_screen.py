"""The demo's picture fits the terminal it is drawn on, and the chart is always in it."""

import io

import pytest
from rich.console import Console

from tests.contracts.docs_client import ANSWER
from trimtab import Context
from trimtab_serve.cli.demo.live_display import describe_demo_result
from trimtab_serve.cli.demo.screen import CALLS_TITLE, COST_NOTE, DemoScreen
from trimtab_serve.cli.demo.state import DemoCallTokens, DemoEdit, DemoLine, DemoState

SMALL = "A larger terminal shows more: at least 80 by 20."


def midway():
    """As in the middle of a run: long lines, wide figures, more calls than a narrow row holds."""
    context = Context(model="claude-sonnet-5-5", context_window=16_000, system="Be brief. " * 200)
    context.add({"role": "user", "content": "Look again. " * 400})
    context.request()
    seen = DemoState(policy="auto", window=16_000, turn=9, turns=12, report=context.report())
    for number in range(12):
        seen.lines.append(DemoLine(kind="user", text=f"Question {number}? " + "And why? " * 20))
        seen.lines.append(DemoLine(kind="call", text='logs {"service":"checkout"}' * 9))
        seen.lines.append(DemoLine(kind="agent", text=f"{ANSWER} " * 6))
    seen.lines.append(DemoLine(kind="mark", text="m13.0 was hidden long ago"))
    seen.calls = [
        DemoCallTokens(full_tokens=3_000 * n, sent_tokens=min(3_000 * n, 15_000))
        for n in range(1, 36)
    ]
    seen.edits = [
        DemoEdit(handle="m2-m170", result_word="summarised", subject="58 messages", tokens=57_041)
    ]
    seen.cost, seen.full_cost, seen.recalled_handle = 0.193, 0.245, "m13.0"
    return seen


def drawn(seen, width, height):
    console = Console(width=width, height=height, file=io.StringIO(), force_terminal=False)
    console.print(DemoScreen(seen))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def chart_is_whole(lines):
    text = "\n".join(lines)
    return "┄ window" in text and "hidden last:" in text and lines[-1].startswith("╰")


@pytest.mark.parametrize(
    ("width", "height"),
    [(80, 20), (80, 24), (80, 40), (87, 60), (88, 27), (88, 28), (100, 24), (100, 35), (120, 40)],
)
def test_every_frame_is_within_the_terminal(width, height):
    lines = drawn(midway(), width, height)
    text = "\n".join(lines)
    assert len(lines) < height
    assert max(map(len, lines)) <= width
    assert chart_is_whole(lines)
    for words in (
        "conversation · turn 9 of 12",
        "★    m13.0 was hidden long ago",
        "context",
        "Tool output",
        "$0.193",
        "$0.245",
        "requests refused",
        CALLS_TITLE,
        "sent: 495,000 tokens in 35 calls",
        "recall m2-m170",
    ):
        assert words in text, words
    assert SMALL not in text


@pytest.mark.parametrize(("width", "height"), [(79, 24), (60, 40), (80, 19), (80, 12), (64, 10)])
def test_a_terminal_too_small_keeps_the_chart_and_says_in_one_line_what_it_lacks(width, height):
    lines = drawn(midway(), width, height)
    assert len(lines) < height
    assert lines[-1].strip() == SMALL
    assert chart_is_whole(lines[:-1])


@pytest.mark.parametrize(("width", "height"), [(80, 24), (100, 35)])
def test_before_the_first_turn_it_says_what_there_is_to_see(width, height):
    seen = DemoState(policy="auto", window=16_000)
    seen.lines.append(DemoLine(kind="note", text="An agent on call. " * 12))
    text = "\n".join(drawn(seen, width, height))
    assert "conversation · starting" in text
    assert "turn 0" not in text
    assert "An agent on call." in text
    assert "starting the simulated provider" in text


def test_the_footnote_fits_on_one_line_of_the_narrowest_picture_with_it():
    assert any(COST_NOTE in line for line in drawn(midway(), 88, 28))


def test_the_summary_tells_cost_beside_tokens_and_says_where_it_was_more():
    seen = midway()
    assert "(74% less)" in describe_demo_result(seen)[0].plain
    assert "They cost $0.193;" in describe_demo_result(seen)[1].plain
    assert "$0.245 (21% less)" in describe_demo_result(seen)[1].plain
    seen.cost = 0.490
    assert "$0.245 (100% more)" in describe_demo_result(seen)[1].plain
