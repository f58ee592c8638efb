"""What a turn looks like on a terminal, as it happens.

All that is written is plain text in one direction: a line once drawn is not drawn again, so long
replies stay whole in any terminal. The one exception is the status behind the last character,
which tells who is waited for; it is taken away before anything else is written.
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

from trimtab.cli.chat.wrapping import Wrapping
from trimtab.cli.words import brief, plain
from trimtab.core.message import ToolCall
from trimtab.providers.provider import Failure
from trimtab.session.happenings import (
    BrokeOff,
    CallBegan,
    CallEnded,
    Edited,
    Ended,
    Happening,
    Notice,
    Piece,
    Replied,
    Restarted,
    Summarised,
    ToolBegan,
    ToolEnded,
    TurnBegan,
)

PATIENCE = 1.0
"""Seconds without a word after which the status says what is waited for."""
LEFT_OUT = re.compile(r"\[… ([0-9,]+) bytes left out …\]")
"""Where a tool's output was cut."""
STATUS = re.compile(r"\[(exit status \d+|ended by signal \w+)\]$")
"""How a tool's program ended, if not well."""
WAITS: Mapping[str, str] = {
    "rate_limit": "rate limited",
    "overloaded": "the provider is overloaded",
    "server": "the provider failed",
    "network": "the provider is not reached",
    "timeout": "the provider did not answer in time",
}
"""By a failure's kind, why a call is made again."""
TICK = 0.5
"""Seconds between two looks at the clock."""
STYLES = {
    "text": "",
    "thinking": "dim italic",
    "note": "yellow",
    "error": "red",
    "hint": "dim",
}


@dataclass(slots=True)
class _Running:
    call: ToolCall
    """What runs."""
    since: float
    """When it began, by the screen's clock."""


class Screen:
    """Draws what it is told, piece by piece."""

    def __init__(
        self, console: Console, *, clock: Callable[[], float] = time.monotonic, live: bool = True
    ) -> None:
        self.console = console
        self.waiting_for = "the model"
        """Who the status names while no tool runs."""
        self.commands = False
        """Whether somebody can type commands such as /context."""
        self._clock = clock
        self._live = live and console.is_terminal and not console.is_dumb_terminal
        self._block = ""
        self._column = 0
        self._held = ""
        self._drawn = False  # something of the reply that is being made
        self._words = Wrapping()
        self._status = ""
        self._paused = False
        self._later: list[Callable[[], None]] = []
        self._quiet_since = clock()
        self._running: dict[int, _Running] = {}
        self._again = ("", 0.0)  # why the call is made again, and when

    def begin(self) -> None:
        """Whatever comes next is the first of a turn, below the input line."""
        self._block, self._column, self._held = "input", 0, ""
        self._drawn = False
        self._running.clear()
        self._again = ("", 0.0)
        self._quiet_since = self._clock()

    def tell(self, happening: Happening) -> None:
        """Draw what happened; while somebody is asked something, afterwards."""
        draw = self._drawing(happening)
        if self._paused:
            self._later.append(draw)
        else:
            draw()
            self._quiet_since = self._clock()

    def waits(self, failure: Failure, seconds: float) -> None:
        """The call is made again in a while; the status counts down to it."""
        self._again = (WAITS[failure.kind], self._clock() + seconds)

    def _drawing(self, happening: Happening) -> Callable[[], None]:
        match happening:
            case Piece():
                return partial(self._piece, happening)
            case ToolBegan():
                self._running[id(happening.call)] = _Running(happening.call, self._clock())
                return self.end_line
            case ToolEnded():
                began = self._running.pop(id(happening.call), None)
                took = None if began is None else self._clock() - began.since
                return partial(self._ended, happening, took)
            case Restarted():
                return partial(self._restarted, happening)
            case Notice():
                return partial(self.say, happening.text, "note")
            case Summarised():
                return lambda: None  # it comes between turns, while somebody types
            case TurnBegan() | Edited() | CallBegan() | CallEnded() | BrokeOff():
                return lambda: None  # for those who count; what matters of it is said elsewhere
            case Replied() | Ended():
                return self._whole

    def say(self, text: str, style: str = "hint") -> None:
        """Something of our own, on lines of its own."""
        self._begin("note")
        self._erase()
        shown = Text(plain(text), STYLES[style])
        self.console.print(shown, soft_wrap=not self.console.is_terminal)

    def end_line(self) -> None:
        """Whatever comes next stands at the start of a line."""
        self._flush()
        self._held = ""
        if self._column:
            self._write("\n")

    def gap(self) -> None:
        """An empty line, unless nothing was drawn since the input."""
        self.end_line()
        if self._block != "input":
            self._write("\n")

    @asynccontextmanager
    async def paused(self) -> AsyncGenerator[None]:
        """Somebody else writes to the terminal."""
        self.end_line()
        self._paused = True
        try:
            yield
        finally:
            self._paused, self._quiet_since = False, self._clock()
            self._block, self._column = "asked", 0
            later, self._later = self._later, []
            for draw in later:
                draw()

    @asynccontextmanager
    async def watching(self) -> AsyncGenerator[None]:
        """Show a status whenever nothing comes for a while."""
        task = asyncio.create_task(self._tick()) if self._live else None
        try:
            yield
        finally:
            if task is not None:
                task.cancel()
                await asyncio.wait({task})
            # However it ended: what others write next must not stand behind half a word.
            self.end_line()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            self.tick()

    def tick(self) -> None:
        """Draw the status, if it is time."""
        now = self._clock()
        if self._paused or not self._live or now - self._quiet_since < PATIENCE:
            return
        self._flush()
        room = self.console.width - self._column - 2
        text = brief(self._doing(now), max(1, room))
        if room < 20 or text == self._status:
            return
        self._erase()
        self._status = text
        # Saved and restored, the cursor stays where the next word goes.
        self._raw(f"\x1b7 \x1b[2m{text}\x1b[0m\x1b8")

    def _doing(self, now: float) -> str:
        why, at = self._again
        if not self._running and now < at:
            return f"… {why}, next try in {at - now:.0f} s (Ctrl-C stops it)"
        if not self._running:
            return f"… {self.waiting_for}, {now - self._quiet_since:.0f} s (Ctrl-C stops it)"
        first, *others = self._running.values()
        more = f" and {len(others)} more" if others else ""
        told = f"{first.call.name} {arguments_of(first.call, 60)}".strip()
        return f"… {told}{more}, {now - first.since:.0f} s (Ctrl-C stops it)"

    def _piece(self, piece: Piece) -> None:
        # A line break may come in two pieces.
        text = self._held + piece.text
        self._held = "\r" if text.endswith("\r") else ""
        text = text.removesuffix(self._held) if self._held else text
        if not text:
            return
        if self._block != piece.kind:
            # What separates blocks is ours; a reply that begins with empty lines has none more.
            text = text.lstrip("\n")
            if not text:
                return
            self._begin(piece.kind)
        self._drawn = True
        text = plain(text)
        if self.console.is_terminal:
            text = self._words.feed(text, self.console.width)
        self._write(text, STYLES.get(piece.kind, ""))

    def _restarted(self, happening: Restarted) -> None:
        """Void is only what can be seen; where nothing was drawn, nothing is lost."""
        self.end_line()
        drawn, self._drawn = self._drawn, False
        if drawn:
            told = (
                f"The reply broke off ({brief(happening.why, 80)}). What is above is void; it is "
                "asked for again."
            )
        elif happening.limit is not None:
            look = ": /context shows what is hidden" if self.commands else ""
            told = (
                f"The provider takes {happening.limit:,} tokens, fewer than assumed; the call was "
                f"made again. Nothing is lost{look}."
            )
        else:
            why = brief(happening.why, 80).rstrip(".")
            told = f"The call failed ({why}) and was made again. Nothing is lost."
        self.say(told, "note")

    def _whole(self) -> None:
        self._drawn = False
        self.end_line()

    def _flush(self) -> None:
        """The word that may not be whole yet."""
        self._erase()
        self._write(self._words.flush(self.console.width), STYLES.get(self._block, ""))

    def _ended(self, ended: ToolEnded, took: float | None) -> None:
        self._begin("tool")
        wide = max(20, self.console.width)
        name = f"● {brief(ended.call.name, wide // 2)}"
        left = max(12, wide - cell_len(name) - 4)
        # Where both do not fit, half is for what was asked and the rest for what came.
        given = arguments_of(ended.call, left)
        told = _fitting(_result_of(ended, took), max(12, left - min(cell_len(given), left // 2)))
        given = _fitting(given, left - cell_len(told))
        self._write(name, "cyan")
        self._write(f"  {given}" if given else "")
        self._write(f"  {told}\n", "red" if ended.is_error else "dim")

    def _begin(self, block: str) -> None:
        """A new block is set off from the last by an empty line."""
        self.end_line()
        if self._block != block and self._block:
            self._write("\n")
        self._block, self._words = block, Wrapping()

    def _write(self, text: str, style: str = "") -> None:
        if not text:
            return
        self._erase()
        self.console.out(text, style=style or None, end="", highlight=False)
        self._column = column_after(self._column, text, self.console.width)

    def _erase(self) -> None:
        if self._status:
            self._status = ""
            self._raw("\x1b[K")

    def _raw(self, text: str) -> None:
        self.console.file.write(text)
        self.console.file.flush()


def column_after(column: int, text: str, width: int) -> int:
    """Where the cursor is behind a text; 0 only at the start of a line."""
    _, broken, last = text.rpartition("\n")
    at = cell_len(last.expandtabs(8)) + (0 if broken else column)
    return at if at <= width else (at - 1) % max(1, width) + 1


def arguments_of(call: ToolCall, most: int) -> str:
    """What a model gave a tool, on one line of so many characters."""
    return _fitting(given_to(call), most)


def given_to(call: ToolCall) -> str:
    """What a model gave a tool: one text as it is, else names and values."""
    try:
        given: Any = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        return call.arguments
    if not isinstance(given, dict):
        return call.arguments
    named = cast("dict[str, Any]", given)
    values = list(named.values())
    if len(values) == 1 and isinstance(values[0], str):
        return values[0]
    return " ".join(f"{name}={_value(value)}" for name, value in named.items())


def _result_of(ended: ToolEnded, took: float | None) -> str:
    """What came of a tool in few words; what was not run took no time."""
    told = size_of(ended.text)
    if left_out := LEFT_OUT.search(ended.text):
        told += f", {left_out[1]} bytes left out (`max_output_bytes` in agent.yaml)"
    if status := STATUS.search(ended.text):
        told += f", {status[1]}"
    if ended.is_error:
        told = ended.text.strip().removeprefix("[").removesuffix("]") or "failed"
        if told.startswith("not run: "):
            # What stands behind the first sentence is for the model.
            told = told.partition(". ")[0]
    return told if took is None else f"{duration(took)} · {told}"


def duration(seconds: float) -> str:
    """How long a tool took."""
    return f"{seconds * 1_000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def size_of(text: str) -> str:
    """How much a tool gave."""
    size = len(text.encode("utf-8", "surrogatepass"))
    for unit, factor in (("MB", 1_000_000), ("kB", 1_000)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} B" if size else "no output"


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _fitting(text: str, most: int) -> str:
    """The beginning of a text on one line of so many cells: some letters are two wide."""
    line = brief(text, most) if most > 3 else ""
    while cell_len(line) > most:
        line = f"{line[:-2]}…"
    return line
