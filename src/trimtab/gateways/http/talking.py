"""What is said to an agent, and what it answers."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

from trimtab.core.edits import ERASED
from trimtab.core.event import Said
from trimtab.core.message import Media, Message, Part, Text
from trimtab.dialects.media import UnfitMedia, fitted
from trimtab.gateways.http.answers import Accepted, Done, Revived
from trimtab.gateways.http.asking import Asked, Reply
from trimtab.gateways.http.bodies import KEY, NewMessage, invalid
from trimtab.gateways.http.following import Follower, Place, Wanted, place_of
from trimtab.gateways.http.problems import Problem, no_session, not_now
from trimtab.gateways.http.sessions import given_up, was_ended, where
from trimtab.gateways.http.streams import Stream
from trimtab.session.session import Session
from trimtab.session.turn import wants_reply
from trimtab.stores.errors import PositionTaken, StoreError
from trimtab.stores.store import Store
from trimtab.worker.letters import Inbound
from trimtab.worker.mail import Mail

REVIVED = 1_000
"""Sessions that are revived at once."""
FIRST, LONGEST = 0.1, 2.0
"""Seconds before it is looked again whether a message that nobody waits for is being answered: at
first, and at most."""


async def send(asked: Asked) -> Reply | Stream:
    """Keep a message; its answer is read elsewhere, or follows at once."""
    if asked.offer.draining:
        raise not_now("the server is about to stop and takes in nothing new")
    address, body = asked.address(), asked.body
    assert isinstance(body, NewMessage)  # noqa: S101 - what the operation says
    key, read = _key(asked, body), _read(asked)
    message = _message(asked, body)
    session, service = str(address), asked.service
    if not await service.store.position(session):
        if read is not None:
            raise no_session(address.agent, address.name)  # deleted since it was read
        with suppress(PositionTaken):
            async with service.using(session):
                pass  # it is there now: whoever reads its events finds it
    said = await service.store.find_key(session, key)
    after = await service.store.position(session) if said is None else said - 1
    if asked.stream:
        # Listened to before it is posted, so that no piece of the answer is missed.
        async with asked.offer.hubs.following(session):
            if said is not None or not await service.post(_letter(session, key, message)):
                await _refuse_another(asked, session, key, message, said)
        # Who is ahead of the log has an id of another session.
        own = read is not None and read.position <= await service.store.position(session)
        place = read if read is not None and own else Place(position=after)
        return _answer(asked, session, key, place, said=said is not None and said <= place.position)
    new = said is None and await service.post(_letter(session, key, message))
    if not new:
        await _refuse_another(asked, session, key, message, said)
    told = Accepted(key=key, known=not new, after=after, events=f"{where(address)}/events")
    headers = {"Location": f"{told.events}?after={after}"}
    return Reply(value=told, status=202, headers=headers)


async def events(asked: Asked) -> Stream:
    """Follow a session."""
    session = await asked.known()
    place = await _place(asked, session)
    offer = asked.offer
    wanted = Wanted(closing=lambda: offer.draining, exact=_exact(asked))
    return Stream(frames=lambda: _frames(asked, session, place, wanted))


async def stop(asked: Asked) -> Reply:
    """Let the turn that runs end after this step."""
    return Reply(value=Done(done=asked.service.stop(await asked.known())))


async def resume(asked: Asked) -> Reply:
    """Go on with a turn that was stopped or given up."""
    session, service = await asked.known(), asked.service
    if asked.offer.draining:
        raise not_now("the server is about to stop and begins nothing new")
    if await service.mail.revive(session):
        return Reply(value=Done(done=True), status=202)
    if not await service.mail.pending(session, limit=1):
        async with service.using(session) as opened:
            if not wants_reply(opened.window) and not opened.window.open_calls():
                return Reply(value=Done(done=False), status=202)
            await _open_again(opened)
    await asked.offer.due(session)
    return Reply(value=Done(done=True), status=202)


async def _open_again(session: Session) -> None:
    """A turn that somebody has ended stays so for those who merely look; claimed, it goes on."""
    if await was_ended(session) and not session.turn.locked():
        await session.claim()
        session.epoch = None  # nobody runs it yet


async def revive(asked: Asked) -> Reply:
    """Try again what was given up."""
    address = asked.address()
    if not await asked.service.mail.revive(str(address)):
        raise Problem("not-found", f"nothing was given up in {address.agent}/{address.name}")
    return Reply(value=Done(done=True), status=202)


async def revive_all(asked: Asked) -> Reply:
    """Try again all that was given up of this caller's."""
    found = [str(address) for address, _ in await given_up(asked, REVIVED)]
    done = [await asked.service.mail.revive(session) for session in found]
    return Reply(value=Revived(sessions=sum(done)), status=202)


def _answer(asked: Asked, session: str, key: str, place: Place, *, said: bool) -> Stream:
    """The answer to a message, up to the end of its turn."""
    offer = asked.offer

    async def why() -> str | None:
        return await asked.service.mail.why_given_up(session)

    async def settled() -> bool:
        waiting = await asked.service.mail.pending(session)
        return all(letter.key != key for letter in waiting)

    async def gone() -> None:
        agent = asked.service.agent_of(session)
        if agent.spec.session.on_disconnect == "pause":
            offer.beside(_pause(asked, session, key))

    wanted = Wanted(
        closing=lambda: offer.closing,
        key=key,
        said=said,
        failed=why,
        settled=settled,
        exact=_exact(asked),
    )
    return Stream(frames=lambda: _frames(asked, session, place, wanted), gone=gone)


@asynccontextmanager
async def _frames(
    asked: Asked, session: str, place: Place, wanted: Wanted
) -> AsyncGenerator[AsyncIterator[bytes]]:
    async with asked.offer.hubs.following(session) as hub:
        yield Follower(asked.service.store, session, hub, place, wanted).run()


async def _pause(asked: Asked, session: str, key: str) -> None:
    """Stop the turn that answers a message nobody waits for, also if it has yet to begin.

    Until the message is in the log, the turn that runs is another's; so is one that runs when it
    was answered, unless nothing was said since: then its own was resumed.
    """
    service, wait = asked.service, FIRST
    with suppress(StoreError):
        while True:
            rests = await _rests(service.mail, session, key)
            said = await service.store.find_key(session, key)
            own = said is not None and (not rests or await _is_newest(service.store, session, said))
            if (own and service.stop(session)) or rests:
                return
            await asyncio.sleep(wait)
            wait = min(LONGEST, wait * 2)


async def _rests(mail: Mail, session: str, key: str) -> bool:
    """Whether no turn will answer a message: one has, or it was given up."""
    waiting = await mail.pending(session)
    if all(letter.key != key for letter in waiting):
        return True
    return await mail.why_given_up(session) is not None


async def _is_newest(store: Store, session: str, said: int) -> bool:
    """Whether no user has said anything since."""
    async for event in store.events(session, [(said + 1, None)]):
        if isinstance(event.body, Said) and event.body.message.role == "user":
            return False
    return True


async def _refuse_another(
    asked: Asked, session: str, key: str, message: Message, at: int | None
) -> None:
    """A key that comes again must come with what was said under it: else that would be dropped
    without a word. What was redacted or erased cannot be compared."""
    said = await asked.service.said_under(session, key, at)
    if said is None or not _exact(asked) or Text(text=ERASED) in said.parts:
        return
    if said.parts != message.parts:
        raise Problem(
            "invalid",
            f"another message was said under the key {key}, and this one would not be said: give "
            "each message a key of its own",
        )


def _letter(session: str, key: str, message: Message) -> Inbound:
    return Inbound(session=session, message=message, key=key, at=time.time())


def _message(asked: Asked, body: NewMessage) -> Message:
    """What goes into the log, if the agent's model can be given all of it."""
    said, takes = body.message(), asked.agent().takes
    parts: list[Part] = []
    wrong: list[dict[str, str]] = []
    for number, part in enumerate(said.parts):
        try:
            parts.append(fitted(part, takes) if isinstance(part, Media) else part)
        except UnfitMedia as error:
            assert isinstance(part, Media)  # noqa: S101 - nothing else is looked at
            why = f"the {part.kind} ({part.mime}) cannot be sent: {error.why}"
            wrong.append({"field": f"parts.{number}.{error.about}", "why": why})
    if wrong:
        raise invalid(wrong)
    return replace(said, parts=tuple(parts))


def _key(asked: Asked, body: NewMessage) -> str:
    given = asked.headers.get("idempotency-key")
    if given is not None and body.key is not None and given != body.key:
        raise Problem("invalid", "Idempotency-Key and key differ; give one of them")
    if given is not None and not KEY.fullmatch(given):
        raise Problem("invalid", "Idempotency-Key takes 1 to 200 visible ASCII characters")
    return body.key or given or f"http-{secrets.token_hex(12)}"


async def _place(asked: Asked, session: str) -> Place:
    """Where to begin: behind what the caller has, or with what happens from now on."""
    read = _read(asked)
    position = await asked.service.store.position(session)
    return read if read is not None and read.position <= position else Place(position=position)


def _read(asked: Asked) -> Place | None:
    """Up to where the caller has read; None where it is not said."""
    given = asked.headers.get("last-event-id") or asked.query.get("after")
    if given is None:
        return None
    place = place_of(given)
    if place is None:
        raise Problem("invalid", "Last-Event-ID and after take an id of an event: 12, or 12.57")
    return place


def _exact(asked: Asked) -> bool:
    return not asked.agent().spec.session.redact
