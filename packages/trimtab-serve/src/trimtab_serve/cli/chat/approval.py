"""Ask the person at the terminal whether a tool may run, one question at a time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence

from rich.text import Text

from trimtab.cli.text_format import escape_control_characters, format_count, shorten_to_line
from trimtab.engine.log.message import ToolCall
from trimtab_serve.agent.tools.permissions.rules import ApprovalAnswer, ApprovalRequest
from trimtab_serve.cli.chat.turn_screen import TurnScreen, format_tool_arguments_in_full

MAX_SHOWN_LINES = 60
"""Lines of a call that are shown at first."""

ReadChoice = Callable[[str, Mapping[str, str]], Awaitable[str | None]]
"""Shows a question, reads one of the keys and returns its word. Returns None for Ctrl-C."""

APPROVAL_KEYS = {"y": "yes", "a": "always", "n": "no"}
SHOW_ALL_KEY = {"s": "show all of it"}
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
        told = [question.text, *_arguments_not_in_text(question)]
        asked = "Run it? [y]es / [a]lways this exact call / [n]o"
        what = f"{question.tool} wants to run"
        match await self._ask(what, told, asked, APPROVAL_KEYS, question.why):
            case "yes":
                return "yes"
            case "always":
                return "always"
            case _:
                return "no"

    async def confirm_rerun(self, call: ToolCall) -> bool:
        """Return whether a call with an unknown outcome is to run again."""
        what = f"{call.name} was interrupted; it may or may not have done its work"
        asked = "Run it again? [y]es / [n]o"
        return (
            await self._ask(what, [format_tool_arguments_in_full(call)], asked, RERUN_KEYS) == "yes"
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
            self._screen.print_message(f"{headline}:", "note")
            lines = [
                line
                for text in texts
                for line in escape_control_characters(text).splitlines() or [""]
            ]
            async with self._screen.pause_drawing():
                long = len(lines) > MAX_SHOWN_LINES
                self._show(lines[: MAX_SHOWN_LINES // 2] if long else lines)
                if long:
                    between = format_count(len(lines) - MAX_SHOWN_LINES, "line")
                    self._note(f"  … {between} not shown; [s]how all of it …")
                    self._show(lines[-MAX_SHOWN_LINES // 2 :])
                if reason:
                    self._note(f"  Asked because {shorten_to_line(reason, 300)}.")
                chosen = await self._choose(prompt, {**keys, **(SHOW_ALL_KEY if long else {})})
                if chosen == SHOW_ALL_KEY["s"]:
                    self._show(lines)
                    chosen = await self._choose(prompt, keys)
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


def _arguments_not_in_text(question: ApprovalRequest) -> list[str]:
    """Return the arguments that the text does not show."""
    return [
        f"{name}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for name, value in question.arguments.items()
        if str(value) not in question.text
        and json.dumps(value, ensure_ascii=False) not in question.text
    ]
