"""What a person does to a session besides talking."""

from __future__ import annotations

from functools import partial

from trimtab.core.policies.asked import asked as smaller
from trimtab.core.policies.knobs import knobs_from
from trimtab.core.rejected import undoing
from trimtab.gateways.http.answers import Compacted, Created, Erased, Undone
from trimtab.gateways.http.asking import Asked, Reply
from trimtab.gateways.http.problems import Problem
from trimtab.gateways.http.sessions import new_name, refuse_running, runs_elsewhere, where
from trimtab.session.hiding import hidden_since
from trimtab.session.session import Session
from trimtab.stores.errors import NoSession, PositionTaken


async def compact(asked: Asked) -> Reply:
    """Make the context smaller now; nothing is lost."""
    session = await asked.known()
    async with asked.service.using(session) as opened:
        window = opened.window
        before, position = opened.report().used, window.seq
        covered = window.summary.last if window.summary is not None else 0
        knobs = knobs_from(opened.options.context)
        await opened.apply_policy(partial(smaller, knobs=knobs))
        now = opened.report().used
        hidden = await hidden_since(opened.store, session, opened.window, position, covered=covered)
    asked.offer.hubs.wake(session)
    return Reply(value=Compacted(before=before, after=now, hidden=hidden))


async def undo(asked: Asked) -> Reply:
    """Take back the newest message of the user and all behind it, or more."""
    session = await asked.known()
    async with asked.service.using(session) as opened:
        refuse_running(opened.turn.locked(), asked)
        async with opened.turn:
            refuse_running(await runs_elsewhere(asked.service.mail, opened), asked)
            told = await _taken_back(opened, asked.body.to)
    asked.offer.hubs.wake(session)
    return Reply(value=told)


async def erase(asked: Asked) -> Reply:
    """Destroy a message, and all that was made from it."""
    session = await asked.known()
    try:
        done = await asked.service.erase(session, asked.body.handle, why=asked.body.why)
    except NoSession:
        raise
    except LookupError as error:
        raise Problem("not-found", str(error)) from None
    asked.offer.hubs.wake(session)
    prefix = session.removesuffix(asked.path["session"])
    forks = [fork.removeprefix(prefix) for fork in done.forks if fork.startswith(prefix)]
    return Reply(value=Erased(handles=[*done.handles], forks=forks))


async def fork(asked: Asked) -> Reply:
    """A new session that shares the past of this one."""
    session = await asked.known()
    address = asked.address(asked.body.name or new_name())
    at: int | None = asked.body.at
    async with asked.service.using(session) as opened:
        last = opened.window.seq
        if at is not None and at > last:
            raise Problem("invalid", f"at is {at}; positions go from 1 to {last}")
        if await opened.store.position(str(address)):
            raise _exists(address.name)
        try:
            made = await opened.fork(str(address), at=at)
        except PositionTaken:
            raise _exists(address.name) from None
        position = made.window.seq
        await made.close()
    told = Created(agent=address.agent, name=address.name, position=position)
    return Reply(value=told, status=201, headers={"Location": where(address)})


async def _taken_back(opened: Session, handle: str | None) -> Undone:
    to = _back_to(opened, handle)
    if to is None:
        return Undone(to=opened.window.seq, messages=0, text="")
    after = [entry for seq, entry in opened.window.entries.items() if seq > to]
    text = next((entry.message.text for entry in after if entry.message.role == "user"), "")
    said = opened.window.said
    async with opened.owned():
        await opened.rewind(to)
    return Undone(to=to, messages=said - opened.window.said, text=text)


def _back_to(opened: Session, handle: str | None) -> int | None:
    """The position to go back to; None where there is nothing to undo."""
    if handle is None:
        first = undoing(opened.window)
        return None if first is None else first.seq - 1
    seq = int(handle[1:])
    if not 0 < seq <= opened.window.seq:
        raise Problem(
            "not-found", f"nothing is called {handle}; positions go up to m{opened.window.seq}"
        )
    return seq


def _exists(name: str) -> Problem:
    return Problem("conflict", f"there is a session {name} already; choose another name")
