"""The chat at a terminal: read a line, run a turn, repeat."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from rich.text import Text

from trimtab.cli.text_format import (
    escape_control_characters,
    format_age,
    format_count,
    shorten_to_line,
)
from trimtab.engine.window.window import Window
from trimtab.errors import StoreError
from trimtab.session import Session
from trimtab.session.events import TurnFinished
from trimtab.session.history import total_hidden_by_last_turn, total_hidden_since_by_edit_kind
from trimtab.session.interruption import TurnInterruption, TurnStopped
from trimtab_serve.agent.config.loader import describe_keep_results_without_policy
from trimtab_serve.cli.chat.approval import ApprovalPrompt
from trimtab_serve.cli.chat.context_display import (
    classify_fill_level,
    show_context_bar,
    show_context_line,
    show_newly_hidden,
)
from trimtab_serve.cli.chat.interruptible_turn import (
    ChatSignalHandler,
    ChatTurnOutcome,
    run_interruptible_turn,
)
from trimtab_serve.cli.chat.line_input import (
    InputClosed,
    InputInterrupted,
    KeyboardInput,
    suppress_terminal_echo,
)
from trimtab_serve.cli.chat.slash_commands import parse_slash_command, run_slash_command
from trimtab_serve.cli.chat.state import ChatState
from trimtab_serve.cli.chat.turn_errors import describe_chat_cost_ceiling
from trimtab_serve.cli.chat.turn_screen import TurnScreen

MAX_RECAP_CHARS = 200
"""Characters of the last exchange to show when a session is resumed."""
REDRAW_SHARE_CHANGE = 0.05
"""Draw the whole bar again if the used share of the window changed by more than this."""


class ChatLoop:
    """Reads lines and draws turns until the person leaves."""

    def __init__(
        self,
        chat: ChatState,
        screen: TurnScreen,
        keyboard: KeyboardInput,
        approval: ApprovalPrompt,
        interrupts: ChatSignalHandler,
    ) -> None:
        self.chat = chat
        self._screen = screen
        self._keyboard = keyboard
        self._asking = approval
        self._interrupts = interrupts
        self._shown: object = None
        self._whole: tuple[object, float] | None = None
        screen.has_commands = True

    async def run_until_left(self) -> None:
        """Read lines until /quit, Ctrl-D or two Ctrl-C."""
        talk = self.chat
        leaving = False
        while not talk.leaving:
            self._show_context()
            try:
                draft, talk.draft = talk.draft, ""
                line = await self._keyboard.read_line(draft)
            except InputClosed:
                break
            except InputInterrupted:
                if leaving:
                    break
                leaving = True
                self._hint("Press Ctrl-C again, or Ctrl-D, to leave.")
                continue
            leaving = False
            await self._handle_line(line)

    async def _handle_line(self, line: str) -> None:
        talk = self.chat
        if (command := parse_slash_command(line)) is not None:
            # What looks into a long log, or waits for a store, can be left as well.
            async def ended(stop: asyncio.Event) -> TurnFinished:
                try:
                    await TurnInterruption(stop).run(run_slash_command(talk, *command))
                except TurnStopped:
                    return TurnFinished(reason="stopped", calls=0)
                return TurnFinished(reason="done", calls=0)

            with suppress_terminal_echo():
                await self._run_interruptible(ended)
            talk.console.print()
        elif line.strip():
            await self._run_turn(line.strip())
        elif talk.session.window.is_reply_due:
            await self._run_turn(None)

    async def _run_interruptible(
        self, start: Callable[[asyncio.Event], Coroutine[Any, Any, TurnFinished]]
    ) -> ChatTurnOutcome:
        outcome = await run_interruptible_turn(self._interrupts, start, self.chat.agent.spec.model)
        if outcome.problem is not None:
            self._screen.print_message(outcome.problem.text, "error")
            self._screen.print_message(outcome.problem.prompt_hint)
        return outcome

    async def _run_turn(self, text: str | None) -> None:
        talk = self.chat
        screen = self._screen
        message = None if text is None else {"role": "user", "content": text}
        window = talk.session.window
        before = window.seq
        summary_end = window.summary.last if window.summary is not None else 0

        async def turn(stop: asyncio.Event) -> TurnFinished:
            return await talk.agent.run_turn(
                talk.session,
                message,
                stop=stop,
                wait=None,  # a chat holds its session until it ends
                on_event=screen.on_event,
                confirm_rerun=self._asking.confirm_rerun,
            )

        screen.waiting_for = f"waiting for {talk.agent.spec.model.name}"
        screen.begin_turn()
        with suppress_terminal_echo():
            async with screen.show_status_while_waiting():
                outcome = await self._run_interruptible(turn)
            await self._show_outcome(outcome)
            screen.end_with_blank_line()
            await self._note_hidden(before, summary_end)

    async def _show_outcome(self, outcome: ChatTurnOutcome) -> None:
        if outcome.stopped:
            calls = outcome.ended.cut_off_tools if outcome.ended is not None else 0
            state = "Everything up to here is kept"
            if calls:
                state = f"{format_count(calls, 'tool call')} did not finish"
            self._screen.print_message(
                f"Stopped. {state}. Your next message continues from here.",
                "note",
            )
        elif outcome.ended is not None and outcome.ended.reason == "iterations":
            most = self.chat.agent.spec.session.max_tool_iterations
            self._screen.print_message(
                f"Stopped after {format_count(most, 'round')} of tool calls (max_tool_iterations). "
                "Press Enter to continue.",
                "note",
            )
        elif outcome.ended is not None and outcome.ended.cost_ceiling is not None:
            self._screen.print_message(
                describe_chat_cost_ceiling(outcome.ended.cost_ceiling), "error"
            )

    async def _note_hidden(self, before: int, summary_end: int) -> None:
        """Remember what the turn has hidden, and print it now if the bar will not show it."""
        session = self.chat.session
        try:
            totals = await total_hidden_since_by_edit_kind(
                session.store,
                session.id,
                session.window,
                before,
                already_summarised_until=summary_end,
            )
        except StoreError:
            return
        if totals:
            self.chat.hidden = totals
            if not self._worth_showing():
                show_newly_hidden(totals, self.chat.console)

    def _worth_showing(self) -> bool:
        thresholds = self.chat.agent.spec.session.thresholds
        return self.chat.session.report().share > thresholds.display

    def _show_context(self) -> None:
        """Draw the bar if it has changed, or one line if it has changed little."""
        talk = self.chat
        report = self.chat.session.report()
        thresholds = talk.agent.spec.session.thresholds
        what = (
            talk.session.id,
            report.limit,
            tuple(talk.hidden),
            classify_fill_level(report, thresholds),
        )
        now = (what, report.used)
        if not self._worth_showing():
            self._whole = None
        elif self._needs_whole_bar(what, report.share):
            show_context_bar(report, talk.hidden, thresholds, talk.console)
            self._whole = (what, report.share)
        elif now != self._shown:
            show_context_line(report, thresholds, talk.console)
        self._shown = now

    def _needs_whole_bar(self, state: object, share: float) -> bool:
        """Return whether one line would not show enough."""
        return (
            self._whole is None
            or state != self._whole[0]
            or abs(share - self._whole[1]) > REDRAW_SHARE_CHANGE
        )

    def _hint(self, text: str) -> None:
        self.chat.console.print(Text(escape_control_characters(text), "dim"))

    async def show_greeting(self, *, is_resumed: bool) -> None:
        """Show which session this is, and the last exchange if it is an old one."""
        talk = self.chat
        window = talk.session.window
        spec = talk.agent.spec
        self._print_line(f"{spec.name} · {spec.model.name} · session {talk.session.id}", "bold")
        if note := describe_keep_results_without_policy(spec):
            self._hint(f"{note}.")
        if not is_resumed:
            self._hint("/help lists the commands; Ctrl-D leaves.\n")
            return
        # What was written at the opening, such as other settings, is no message.
        position = max(window.entries, default=window.seq)
        store = talk.session.store
        last = [event async for event in store.events(talk.session.id, [(position, position)])]
        when = format_age(last[0].at) if last else ""
        message_count = window.conversation.total_messages
        self._hint(f"{format_count(message_count, 'message')} so far, the last {when}.")
        talk.hidden = await total_hidden_by_last_turn(store, talk.session.id, window)
        self._show_last_exchange(window)
        if holder := await _find_other_writer(talk.session):
            self._print_line(
                f"\nProcess {holder} has this session open, and only one process may write to it. "
                "End that process before you send a message here, or continue in a copy: /fork.",
                "yellow",
            )
        elif cut := describe_interrupted_turn(window):
            self._print_line(
                f"\n{cut} Press Enter to continue it, or type something else.", "yellow"
            )
        talk.console.print()

    def _show_last_exchange(self, window: Window) -> None:
        entries = list(window.entries.values())
        newest_by_role = {
            entry.message.role: entry for entry in entries if entry.message.text.strip()
        }
        user = newest_by_role.get("user")
        reply = newest_by_role.get("assistant")
        if user is not None:
            self._print_line(f"\n> {shorten_to_line(user.message.text, MAX_RECAP_CHARS)}", "dim")
        if reply is not None and (user is None or reply.seq > user.seq):
            self._print_line(shorten_to_line(reply.message.text, 2 * MAX_RECAP_CHARS), "dim")

    def _print_line(self, text: str, style: str) -> None:
        self.chat.console.print(Text(escape_control_characters(text), style))


async def _find_other_writer(session: Session) -> str | None:
    """Return another process that writes to the session. None if the store cannot tell."""
    look: Any = getattr(session.store, "held_by", None)
    return None if look is None else await look(session.id)


def describe_interrupted_turn(window: Window) -> str:
    """Return how the last turn was interrupted, or nothing if it ended normally."""
    if waiting := window.conversation.open_calls():
        names = ", ".join(dict.fromkeys(pairing.name for pairing in waiting))
        if window.accounting.started_tool_keys:
            return (
                f"The last turn was interrupted while {escape_control_characters(names)} was "
                "running; processes that it started may still run outside the chat."
            )
        return f"The last turn was interrupted before {escape_control_characters(names)} could run."
    if window.is_reply_due:
        return "The last turn was interrupted before the model answered."
    return ""
