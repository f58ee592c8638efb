"""One question and its answer: for pipes, and for those who want no conversation."""

from __future__ import annotations

import sys

from rich.console import Console

from trimtab.agent.permissions import Answer, Approve, Question
from trimtab.cli.chat.asking import Asking
from trimtab.cli.chat.screen import Screen
from trimtab.cli.chat.talk import Talk
from trimtab.cli.chat.turning import Interrupts, taken
from trimtab.cli.storing import raw
from trimtab.cli.words import brief
from trimtab.core.event import Edit, Said
from trimtab.session.happenings import Ended, Happening, Piece, Replied
from trimtab.session.stopping import close_calls

FAILED = 1
STOPPED = 130


class Once:
    """Draws a turn where people look, and keeps its last words for standard output."""

    def __init__(self, screen: Screen, *, streams: bool) -> None:
        self._screen = screen
        self._streams = streams
        self.reply = ""

    def tell(self, happening: Happening) -> None:
        """Draw it; of the reply nothing is passed on that could become void."""
        match happening:
            case Replied(message=message):
                if not self._streams and message.calls and message.text:
                    self._screen.say(message.text)
                self.reply = "" if message.calls else message.text
            case Piece() if not self._streams:
                return
            case _:
                pass
        self._screen.tell(happening)


async def once(talk: Talk, says: str | None, interrupts: Interrupts, asking: Asking | None) -> int:
    """Answer one question; returns the exit status."""
    streams = sys.stdout.isatty()
    screen = Screen(talk.console, live=streams or sys.stderr.isatty())
    watched = Once(screen, streams=streams)
    said = None if says is None else {"role": "user", "content": says}
    before = talk.session.window.seq

    async def turn() -> Ended:
        ask = None if asking is None else asking.again
        return await talk.agent.turn(talk.session, said, tell=watched.tell, ask=ask)

    screen.waiting_for = f"waiting for {talk.agent.spec.model.name}"
    async with screen.watching():
        outcome = await taken(interrupts, turn, talk.agent.spec.model)
    screen.end_line()
    if outcome.stopped:
        await close_calls(talk.session)
        screen.say("Stopped.", "note")
        return STOPPED
    if outcome.trouble is not None:
        screen.say(f"{outcome.trouble.text} {outcome.trouble.later}", "error")
        return FAILED
    if cut := await _cut(talk, before):
        screen.say(cut, "note")
    if watched.reply and not streams:
        raw(watched.reply if watched.reply.endswith("\n") else f"{watched.reply}\n")
    if outcome.ended is not None and outcome.ended.why == "iterations":
        most = talk.agent.spec.session.max_tool_iterations
        told = f"Stopped after {most} rounds of tool calls"
        more = "set a larger `max_tool_iterations` under `session` in agent.yaml, or go on"
        screen.say(f"{told}; {more}.", "error")
        return FAILED
    return 0


async def _cut(talk: Talk, before: int) -> str | None:
    """What to say where the question itself was cut, since the log stood at `before`."""
    session, asked, size = talk.session, 0, 0
    async for event in session.store.events(session.id, [(before + 1, None)]):
        match event.body:
            case Said(message=message, sizes=sizes) if not asked and message.role == "user":
                asked, size = event.seq, sum(part.tokens for part in sizes)
            case Edit(op="truncate", first=first) as edit if first == asked:
                return (
                    f"The question has {size:,} tokens and the window {session.budget().limit:,}: "
                    f"the model was shown {edit.size.tokens:,} of it. Put what is long into a file "
                    "that a tool reads, or choose a model with a larger window in agent.yaml."
                )
            case _:
                pass
    return None


def nobody_on(console: Console) -> Approve:
    """Whoever is asked where nobody sits: says just that, and shows what was not run."""

    async def refuse(question: Question) -> Answer:
        why = f"{brief(question.why, 300)}; " if question.why else ""
        console.print(
            f"{question.tool} was not run, for nobody can be asked: {brief(question.text, 200)} "
            f"({why}put it under `allow` of this tool in agent.yaml)",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
        return "nobody"

    return refuse
