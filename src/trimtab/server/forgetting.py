"""What is one user's or one tenant's: found, handed over as a copy, and forgotten.

A user is whoever a channel names as the sender of a message (`message_senders.py`). Sessions that
are a user's own are deleted. In sessions that others share, the messages of the user are erased,
and with them what the agent and its tools answered to them; what others said stays. What is
exported is what would be erased.

Each step does no harm if it is done again: where a process is ended in the middle, the same call
finds what is left.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from trimtab.errors import LogDamaged, SessionNotFound, StoreUnavailable
from trimtab.log.edits import ERASED_PLACEHOLDER
from trimtab.log.event import (
    Edit,
    Event,
    Fork,
    MessageAdded,
    ToolResultRepair,
    TurnProgressRecord,
)
from trimtab.log.message import Message, Text, message_to_json
from trimtab.server.erasure_records import (
    ErasureKind,
    ErasureOutcome,
    ErasureRecord,
    ErasureRecords,
)
from trimtab.server.message_erasure import ErasedMessagesRecord
from trimtab.server.message_senders import find_sender, was_sent_in_private
from trimtab.server.queue.inbound_outbound import InboundMessage
from trimtab.server.schedules.schedule import Schedule
from trimtab.server.schedules.tools import derive_schedule_number
from trimtab.server.service import AgentService
from trimtab.server.tenant_agent_session_ids import parse_session_address
from trimtab.session.tools import parse_call_position_from_key

PAGE_SIZE = 100
"""Sessions, and messages that wait, that are asked for at once."""
MAX_LISTED = 1_000_000
"""Schedules and sessions with dead letters that are looked at."""
MAX_PASSES = 10
"""Times that a session or a tenant is looked through: the next finds what came meanwhile."""
MAX_WAIT_FOR_TURN_S = 5.0
"""How long a turn of another process may take from reading the queue to writing the log."""
TURN_POLL_S = 0.05
EXPORT_VERSION = 1
"""Of the lines of an export."""

log = logging.getLogger("trimtab.server")


@dataclass(slots=True, kw_only=True)
class ErasureTotals:
    """What was forgotten."""

    sessions: int = 0
    """Sessions that were deleted."""
    messages: int = 0
    """Messages that were erased in sessions that stay."""
    waiting: int = 0
    """Messages that were erased while they waited for their turn."""
    unreadable: list[str] = field(default_factory=list[str])
    """Sessions whose logs are damaged, so that nobody can say what is in them: `AGENT/NAME`."""
    configured_schedules: list[str] = field(default_factory=list[str])
    """Schedules of agent.yaml that begin a deleted session anew: `AGENT/NAME`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserShare:
    """What of a session is a user's."""

    session: str
    """Its id."""
    is_own: bool
    """Whether all of it is."""
    positions: tuple[int, ...] = ()
    """Where the user's messages stand and the answers to them."""
    waiting_keys: tuple[str, ...] = ()
    """Keys of the user's messages that wait for their turn."""


class UserMessageFinder:
    """Finds in a log, event by event, what is a user's.

    With a message go the replies and tool results that follow it, up to the next message after a
    reply that called no tool: an agent repeats what it was told. A run of a schedule that such a
    reply has made is the user's as well.
    """

    def __init__(self, user: str) -> None:
        self.positions: list[int] = []
        """Where they stand."""
        self.is_private = False
        """Whether one of them was sent in a chat of two."""
        self.has_others = False
        """Whether somebody else has said something, or somebody of whom nothing is recorded."""
        self.parents: list[str] = []
        """Sessions that the beginning was copied from."""
        self._user = user
        self._in_exchange = False
        self._was_answered = True
        self._answers: set[int] = set()
        """Where replies stand that are the user's."""
        self._schedule_numbers: set[str] = set()
        """Schedules that these have made."""

    @property
    def is_own(self) -> bool:
        """Whether all that was said is the user's."""
        return self.is_private or (bool(self.positions) and not self.has_others)

    def add_event(self, event: Event) -> None:
        """Take the next event of the log."""
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
    """`AgentService.erase_message`, which is recorded."""
    async with recorded_erasure(service.erasure_records, "message", session, by=by) as totals:
        done = await service.erase_message(session, handle, why=why)
        totals.messages = len(done.positions)
        return done


async def delete_session(service: AgentService, session: str, *, by: str) -> None:
    """`AgentService.delete_session`, which is recorded."""
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
    """Forget a user of a tenant, in the sessions of these agents or of all."""
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
    """Forget all sessions of a tenant, and all that waits or is scheduled in them."""
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
    """All that is kept of a user, line by line: what `erase_user` would destroy."""
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
    """All that is kept of a tenant, line by line."""
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
    """Record what is done within, however it ends; nothing where there was nothing to erase.

    `session` is the id of one, or `TENANT//USER`. With `begin` it is also recorded before.
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
    """Whether nothing is left of a message but its place."""
    return message.parts == (Text(text=ERASED_PLACEHOLDER),)


def is_session_named_after(session: str, user: str) -> bool:
    """Whether a session is a user's by its name: a chat of two on Telegram has the user's id."""
    address, number = parse_session_address(session), user.removeprefix("telegram:")
    if address is None or number == user or not number.isdecimal():
        return False  # a group's id is negative
    return address.name == user or address.name.startswith(f"{user}:")


@dataclass(slots=True)
class _ExportCounts:
    """Says at the end how much there was, so that a copy that was cut off is noticed."""

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
    """What is a user's, session by session; forks of the user's own before these."""
    told: set[str] = set()
    own: dict[str, bool] = {}
    async for session in _list_sessions(service, tenant, agents):
        if session in told:
            continue
        try:
            share = await _find_share(service, session, user, own)
        except LogDamaged:
            log.warning("the log of session %s is damaged, so it was not searched", session)
            unreadable.append(_without_tenant(session))
            continue
        if share is None:
            continue
        if share.is_own:
            # Before the session itself: once that is gone nobody finds them by it.
            async for fork in _list_forks(service, session, told):
                if fork.startswith(f"{tenant}/"):
                    yield UserShare(session=fork, is_own=True)
        told.add(session)
        yield share


async def _find_share(
    service: AgentService, session: str, user: str, own: dict[str, bool]
) -> UserShare | None:
    """What of a session is a user's; None for nothing. `own` remembers which sessions are a user's
    own, for their forks are as well."""
    found = UserMessageFinder(user)
    is_own = is_session_named_after(session, user)
    with suppress(SessionNotFound):  # deleted meanwhile, or it has yet to begin
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
    """Erase what is a user's in a session that others share, until nothing is left of it."""
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
            # Without a name: what is written here stays in the log.
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
        f"new {what} arrived during each of {MAX_PASSES} passes of the erasure, so some are left: "
        f"stop what sends them, or try again"
    )


async def _wait_for_turn_elsewhere(service: AgentService, share: UserShare) -> None:
    """A turn of another process may have read the messages before they were erased, and be about to
    write them to the log, where they are found afterwards."""
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
    except SessionNotFound:  # somebody was faster, or has left replies behind
        await service.queue.forget_session(session)


async def _list_sessions(
    service: AgentService, tenant: str, agents: Collection[str] | None
) -> AsyncIterator[str]:
    """The sessions of a tenant, by id; then those that have yet to begin and in which messages
    wait."""
    prefix, last = f"{tenant}/", ""
    while True:
        page = await service.store.sessions(after=last or prefix, limit=PAGE_SIZE)
        for one in page:
            if not one.session.startswith(prefix):
                page = []  # behind the tenant's
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
    """All sessions that have copies of this one, those that were forked last before the others."""
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
    """A session line by line: all of it, or the messages at these positions."""
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
    """Its text, and its parts where it has more than that: pictures and files in Base64."""
    found: dict[str, Any] = {"role": message.role, "text": message.text}
    if (user := find_sender(message)) is not None:
        found["user"] = user
    if len(message.parts) != 1 or not isinstance(message.parts[0], Text):
        found["parts"] = message_to_json(message)["parts"]
    return found


def _find_schedule_number(key: str | None) -> str | None:
    """The number of the schedule that a message is a run of; None for all others."""
    parts = (key or "").split("/")
    return parts[-2] if parts[0] == "schedule" and len(parts) > 2 else None


def _is_of_agents(session: str, agents: Collection[str] | None) -> bool:
    if agents is None:
        return True
    address = parse_session_address(session)
    return address is not None and address.agent in agents


def _without_tenant(session: str) -> str:
    return session.partition("/")[2]
