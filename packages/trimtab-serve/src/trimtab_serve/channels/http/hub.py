"""The reply that is being written in a session, for all its followers.

A hub listens once for all followers of a session and keeps the whole partial reply. A follower is
only a position in it. So a slow follower costs no memory and gets longer pieces.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from trimtab.errors import StoreError
from trimtab.session.events import SummaryFinished, TextDelta
from trimtab.stores.base import Store
from trimtab_serve.channels.http.projection import LogToStreamProjector
from trimtab_serve.service.events.bus import EventBus, EventsMissed, ReceivedEvent

IDLE_HUB_TTL_S = 30.0
"""Seconds that a hub still listens after its last follower has gone, because connections break."""


@dataclass(slots=True)
class PartialReply:
    """A reply that is being written."""

    call_position: int
    """Log position of the call that it answers."""
    deltas: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Kind and text, in order. Neighbours have different kinds."""

    def append_delta(self, delta: TextDelta) -> None:
        """Append a piece."""
        if self.deltas and self.deltas[-1][0] == delta.kind:
            self.deltas[-1] = (delta.kind, self.deltas[-1][1] + delta.text)
        else:
            self.deltas.append((delta.kind, delta.text))

    def deltas_after(self, text_chars: int, thinking_chars: int) -> list[tuple[str, str]]:
        """Return what follows this number of characters of each kind."""
        skip = {"text": text_chars, "thinking": thinking_chars}
        rest_deltas: list[tuple[str, str]] = []
        for kind, whole in self.deltas:
            rest = whole[skip.get(kind, 0) :]
            skip[kind] = max(0, skip.get(kind, 0) - len(whole))
            if rest:
                rest_deltas.append((kind, rest))
        return rest_deltas


class SessionHub:
    """The hub of one session."""

    def __init__(self, store: Store, session_id: str) -> None:
        self._store = store
        self._session_id = session_id
        self._projector = LogToStreamProjector(store, session_id)
        self._position = 0
        self._partly_heard_call = 0
        self._ignores_deltas = False
        self._change_event = asyncio.Event()
        self.partial_reply: PartialReply | None = None
        """The reply that is being written. None if there is none, or if its beginning was
        missed."""
        self.version = 0
        """Increases with every event."""
        self.log_version = 0
        """Increases when the log may have new events."""
        self.rewrite_version = 0
        """Increases when something that was read may have been erased."""
        self.subscribers = 0
        """Number of followers, including those that have just gone."""

    async def run_listener(self, queue: asyncio.Queue[ReceivedEvent], ready: asyncio.Event) -> None:
        """Handle events until cancelled."""
        # A reply that is being written now began before this listener.
        try:
            await self._read_log()
            self._partly_heard_call = self._projector.open_call_position
        except StoreError:
            self._ignores_deltas = True
        ready.set()
        while True:
            try:
                await self._handle_event(await queue.get())
            except StoreError:
                self.partial_reply = None
                self._ignores_deltas = True
                self.log_version += 1  # the followers read the log and get the error
            self._bump_version()

    def notify_log_changed(self) -> None:
        """Notify the followers that the log has changed."""
        self.log_version += 1
        self.rewrite_version += 1
        self._bump_version()

    async def wait_for_change(self, version: int, timeout_s: float) -> None:
        """Wait for a change, at most this long."""
        if self.version != version:
            return
        try:
            async with asyncio.timeout(timeout_s):
                await self._change_event.wait()
        except TimeoutError:
            pass

    async def _handle_event(self, event: ReceivedEvent) -> None:
        match event:
            case TextDelta():
                if self.partial_reply is None and not self._ignores_deltas:
                    await self._start_partial_reply()
                if self.partial_reply is not None:
                    self.partial_reply.append_delta(event)
            case EventsMissed():
                self.partial_reply = None
                self._ignores_deltas = False
                self.log_version += 1
                # If a reply is being written, a part of it may be lost.
                await self._read_log()
                self._partly_heard_call = self._projector.open_call_position
            case SummaryFinished():
                self.log_version += 1  # it comes from outside the turn, perhaps during a reply
            case _:
                self.partial_reply = None
                self._ignores_deltas = False
                self.log_version += 1

    async def _start_partial_reply(self) -> None:
        """Begin a partial reply at its first piece. Its call is already in the log."""
        await self._read_log()
        self.log_version += 1
        call = self._projector.open_call_position
        if call and call != self._partly_heard_call:
            self.partial_reply = PartialReply(call_position=call)
        else:
            self._ignores_deltas = True

    async def _read_log(self) -> None:
        if await self._store.position(self._session_id) < self._position:
            # It was deleted and created again, so what was read belongs to another log.
            self._position = self._partly_heard_call = 0
            self._projector = LogToStreamProjector(self._store, self._session_id)
        if not self._position:
            self._position = await self._store.position(self._session_id)
            await self._projector.replay_up_to(self._position)
        span = (self._position + 1, None)
        async for event in self._store.events(self._session_id, [span]):
            self._position = event.seq
            await self._projector.project_event(event)

    def _bump_version(self) -> None:
        self.version += 1
        news, self._change_event = self._change_event, asyncio.Event()
        news.set()


class SessionHubs:
    """The hubs by session. They stay while a session has followers, and a little longer."""

    def __init__(
        self, store: Store, event_bus: EventBus, *, idle_ttl_s: float = IDLE_HUB_TTL_S
    ) -> None:
        self._store = store
        self._event_bus = event_bus
        self._idle_ttl_s = idle_ttl_s
        self._hubs: dict[str, SessionHub] = {}
        self._ready: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._pending_leaves: set[asyncio.TimerHandle] = set()

    @asynccontextmanager
    async def subscribe(self, session_id: str) -> AsyncGenerator[SessionHub]:
        """Yield the hub of a session, already listening."""
        hub = self._hubs.get(session_id)
        if hub is None:
            hub = self._hubs[session_id] = SessionHub(self._store, session_id)
            ready = self._ready[session_id] = asyncio.Event()
            task = asyncio.create_task(
                self._run_hub(session_id, hub, ready), name=f"hub of {session_id}"
            )
            self._tasks[session_id] = task
        hub.subscribers += 1
        try:
            await self._ready[session_id].wait()
            yield hub
        finally:
            self._schedule_leave(lambda: self._drop_subscriber(session_id, hub))

    def notify_log_changed(self, session_id: str) -> None:
        """Notify the followers of a session that its log was changed without an event."""
        if (hub := self._hubs.get(session_id)) is not None:
            hub.notify_log_changed()

    def notify_all(self) -> None:
        """Wake all followers."""
        for hub in list(self._hubs.values()):
            hub.notify_log_changed()

    async def close(self) -> None:
        """Stop all listeners."""
        for handle in self._pending_leaves:
            handle.cancel()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run_hub(self, session_id: str, hub: SessionHub, ready: asyncio.Event) -> None:
        try:
            with self._event_bus.subscribe(session_id) as queue:
                await hub.run_listener(queue, ready)
        finally:
            ready.set()
            if self._hubs.get(session_id) is hub:
                del self._hubs[session_id], self._ready[session_id], self._tasks[session_id]
            hub.notify_log_changed()

    def _schedule_leave(self, leave: Callable[[], None]) -> None:
        def run() -> None:
            self._pending_leaves.discard(handle)
            leave()

        handle = asyncio.get_running_loop().call_later(self._idle_ttl_s, run)
        self._pending_leaves.add(handle)

    def _drop_subscriber(self, session_id: str, hub: SessionHub) -> None:
        hub.subscribers -= 1
        if not hub.subscribers and self._hubs.get(session_id) is hub:
            self._tasks[session_id].cancel()
