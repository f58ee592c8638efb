"""The agentic loop: ask the model, run what it calls, ask again, until it has said its last word.

What to do next is read from the window, never kept beside it. So a turn that was cut off anywhere
goes on where the log ends: no reply that was recorded is asked for again, and no tool that was
started is run again unless it says that it may be.
"""

from __future__ import annotations

from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
)
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

from trimtab.core.window import Window
from trimtab.dialects import dialect
from trimtab.dialects.deltas import delta
from trimtab.dialects.dialect import Wire
from trimtab.providers.errors import read_event
from trimtab.providers.provider import CUT_SHORT, Provider, ProviderError
from trimtab.session.asking import Asking, next_request
from trimtab.session.happenings import Ended, Happening, Piece, Replied
from trimtab.session.recover import Recovery
from trimtab.session.session import Session
from trimtab.session.summarise import in_background, wait_for
from trimtab.session.summariser import Summariser
from trimtab.session.telling import CallClock, turn_told
from trimtab.session.tools import Ask, Tell, Tool, equip, run_open_calls

MAX_TOOL_ITERATIONS = 25
"""Replies with tool calls that one turn may have."""

OVERHEARD = "[the newest user message came while you were writing; reply to it now]"
"""What ends a request whose newest user message stands before the last reply."""


Between = Callable[[], Awaitable[bool]]
"""Awaited before each request: the moment to add what has come meanwhile. False ends the turn here,
with nothing lost: the next one goes on from the log."""

Later = Callable[[Session], Awaitable[None]]
"""Awaited behind a turn whose session wants a summary, where it is made elsewhere."""


def _ignore(_: Happening) -> None:
    pass


async def run_turn(
    session: Session,
    provider: Provider,
    tools: Iterable[Tool] | None = None,
    *,
    says: Any = None,
    key: str | None = None,
    tell: Tell = _ignore,
    ask: Ask | None = None,
    stream: bool = True,
    volatile: str | None = None,
    max_tool_iterations: int = MAX_TOOL_ITERATIONS,
    selected: Iterable[Tool] = (),
    summariser: Summariser | None = None,
    between: Between | None = None,
    later: Later | None = None,
) -> Ended:
    """Let the model answer what was said, with its tools; the one caller of models.

    `says` is added first, once under its `key`; a turn that runs already in this session answers
    it, too. Without `tools` the session keeps those it has; those `selected` are there for this
    turn alone, behind them. `tell` hears what happens. What is asked about a tool that was
    interrupted goes to `ask`. The `summariser` is asked after the turn, in the background, and
    before a call only where there is no other way; with `later` that decides when.
    """
    named = None if tools is None else {tool.name: tool for tool in tools}
    chosen = {tool.name: tool for tool in selected}
    if says is not None:
        await session.add(says, key=key, owned=False)
    async with session.turn, turn_told(session, tell), _claimed(session):
        await equip(session, named, chosen)
        if summariser is not None:
            await wait_for(session, summariser)
        calls = rounds = 0
        stopped = False
        while True:
            rounds += 1 if session.window.open_calls() or paused(session.window) else 0
            await run_open_calls(session, {**chosen, **(named or {})}, tell, ask)
            if between is not None and (stopped := not await between()):
                break
            if not wants_reply(session.window) or rounds >= max_tool_iterations:
                break
            how = Asking(stream=stream, summariser=summariser, tell=tell)
            await _reply(session, provider, how, volatile)
            calls += 1
    why = "done" if not wants_reply(session.window) else "stopped" if stopped else "iterations"
    ended = Ended(why=why, calls=calls)
    tell(ended)
    if summariser is not None:
        await _summarise_behind(session, summariser, tell, later)
    return ended


@asynccontextmanager
async def _claimed(session: Session) -> AsyncGenerator[None]:
    """A turn of our own, which is ended in the log unless it fails: then it can be gone on with."""
    epoch = await session.claim()
    try:
        try:
            yield
        except ProviderError as error:
            # Whoever goes on with turns that were left open would only send the same again.
            if error.failure.kind != "rejected":
                raise
            await session.end()
            raise
        await session.end()
    finally:
        # What is said after a turn that failed is no part of it: no successor need be feared.
        if session.epoch == epoch:
            session.epoch = None


async def _summarise_behind(
    session: Session, summariser: Summariser, tell: Tell, later: Later | None
) -> None:
    """Let a summary be made behind a turn, here or elsewhere."""
    if later is None:
        session.in_background(in_background(session, summariser, tell))
    elif not summariser.only_results and session.wanted_summary() is not None:
        await later(session)


def wants_reply(window: Window) -> bool:
    """Whether something was said, or a tool has answered, that the model has not replied to."""
    if not window.rounds:
        return False
    last = window.rounds[-1]
    said = last.entries[-1].message.role != "assistant"
    return bool(last.calls) or said or paused(window) or overheard(window)


def paused(window: Window) -> bool:
    """Whether the last reply is one that its provider goes on with when it is sent back."""
    return bool(window.rounds) and window.rounds[-1].paused


def overheard(window: Window) -> bool:
    """Whether the newest user message came while the model was writing its last reply."""
    user, call = window.newest_user, window.last_call
    replied = bool(window.rounds) and window.rounds[-1].entries[-1].message.role == "assistant"
    return replied and user is not None and call is not None and user.seq > call.body.position


async def _reply(session: Session, provider: Provider, how: Asking, volatile: str | None) -> None:
    """One reply of the model, recorded; what fails on the way is recovered from, if it can be."""
    recovery, tell = Recovery(whole=not how.stream), how.tell
    if paused(session.window):
        volatile = None  # what goes on with its own last word must end with it
    elif overheard(session.window):
        volatile = f"{volatile}\n\n{OVERHEARD}" if volatile else OVERHEARD
    while True:
        how = replace(how, stream=not recovery.whole)
        request = await next_request(session, how, volatile)
        clock = CallClock(session)
        try:
            reply = await _send(provider, request, tell, recovery)
            failure = recovery.found(session, reply)
        except ProviderError as error:
            reply, failure = None, error.failure
        clock.stop()
        if reply is not None and failure is None:
            await session.add(reply)
            tell(clock.ended())
            entry = session.window.rounds[-1].entries[0]
            tell(Replied(message=entry.message, usage=session.window.last_usage))
            return
        assert failure is not None  # noqa: S101 - there is one or the other
        tell(clock.ended(failure.kind))
        await recovery.after(session, failure)
        for told in recovery.told:
            tell(told)
        recovery.told.clear()


async def _send(
    provider: Provider, request: Mapping[str, Any], tell: Tell, recovery: Recovery
) -> Wire:
    """The whole reply, its pieces told as they come."""
    gathering = dialect(provider.dialect).gather()
    recovery.began = False
    async with _closed(provider.send(request)) as events:
        async for event in events:
            if not request.get("stream"):
                return event
            if (failure := read_event(event)) is not None:
                raise ProviderError(failure)
            recovery.began = True
            gathering.feed(event)
            if (piece := delta(event)) is not None:
                tell(Piece(kind=piece[0], text=piece[1]))
    reply = gathering.reply()
    if reply is None:
        raise ProviderError(CUT_SHORT)
    return reply


@asynccontextmanager
async def _closed(events: AsyncIterator[Wire]) -> AsyncGenerator[AsyncIterator[Wire]]:
    """The events, with whatever they hold given back at the end, however it comes."""
    try:
        yield events
    finally:
        if hasattr(events, "aclose"):
            await cast("Any", events).aclose()
