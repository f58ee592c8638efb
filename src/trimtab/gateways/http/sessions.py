"""Agents and sessions: which there are, and how they come and go."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime

from trimtab.core.event import Turn
from trimtab.core.window import Window
from trimtab.gateways.http.answers import (
    AgentInfo,
    Agents,
    Created,
    DeadInfo,
    DeadPage,
    SessionInfo,
    SessionPage,
    SessionState,
)
from trimtab.gateways.http.asking import Asked, Reply
from trimtab.gateways.http.problems import Problem
from trimtab.session.session import Session
from trimtab.session.turn import wants_reply
from trimtab.stores.errors import PositionTaken
from trimtab.worker.mail import Dead, Mail
from trimtab.worker.naming import Address, address_of

PENDING = 100
"""Waiting messages that are counted."""


async def agents(asked: Asked) -> Reply:
    found = [
        AgentInfo(name=name, model=agent.spec.model.name, policy=agent.spec.session.policy)
        for name, agent in sorted(asked.service.agents.items())
        if asked.caller.may_use(name)
    ]
    return Reply(value=Agents(agents=found))


async def listed(asked: Asked) -> Reply:
    asked.agent()
    prefix = f"{asked.caller.tenant}/{asked.path['agent']}/"
    limit: int = asked.query["limit"]
    after = f"{prefix}{asked.query['after'] or ''}"
    # One more than is shown says whether there are more.
    found = await asked.service.store.sessions(after=after, limit=limit + 1)
    mine = [(one, a) for one in found if (a := _mine(one.session, prefix)) is not None]
    shown = [
        SessionInfo(
            agent=address.agent,
            name=address.name,
            position=one.position,
            messages=one.messages,
            updated=one.updated,
            parent=_parent(one.parent, prefix),
        )
        for one, address in mine[:limit]
    ]
    more = shown[-1].name if len(mine) > limit else None
    return Reply(value=SessionPage(sessions=shown, next=more))


async def create(asked: Asked) -> Reply:
    name = asked.body.name or new_name()
    address = asked.address(name)
    session = str(address)
    if await asked.service.store.position(session):
        raise _exists(address)
    try:
        async with asked.service.using(session) as opened:
            position = opened.window.seq
    except PositionTaken:
        raise _exists(address) from None
    made = Created(agent=address.agent, name=name, position=position)
    return Reply(value=made, status=201, headers={"Location": where(address)})


async def state(asked: Asked) -> Reply:
    session = await asked.known()
    service = asked.service
    waiting = await service.mail.pending(session, limit=PENDING)
    async with service.using(session) as opened:
        window = opened.window
        told = SessionState(
            agent=asked.path["agent"],
            name=asked.path["session"],
            position=window.seq,
            messages=window.said,
            visible=window.messages,
            model=window.settings.model,
            running=opened.turn.locked(),
            waiting=len(waiting),
            failed=await service.mail.why_given_up(session) or _rejected(window),
        )
    return Reply(value=told)


async def delete(asked: Asked) -> Reply:
    session = await asked.known()
    await asked.service.delete(session)
    asked.offer.hubs.wake(session)
    return Reply(status=204)


async def dead(asked: Asked) -> Reply:
    shown = [
        DeadInfo(
            agent=address.agent,
            name=address.name,
            why=one.why,
            letters=one.letters,
            at=one.at,
        )
        for address, one in await given_up(asked, asked.query["limit"])
    ]
    return Reply(value=DeadPage(dead=shown))


async def given_up(asked: Asked, limit: int) -> list[tuple[Address, Dead]]:
    """What was given up of this caller's, the newest first."""
    prefix = f"{asked.caller.tenant}/"
    return [
        (address, one)
        for one in await asked.service.mail.dead(prefix=prefix, limit=limit)
        if (address := address_of(one.session)) is not None and asked.caller.may_use(address.agent)
    ]


def refuse_running(running: bool, asked: Asked) -> None:
    """Some things are not done to a session in which a turn runs."""
    if running:
        raise Problem(
            "conflict",
            f"a turn runs in session {asked.path['session']}; stop it first, or wait for its end",
        )


async def runs_elsewhere(mail: Mail, session: Session) -> bool:
    """Whether a turn is open that another process runs, or goes on with where that one has died.

    One that was given up, or resumed and left, nobody may ever end: it stands in nobody's way.
    """
    if not await mail.pending(session.id, limit=1):
        return False
    return await mail.why_given_up(session.id) is None and not await was_ended(session)


async def was_ended(session: Session) -> bool:
    """Whether the turn of the newest user message has been ended, however far it came."""
    user, ended = session.window.newest_user, False
    since = user.seq if user is not None else 1
    async for event in session.store.events(session.id, [(since, None)]):
        if isinstance(event.body, Turn):
            ended = event.body.state == "ended"
    return ended


def where(address: Address) -> str:
    """The path of a session."""
    return f"/v1/agents/{address.agent}/sessions/{address.name}"


def new_name() -> str:
    """A name that sorts by time and that nobody guesses."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(6)}"


def _mine(session: str, prefix: str) -> Address | None:
    return address_of(session) if session.startswith(prefix) else None


def _parent(parent: str | None, prefix: str) -> str | None:
    if parent is None or not parent.startswith(prefix):
        return None
    return parent.removeprefix(prefix)


def _rejected(window: Window) -> str | None:
    """Why the newest message has no answer; None where that is for another reason."""
    if not window.rejection.position or not wants_reply(window):
        return None
    return f"rejected: {window.rejection.words}"


def _exists(address: Address) -> Problem:
    return Problem(
        "conflict",
        f"agent {address.agent} has a session {address.name} already; choose another name, or send "
        "messages to that one",
    )
