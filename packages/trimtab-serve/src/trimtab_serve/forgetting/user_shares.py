"""Find the part of each session that belongs to a user.

The user of a message is the sender that the channel names (`service/sender.py`). The store names
the sessions to read, so the others are not read.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

from trimtab.engine.log.edits import ERASED_PLACEHOLDER
from trimtab.engine.log.event import (
    Event,
    Fork,
    MessageAdded,
    ToolResultRepair,
    TurnProgressRecord,
)
from trimtab.engine.log.message import Message, Text
from trimtab.errors import LogDamaged, SessionNotFound
from trimtab.session.tools import parse_call_position_from_key
from trimtab.stores.subjects import session_subject
from trimtab_serve.queue.address import parse_session_address
from trimtab_serve.queue.messages import InboundMessage
from trimtab_serve.schedules.tools import derive_schedule_number
from trimtab_serve.service.sender import find_sender, was_sent_in_private
from trimtab_serve.service.service import AgentService

PAGE_SIZE = 100
"""Sessions and waiting messages that one query returns."""
MAX_LISTED = 1_000_000
"""Maximum number of sessions with dead letters that are searched."""
AFTER_EVERY_NAME = "\x7f"
"""Sorts after the names of all sessions of an agent."""

log = logging.getLogger("trimtab.server")


@dataclass(frozen=True, slots=True, kw_only=True)
class UserShare:
    """The part of a session that belongs to a user."""

    session: str
    """Id of the session."""
    is_own: bool
    """Whether the whole session belongs to the user."""
    positions: tuple[int, ...] = ()
    """Log positions of the user's messages and of the answers to them."""
    waiting_keys: tuple[str, ...] = ()
    """Keys of the user's messages that wait for their turn."""
    parents: frozenset[str] = frozenset()
    """Sessions from which its beginning was copied."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing in the session belongs to the user."""
        return not (self.is_own or self.positions or self.waiting_keys)


class UserMessageFinder:
    """Finds a user's messages in a log, event by event.

    The replies and tool results after a message belong to it, because an agent repeats what a user
    said. This ends at the next message after a reply that called no tool. Runs of a schedule that
    such a reply created also belong to the user.
    """

    def __init__(self, user: str) -> None:
        self.positions: list[int] = []
        """Log positions of the user's messages and answers."""
        self.is_private = False
        """Whether one of them was sent in a private chat."""
        self.has_others = False
        """Whether another user, or an unrecorded sender, wrote in the session."""
        self.parents: list[str] = []
        """Sessions from which the beginning was copied."""
        self._user = user
        self._in_exchange = False
        self._was_answered = True
        self._answers: set[int] = set()
        """Positions of replies that belong to the user."""
        self._schedule_numbers: set[str] = set()
        """Numbers of the schedules that these replies created."""

    @property
    def is_own(self) -> bool:
        """Whether all messages belong to the user."""
        return self.is_private or (bool(self.positions) and not self.has_others)

    def add_event(self, event: Event) -> None:
        """Read the next event of the log."""
        body = event.body
        if isinstance(body, TurnProgressRecord):
            call_position = parse_call_position_from_key(body.key) if body.key is not None else None
            if call_position is not None and call_position[0] in self._answers:
                self._schedule_numbers.add(derive_schedule_number(body.key or ""))
        elif isinstance(body, Fork):
            self.parents.append(body.parent)
        elif isinstance(body, ToolResultRepair):
            self._add_answer(event.seq, body.message)
        elif isinstance(body, MessageAdded):
            if body.message.role == "user" and not body.message.results:
                self._add_user_message(event.seq, body)
            elif body.message.role != "system":
                self._add_answer(event.seq, body.message)

    def _add_user_message(self, seq: int, body: MessageAdded) -> None:
        self._in_exchange = self._in_exchange and not self._was_answered
        self._was_answered = False
        schedule = _find_schedule_number(body.key)
        sender = find_sender(body.message)
        if sender == self._user or (schedule is not None and schedule in self._schedule_numbers):
            self.positions.append(seq)
            self._in_exchange = True
            self.is_private = self.is_private or was_sent_in_private(body.message)
        elif schedule is None and not is_erased(body.message):
            self.has_others = True

    def _add_answer(self, seq: int, message: Message) -> None:
        self._was_answered = message.role == "assistant" and not message.calls
        if self._in_exchange and not is_erased(message):
            self.positions.append(seq)
            self._answers.add(seq)


async def find_user_shares(
    service: AgentService,
    tenant: str,
    user: str,
    agents: Collection[str] | None,
    unreadable: list[str],
) -> list[UserShare]:
    """Return a user's share of each session, by id. Forks of the user's own sessions come first.

    The forks of a session that belongs to the user do so as well, even if they have no message of
    the user. So the forks of each such session are searched next. `unreadable` gets the sessions
    with damaged logs.
    """
    shares: dict[str, UserShare] = {}
    depths: dict[str, int] = {}  # of the sessions that belong to the user; those of forks are more
    past_sessions: set[str] = set()
    to_search = await _list_candidates(service, tenant, user)
    while to_search:
        past_sessions |= to_search
        for session in sorted(to_search):
            try:
                shares[session] = await find_share(service, session, user)
            except LogDamaged:
                log.warning("session %s was not searched: its log is damaged", session)
                if is_of_agents(session, agents):
                    unreadable.append(without_tenant(session))
        new_sessions = _add_own_sessions(shares, depths)
        to_search = await _list_forks(service, tenant, new_sessions) - past_sessions
    own_shares = (replace(shares[session], is_own=True) for session in depths)
    whole = {**shares, **{share.session: share for share in own_shares}}
    return [
        whole[session]
        for session in sorted(whole, key=lambda one: (-depths.get(one, 0), one))
        if not whole[session].is_empty and is_of_agents(session, agents)
    ]


def _add_own_sessions(shares: dict[str, UserShare], depths: dict[str, int]) -> list[str]:
    """Add the sessions that belong to the user, and all their forks. Return the new ones."""
    new_sessions: list[str] = []
    while newer := [
        share
        for session, share in shares.items()
        if session not in depths and (share.is_own or not share.parents.isdisjoint(depths))
    ]:
        for share in newer:
            above = [depths[parent] for parent in share.parents if parent in depths]
            depths[share.session] = 1 + max(above, default=-1)
            new_sessions.append(share.session)
    return new_sessions


async def find_share(service: AgentService, session: str, user: str) -> UserShare:
    """Return a user's share of a session. It is empty if the session has nothing of the user."""
    finder = UserMessageFinder(user)
    is_own = is_session_named_after(session, user)
    with suppress(SessionNotFound):  # it was deleted meanwhile, or has not begun
        async for event in service.store.events(session):
            finder.add_event(event)
    waiting = list[str]()
    async for inbound in list_waiting(service, session):
        if find_sender(inbound.message) == user:
            waiting.append(inbound.key)
            is_own = is_own or was_sent_in_private(inbound.message)
    tenant = session.partition("/")[0]
    # A session of another tenant belongs to another user, even if that has the same id.
    parents = frozenset(one for one in finder.parents if one.startswith(f"{tenant}/"))
    return UserShare(
        session=session,
        is_own=is_own
        or finder.is_own
        or any(is_session_named_after(parent, user) for parent in parents),
        positions=tuple(finder.positions),
        waiting_keys=tuple(waiting),
        parents=parents,
    )


async def _list_candidates(service: AgentService, tenant: str, user: str) -> set[str]:
    """Return all sessions that may have something of a user, except forks of the user's own."""
    scope = f"{tenant}/"
    sessions = {*await service.store.sessions_about(scope, [user])}
    sessions |= {*await service.queue.search_waiting(scope, json.dumps(user))}
    if not is_session_named_after(f"{tenant}/agent/{user}", user):
        return sessions
    in_queue = await list_sessions_in_queue(service, scope)
    sessions |= {session for session in in_queue if is_session_named_after(session, user)}
    last = scope
    while page := await service.store.sessions(after=last, limit=1):
        # The first session of the next agent; then those that are named after the user.
        agent_prefix = page[0].session.rpartition("/")[0] + "/"
        if not agent_prefix.startswith(scope):
            break
        if await service.store.position(agent_prefix + user):
            sessions.add(agent_prefix + user)
        async for session in _list_with_prefix(service, f"{agent_prefix}{user}:"):
            sessions.add(session)
        last = agent_prefix + AFTER_EVERY_NAME
    return sessions


async def _list_forks(service: AgentService, tenant: str, sessions: Iterable[str]) -> set[str]:
    names = {session_subject(session) for session in sessions}
    return {*await service.store.sessions_about(f"{tenant}/", names)} if names else set()


def is_erased(message: Message) -> bool:
    """Whether only the placeholder is left of a message."""
    return message.parts == (Text(text=ERASED_PLACEHOLDER),)


def is_session_named_after(session: str, user: str) -> bool:
    """Whether the name of a session is the user's id, as in a private chat on Telegram."""
    address = parse_session_address(session)
    number = user.removeprefix("telegram:")
    if address is None or number == user or not number.isdecimal():
        return False  # the id of a group is negative
    return address.name == user or address.name.startswith(f"{user}:")


async def list_tenant_sessions(service: AgentService, tenant: str) -> AsyncIterator[str]:
    """Yield the sessions of a tenant by id, then sessions that have waiting messages but no log."""
    prefix = f"{tenant}/"
    async for session in _list_with_prefix(service, prefix):
        yield session
    for session in await list_sessions_in_queue(service, prefix):
        if not await service.store.position(session):
            yield session


async def list_sessions_in_queue(service: AgentService, prefix: str) -> list[str]:
    """Return the sessions with this prefix that have waiting messages or dead letters, by id."""
    dead = await service.queue.list_dead_letters(prefix=prefix, limit=MAX_LISTED)
    waiting = {one.session for one in dead} | {*await service.queue.list_waiting_sessions()}
    return sorted(session for session in waiting if session.startswith(prefix))


async def _list_with_prefix(service: AgentService, prefix: str) -> AsyncIterator[str]:
    last = prefix
    while page := await service.store.sessions(after=last, limit=PAGE_SIZE):
        for one in page:
            if not one.session.startswith(prefix):
                return
            last = one.session
            yield last


async def list_waiting(service: AgentService, session: str) -> AsyncIterator[InboundMessage]:
    """Yield the messages of a session that wait for their turn."""
    last = 0
    while page := await service.queue.pending(session, after=last, limit=PAGE_SIZE):
        for inbound in page:
            last = inbound.number
            yield inbound


def _find_schedule_number(key: str | None) -> str | None:
    """Return the number of the schedule that sent a message. None if it was not a schedule."""
    parts = (key or "").split("/")
    return parts[-2] if parts[0] == "schedule" and len(parts) > 2 else None


def is_of_agents(session: str, agents: Collection[str] | None) -> bool:
    """Whether a session belongs to one of these agents. None for all agents."""
    if agents is None:
        return True
    address = parse_session_address(session)
    return address is not None and address.agent in agents


def without_tenant(session: str) -> str:
    """Return `AGENT/NAME`."""
    return session.partition("/")[2]
