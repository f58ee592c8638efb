"""Draw a turn on a terminal while it runs.

Streamed text is wrapped at spaces; code is not changed.

The screen only appends text: it never redraws a line, so long replies stay complete in any
terminal. The only exception is the status after the last character, which says what the turn waits
for. It is removed before anything else is written.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from trimtab.cli.text_format import escape_control_characters, shorten_to_line
from trimtab.engine.log.message import ToolCall
from trimtab.session import events as turn_events

MAX_HELD_WORD_CHARS = 30
"""Characters of a word to hold back until it is complete. A longer word may be broken."""
_PIECES = re.compile(r"\n|[^\S\n]+|\S+")
_FENCES = ("```", "~~~")


class StreamingWordWrapper:
    """Takes a text piece by piece and returns what can be written."""

    def __init__(self) -> None:
        self._column = 0
        self._word = self._space = self._start = ""
        self._code = False
        self._within = False  # part of this word is written already

    def feed(self, text: str, width: int) -> str:
        """Return what can be written now. The last word is held back until it is complete."""
        text_to_write = ""
        for piece in _PIECES.findall(text):
            if piece == "\n":
                text_to_write += self.flush(width) + piece
                self._end_line()
            elif piece.isspace():
                text_to_write += self.flush(width)
                self._space = self._space + piece
                self._within = False
                self._start += piece if len(self._start) < MAX_HELD_WORD_CHARS else ""
            else:
                self._start += piece if len(self._start) < MAX_HELD_WORD_CHARS else ""
                self._word += piece
                if len(self._word) > MAX_HELD_WORD_CHARS or not self._word.isascii():
                    # Scripts without spaces would be held back for a whole paragraph.
                    text_to_write += self.flush(width)
        return text_to_write

    def flush(self, width: int) -> str:
        """Return the held text. The rest of a word follows it without a space."""
        if not self._word:
            return ""
        word = self._word
        space = self._space
        self._word = self._space = ""
        size = cell_len((space + word).expandtabs(8))
        breaks = not (self._within or self._code) and self._column + size > width
        self._within = True
        if breaks and self._column:
            self._column = cell_len(word)
            return f"\n{word}"
        self._column += size
        if self._column > width:
            self._column %= max(1, width)
        return space + word

    def _end_line(self) -> None:
        if self._start.lstrip().startswith(_FENCES):
            self._code = not self._code
        self._column = 0
        self._within = False
        self._space = self._start = ""


STATUS_DELAY_S = 1.0
"""Seconds without output after which the status says what the turn waits for."""
OUTPUT_CUT_PATTERN = re.compile(r"\[… ([0-9,]+) bytes left out …\]")
"""Matches the mark where a tool's output was cut."""
EXIT_STATUS_PATTERN = re.compile(r"\[(exit status \d+|ended by signal \w+)\]$")
"""Matches how a tool's program ended, if it failed."""
RETRY_REASONS: Mapping[str, str] = {
    "rate_limit": "rate limited",
    "overloaded": "the provider is overloaded",
    "server": "the provider failed",
    "network": "the provider cannot be reached",
    "timeout": "the provider did not answer in time",
}
"""Why a call is repeated, by the kind of the failure."""
STATUS_INTERVAL_S = 0.5
"""Seconds between two updates of the status."""
TEXT_STYLES = {
    "text": "",
    "thinking": "dim italic",
    "note": "yellow",
    "error": "red",
    "hint": "dim",
}


@dataclass(slots=True)
class _RunningTool:
    call: ToolCall
    """What runs."""
    since: float
    """When it began, by the screen's clock."""


class TurnScreen:
    """Draws a turn piece by piece."""

    def __init__(
        self, console: Console, *, clock: Callable[[], float] = time.monotonic, live: bool = True
    ) -> None:
        self.console = console
        self.waiting_for = "the model"
        """What the status names while no tool runs."""
        self.has_commands = False
        """Whether the user can type commands such as /context."""
        self._clock = clock
        self._live = live and console.is_terminal and not console.is_dumb_terminal
        self._block = ""
        self._column = 0
        self._held = ""
        self._drawn = False  # something of the reply that is being made
        self._words = StreamingWordWrapper()
        self._status = ""
        self._paused = False
        self._later: list[Callable[[], None]] = []
        self._quiet_since = clock()
        self._running: dict[int, _RunningTool] = {}
        self._again = ("", 0.0)  # why the call is made again, and when

    def begin_turn(self) -> None:
        """Prepare for the first output of a turn, below the input line."""
        self._block = "input"
        self._column = 0
        self._held = ""
        self._drawn = False
        self._running.clear()
        self._again = ("", 0.0)
        self._quiet_since = self._clock()

    def on_event(self, event: turn_events.TurnEvent) -> None:
        """Draw an event. While the user answers a question, events wait until after it."""
        draw = self._choose_drawing(event)
        if self._paused:
            self._later.append(draw)
        else:
            draw()
            self._quiet_since = self._clock()

    def _choose_drawing(self, event: turn_events.TurnEvent) -> Callable[[], None]:
        match event:
            case turn_events.TextDelta():
                return partial(self._draw_delta, event)
            case turn_events.ToolStarted():
                self._running[id(event.call)] = _RunningTool(event.call, self._clock())
                return self.end_line
            case turn_events.ToolFinished():
                began = self._running.pop(id(event.call), None)
                took = None if began is None else self._clock() - began.since
                return partial(self._draw_tool_result, event, took)
            case turn_events.ModelCallRetried() if event.wait_s:
                # The status counts down to the next attempt.
                self._again = (RETRY_REASONS[event.kind], self._clock() + event.wait_s)
                return lambda: None
            case turn_events.ModelCallRetried():
                return partial(self._draw_retry, event)
            case turn_events.UserNotice():
                return partial(self.print_message, event.text, "note")
            case turn_events.SummaryFinished():
                return lambda: None  # it comes between turns, while the user types
            case (
                turn_events.TurnStarted()
                | turn_events.ContextEdited()
                | turn_events.ModelCallStarted()
                | turn_events.ModelCallFinished()
                | turn_events.TurnFailed()
            ):
                return lambda: None  # for metrics; other events say what a user needs
            case turn_events.AssistantReplied() | turn_events.TurnFinished():
                return self._finish_reply

    def print_message(self, text: str, style: str = "hint") -> None:
        """Print a message of our own on separate lines."""
        self._begin_block("note")
        self._erase_status()
        line = Text(escape_control_characters(text), TEXT_STYLES[style])
        self.console.print(line, soft_wrap=not self.console.is_terminal)

    def end_line(self) -> None:
        """Make the next output start on a new line."""
        self._flush()
        self._held = ""
        if self._column:
            self._write("\n")

    def end_with_blank_line(self) -> None:
        """Print an empty line, unless nothing was drawn since the input."""
        self.end_line()
        if self._block != "input":
            self._write("\n")

    @asynccontextmanager
    async def pause_drawing(self) -> AsyncGenerator[None]:
        """Hold back all drawing while other code writes to the terminal."""
        self.end_line()
        self._paused = True
        try:
            yield
        finally:
            self._paused, self._quiet_since = False, self._clock()
            self._block = "asked"
            self._column = 0
            later = self._later
            self._later = []
            for draw in later:
                draw()

    @asynccontextmanager
    async def show_status_while_waiting(self) -> AsyncGenerator[None]:
        """Show a status whenever there is no output for a while."""
        task = asyncio.create_task(self._refresh_status_forever()) if self._live else None
        try:
            yield
        finally:
            if task is not None:
                task.cancel()
                await asyncio.wait({task})
            # However it ended: what others write next must not stand behind half a word.
            self.end_line()

    async def _refresh_status_forever(self) -> None:
        while True:
            await asyncio.sleep(STATUS_INTERVAL_S)
            self.refresh_status()

    def refresh_status(self) -> None:
        """Draw the status, if it is time."""
        now = self._clock()
        if self._paused or not self._live or now - self._quiet_since < STATUS_DELAY_S:
            return
        self._flush()
        room = self.console.width - self._column - 2
        text = shorten_to_line(self._describe_wait(now), max(1, room))
        if room < 20 or text == self._status:
            return
        self._erase_status()
        self._status = text
        # The cursor is saved and restored, so the next word goes to its place.
        self._write_raw(f"\x1b7 \x1b[2m{text}\x1b[0m\x1b8")

    def _describe_wait(self, now: float) -> str:
        why, at = self._again
        if not self._running and now < at:
            return f"… {why}, next attempt in {at - now:.0f} s (Ctrl-C stops it)"
        if not self._running:
            return f"… {self.waiting_for}, {now - self._quiet_since:.0f} s (Ctrl-C stops it)"
        first, *others = self._running.values()
        more = f" and {len(others)} more" if others else ""
        tool_call = f"{first.call.name} {format_arguments_line(first.call, 60)}".strip()
        return f"… {tool_call}{more}, {now - first.since:.0f} s (Ctrl-C stops it)"

    def _draw_delta(self, delta: turn_events.TextDelta) -> None:
        # A line break may come in two pieces.
        text = self._held + delta.text
        self._held = "\r" if text.endswith("\r") else ""
        text = text.removesuffix(self._held) if self._held else text
        if not text:
            return
        if self._block != delta.kind:
            # What separates blocks is ours; a reply that begins with empty lines has none more.
            text = text.lstrip("\n")
            if not text:
                return
            self._begin_block(delta.kind)
        self._drawn = True
        text = escape_control_characters(text)
        if self.console.is_terminal:
            text = self._words.feed(text, self.console.width)
        self._write(text, TEXT_STYLES.get(delta.kind, ""))

    def _draw_retry(self, event: turn_events.ModelCallRetried) -> None:
        """Say that a call was repeated, and that text already drawn is no longer valid."""
        self.end_line()
        has_drawn = self._drawn
        self._drawn = False
        if has_drawn:
            notice = (
                f"The reply was interrupted ({shorten_to_line(event.reason, 80)}). The text above "
                "is discarded, and the model is asked again."
            )
        elif event.limit is not None:
            look = ": /context shows what is hidden" if self.has_commands else ""
            notice = (
                f"The provider accepts {event.limit:,} tokens, fewer than assumed; the call was "
                f"repeated. Nothing is lost{look}."
            )
        else:
            why = shorten_to_line(event.reason, 80).rstrip(".")
            notice = f"The call failed ({why}) and was repeated. Nothing is lost."
        self.print_message(notice, "note")

    def _finish_reply(self) -> None:
        self._drawn = False
        self.end_line()

    def _flush(self) -> None:
        """Write the word that may still be incomplete."""
        self._erase_status()
        self._write(self._words.flush(self.console.width), TEXT_STYLES.get(self._block, ""))

    def _draw_tool_result(self, event: turn_events.ToolFinished, took: float | None) -> None:
        self._begin_block("tool")
        wide = max(20, self.console.width)
        name = f"● {shorten_to_line(event.call.name, wide // 2)}"
        room = max(12, wide - cell_len(name) - 4)
        # If both do not fit, the arguments get half of the room and the result the rest.
        arguments = format_arguments_line(event.call, room)
        outcome = _shorten_to_cells(
            _describe_result(event, took), max(12, room - min(cell_len(arguments), room // 2))
        )
        arguments = _shorten_to_cells(arguments, room - cell_len(outcome))
        self._write(name, "cyan")
        self._write(f"  {arguments}" if arguments else "")
        self._write(f"  {outcome}\n", "red" if event.is_error else "dim")

    def _begin_block(self, block: str) -> None:
        """Start a new block, with an empty line before it."""
        self.end_line()
        if self._block != block and self._block:
            self._write("\n")
        self._block = block
        self._words = StreamingWordWrapper()

    def _write(self, text: str, style: str = "") -> None:
        if not text:
            return
        self._erase_status()
        self.console.out(text, style=style or None, end="", highlight=False)
        self._column = advance_cursor_column(self._column, text, self.console.width)

    def _erase_status(self) -> None:
        if self._status:
            self._status = ""
            self._write_raw("\x1b[K")

    def _write_raw(self, text: str) -> None:
        self.console.file.write(text)
        self.console.file.flush()


def advance_cursor_column(column: int, text: str, width: int) -> int:
    """Return the cursor's column after a text. It is 0 only at the start of a line."""
    _, broken, last = text.rpartition("\n")
    at = cell_len(last.expandtabs(8)) + (0 if broken else column)
    return at if at <= width else (at - 1) % max(1, width) + 1


def format_arguments_line(call: ToolCall, max_cells: int) -> str:
    """Return a call's arguments on one line of at most `max_cells` cells."""
    return _shorten_to_cells(format_tool_arguments_in_full(call), max_cells)


def format_tool_arguments_in_full(call: ToolCall) -> str:
    """Return a call's arguments: a single text as it is, otherwise names and values."""
    try:
        json_arguments: Any = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        return call.arguments
    if not isinstance(json_arguments, dict):
        return call.arguments
    arguments = cast("dict[str, Any]", json_arguments)
    values = list(arguments.values())
    if len(values) == 1 and isinstance(values[0], str):
        return values[0]
    return " ".join(f"{name}={_format_value(value)}" for name, value in arguments.items())


def _describe_result(event: turn_events.ToolFinished, took: float | None) -> str:
    """Describe a tool's result in a few words. A tool that did not run has no duration."""
    text = format_output_size(event.text)
    if left_out := OUTPUT_CUT_PATTERN.search(event.text):
        text += f", {left_out[1]} bytes left out (`max_output_bytes` in agent.yaml)"
    if status := EXIT_STATUS_PATTERN.search(event.text):
        text += f", {status[1]}"
    if event.is_error:
        text = event.text.strip().removeprefix("[").removesuffix("]") or "failed"
        if text.startswith("not run: "):
            # What stands behind the first sentence is for the model.
            text = text.partition(". ")[0]
    return text if took is None else f"{format_tool_duration(took)} · {text}"


def format_tool_duration(seconds: float) -> str:
    """Return how long a tool took."""
    return f"{seconds * 1_000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def format_output_size(output: str) -> str:
    """Return how much output a tool returned."""
    size = len(output.encode("utf-8", "surrogatepass"))
    for unit, factor in (("MB", 1_000_000), ("kB", 1_000)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} B" if size else "no output"


def _format_value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _shorten_to_cells(text: str, max_cells: int) -> str:
    """Shorten a text to one line of `max_cells` cells. Some characters are two cells wide."""
    line = shorten_to_line(text, max_cells) if max_cells > 3 else ""
    while cell_len(line) > max_cells:
        line = f"{line[:-2]}…"
    return line
