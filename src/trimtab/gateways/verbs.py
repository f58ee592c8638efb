"""What a person may ask of a session in a chat, whatever the platform: in words and a picture."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields
from functools import partial

from trimtab.core.message import text_message
from trimtab.core.policies.asked import asked
from trimtab.core.policies.knobs import knobs_from
from trimtab.core.rejected import undoing
from trimtab.dialects.media import softened_message
from trimtab.gateways.picture import picture
from trimtab.session import Session
from trimtab.session.audit import SAID_OF
from trimtab.worker.service import Service

PATIENCE = 5.0
"""Seconds that a verb waits for the turn that runs; meanwhile the chat may wait as well."""
BAR = 22
"""Characters of the bar in a text: what a phone shows on one line."""
QUOTED_BRIEFLY = 60
"""Characters of a text that `undo` shows."""
QUOTED = 600
"""Characters of a text that `why` shows."""
BUSY = "I am still at work here, and stop after this step. Say it again in a moment."
NOTHING = "Nothing was said here yet."
STOPS = "I stop after this step."
NOT_HERE = "Nothing is running that I know of; if it is, it stops after its step."
SMALLEST = "There is nothing to make smaller: the newest messages always stay."


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """Something that can be asked."""

    help: str
    """What it is for."""
    takes: str = ""
    """What stands behind its name."""


VERBS = {
    "help": Verb(help="this list"),
    "reset": Verb(help="begin anew; what was said stays in the log"),
    "undo": Verb(help="take back your last message and all that followed it"),
    "context": Verb(help="how full my context is, and of what"),
    "compact": Verb(help="make my context smaller now"),
    "why": Verb(takes="HANDLE", help="why I see something as I do, such as m12"),
    "stop": Verb(help="end what I am doing after this step"),
}
"""By name, without the slash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What is answered."""

    text: str
    """In words; empty where it was told before."""
    columns: bool = False
    """Whether the words stand in columns, and want letters of one width."""
    picture: bytes | None = None
    """The same as a PNG, where there is one."""


class _Busy(Exception):
    """A turn runs and does not end soon."""


async def obeyed(service: Service, session: str, verb: str, rest: str, *, key: str) -> Told:
    """Do what somebody asks for in a session; what cannot be done is told in words.

    The key is the request's own: one that is told twice is not done twice. Raises what the store
    does.
    """
    if verb == "help":
        return Told(text=help_of(VERBS))
    if verb == "stop":
        runs = service.stop(session)
        return Told(text=STOPS if runs else NOT_HERE)
    if not await service.store.position(session):
        return Told(text=SMALLEST if verb == "compact" else NOTHING)
    try:
        match verb:
            case "reset":
                return Told(text=await _reset(service, session, key))
            case "undo":
                return Told(text=await _undo(service, session, key))
            case "context":
                return await _context(service, session)
            case "compact":
                return Told(text=await _compact(service, session))
            case "why":
                return Told(text=await _why(service, session, rest))
            case _:
                raise ValueError(f"no command is called {verb!r}")
    except _Busy:
        return Told(text=BUSY)


def help_of(verbs: Mapping[str, Verb]) -> str:
    """What can be asked, a line each."""
    lines = (
        f"/{name}{f' {verb.takes}' if verb.takes else ''} – {verb.help}"
        for name, verb in verbs.items()
    )
    return "\n".join(lines)


async def _reset(service: Service, session: str, key: str) -> str:
    """Undo all: the log keeps it, and keys in it stay known."""
    service.stop(session)
    async with _alone(service, session) as opened:
        if await service.store.find_key(session, key) is not None:
            return ""  # done before, and something may have been said since
        async with opened.owned():
            await _take_in(service, opened)
            before = len(opened.window.entries)
            await _begin_anew(opened)
            # Twice, so that its key is in the log only when it is done.
            await opened.add(text_message("user", "/reset"), key=key)
            await _begin_anew(opened)
    hidden = f"{before} message{'' if before == 1 else 's'}"
    return f"We begin anew: I see none of the {hidden} before. They stay in the log."


async def _undo(service: Service, session: str, key: str) -> str:
    """Take back the newest message of the user and all behind it."""
    service.stop(session)
    async with _alone(service, session) as opened:
        if await service.store.find_key(session, key) is not None:
            return ""  # done before, and something may have been said since
        async with opened.owned():
            await _take_in(service, opened)
            user, said = opened.window.newest_user, opened.window.said
            first = undoing(opened.window)
            if user is None or first is None:
                return NOTHING
            text, to = " ".join(user.message.text.split()), first.seq - 1
            await opened.rewind(to)
            after = said - opened.window.said - 1
            # Twice, so that its key is in the log only when it is done.
            await opened.add(text_message("user", "/undo"), key=key)
            await opened.rewind(to)
    short = text if len(text) <= QUOTED_BRIEFLY else f"{text[:QUOTED_BRIEFLY]}…"
    more = f" and {after} message{'' if after == 1 else 's'} with it" if after else ""
    return f"Taken back: “{short}”{more}. What tools did outside is not undone."


async def _take_in(service: Service, opened: Session) -> None:
    """Put into the log what still waits: it was said before, too."""
    last = 0
    while letters := await service.mail.pending(opened.id, after=last):
        for letter in letters:
            await opened.add(softened_message(letter.message, opened.takes), key=letter.key)
        last = letters[-1].number


async def _begin_anew(opened: Session) -> None:
    """Nothing that was said is seen any more; model, prompt and tools stay as they are now."""
    options = opened.options
    now = {one.name: getattr(options, one.name) for one in fields(options)}
    await opened.rewind(1)
    await opened.configure(**now)


async def _context(service: Service, session: str) -> Told:
    async with service.using(session) as opened:
        ledger = opened.report()
    drawn = await asyncio.to_thread(picture, ledger)
    return Told(text=ledger.drawn(BAR), columns=True, picture=drawn)


async def _compact(service: Service, session: str) -> str:
    async with _alone(service, session) as opened:
        before = opened.report().used
        await opened.apply_policy(partial(asked, knobs=knobs_from(opened.options.context)))
        now = opened.report().used
    if now >= before:
        return SMALLEST
    return f"{before:,} tokens are now {now:,}, {before - now:,} less. Nothing is lost."


async def _why(service: Service, session: str, rest: str) -> str:
    if not rest.strip():
        return "Say which: /why m12, or a handle that stands in a placeholder."
    async with service.using(session) as opened:
        try:
            found = await opened.why(rest.split(maxsplit=1)[0])
        except (LookupError, ValueError) as error:
            told = str(error.args[0] if error.args else error)
            return f"{told[:1].upper()}{told[1:]}."
    lines = [f"{found.handle} {SAID_OF[found.state]}."]
    if found.event is not None:
        lines.append(f"By event {found.event}{f': {found.why}' if found.why else ''}.")
    if found.text:
        short = found.text[:QUOTED]
        lines.append(f"It says:\n{short}{'…' if len(found.text) > len(short) else ''}")
    return "\n".join(lines)


@asynccontextmanager
async def _alone(service: Service, session: str) -> AsyncGenerator[Session]:
    """The session while no turn of this process runs in it."""
    async with service.using(session) as opened:
        try:
            async with asyncio.timeout(PATIENCE):
                await opened.turn.acquire()
        except TimeoutError:
            raise _Busy from None
        try:
            yield opened
        finally:
            opened.turn.release()
