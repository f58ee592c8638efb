"""What may run is asked of the person at the terminal, one question after the other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence

from rich.text import Text

from trimtab.agent.permissions import Answer, Question
from trimtab.cli.chat.screen import Screen, given_to
from trimtab.cli.words import brief, counted, plain
from trimtab.core.message import ToolCall

LINES = 60
"""Of what would run that are shown at once."""

Choose = Callable[[str, Mapping[str, str]], Awaitable[str | None]]
"""Reads one of the keys, shown behind a question, and gives its word; None for Ctrl-C."""

ANSWERS = {"y": "yes", "a": "always", "n": "no"}
ALL = {"s": "show all of it"}
AGAIN = {"y": "yes", "n": "no"}


class Asking:
    """Asks; whoever presses Ctrl-C says no and stops the turn."""

    def __init__(self, screen: Screen, choose: Choose, stop: Callable[[], None]) -> None:
        self._screen = screen
        self._choose = choose
        self._stop = stop
        self._one = asyncio.Lock()

    async def approve(self, question: Question) -> Answer:
        """Whether a call may run, after showing exactly what would."""
        told = [question.text, *_others(question)]
        asked = "Run it? [y]es / [a]lways this exact call / [n]o"
        what = f"{question.tool} wants to run"
        match await self._ask(what, told, asked, ANSWERS, question.why):
            case "yes":
                return "yes"
            case "always":
                return "always"
            case _:
                return "no"

    async def again(self, call: ToolCall) -> bool:
        """Whether a call whose outcome nobody knows is to be made once more."""
        what = f"{call.name} was cut off; it may or may not have done its work"
        asked = "Run it again? [y]es / [n]o"
        return await self._ask(what, [given_to(call)], asked, AGAIN) == "yes"

    async def _ask(
        self,
        what: str,
        told: Sequence[str],
        asked: str,
        answers: Mapping[str, str],
        why: str = "",
    ) -> str | None:
        async with self._one:
            self._screen.say(f"{what}:", "note")
            lines = [line for text in told for line in plain(text).splitlines() or [""]]
            async with self._screen.paused():
                long = len(lines) > LINES
                self._show(lines[: LINES // 2] if long else lines)
                if long:
                    between = counted(len(lines) - LINES, "line")
                    self._note(f"  … {between} not shown; [s]how all of it …")
                    self._show(lines[-LINES // 2 :])
                if why:
                    self._note(f"  Asked because {brief(why, 300)}.")
                chosen = await self._choose(asked, {**answers, **(ALL if long else {})})
                if chosen == ALL["s"]:
                    self._show(lines)
                    chosen = await self._choose(asked, answers)
            if chosen is None:
                self._stop()
            return chosen

    def _show(self, lines: Sequence[str]) -> None:
        for line in lines:
            shown = Text("  │ ", "dim")
            shown.append(line, "bold")
            self._screen.console.print(shown, soft_wrap=True)

    def _note(self, text: str) -> None:
        self._screen.console.print(Text(text, "red"), soft_wrap=True)


def _others(question: Question) -> list[str]:
    """Arguments that the text does not show."""
    return [
        f"{name}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for name, value in question.arguments.items()
        if str(value) not in question.text
        and json.dumps(value, ensure_ascii=False) not in question.text
    ]
