"""Find, export and erase the data of one user or one tenant.

The user of a message is the sender that the channel names (`message_senders.py`). Sessions that
belong to one user are deleted. In sessions that others share, the user's messages are erased,
together with the answers of the agent and its tools. Messages of others stay. An export contains
exactly what an erasure would erase.

Each step can be repeated safely. If a process is killed in the middle, the same call finds the
rest.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from trimtab.engine.log.edits import ERASED_PLACEHOLDER
from trimtab.engine.log.event import (
    Edit,
    Event,
    Fork,
    MessageAdded,
    ToolResultRepair,
    TurnProgressRecord,
)
from trimtab.engine.log.message import Message, Text, message_to_json
from trimtab.errors import LogDamaged, SessionNotFound, StoreUnavailable
from trimtab.session.tools import parse_call_position_from_key
from trimtab_serve.queue.address import parse_session_address
from trimtab_serve.queue.messages import InboundMessage
from trimtab_serve.schedules.schedule import Schedule
from trimtab_serve.schedules.tools import derive_schedule_number
from trimtab_serve.service.erasure_records import (
    ErasureKind,
    ErasureOutcome,
    ErasureRecord,
    ErasureRecords,
)
from trimtab_serve.service.message_erasure import ErasedMessagesRecord
from trimtab_serve.service.sender import find_sender, was_sent_in_private
from trimtab_serve.service.service import AgentService

PAGE_SIZE = 100
"""Sessions and waiting messages that one query returns."""
MAX_LISTED = 1_000_000
"""Maximum number of schedules, and of sessions with dead letters, that are searched."""
MAX_PASSES = 10
"""Maximum number of passes over a session or a tenant. Each pass finds what arrived meanwhile."""
MAX_WAIT_FOR_TURN_S = 5.0
"""Seconds that a turn in another process may take from reading the queue to writing the log."""
TURN_POLL_S = 0.05
EXPORT_VERSION = 1
"""Version of the export format."""

log = logging.getLogger("trimtab.server")


@dataclass(slots=True, kw_only=True)
class ErasureTotals:
    """Numbers of an erasure."""

    sessions: int = 0
    """Sessions that were deleted."""
    messages: int = 0
    """Messages that were erased in sessions that remain."""
    waiting: int = 0
    """Messages that were erased while they waited for their turn."""
    unreadable: list[str] = field(default_factory=list[str])
    """Sessions with a damaged log, whose content is unknown: `AGENT/NAME`."""
    configured_schedules: list[str] = field(default_factory=list[str])
    """Schedules of agent.yaml that will create a deleted session again: `AGENT/NAME`."""


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
            called = parse_call_position_from_key(body.key) if body.key is not None else None
            if called is not None and called[0] in self._answers:
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


async def erase_message(
    service: AgentService, session: str, handle: str, *, why: str = "", by: str
) -> ErasedMessagesRecord:
    """Call `AgentService.erase_message` and record it."""
    async with recorded_erasure(service.erasure_records, "message", session, by=by) as totals:
        done = await service.erase_message(session, handle, why=why)
        totals.messages = len(done.positions)
        return done


async def delete_session(service: AgentService, session: str, *, by: str) -> None:
    """Call `AgentService.delete_session` and record it."""
    async with recorded_erasure(service.erasure_records, "session", session, by=by) as totals:
        await service.delete_session(session)
        totals.sessions = 1


async def erase_user(
    service: AgentService,
    tenant: str,
    user: str,
    *,
    by: str,
    agents: Collection[str] | None = None,
) -> ErasureTotals:
    """Erase a user of a tenant in the sessions of these agents, or of all agents."""
    async with (
        recorded_erasure(
            service.erasure_records, "user", f"{tenant}//{user}", by=by, begin=True
        ) as totals,
        service.forks.pause(tenant),
    ):
        for _ in range(MAX_PASSES):
            found, totals.unreadable = False, []
            async for share in _find_user_shares(service, tenant, user, agents, totals.unreadable):
                found = True
                if share.is_own:
                    await _delete_with_schedules(service, share.session, totals)
                else:
                    await _erase_share(service, share, user, totals)
            if not found:
                break
        else:
            raise _kept_coming(f"messages of user {user}")
        return totals


async def erase_tenant(service: AgentService, tenant: str, *, by: str) -> ErasureTotals:
    """Erase all sessions of a tenant with their waiting messages and schedules."""
    async with (
        recorded_erasure(
            service.erasure_records, "tenant", f"{tenant}//", by=by, begin=True
        ) as totals,
        service.forks.pause(tenant),
    ):
        for _ in range(MAX_PASSES):
            before = totals.sessions
            async for session in _list_sessions(service, tenant, None):
                await _delete_with_schedules(service, session, totals)
            if totals.sessions == before:
                break
        else:
            raise _kept_coming(f"sessions of tenant {tenant}")
        for one in await _list_schedules(service, f"{tenant}/"):
            if one.origin == "tool" and service.schedules is not None:
                await service.schedules.remove(one.id)
        return totals


async def export_user(
    service: AgentService, tenant: str, user: str, *, agents: Collection[str] | None = None
) -> AsyncIterator[Mapping[str, Any]]:
    """Yield all stored data of a user, line by line: the data that `erase_user` would erase."""
    unreadable: list[str] = []
    counted = _ExportCounts()
    yield {"kind": "export", "v": EXPORT_VERSION, "tenant": tenant, "user": user, "at": time.time()}
    async for share in _find_user_shares(service, tenant, user, agents, unreadable):
        only = None if share.is_own else frozenset(share.positions)
        keys = None if share.is_own else frozenset(share.waiting_keys)
        async for line in _export_session(service, share.session, only, keys):
            yield counted.add(line)
    yield counted.end(unreadable)


async def export_tenant(service: AgentService, tenant: str) -> AsyncIterator[Mapping[str, Any]]:
    """Yield all stored data of a tenant, line by line."""
    unreadable: list[str] = []
    counted = _ExportCounts()
    yield {"kind": "export", "v": EXPORT_VERSION, "tenant": tenant, "at": time.time()}
    async for session in _list_sessions(service, tenant, None):
        try:
            async for line in _export_session(service, session, None, None):
                yield counted.add(line)
        except LogDamaged:
            unreadable.append(_without_tenant(session))
    yield counted.end(unreadable)


@asynccontextmanager
async def recorded_erasure(
    records: ErasureRecords | None,
    kind: ErasureKind,
    session: str,
    *,
    by: str,
    begin: bool = False,
) -> AsyncGenerator[ErasureTotals]:
    """Record the erasure that the block makes, also if it fails.

    If the block raises `LookupError`, there was nothing to erase, and nothing is recorded.
    `session` is a session id or `TENANT//USER`. With `begin`, the start is also recorded, and then
    a `LookupError` is recorded as a failure.
    """
    tenant, agent, name = session.split("/", 2) if session.count("/") >= 2 else ("", "", session)
    totals = ErasureTotals()
    if records is None:
        yield totals
        return
    target = "" if kind == "tenant" else await records.digest(name if kind == "user" else session)
    begun = time.time()
    record = ErasureRecord(
        at=begun, by=by, kind=kind, tenant=tenant, agent=agent, target=target, outcome="begun"
    )
    if begin:
        await records.add(record)
    outcome: ErasureOutcome | None = "failed"
    try:
        yield totals
        outcome = "incomplete" if totals.unreadable else "done"
    except LookupError:
        outcome = "failed" if begin else None
        raise
    finally:
        if outcome is not None:
            ended = replace(
                record,
                outcome=outcome,
                sessions=totals.sessions,
                messages=totals.messages,
                waiting=totals.waiting,
                duration_s=round(time.time() - begun, 3),
            )
            await records.add(ended)


def is_erased(message: Message) -> bool:
    """Whether only the placeholder is left of a message."""
    return message.parts == (Text(text=ERASED_PLACEHOLDER),)


def is_session_named_after(session: str, user: str) -> bool:
    """Whether the name of a session is the user's id, as in a private chat on Telegram."""
    address, number = parse_session_address(session), user.removeprefix("telegram:")
    if address is None or number == user or not number.isdecimal():
        return False  # the id of a group is negative
    return address.name == user or address.name.startswith(f"{user}:")


@dataclass(slots=True)
class _ExportCounts:
    """Counts the lines of an export, so that a reader notices a truncated copy."""

    sessions: int = 0
    messages: int = 0

    def add(self, line: Mapping[str, Any]) -> Mapping[str, Any]:
        self.sessions += line["kind"] == "session"
        self.messages += line["kind"] in ("message", "waiting")
        return line

    def end(self, unreadable: Sequence[str]) -> Mapping[str, Any]:
        return {
            "kind": "end",
            "sessions": self.sessions,
            "messages": self.messages,
            "unreadable": [*unreadable],
        }


async def _find_user_shares(
    service: AgentService,
    tenant: str,
    user: str,
    agents: Collection[str] | None,
    unreadable: list[str],
) -> AsyncIterator[UserShare]:
    """Yield a user's share of each session. Forks of the user's own sessions come before them."""
    told: set[str] = set()
    own: dict[str, bool] = {}
    async for session in _list_sessions(service, tenant, agents):
        if session in told:
            continue
        try:
            share = await _find_share(service, session, user, own)
        except LogDamaged:
            log.warning("session %s was not searched: its log is damaged", session)
            unreadable.append(_without_tenant(session))
            continue
        if share is None:
            continue
        if share.is_own:
            # The forks come before the session: without it, no search would find them.
            async for fork in _list_forks(service, session, told):
                if fork.startswith(f"{tenant}/"):
                    yield UserShare(session=fork, is_own=True)
        told.add(session)
        yield share


async def _find_share(
    service: AgentService, session: str, user: str, own: dict[str, bool]
) -> UserShare | None:
    """Return a user's share of a session, or None.

    `own` caches which sessions belong to the user, because their forks also do.
    """
    found = UserMessageFinder(user)
    is_own = is_session_named_after(session, user)
    with suppress(SessionNotFound):  # it was deleted meanwhile, or has not begun
        if not is_own:
            async for event in service.store.events(session):
                found.add_event(event)
    waiting = list[str]()
    async for queued in _list_waiting(service, session):
        if find_sender(queued.message) == user:
            waiting.append(queued.key)
            is_own = is_own or was_sent_in_private(queued.message)
    own[session] = is_own or found.is_own
    for parent in found.parents:
        own[session] = own[session] or await _is_own(service, parent, user, own)
    if own[session]:
        return UserShare(session=session, is_own=True)
    if not found.positions and not waiting:
        return None
    return UserShare(
        session=session,
        is_own=False,
        positions=tuple(found.positions),
        waiting_keys=tuple(waiting),
    )


async def _is_own(service: AgentService, session: str, user: str, own: dict[str, bool]) -> bool:
    if session not in own:
        own[session] = False  # in case a session is among its own ancestors
        with suppress(LogDamaged):
            await _find_share(service, session, user, own)
    return own[session]


async def _erase_share(
    service: AgentService, share: UserShare, user: str, totals: ErasureTotals
) -> None:
    """Erase a user's share of a session that others use, until nothing is left of it."""
    left: UserShare | None = share
    for _ in range(MAX_PASSES):
        if left is None or left.is_own:
            break
        if left.waiting_keys:
            await service.erase_waiting_messages(left.session, left.waiting_keys)
            totals.waiting += len(left.waiting_keys)
            await _wait_for_turn_elsewhere(service, left)
        if left.positions:
            handles = [f"m{position}" for position in left.positions]
            # The reason does not name the user, because it stays in the log.
            await service.erase_message(left.session, handles, why="the user's data was erased")
            totals.messages += len(handles)
        left = await _find_share(service, left.session, user, {})
    if left is None:
        return
    if not left.is_own:
        raise _kept_coming(f"messages of user {user} in session {share.session}")
    await _delete_with_schedules(service, left.session, totals)


def _kept_coming(what: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"the erasure made {MAX_PASSES} passes, and new {what} arrived during each one. Some are "
        "not erased: stop the sender, or try again"
    )


async def _wait_for_turn_elsewhere(service: AgentService, share: UserShare) -> None:
    """Wait for a turn of another process that has read the messages before they were erased.

    It may write them to the log, and the next pass finds them there.
    """
    if await service.queue.dead_letter_reason(share.session) is not None:
        return
    deadline = time.monotonic() + MAX_WAIT_FOR_TURN_S
    for key in share.waiting_keys:
        while await service.store.find_key(share.session, key) is None:
            if time.monotonic() > deadline:
                return
            await asyncio.sleep(TURN_POLL_S)


async def _delete_with_schedules(
    service: AgentService, session: str, totals: ErasureTotals
) -> None:
    if service.schedules is not None:
        for one in await service.schedules.find(session=session, limit=MAX_LISTED):
            if one.origin == "file":
                totals.configured_schedules.append(_without_tenant(one.id))
    try:
        await service.delete_session(session)
        totals.sessions += 1
    except SessionNotFound:  # another process deleted it first, or left replies
        await service.queue.forget_session(session)


async def _list_sessions(
    service: AgentService, tenant: str, agents: Collection[str] | None
) -> AsyncIterator[str]:
    """Yield the sessions of a tenant by id, then sessions that have waiting messages but no log."""
    prefix, last = f"{tenant}/", ""
    while True:
        page = await service.store.sessions(after=last or prefix, limit=PAGE_SIZE)
        for one in page:
            if not one.session.startswith(prefix):
                page = []  # past the tenant's last session
                break
            last = one.session
            if _is_of_agents(one.session, agents):
                yield one.session
        if len(page) < PAGE_SIZE:
            break
    dead = await service.queue.list_dead_letters(prefix=prefix, limit=MAX_LISTED)
    waiting = {one.session for one in dead} | {*await service.queue.list_waiting_sessions()}
    for session in sorted(waiting):
        is_mine = session.startswith(prefix) and _is_of_agents(session, agents)
        if is_mine and not await service.store.position(session):
            yield session


async def _list_forks(service: AgentService, session: str, told: set[str]) -> AsyncIterator[str]:
    """Yield all sessions that were copied from this one, the newest forks first."""
    for fork in await service.store.forks(session):
        if fork not in told:
            told.add(fork)
            async for inner in _list_forks(service, fork, told):
                yield inner
            yield fork


async def _list_waiting(service: AgentService, session: str) -> AsyncIterator[InboundMessage]:
    last = 0
    while page := await service.queue.pending(session, after=last, limit=PAGE_SIZE):
        for queued in page:
            last = queued.number
            yield queued


async def _list_schedules(service: AgentService, prefix: str) -> list[Schedule]:
    if service.schedules is None:
        return []
    found = await service.schedules.find(limit=MAX_LISTED)
    return [one for one in found if one.session.startswith(prefix)]


async def _export_session(
    service: AgentService,
    session: str,
    positions: frozenset[int] | None,
    waiting_keys: frozenset[str] | None,
) -> AsyncIterator[Mapping[str, Any]]:
    """Yield a session line by line: all of it, or the messages at these positions."""
    name = _without_tenant(session)
    yield {"kind": "session", "session": name, "whole": positions is None}
    with suppress(SessionNotFound):
        async for event in service.store.events(session):
            if positions is None or event.seq in positions:
                line = _describe_event(event, whole=positions is None)
                if line is not None:
                    yield {**line, "session": name}
    async for queued in _list_waiting(service, session):
        if waiting_keys is None or queued.key in waiting_keys:
            said = _describe_message(queued.message)
            yield {"kind": "waiting", "at": queued.at, **said, "session": name}
    if positions is None and service.schedules is not None:
        for one in await service.schedules.find(session=session, limit=MAX_LISTED):
            told = {"text": one.message, "due": one.next_run_at, "at": one.created_at}
            yield {"kind": "schedule", **told, "session": name}


def _describe_event(event: Event, *, whole: bool) -> Mapping[str, Any] | None:
    body = event.body
    if isinstance(body, MessageAdded | ToolResultRepair):
        said = _describe_message(body.message)
        return {"kind": "message", "handle": f"m{event.seq}", "at": event.at, **said}
    if whole and isinstance(body, Edit) and body.op == "summarise" and body.text:
        covered = f"m{body.first}-m{body.last}"
        return {"kind": "summary", "covers": covered, "at": event.at, "text": body.text}
    return None


def _describe_message(message: Message) -> Mapping[str, Any]:
    """Return its text, and its parts if it has others than text. Pictures and files are in
    Base64."""
    found: dict[str, Any] = {"role": message.role, "text": message.text}
    if (user := find_sender(message)) is not None:
        found["user"] = user
    if len(message.parts) != 1 or not isinstance(message.parts[0], Text):
        found["parts"] = message_to_json(message)["parts"]
    return found


def _find_schedule_number(key: str | None) -> str | None:
    """Return the number of the schedule that sent a message. None if it was not a schedule."""
    parts = (key or "").split("/")
    return parts[-2] if parts[0] == "schedule" and len(parts) > 2 else None


def _is_of_agents(session: str, agents: Collection[str] | None) -> bool:
    if agents is None:
        return True
    address = parse_session_address(session)
    return address is not None and address.agent in agents


def _without_tenant(session: str) -> str:
    return session.partition("/")[2]
