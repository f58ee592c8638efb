"""The service that channels post messages to and that runs the turns.

A channel (HTTP, a chat platform, a schedule) posts messages and delivers replies. It has no budget
logic of its own: every turn goes through `run_turn`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    asynccontextmanager,
    nullcontext,
    suppress,
)
from dataclasses import dataclass, field, replace

from trimtab.engine.log.event import MessageAdded
from trimtab.engine.log.message import Message
from trimtab.engine.log.redaction import redacted_message
from trimtab.errors import LogDamaged, SessionNotFound, TrimtabError
from trimtab.observe.request_ids import current_request_id, set_request_id
from trimtab.observe.trace_parents import find_traceparent_of_request, set_traceparent
from trimtab.session import Session
from trimtab.session.events import TurnFinished
from trimtab.session.session import open_session_to_erase
from trimtab.session.spending import clear_spending_account
from trimtab.stores.base import Store
from trimtab_serve.agent.agent import Agent
from trimtab_serve.metrics.labels import set_payer
from trimtab_serve.metrics.recording import count_inbound_message
from trimtab_serve.queue.address import SessionAddress, parse_session_address
from trimtab_serve.queue.backlog import BacklogEstimator
from trimtab_serve.queue.messages import InboundMessage
from trimtab_serve.queue.protocol import MessageQueue
from trimtab_serve.queue.rows import encode_inbound_body
from trimtab_serve.schedules.store import ScheduleStore
from trimtab_serve.service.erasure_records import ErasureRecords, MemoryErasureRecords
from trimtab_serve.service.events.bus import EventBus
from trimtab_serve.service.message_erasure import (
    ErasedMessagesRecord,
    EraseHook,
    build_queue_erase_hook,
    erase_message_and_copies,
)
from trimtab_serve.service.message_size import count_message_chars
from trimtab_serve.service.session_cache import MAX_OPEN_SESSIONS, SessionCache
from trimtab_serve.service.turn import MAX_MESSAGES_PER_TURN, ServedTurn, TurnRunReport
from trimtab_serve.usage.tenant_limits import TenantLimits

log = logging.getLogger("trimtab.server")

MAX_WAIT_FOR_END_S = 5.0
"""Seconds to wait for a stopped turn to end. Usually it ends within a second."""


LARGE_MESSAGE_CHARS = 16_384
"""Only larger messages count what waits in their session."""
MAX_WAITING_BYTES_PER_SESSION = 16_777_216
"""Bytes that may wait in one session. If nothing waits, a message of any size is accepted."""


class AgentNotServed(TrimtabError, LookupError):
    """No served agent has this name."""

    def __init__(self, name: str, served: Mapping[str, Agent]) -> None:
        super().__init__(
            f"agent {name!r} is not served here; available: {', '.join(sorted(served))}"
        )


class QueueFull(TrimtabError, RuntimeError):
    """Too many messages are waiting. Try again later."""

    def __init__(self, reason: str, *, waiting: int | None = None) -> None:
        self.waiting = waiting
        """Number of waiting messages. None if their size is the reason."""
        super().__init__(reason)


@dataclass(slots=True, kw_only=True)
class AgentService:
    """The state that channels and turn runners share."""

    agents: Mapping[str, Agent]
    """The served agents by name. All of them use the same store."""
    store: Store
    """Stores the sessions."""
    queue: MessageQueue
    """Stores incoming messages and outgoing replies."""
    event_bus: EventBus
    """Delivers events to subscribers."""
    max_queued_messages: int = 10_000
    """Maximum number of waiting messages of one tenant. Further messages are refused."""
    max_open_sessions: int = MAX_OPEN_SESSIONS
    """Maximum number of unused sessions that stay open."""
    delete_hooks: list[Callable[[str], Awaitable[None]]] = field(
        default_factory=list["Callable[[str], Awaitable[None]]"]
    )
    """Called before each deletion of a session, to delete its data elsewhere."""
    erase_hooks: list[EraseHook] = field(default_factory=list["EraseHook"])
    """Called before and after messages are erased, to erase their copies elsewhere."""
    schedules: ScheduleStore | None = None
    """The schedules. None if no agent here has any."""
    tenant_limits: TenantLimits | None = None
    """Limits of what tenants store. None for no limits."""
    erasure_records: ErasureRecords = field(default_factory=MemoryErasureRecords)
    """The records of erasures, and their jobs."""
    count_waiting_retries: Callable[[], Awaitable[int]] | None = None
    """Counts the sessions whose turn waits for a retry. The turn runner sets it."""
    sessions: SessionCache = field(init=False)
    """The open sessions."""
    _backlog: BacklogEstimator = field(init=False)
    _arriving_chars: Counter[str] = field(init=False, default_factory=Counter[str])
    _running: dict[str, _RunningTurn] = field(init=False, default_factory=dict[str, "_RunningTurn"])

    def __post_init__(self) -> None:
        self.sessions = SessionCache(self._open_agent_session, max_sessions=self.max_open_sessions)
        self._backlog = BacklogEstimator(self.queue.depth)

    async def post(self, inbound: InboundMessage) -> bool:
        """Store a message. When this returns, it is stored and a turn will follow.

        Return False if the key is known: it is in the queue or in the log. Raises `AgentNotServed`,
        `QueueFull`, `TenantLimitReached` and `MessageRateExceeded`.
        """
        redact = self.agent_for(inbound.session).redact
        # It may wait for hours, and copies of the queue are made meanwhile.
        inbound = replace(inbound, message=redacted_message(inbound.message, redact))
        tenant = inbound.session.partition("/")[0]
        waiting = await self._backlog.estimate(f"{tenant}/", self.max_queued_messages)
        if waiting >= self.max_queued_messages:
            count_inbound_message(tenant, "rejected")
            raise QueueFull(
                f"the queue is full: {waiting:,} messages wait (limit "
                f"{self.max_queued_messages:,}); try again later",
                waiting=waiting,
            )
        request_id = current_request_id()
        traceparent = find_traceparent_of_request()
        if request_id or traceparent:
            inbound = replace(inbound, request_id=request_id, traceparent=traceparent)
        async with self._admit_to_storage(inbound), self._admit_large_message(inbound):
            is_new = await self.queue.post(inbound)
        if is_new:
            self._backlog.note_arrival(f"{tenant}/")
        count_inbound_message(tenant, "accepted" if is_new else "duplicate")
        return is_new

    def _admit_to_storage(self, inbound: InboundMessage) -> AbstractAsyncContextManager[None]:
        if self.tenant_limits is None:
            return nullcontext()
        size = len(encode_inbound_body(inbound).encode())
        return self.tenant_limits.admit(inbound.session, size)

    @asynccontextmanager
    async def _admit_large_message(self, inbound: InboundMessage) -> AsyncGenerator[None]:
        """Raise `QueueFull` if a large message does not fit into what waits in its session.

        The number of small messages is limited for the whole tenant.
        """
        session = inbound.session
        size = count_message_chars(inbound.message)
        if size <= LARGE_MESSAGE_CHARS:
            yield
            return
        self._arriving_chars[session] += size
        try:
            waiting = (await self.queue.measure_waiting(session)).bytes
            arriving = waiting + self._arriving_chars[session] - size
            if arriving and arriving + size > MAX_WAITING_BYTES_PER_SESSION:
                count_inbound_message(session.partition("/")[0], "rejected")
                raise QueueFull(
                    f"this message has {size:,} characters, and {arriving:,} bytes of messages "
                    f"wait in its session (limit {MAX_WAITING_BYTES_PER_SESSION:,}); send it when "
                    "they are answered"
                )
            yield
        finally:
            self._arriving_chars[session] -= size
            if not self._arriving_chars[session]:
                del self._arriving_chars[session]

    async def find_message_by_key(
        self, session: str, key: str, position: int | None = None
    ) -> Message | None:
        """Return the message with a key, from the log or the queue. None if there is none.

        A caller that knows its log position can pass it.
        """
        position = position or await self.store.find_key(session, key)
        if position is not None:
            async for event in self.store.events(session, [(position, position)]):
                if isinstance(event.body, MessageAdded):
                    return event.body.message
        waiting_message = await self.queue.find_waiting(session, key)
        return None if waiting_message is None else waiting_message.message

    def agent_for(self, session: str) -> Agent:
        """Return the agent that answers in a session."""
        address = parse_session_address(session)
        if address is None or address.agent not in self.agents:
            raise AgentNotServed(address.agent if address is not None else session, self.agents)
        return self.agents[address.agent]

    def replace_agents(self, agents: Mapping[str, Agent]) -> list[asyncio.Future[TurnFinished]]:
        """Serve these agents from the next turn on. Return the turns that are still running."""
        self.agents = agents
        self.sessions.reopen_at_next_use()
        return [running.task for running in self._running.values()]

    @asynccontextmanager
    async def create_session(self, address: SessionAddress) -> AsyncGenerator[Session]:
        """Create and open a session that does not exist. Raises `TenantLimitReached`."""
        if self.tenant_limits is not None:
            self.tenant_limits.check_new_session(address.tenant)
            self.tenant_limits.note_change(str(address))
        async with self.open_session(str(address)) as open_session:
            yield open_session

    def make_fork(self, address: SessionAddress) -> AbstractAsyncContextManager[None]:
        """Make a fork in the block. Raises `TenantLimitReached`."""
        if self.tenant_limits is None:
            return nullcontext()
        return self.tenant_limits.fork(address.tenant, str(address))

    def open_session(self, session: str) -> AbstractAsyncContextManager[Session]:
        """Open a session in its current state. Create it if it does not exist."""
        return self.sessions.open_session(session)

    async def run_turn(
        self,
        session: str,
        *,
        debounce: bool = True,
        progress: TurnRunReport | None = None,
        pending: Sequence[InboundMessage] | None = None,
    ) -> TurnFinished:
        """Run one turn. A turn runner calls this when a turn is due.

        Without `debounce`, it does not wait for messages that people write in pieces. `progress`
        receives how far the turn came. `pending` are the waiting messages, if the runner has read
        them.
        """
        agent = self.agent_for(session)
        if agent.breaker is not None:
            # Before anything is written, because a session may wait here for hours.
            agent.breaker.check()
        waiting = pending
        if waiting is None:
            waiting = await self.queue.pending(session, limit=MAX_MESSAGES_PER_TURN)
        # Bound for longer than this call, because the runner logs its failures with the same id.
        set_request_id(waiting[-1].request_id if waiting else "")
        set_traceparent(waiting[-1].traceparent if waiting else "")
        set_payer(None)
        clear_spending_account()
        if not waiting and not await self.store.position(session):
            # It was deleted, and this turn must not create it again.
            return TurnFinished(reason="done", calls=0)
        async with self.open_session(session) as open_session:
            turning = ServedTurn(
                agent,
                self.queue,
                open_session,
                on_event=lambda happening: self.event_bus.publish(session, happening),
            )
            task = asyncio.create_task(
                turning.run(waiting, debounce=debounce), name=f"turn of {session}"
            )
            mine = self._running[session] = _RunningTurn(served_turn=turning, task=task)
            try:
                return await task
            except asyncio.CancelledError:
                if not mine.cancelled:
                    raise
            finally:
                if progress is not None:
                    full = turning.is_full or mine.cancelled
                    progress.epoch = turning.epoch
                    progress.full = full
                if self._running.get(session) is mine:
                    del self._running[session]
                if self.tenant_limits is not None:
                    self.tenant_limits.note_change(session)
        # The session stays in use until nothing is left that another turn must not touch.
        await mine.released.wait()
        return TurnFinished(reason="stopped", calls=0)

    def list_provider_circuits(self) -> dict[str, bool]:
        """Return the providers of all agents by name, each with whether its circuit is open."""
        circuits: dict[str, bool] = {}
        for agent in self.agents.values():
            if (breaker := agent.breaker) is not None:
                circuits[breaker.name] = breaker.is_open or circuits.get(breaker.name, False)
        return circuits

    def provider_pause_s(self, session: str) -> float | None:
        """Return the seconds for which the session's provider is still paused. None if it can be
        called."""
        try:
            breaker = self.agent_for(session).breaker
        except AgentNotServed:
            return None
        return breaker.seconds_until_probe() if breaker is not None else None

    def stop_turn(self, session: str) -> bool:
        """Stop the running turn in any process: cancel its reply and its tools.

        Return False if it does not run in this process. It may not run at all.
        """
        here = self.stop_local_turn(session)
        if not here:
            self.event_bus.request_stop(session)
        return here

    def stop_local_turn(self, session: str) -> bool:
        """Stop the turn if it runs in this process, because another process asked for it."""
        running_turn = self._running.get(session)
        if running_turn is not None:
            running_turn.served_turn.stop()
        return running_turn is not None

    def pause_turn(self, session: str) -> bool:
        """Let the running turn end after its current step, in any process.

        Return False if it does not run in this process. It may not run at all.
        """
        here = self.pause_local_turn(session)
        if not here:
            self.event_bus.request_pause(session)
        return here

    def pause_local_turn(self, session: str) -> bool:
        """Pause the turn if it runs in this process, because another process asked for it."""
        running_turn = self._running.get(session)
        if running_turn is not None:
            running_turn.served_turn.pause()
        return running_turn is not None

    async def wait_for_ending_turn(self, session: str) -> None:
        """Wait until a stopped or paused turn has ended, if it runs in this process."""
        running_turn = self._running.get(session)
        if running_turn is not None and running_turn.served_turn.is_ending:
            await asyncio.wait((running_turn.task,), timeout=MAX_WAIT_FOR_END_S)

    async def delete_session(self, session: str) -> None:
        """Delete a session with its waiting messages, and cancel its running turn.

        Raises `SessionNotFound` if it has neither a log nor waiting messages.
        """
        running_turn = self._running.get(session)
        waits = await self.queue.pending(session, limit=1)
        position = await self.store.position(session)
        if not position and not waits:
            raise SessionNotFound(session)
        try:
            if running_turn is not None:
                # Messages first: a process that takes the session over from here on finds none.
                await self.queue.forget_session(session)
                await running_turn.cancel()
            elif waits and position:
                # A turn may run in another process, and it must not add replies after this.
                with suppress(LogDamaged):
                    async with self._open_existing_session(session) as open_session:
                        await open_session.recorder.claim()
            for forget in self.delete_hooks:
                await forget(session)
            await self.queue.forget_session(session)
            await self.sessions.close_session(session)
            if position or await self.store.position(session):
                await self.store.delete(session)
        finally:
            if running_turn is not None:
                running_turn.released.set()

    def is_turn_running(self, session: str) -> bool:
        """Whether a turn of a session runs in this process."""
        return session in self._running

    async def delete_idle_session(self, session: str) -> None:
        """Delete a session without waiting messages.

        A message that is posted meanwhile stays, and creates the session again.
        """
        for forget in self.delete_hooks:
            await forget(session)
        position = await self.store.position(session)
        await self.queue.erase_messages(session, range(position + 1), ())
        await self.sessions.close_session(session)
        with suppress(SessionNotFound):
            await self.store.delete(session)

    async def erase_waiting_messages(self, session: str, keys: Collection[str]) -> None:
        """Erase the content of waiting messages. They are answered without it.

        A turn that runs here is cancelled, because it may be about to add them to the log.
        """
        running_turn = self._running.get(session)
        try:
            if running_turn is not None:
                await running_turn.cancel()
            await self.queue.erase_messages(session, (), keys)
        finally:
            if running_turn is not None:
                running_turn.released.set()

    async def erase_message(
        self, session: str, handle: str | Sequence[str], *, why: str = ""
    ) -> ErasedMessagesRecord:
        """Erase messages or parts of them, and everything that was derived from them.

        A running turn is cancelled, because it may hold the text in memory, and restarts from the
        log. Raises `SessionNotFound`, and `LookupError` if the handle does not exist.
        """
        if not await self.store.position(session):
            raise SessionNotFound(session)
        running_turn = self._running.get(session)
        try:
            if running_turn is not None:
                await running_turn.cancel()
            async with self._open_existing_session(session) as open_session:
                beside = [build_queue_erase_hook(self.queue), *self.erase_hooks]
                erasure = await erase_message_and_copies(
                    open_session, handle, why=why, hooks=beside
                )
            if self.tenant_limits is not None:
                await self.tenant_limits.recount(session)
        finally:
            if running_turn is not None:
                running_turn.released.set()
        if erasure.forks:
            log.warning(
                "erased %s of session %s, but these forks still have copies: %s",
                handle if isinstance(handle, str) else f"{len(handle)} messages",
                session,
                erasure.forks,
            )
        return erasure

    async def close(self) -> None:
        """Close the open sessions and the queue."""
        await self.sessions.close()
        await self.queue.close()

    async def _open_agent_session(self, session: str) -> Session:
        return await self.agent_for(session).open_session(session)

    @asynccontextmanager
    async def _open_existing_session(self, session: str) -> AsyncGenerator[Session]:
        """Open an existing session, even if its agent is not served."""
        address = parse_session_address(session)
        if address is not None and address.agent in self.agents:
            async with self.open_session(session) as open_session:
                yield open_session
            return
        open_session = await open_session_to_erase(self.store, session)
        try:
            yield open_session
        finally:
            await open_session.close()


@dataclass(slots=True, kw_only=True)
class _RunningTurn:
    """A turn that runs in this process."""

    served_turn: ServedTurn
    """Used to stop the turn."""
    task: asyncio.Future[TurnFinished]
    """Used to cancel the turn."""
    cancelled: bool = False
    """Whether it was cancelled, because its session is deleted or a message in it erased."""
    released: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the deletion or erasure is done."""

    async def cancel(self) -> None:
        """Cancel the turn."""
        self.cancelled = True
        self.task.cancel()
        await asyncio.wait([self.task])
