"""Ask the person at the terminal whether a tool may run, one question at a time.

The model writes what is shown. It could push a dangerous line out of view by blank lines, spaces or
a very long line. So what is shown fits on the screen, and a remark counts the rows that are not
shown. Remarks have another sign at the left than the lines of the call.
"""

from __future__ import annotations

import asyncio
import json
import re
import unicodedata
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from itertools import groupby

from rich.cells import chop_cells
from rich.text import Text

from trimtab.cli.text_format import escape_control_characters, format_count, shorten_to_line
from trimtab.engine.log.message import ToolCall
from trimtab_serve.agent.tools.permissions.rules import ApprovalAnswer, ApprovalRequest
from trimtab_serve.cli.chat.turn_screen import TurnScreen, format_tool_arguments_in_full

ROWS_BESIDE_CALL = 8
"""Rows of the screen for the headline, the reason, the remarks and the question."""
MIN_SHOWN_ROWS = 8
MAX_BLANKS = 40
"""Maximum number of spaces in a row. More of them are counted."""
LINE_SIGN = "  │ "
CONTINUATION_SIGN = "  ┊ "
REMARK_SIGN = "  ⋮ "
_UNSEEN = re.compile(
    "[\u00a0\u00ad\u034f\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f\u2000-\u200d\u202f"
    "\u205f-\u2065\u206a-\u206f\u2800\u3000\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\uffff"
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Characters that look like nothing or like a space."""
_MARKS = frozenset({"Mn", "Me"})
"""Categories of characters that stand above, below or around the character before them."""
MAX_MARKS = 4
"""Maximum number of marks on one character. More of them are counted."""
_BLANKS = re.compile(f" {{{MAX_BLANKS + 1},}}")

Row = tuple[str, str]
"""A row of the screen: the sign at its left, and its text."""

ReadChoice = Callable[[str, Mapping[str, str]], Awaitable[str | None]]
"""Shows a question, reads one of the keys and returns its word. Returns None for Ctrl-C."""

APPROVAL_KEYS = {"y": "yes", "a": "always", "n": "no"}
SHOW_ALL_KEY = {"s": "show all of it"}
MORE_KEYS = {"m": "more", "n": "no"}
RERUN_KEYS = {"y": "yes", "n": "no"}


class ApprovalPrompt:
    """Asks the person at the terminal. Ctrl-C means no and also stops the turn."""

    def __init__(
        self, screen: TurnScreen, read_choice: ReadChoice, stop_turn: Callable[[], None]
    ) -> None:
        self._screen = screen
        self._choose = read_choice
        self._stop = stop_turn
        self._one = asyncio.Lock()

    async def approve(self, question: ApprovalRequest) -> ApprovalAnswer:
        """Show exactly what would run, and return whether it may."""
        lines = [question.text, *_arguments_not_in_text(question)]
        prompt = "Run it? [y]es / [a]lways this exact call / [n]o"
        what = f"{question.tool} wants to run"
        match await self._ask(what, lines, prompt, APPROVAL_KEYS, question.why):
            case "yes":
                return "yes"
            case "always":
                return "always"
            case _:
                return "no"

    async def confirm_rerun(self, call: ToolCall) -> bool:
        """Return whether a call with an unknown outcome is to run again."""
        what = f"{call.name} was interrupted; it may or may not have done its work"
        prompt = "Run it again? [y]es / [n]o"
        return (
            await self._ask(what, [format_tool_arguments_in_full(call)], prompt, RERUN_KEYS)
            == "yes"
        )

    async def _ask(
        self,
        headline: str,
        texts: Sequence[str],
        prompt: str,
        keys: Mapping[str, str],
        reason: str = "",
    ) -> str | None:
        async with self._one:
            lines = [line for text in texts for line in make_visible(text)]
            count = f", {format_count(len(lines), 'line')}" if len(lines) > 1 else ""
            self._screen.print_message(f"{headline}{count}:", "note")
            console = self._screen.console
            rows = list(lay_out_rows(lines, console.width))
            most = max(MIN_SHOWN_ROWS, console.height - ROWS_BESIDE_CALL)
            async with self._screen.pause_drawing():
                long = len(rows) > most
                self._show(rows[: most // 2] if long else rows)
                if long:
                    between = format_count(len(rows) - most // 2 * 2, "row")
                    self._note(f"  … {between} not shown; [s]how all of it …")
                    self._show(rows[-(most // 2) :])
                if reason:
                    self._note(f"  Asked because {shorten_to_line(reason, 300)}.")
                answer = await self._choose(prompt, {**keys, **(SHOW_ALL_KEY if long else {})})
                if answer == SHOW_ALL_KEY["s"]:
                    answer = await self._show_all(rows, most, prompt, keys)
            if answer is None:
                self._stop()
            return answer

    async def _show_all(
        self, rows: Sequence[Row], most: int, prompt: str, keys: Mapping[str, str]
    ) -> str | None:
        """Show all rows, as many as fit on the screen at a time, and ask after the last."""
        for first in range(0, len(rows), most):
            self._show(rows[first : first + most])
            last = min(first + most, len(rows))
            if last == len(rows):
                break
            page_prompt = f"Rows {first + 1:,} to {last:,} of {len(rows):,}. [m]ore / [n]o"
            if (answer := await self._choose(page_prompt, MORE_KEYS)) != MORE_KEYS["m"]:
                return answer
        return await self._choose(prompt, keys)

    def _show(self, rows: Sequence[Row]) -> None:
        for sign, text in rows:
            line = Text(sign, "dim")
            line.append(text, "red" if sign == REMARK_SIGN else "bold")
            self._screen.console.print(line, soft_wrap=True)

    def _note(self, text: str) -> None:
        self._screen.console.print(Text(text, "red"), soft_wrap=True)


def make_visible(text: str) -> list[str]:
    """Return the lines of a text with a code for each character that cannot be seen."""
    lines = escape_control_characters(text).split("\n")
    return [
        _count_piled_marks(_UNSEEN.sub(_format_code, line)).expandtabs(4).rstrip(" ")
        for line in lines
    ]


def _format_code(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def _count_piled_marks(line: str) -> str:
    """Return a line with a number in place of many marks on one character."""
    if line.isascii():
        return line
    pieces: list[str] = []
    for is_mark, group in groupby(line, key=lambda char: unicodedata.category(char) in _MARKS):
        piece = "".join(group)
        many = is_mark and len(piece) > MAX_MARKS
        pieces.append(f"\\{{{len(piece):,} marks}}" if many else piece)
    return "".join(pieces)


def lay_out_rows(lines: Sequence[str], width: int) -> Iterator[Row]:
    """Break lines into rows of the screen. Blank lines and spaces in a row are counted."""
    room = max(20, width - len(LINE_SIGN))
    for is_blank, group in groupby(lines, key=lambda line: not line):
        run = list(group)
        if is_blank and len(run) > 1:
            yield REMARK_SIGN, f"{len(run):,} blank lines"
            continue
        for line in run:
            sign = LINE_SIGN
            for at, piece in enumerate(_BLANKS.split(line)):
                if at:
                    yield REMARK_SIGN, f"more than {MAX_BLANKS} spaces, then on the same line:"
                    sign = CONTINUATION_SIGN
                for row in chop_cells(piece, room) or [""]:
                    yield sign, row
                    sign = CONTINUATION_SIGN


def _arguments_not_in_text(question: ApprovalRequest) -> list[str]:
    """Return the arguments that the text does not show."""
    return [
        f"{name}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for name, value in question.arguments.items()
        if str(value) not in question.text
        and json.dumps(value, ensure_ascii=False) not in question.text
    ]
