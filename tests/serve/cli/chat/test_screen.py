"""What a turn looks like, piece by piece."""

import asyncio

import pytest

from tests.serve.cli.chat.scripted_chat import call, console, text_of, written
from trimtab.engine.log.message import Message, Text
from trimtab.providers.base import TRANSIENT_KINDS
from trimtab.session.events import (
    COMPACTED_NOTICE,
    AssistantReplied,
    ModelCallRetried,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    UserNotice,
)
from trimtab_serve.cli.chat.turn_screen import (
    RETRY_REASONS,
    TurnScreen,
    advance_cursor_column,
    format_arguments_line,
    format_output_size,
)


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def retried(reason, **fields):
    return ModelCallRetried(kind="server", reason=reason, **fields)


def text(words: str) -> TextDelta:
    return TextDelta(kind="text", text=words)


def drawn(*happenings, width: int = 80, terminal: bool = False) -> str:
    screen = TurnScreen(console(width, terminal=terminal), clock=Clock())
    screen.begin_turn()
    for happening in happenings:
        screen.on_event(happening)
    screen.end_line()
    return text_of(screen.console)


def test_a_reply_is_the_sum_of_its_pieces():
    assert drawn(text("Hello, "), text("you.\n"), text("\nBye.")) == "Hello, you.\n\nBye."


def test_thinking_text_and_tools_are_set_off_by_empty_lines():
    asked = call()
    shown = drawn(
        TextDelta(kind="thinking", text="Hm."),
        text("\n\nI look."),
        AssistantReplied(
            message=Message(role="assistant", parts=(Text(text="I look."),)), usage=None
        ),
        ToolStarted(call=asked),
        ToolFinished(call=asked, text="x" * 2_000, is_error=False),
        text("Done."),
        TurnFinished(reason="done", calls=2),
    )
    assert shown == "Hm.\n\nI look.\n\n● read  src/a.py  0 ms · 2.0 kB\n\nDone."


def test_a_tool_that_failed_says_so_in_red_on_its_one_line():
    asked = call()
    screen = TurnScreen(console(60, terminal=True), clock=Clock())
    screen.on_event(ToolStarted(call=asked))
    screen.on_event(
        ToolFinished(call=asked, text="FileNotFoundError: no\nsuch file", is_error=True)
    )
    assert "\x1b[31m  0 ms · FileNotFoundError: no such file\x1b[0m" in written(screen.console)
    assert text_of(screen.console).count("\n") == 0


def test_a_tool_takes_as_long_as_the_clock_says():
    clock = Clock()
    screen = TurnScreen(console(), clock=clock)
    asked = call()
    screen.on_event(ToolStarted(call=asked))
    clock.now += 2.25
    screen.on_event(ToolFinished(call=asked, text="", is_error=False))
    assert text_of(screen.console) == "● read  src/a.py  2.2 s · no output"


@pytest.mark.parametrize("width", [20, 40, 59, 200])
def test_a_tools_line_is_never_wider_than_the_window(width):
    asked = call(arguments='{"path": "' + "漢字/" * 100 + '"}')
    shown = drawn(
        ToolStarted(call=asked),
        ToolFinished(call=asked, text="e" * 500, is_error=True),
        width=width,
    )
    assert advance_cursor_column(0, shown, 1_000) <= width
    assert "\n" not in shown


def test_two_tools_at_once_have_a_line_each():
    one, two = call(arguments='{"path": "one"}'), call(arguments='{"path": "two"}')
    shown = drawn(
        ToolStarted(call=one),
        ToolStarted(call=two),
        ToolFinished(call=two, text="22", is_error=False),
        ToolFinished(call=one, text="1", is_error=False),
    )
    assert shown == "● read  two  0 ms · 2 B\n● read  one  0 ms · 1 B"


def test_what_broke_off_is_said_to_be_void():
    shown = drawn(text("It is"), retried("connection lost"), text("It is so."))
    assert shown == (
        "It is\n\nThe reply was interrupted (connection lost). The text above is discarded, and "
        "the model is asked again.\n\nIt is so."
    )


def drawn_in_a_chat(*happenings) -> str:
    screen = TurnScreen(console(200), clock=Clock())
    screen.has_commands = True
    screen.begin_turn()
    for happening in happenings:
        screen.on_event(happening)
    screen.end_line()
    return text_of(screen.console)


def test_a_call_that_was_refused_before_anything_was_drawn_voids_nothing():
    why = "prompt is too long: 32286 tokens > 32000 maximum"
    told = (
        text("I look."),
        AssistantReplied(
            message=Message(role="assistant", parts=(Text(text="I look."),)), usage=None
        ),
        UserNotice(text=COMPACTED_NOTICE),
        ModelCallRetried(kind="server", reason=why, limit=32_000),
        text("Here."),
    )
    refused = (
        "The provider accepts 32,000 tokens, fewer than assumed; the call was repeated. Nothing "
        "is lost"
    )
    assert drawn_in_a_chat(*told) == (
        f"I look.\n\n{COMPACTED_NOTICE}\n{refused}: /context shows what is hidden.\n\nHere."
    )
    # Where nobody can type a command, none is named.
    assert f"{refused}." in drawn(*told, width=200)


def test_a_call_that_failed_before_anything_was_drawn_says_why():
    assert drawn_in_a_chat(retried("Bad history."), text("Here.")) == (
        "The call failed (Bad history) and was repeated. Nothing is lost.\n\nHere."
    )


def test_what_was_drawn_of_the_call_before_is_not_void_by_the_next():
    shown = drawn_in_a_chat(
        text("Half"),
        retried("lost"),
        retried("lost again"),
    )
    assert shown.count("is discarded") == 1


def test_a_notice_is_shown():
    assert drawn(UserNotice(text="Context was compacted.")) == "Context was compacted."


def test_nothing_that_a_model_says_commands_the_terminal():
    screen = TurnScreen(console(terminal=True))
    for piece in ("\x1b[2J", "a\r", "\nb\r", "c", "\x9b31m", "\u202e", "\x07"):
        screen.on_event(text(piece))
    screen.end_line()
    out = written(screen.console)
    assert "\x1b[2J" not in out
    assert not {"\x07", "\x9b", "\u202e", "\r"} & set(out)
    assert text_of(screen.console) == "\\x1b[2Ja\nb\\x0dc\\x9b31m\\u202e\\x07"


def test_words_are_not_broken_where_a_terminal_shows_them():
    words = "The quick brown fox jumps over the lazy dog. " * 4
    pieces = [text(words[at : at + 3]) for at in range(0, len(words), 3)]
    shown = drawn(*pieces, width=30, terminal=True)
    assert max(map(len, shown.splitlines())) <= 30
    assert shown.split() == words.split()


def test_a_pipe_gets_lines_as_they_are():
    words = "The quick brown fox jumps over the lazy dog. " * 4
    assert drawn(text(words), width=30) == words.rstrip()


def test_the_status_tells_who_is_waited_for_and_vanishes():
    clock = Clock()
    screen = TurnScreen(console(terminal=True), clock=clock)
    screen.waiting_for = "waiting for the model"
    screen.begin_turn()
    screen.refresh_status()
    assert written(screen.console) == ""
    clock.now += 3
    screen.refresh_status()
    assert "… waiting for the model, 3 s (Ctrl-C stops it)" in written(screen.console)
    screen.on_event(text("Here."))
    screen.end_line()
    assert text_of(screen.console).strip() == "Here."
    assert "\x1b8\x1b[K" in written(screen.console)


def test_the_status_says_why_and_when_a_call_is_made_again():
    clock = Clock()
    screen = TurnScreen(console(terminal=True), clock=clock)
    screen.waiting_for = "waiting for the model"
    screen.begin_turn()
    screen.on_event(ModelCallRetried(kind="rate_limit", reason="slow down", wait_s=12.0))
    clock.now += 7
    screen.refresh_status()
    assert "… rate limited, next attempt in 5 s (Ctrl-C stops it)" in written(screen.console)
    clock.now += 6
    screen.refresh_status()
    assert "… waiting for the model, 13 s" in written(screen.console)


def test_every_failure_that_may_pass_has_words_in_the_status():
    assert set(RETRY_REASONS) == TRANSIENT_KINDS


def test_the_status_names_the_tool_that_runs():
    clock = Clock()
    screen = TurnScreen(console(terminal=True), clock=clock)
    screen.on_event(ToolStarted(call=call()))
    clock.now += 12
    screen.refresh_status()
    assert "… read src/a.py, 12 s" in written(screen.console)


def test_no_status_is_shown_where_there_is_no_terminal():
    clock = Clock()
    screen = TurnScreen(console(), clock=clock)
    clock.now += 10
    screen.refresh_status()
    assert written(screen.console) == ""


def test_what_happens_during_a_question_is_drawn_after_it():
    screen = TurnScreen(console())

    async def ask():
        async with screen.pause_drawing():
            screen.on_event(UserNotice(text="meanwhile"))
            assert "meanwhile" not in written(screen.console)

    asyncio.run(ask())
    assert "meanwhile" in written(screen.console)


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ('{"command": "ls -la"}', "ls -la"),
        ('{"path": "a", "lines": 3}', "path=a lines=3"),
        ("{}", ""),
        ("not JSON", "not JSON"),
        ('{"command": "one\\ntwo"}', "one two"),
    ],
)
def test_arguments_are_shown_briefly(arguments, shown):
    assert format_arguments_line(call(arguments=arguments), 40) == shown


@pytest.mark.parametrize(
    ("text", "size"), [("", "no output"), ("abc", "3 B"), ("é" * 1_000, "2.0 kB")]
)
def test_a_size_is_in_bytes(text, size):
    assert format_output_size(text) == size
