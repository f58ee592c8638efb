"""The chat at a terminal: a line, a turn, and again."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from rich.text import Text

from trimtab.agent.reading import note_on_masks
from trimtab.cli.chat.asking import Asking
from trimtab.cli.chat.commands import command_in, obey
from trimtab.cli.chat.display import level_of, show_context, show_hidden, show_line
from trimtab.cli.chat.keyboard import Interrupted, Keyboard, Left, silent
from trimtab.cli.chat.screen import Screen
from trimtab.cli.chat.talk import Talk
from trimtab.cli.chat.turning import Interrupts, Outcome, taken
from trimtab.cli.words import age, brief, counted, plain
from trimtab.core.window import Window
from trimtab.session import Session
from trimtab.session.happenings import Ended
from trimtab.session.hiding import hidden_last, hidden_since
from trimtab.session.stopping import close_calls
from trimtab.session.turn import wants_reply
from trimtab.stores.errors import StoreError

WORDS = 200
"""Characters of the last exchange that are shown again."""
POINTS = 0.05
"""Of the window, by which its use must have changed for the whole bar to be drawn again."""


class Chatting:
    """Reads lines and draws turns until the person leaves."""

    def __init__(
        self,
        talk: Talk,
        screen: Screen,
        keyboard: Keyboard,
        asking: Asking,
        interrupts: Interrupts,
    ) -> None:
        self.talk = talk
        self._screen = screen
        self._keyboard = keyboard
        self._asking = asking
        self._interrupts = interrupts
        self._shown: object = None
        self._whole: tuple[object, float] | None = None
        screen.commands = True

    async def run(self) -> None:
        """Until /quit, Ctrl-D or twice Ctrl-C."""
        talk, leaving = self.talk, False
        while not talk.leaving:
            self._show_context()
            try:
                draft, talk.draft = talk.draft, ""
                line = await self._keyboard.line(draft)
            except Left:
                break
            except Interrupted:
                if leaving:
                    break
                leaving = True
                self._hint("Ctrl-C once more, or Ctrl-D, leaves.")
                continue
            leaving = False
            await self._take(line)

    async def _take(self, line: str) -> None:
        talk = self.talk
        if (command := command_in(line)) is not None:
            # What looks into a long log, or waits for a store, can be left as well.
            async def ended() -> Ended:
                await obey(talk, *command)
                return Ended(why="done", calls=0)

            with silent():
                await self._run(ended)
            talk.console.print()
        elif line.strip():
            await self._turn(line.strip())
        elif wants_reply(talk.session.window):
            await self._turn(None)

    async def _run(self, doing: Callable[[], Coroutine[Any, Any, Ended]]) -> Outcome:
        outcome = await taken(self._interrupts, doing, self.talk.agent.spec.model)
        if outcome.trouble is not None:
            self._screen.say(outcome.trouble.text, "error")
            self._screen.say(outcome.trouble.next)
        return outcome

    async def _turn(self, says: str | None) -> None:
        talk, screen = self.talk, self._screen
        said = None if says is None else {"role": "user", "content": says}
        window = talk.session.window
        before, covered = window.seq, window.summary.last if window.summary is not None else 0

        async def turn() -> Ended:
            how = {"tell": screen.tell, "ask": self._asking.again}
            return await talk.agent.turn(talk.session, said, **how)

        screen.waiting_for = f"waiting for {talk.agent.spec.model.name}"
        screen.begin()
        with silent():
            async with screen.watching():
                outcome = await self._run(turn)
            await self._tell(outcome)
            screen.gap()
            await self._look_back(before, covered)

    async def _tell(self, outcome: Outcome) -> None:
        if outcome.stopped:
            calls = await close_calls(self.talk.session)
            told = "The reply that had begun is not kept"
            if calls:
                told = f"{counted(calls, 'tool call')} did not finish"
            self._screen.say(
                f"Stopped. {told}. Your next message goes on from here; Enter alone lets the "
                "model go on.",
                "note",
            )
        elif outcome.ended is not None and outcome.ended.why == "iterations":
            most = self.talk.agent.spec.session.max_tool_iterations
            self._screen.say(
                f"Stopped after {counted(most, 'round')} of tool calls (max_tool_iterations). "
                "Enter lets it go on.",
                "note",
            )

    async def _look_back(self, before: int, covered: int) -> None:
        """What the turn has hidden; it is told now where the bar does not tell it."""
        session = self.talk.session
        try:
            hidden = await hidden_since(
                session.store, session.id, session.window, before, covered=covered
            )
        except StoreError:
            return
        if hidden:
            self.talk.hidden = hidden
            if not self._worth_showing():
                show_hidden(hidden, self.talk.console)

    def _worth_showing(self) -> bool:
        thresholds = self.talk.agent.spec.session.thresholds
        return self.talk.session.report().share > thresholds.display

    def _show_context(self) -> None:
        """The bar, wherever it is not what was seen last; one line where little has changed."""
        talk, report = self.talk, self.talk.session.report()
        thresholds = talk.agent.spec.session.thresholds
        what = (talk.session.id, report.limit, tuple(talk.hidden), level_of(report, thresholds))
        now = (what, report.used)
        if not self._worth_showing():
            self._whole = None
        elif self._changed(what, report.share):
            show_context(report, talk.hidden, thresholds, talk.console)
            self._whole = (what, report.share)
        elif now != self._shown:
            show_line(report, thresholds, talk.console)
        self._shown = now

    def _changed(self, what: object, share: float) -> bool:
        """Whether the bar that was drawn last tells too little."""
        return self._whole is None or what != self._whole[0] or abs(share - self._whole[1]) > POINTS

    def _hint(self, text: str) -> None:
        self.talk.console.print(Text(plain(text), "dim"))

    async def greet(self, *, known: bool) -> None:
        """Where the person is: a new session, or what was said last in an old one."""
        talk = self.talk
        window, spec = talk.session.window, talk.agent.spec
        self._line(f"{spec.name} · {spec.model.name} · session {talk.session.id}", "bold")
        if note := note_on_masks(spec):
            self._hint(f"{note}.")
        if not known:
            self._hint("/help lists the commands; Ctrl-D leaves.\n")
            return
        # What was written at the opening, such as other settings, is no message.
        position, store = max(window.entries, default=window.seq), talk.session.store
        last = [event async for event in store.events(talk.session.id, [(position, position)])]
        when = age(last[0].at) if last else ""
        self._hint(f"{counted(window.said, 'message')} so far, the last {when}.")
        talk.hidden = await hidden_last(store, talk.session.id, window)
        self._show_last(window)
        if holder := await _holder(talk.session):
            self._line(
                f"\nProcess {holder} has this session open and alone may write to it. End that "
                "one before you say something here, or go on in a copy: /fork.",
                "yellow",
            )
        elif cut := cut_off(window):
            self._line(f"\n{cut} Enter goes on with it; or say something else.", "yellow")
        talk.console.print()

    def _show_last(self, window: Window) -> None:
        entries = list(window.entries.values())
        said = {entry.message.role: entry for entry in entries if entry.message.text.strip()}
        user, reply = said.get("user"), said.get("assistant")
        if user is not None:
            self._line(f"\n> {brief(user.message.text, WORDS)}", "dim")
        if reply is not None and (user is None or reply.seq > user.seq):
            self._line(brief(reply.message.text, 2 * WORDS), "dim")

    def _line(self, text: str, style: str) -> None:
        self.talk.console.print(Text(plain(text), style))


async def _holder(session: Session) -> str | None:
    """Another process that writes to the session; None where the store does not tell."""
    look: Any = getattr(session.store, "held_by", None)
    return None if look is None else await look(session.id)


def cut_off(window: Window) -> str:
    """In what state the last turn was left, if it did not end; else nothing."""
    if waiting := window.open_calls():
        names = ", ".join(dict.fromkeys(pairing.name for pairing in waiting))
        if window.started:
            return (
                f"The last turn was cut off while {plain(names)} was running; what it began may "
                "still run outside of the chat."
            )
        return f"The last turn was cut off before {plain(names)} could run."
    if wants_reply(window):
        return "The last turn was cut off before the model had answered."
    return ""
