"""The context bar before the input, and what was hidden last."""

import time
from dataclasses import replace

import pytest

from tests.serve.cli.chat.scripted_chat import console, script, talking, text_of, turns, written
from trimtab.engine.log.event import Edit, EditKind, Size, Usage
from trimtab.engine.policy.planning.plan import Decision
from trimtab.engine.prompt.report import ContextReport, ReportSection
from trimtab.engine.tokens.counter import with_recomputed_size
from trimtab.session.history import (
    HiddenTotals,
    total_hidden_by_last_turn,
    total_hidden_since_by_edit_kind,
)
from trimtab_serve.agent.config.spec import ThresholdsSpec
from trimtab_serve.cli.chat.context_display import (
    classify_fill_level,
    show_context_bar,
    show_context_line,
    show_newly_hidden,
)
from trimtab_serve.cli.chat.state import ChatState

pytestmark = pytest.mark.anyio


def ledger(used: int, limit: int = 200_000) -> ContextReport:
    return ContextReport(
        model="claude-sonnet-4-5",
        limit=limit,
        source="model",
        sections=(
            ReportSection(name="system prompt", kind="system", tokens=1_800),
            ReportSection(name="tool result: read", kind="tools", tokens=used - 11_700),
            ReportSection(name="user", kind="messages", tokens=9_900),
        ),
        hidden={},
        output_reserve=8_192,
        margin=0,
        last_usage=Usage(input=1_000, cache_read=900),
        total_usage=Usage(input=4_000, cache_read=3_000),
        calls=4,
        cost=0.1,
    )


def hiding(op: str, count: int, tokens: int, handle: str) -> HiddenTotals:
    return HiddenTotals(op=op, count=count, tokens=tokens, handle=handle, at=time.time())


def test_the_display_is_the_bar_the_cache_and_what_was_hidden():
    made = console(90)
    show_context_bar(ledger(60_900), [hiding("mask", 3, 12_300, "m30.0")], ThresholdsSpec(), made)
    assert text_of(made) == (
        "                    Context Usage\n"
        "  ████████████░░░░░░░░░░░░░░░░░░░░░░░░░░░░ 60.9k/200.0k (30.4%)\n"
        "  ├─ System:          1.8k (0.9%)\n"
        "  ├─ Tool output:     49.2k (24.6%)\n"
        "  ├─ Messages:        9.9k (5.0%)\n"
        "  └─ Free space:      139.1k (69.5%)\n"
        "  From the cache: 75% of all input, 90% of the last call's\n"
        "  Hidden just now: 3 tool results replaced by a line (12,300 tokens) · /why m30.0"
    )


@pytest.mark.parametrize(
    ("used", "level", "colour"),
    [(80_000, "normal", 32), (150_000, "high", 33), (190_000, "critical", 31)],
)
def test_the_bar_is_coloured_by_the_thresholds(used, level, colour):
    assert classify_fill_level(ledger(used), ThresholdsSpec()) == level
    made = console(90, terminal=True)
    show_context_bar(ledger(used), [], ThresholdsSpec(), made)
    assert f"\x1b[{colour}m" in written(made)


def test_the_thresholds_are_those_of_the_file():
    assert (
        classify_fill_level(ledger(80_000), ThresholdsSpec(summarise=0.2, trim=0.3)) == "critical"
    )


@pytest.mark.parametrize("width", [30, 45, 59, 64])
def test_a_narrow_window_has_a_shorter_bar(width):
    made = console(width)
    show_context_bar(ledger(60_900), [hiding("drop", 12, 500, "m3-m20")], ThresholdsSpec(), made)
    lines = text_of(made).splitlines()
    assert max(map(len, lines)) <= width
    assert "60.9k/200.0k (30.4%)" in lines[1] or width < 40


def test_several_kinds_are_told_together_with_a_message_to_ask_about():
    made = console(200)
    show_newly_hidden(
        [hiding("truncate", 1, 900, "m8.0"), hiding("summarise", 20, 4_000, "m3-m40")], made
    )
    assert text_of(made) == (
        "  Hidden just now: 1 tool result cut (900 tokens), 20 messages summarised (4,000 tokens) "
        "· /why m3"
    )


def test_nothing_hidden_is_nothing_said():
    made = console()
    show_newly_hidden([], made)
    assert text_of(made) == ""


async def test_what_the_policy_hides_in_a_turn_is_found_with_its_tokens():
    talk = await talking(script(12))
    found = []
    for _ in range(12):
        window = talk.session.window
        before = window.seq
        covered = window.summary.last if window.summary is not None else 0
        await turns(talk, 1)
        found = await total_hidden_since_by_edit_kind(
            talk.session.store,
            "s1",
            talk.session.window,
            before,
            already_summarised_until=covered,
        )
        if found:
            break
    assert found
    hidden = talk.session.report().hidden
    assert {one.op: (one.count, one.tokens) for one in found} == hidden
    for one in found:
        assert await talk.session.recall(one.handle)
    assert await total_hidden_by_last_turn(talk.session.store, "s1", talk.session.window) == found


async def test_what_was_hidden_again_by_a_longer_summary_is_not_counted_twice():
    talk = await talking(script(40))
    counted = 0
    for _ in range(40):
        window = talk.session.window
        before = window.seq
        covered = window.summary.last if window.summary is not None else 0
        await turns(talk, 1)
        found = await total_hidden_since_by_edit_kind(
            talk.session.store,
            "s1",
            talk.session.window,
            before,
            already_summarised_until=covered,
        )
        counted += sum(one.count for one in found if one.op == "summarise")
    assert counted == talk.session.report().hidden["summarise"][0]


async def test_what_a_rewind_has_shown_again_was_not_hidden_last():
    talk = await talking(script(12))
    positions = []
    for _ in range(12):
        positions.append(talk.session.window.seq)
        await turns(talk, 1)
        if await total_hidden_by_last_turn(talk.session.store, "s1", talk.session.window):
            break
    await talk.session.rewind(positions[-1])
    assert await total_hidden_by_last_turn(talk.session.store, "s1", talk.session.window) == []


def cut(talk: ChatState, seq: int, op: EditKind, text: str) -> Edit:
    """An edit of the one part of a message, with the size that it leaves."""
    part = talk.session.window.entries[seq].message.parts[0]
    bare = Edit(op=op, first=seq, last=seq, part=0, text=text, size=Size(bytes=0, tokens=0))
    return with_recomputed_size(bare, part, talk.session.window.counter)


async def apply(talk: ChatState, *edits: Edit) -> None:
    await talk.session.recorder.apply_policy(lambda window, budget: Decision(edits=edits))


async def test_what_is_cut_twice_and_then_masked_is_hidden_once_as_it_is_seen_now():
    talk = await talking(script(2))
    await turns(talk, 2)
    window = talk.session.window
    first, second = (result.seq for result in window.results.values())
    before = window.seq
    await apply(talk, cut(talk, first, "truncate", "x" * 900))
    await apply(talk, cut(talk, first, "truncate", "x" * 90))
    await apply(talk, cut(talk, first, "mask", "[hidden]"))
    await apply(talk, cut(talk, second, "truncate", "x" * 90))
    found = await total_hidden_since_by_edit_kind(talk.session.store, "s1", window, before)
    assert [(one.op, one.count, one.handle) for one in found] == [
        ("mask", 1, f"m{first}.0"),
        ("truncate", 1, f"m{second}.0"),
    ]
    told = {one.op: (one.count, one.tokens) for one in found}
    assert told == talk.session.report().hidden
    assert told["mask"][1] > told["truncate"][1] > 0


async def test_an_edit_that_was_undone_or_shown_again_hides_nothing():
    talk = await talking(script(2))
    await turns(talk, 2)
    window = talk.session.window
    first, second = (result.seq for result in window.results.values())
    before = window.seq
    await apply(talk, cut(talk, first, "mask", "[hidden]"))
    kept = window.seq
    await apply(talk, cut(talk, second, "mask", "[hidden]"))
    await talk.session.rewind(kept)
    window = talk.session.window
    found = await total_hidden_since_by_edit_kind(talk.session.store, "s1", window, before)
    assert [(one.count, one.handle) for one in found] == [(1, f"m{first}.0")]
    await talk.session.reveal(f"m{first}.0")
    assert (
        await total_hidden_since_by_edit_kind(talk.session.store, "s1", talk.session.window, before)
        == []
    )


def test_one_line_says_how_full_it_is():
    made = console(90)
    show_context_line(ledger(60_900), ThresholdsSpec(), made)
    assert text_of(made) == "  Context 30.4% · 60.9k/200.0k · cache 75%"


def test_a_call_that_reported_nothing_has_no_cache_line():
    made = console()
    none = replace(ledger(60_900), total_usage=Usage(input=0), last_usage=None)
    show_context_bar(none, [], ThresholdsSpec(), made)
    assert "cache" not in text_of(made)
