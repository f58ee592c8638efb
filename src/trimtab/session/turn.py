"""The agentic loop: ask the model, run what it calls, ask again, until it has said its last word.

What to do next is read from the window, never kept beside it. So a turn that was cut off anywhere
goes on where the log ends: no reply that was recorded is asked for again, and no tool that was
started is run again unless it says that it may be.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

from trimtab.core.budget import quarter
from trimtab.core.policies.compact import TUNING
from trimtab.core.window import Window
from trimtab.dialects import dialect
from trimtab.dialects.deltas import delta
from trimtab.dialects.dialect import Wire
from trimtab.providers.errors import read_event, read_stop
from trimtab.providers.provider import Failure, Provider, ProviderError
from trimtab.providers.truncation import read_usage
from trimtab.session.happenings import Ended, Happening, Piece, Replied
from trimtab.session.recover import Recovery
from trimtab.session.session import Session
from trimtab.session.tools import Ask, Tell, Tool, run_open_calls

MAX_TOOL_ITERATIONS = 25
"""Replies with tool calls that one turn may have."""

OVERHEARD = "[the newest user message came while you were writing; reply to it now]"
"""What ends a request whose newest user message stands before the last reply."""

log = logging.getLogger("trimtab.turn")


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
) -> Ended:
    """Let the model answer what was said, with its tools; the one caller of models.

    `says` is added first, once under its `key`; a turn that runs already in this session answers
    it, too. Without `tools` the session keeps those it has. `tell` hears what happens. What is
    asked about a tool that was interrupted goes to `ask`.
    """
    known = {tool.name: tool for tool in tools or ()}
    if says is not None:
        await session.add(says, key=key)
    async with session.turn:
        epoch = await session.claim()
        try:
            if tools is not None:
                await session.equip([tool.definition for tool in known.values()])
            calls = rounds = 0
            while True:
                if session.window.open_calls():
                    await run_open_calls(session, known, tell, ask)
                    rounds += 1
                if not wants_reply(session.window) or rounds >= max_tool_iterations:
                    break
                await _reply(session, provider, tell, stream=stream, volatile=volatile)
                calls += 1
            await session.end()
        finally:
            # What is said after a turn that failed is no part of it: no successor need be feared.
            if session.epoch == epoch:
                session.epoch = None
    ended = Ended(why="iterations" if wants_reply(session.window) else "done", calls=calls)
    tell(ended)
    return ended


def wants_reply(window: Window) -> bool:
    """Whether something was said, or a tool has answered, that the model has not replied to."""
    if not window.rounds:
        return False
    last = window.rounds[-1]
    return bool(last.calls) or last.entries[-1].message.role != "assistant" or overheard(window)


def overheard(window: Window) -> bool:
    """Whether the newest user message came while the model was writing its last reply."""
    user, call = window.newest_user, window.last_call
    replied = bool(window.rounds) and window.rounds[-1].entries[-1].message.role == "assistant"
    return replied and user is not None and call is not None and user.seq > call.body.position


async def _reply(
    session: Session, provider: Provider, tell: Tell, *, stream: bool, volatile: str | None
) -> None:
    """One reply of the model, recorded; what fails on the way is recovered from, if it can be."""
    recovery = Recovery()
    if overheard(session.window):
        volatile = f"{volatile}\n\n{OVERHEARD}" if volatile else OVERHEARD
    while True:
        request = await _request(session, stream=stream, volatile=volatile)
        try:
            reply = await _send(provider, request, tell, recovery)
            failure = _hidden_failure(session, reply)
        except ProviderError as error:
            reply, failure = None, error.failure
        if reply is not None and failure is None:
            await session.add(reply)
            entry = session.window.rounds[-1].entries[0]
            tell(Replied(message=entry.message, usage=session.window.last_usage))
            return
        assert failure is not None  # noqa: S101 - there is one or the other
        await recovery.after(session, failure)
        for told in recovery.told:
            tell(told)
        recovery.told.clear()


async def _request(session: Session, *, stream: bool, volatile: str | None) -> dict[str, Any]:
    """The next request, with the sizes before and after in the log file."""
    before = session.window.bytes
    limit = _bytes_limit(session)
    if before > limit:
        log.info(
            "Context size %d bytes exceeds limit %d, compacting old tool results...", before, limit
        )
    request = await session.request(stream=stream, volatile=volatile)
    now = session.window.bytes
    if now < before:
        saved = before - now
        log.info("Context compacted: %d bytes -> %d bytes (saved %d bytes)", before, now, saved)
    messages, tokens = session.window.messages, quarter(now)
    log.info("Calling AI with %d messages (~%d bytes, ~%d tokens)", messages, now, tokens)
    return request


def _bytes_limit(session: Session) -> int:
    """Bytes above which the context is made smaller, as far as one number can say it."""
    available = session.budget().available * 4
    options = session.options
    return min(TUNING[options.goal][0], available) if options.policy == "compact" else available


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
        raise ProviderError(Failure(kind="server", message="the stream ended before the reply did"))
    return reply


@asynccontextmanager
async def _closed(events: AsyncIterator[Wire]) -> AsyncGenerator[AsyncIterator[Wire]]:
    """The events, with whatever they hold given back at the end, however it comes."""
    try:
        yield events
    finally:
        if hasattr(events, "aclose"):
            await cast("Any", events).aclose()


def _hidden_failure(session: Session, reply: Wire) -> Failure | None:
    """What a reply that came says all the same: its window was full, or its request was cut."""
    if (failure := read_stop(reply)) is not None:
        return failure
    window = session.window
    usage = dialect(window.settings.dialect).read_reply(reply).usage
    if usage is None or window.last_call is None or window.settings.dialect != "openai_chat":
        return None
    estimate = int(window.last_call.body.tokens * min(1.0, window.ratio))
    return read_usage(estimate, usage, counter=window.counter.name)
