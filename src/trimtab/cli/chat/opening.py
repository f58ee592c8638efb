"""From what was typed to a chat that runs: which agent, which session, which way to talk."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text

from trimtab.agent.agent import Agent, redact_of, running
from trimtab.agent.permissions import Approve
from trimtab.agent.reading import read_agent
from trimtab.agent.spec import Spec
from trimtab.cli.chat import FILE, lines
from trimtab.cli.chat.asking import Asking
from trimtab.cli.chat.naming import new_id, newest
from trimtab.cli.chat.once import nobody_on, once
from trimtab.cli.chat.piped import piped
from trimtab.cli.chat.screen import Screen
from trimtab.cli.chat.talk import Talk, leave
from trimtab.cli.chat.turning import Interrupts
from trimtab.cli.storing import PIPED, friendly
from trimtab.cli.words import plain
from trimtab.providers.retrying import Waits, unheard
from trimtab.stores.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What was typed."""

    question: str | None
    """The one question; None for a conversation."""
    file: Path
    """The agent's."""
    go_on: bool
    """Whether the newest session is meant."""
    session: str | None
    """The session's id."""
    as_json: bool
    """Whether a program reads it."""

    @property
    def options(self) -> str:
        """What must be typed again so that the same agent is found."""
        return "" if self.file == FILE else f" --agent {shlex.quote(str(self.file))}"


def start(wanted: Wanted) -> int:
    """Run it to its end; returns the exit status."""
    interrupts = Interrupts()
    try:
        with lines.friendly() if wanted.as_json else friendly():
            if wanted.go_on and wanted.session is not None:
                raise ValueError(
                    "--continue means the newest session and --session another: choose"
                )
            spec = read_agent(wanted.file)
            return asyncio.run(_open(wanted, spec, interrupts))
    except asyncio.CancelledError:
        return 128 + (interrupts.signal or 0)


async def _open(wanted: Wanted, spec: Spec, interrupts: Interrupts) -> int:
    with interrupts.installed():
        if wanted.as_json:
            return await _lines(wanted, spec, interrupts)
        if wanted.question is None and sys.stdin.isatty() and sys.stdout.isatty():
            return await _conversation(wanted, spec, interrupts)
        return await _once(wanted, spec, interrupts)


async def _conversation(wanted: Wanted, spec: Spec, interrupts: Interrupts) -> int:
    # A pipe does not wait for what only a terminal needs.
    from trimtab.cli.chat.chatting import Chatting
    from trimtab.cli.chat.commands import COMMANDS
    from trimtab.cli.chat.keyboard import Keyboard, history_in, silent

    screen = Screen(Console())
    history = history_in(os.environ, redact_of(spec))
    keyboard = Keyboard([f"/{name}" for name in COMMANDS], history)
    asking = Asking(screen, keyboard.choose, interrupts.stop)

    async def converse(talk: Talk, made: bool) -> int:
        talk.forget = keyboard.forget
        chatting = Chatting(talk, screen, keyboard, asking, interrupts)
        await chatting.greet(known=not made)
        interrupts.ignored = True
        await chatting.run()
        return 0

    # From the first moment on: an Enter that is typed before the first prompt is one.
    with silent():
        keyboard.ahead()
        return await _with_talk(
            wanted, spec, asking.approve, screen.console, converse, waits=screen.waits
        )


async def _once(wanted: Wanted, spec: Spec, interrupts: Interrupts) -> int:
    console = Console() if sys.stdout.isatty() else _stderr()
    says = await _question(wanted, console)
    asking: Asking | None = None
    approve = nobody_on(console)
    if sys.stdin.isatty() and console.is_terminal:
        from trimtab.cli.chat.keyboard import Keyboard

        asking = Asking(Screen(console), Keyboard(()).choose, interrupts.stop)
        approve = asking.approve

    async def ask(talk: Talk, made: bool) -> int:
        if says is None and (made or not talk.session.window.said):
            raise ValueError("nothing was asked; give a question, or pipe one in")
        return await once(talk, says, interrupts, asking)

    return await _with_talk(wanted, spec, approve, console, ask)


async def _lines(wanted: Wanted, spec: Spec, interrupts: Interrupts) -> int:
    async def answer(talk: Talk, made: bool) -> int:
        del made
        return await lines.answer_lines(talk, wanted.question, interrupts)

    return await _with_talk(wanted, spec, lines.refuse, _stderr(), answer)


async def _with_talk(
    wanted: Wanted,
    spec: Spec,
    approve: Approve,
    console: Console,
    do: Callable[[Talk, bool], Awaitable[int]],
    *,
    waits: Waits = unheard,
) -> int:
    folder = wanted.file.resolve().parent
    async with running(spec, folder, approve=approve, waits=waits) as agent:
        talk, made = await _taken_up(agent, wanted, console)
        try:
            return await do(talk, made)
        finally:
            said = bool(talk.session.window.said)
            await leave(talk, made=made)
            if said and not wanted.as_json:
                _say_again(talk)


async def _taken_up(agent: Agent, wanted: Wanted, console: Console) -> tuple[Talk, bool]:
    session = wanted.session or await _chosen(agent.store, wanted)
    made = not await agent.store.position(session)
    talk = Talk(
        agent=agent,
        session=await agent.session(session),
        console=console,
        options=wanted.options,
    )
    return talk, made


async def _chosen(store: Store, wanted: Wanted) -> str:
    if not wanted.go_on:
        return new_id()
    found = await newest(store)
    if found is None:
        raise LookupError("there is no session to go on with yet; begin one: trimtab chat")
    return found.session


def _say_again(talk: Talk) -> None:
    # The terminal may be gone: that is how a chat ends, too.
    with suppress(OSError):
        told = Text("To go on: ", "dim")
        told.append(plain(talk.again()), "bold")
        _stderr_or(talk.console).print(told, soft_wrap=True)


def _stderr_or(console: Console) -> Console:
    return console if console.is_terminal else _stderr()


def _stderr() -> Console:
    """Where all goes that is no answer."""
    if sys.stderr.isatty():
        return Console(stderr=True)
    return Console(stderr=True, color_system=None, force_terminal=False, width=PIPED)


async def _question(wanted: Wanted, console: Console) -> str | None:
    """What is asked: the argument, what is piped in, or both, one under the other."""
    given = ""
    if sys.stdin.isatty() and wanted.question is None:
        console.print("Type the question; Ctrl-D ends it.", style="dim")
    if not sys.stdin.isatty() or wanted.question is None:
        given = (await piped()).strip()
    return "\n\n".join(part for part in (wanted.question, given) if part) or None
