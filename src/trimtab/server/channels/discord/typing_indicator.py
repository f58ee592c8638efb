"""The sign that the bot is writing, while a turn runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from trimtab.server.events.bus import ReceivedEvent
from trimtab.server.service import AgentService
from trimtab.session.events import TurnFinished

ShowTyping = Callable[[int], Awaitable[None]]
"""Shows the sign in a channel, for ten seconds."""

MAX_TYPING_S = 600.0
"""Seconds that the sign is shown at most for one message."""
REPLY_GRACE_S = 5.0
"""Seconds that it stays behind a turn's end, until the reply is there."""

log = logging.getLogger("trimtab.discord")


class TypingIndicator:
    """Signs by session, at most one each."""

    def __init__(
        self, service: AgentService, show_typing: ShowTyping, *, interval_s: float
    ) -> None:
        self._service = service
        self._show_typing = show_typing
        self._interval_s = interval_s
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._reply_sent_events: dict[str, asyncio.Event] = {}

    def start(self, session_id: str, channel_id: int) -> None:
        """A message waits; show it until its turn is over."""
        if session_id in self._tasks:
            return
        self._reply_sent_events[session_id] = asyncio.Event()
        task = asyncio.create_task(
            self._show_until_replied(session_id, channel_id), name=f"typing in {channel_id}"
        )
        self._tasks[session_id] = task
        task.add_done_callback(lambda _: self._forget_session(session_id))

    def on_reply_sent(self, session_id: str) -> None:
        """A reply has left."""
        if session_id in self._reply_sent_events:
            self._reply_sent_events[session_id].set()

    async def close(self) -> None:
        """Show nothing any more."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _forget_session(self, session_id: str) -> None:
        del self._tasks[session_id], self._reply_sent_events[session_id]

    async def _show_until_replied(self, session_id: str, channel_id: int) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + MAX_TYPING_S
        try:
            with self._service.event_bus.subscribe(session_id) as heard:
                while loop.time() < until:
                    await self._show_typing(channel_id)
                    if await self._wait_for_turn_end(session_id, heard):
                        # Of messages that came meanwhile another turn is made.
                        if not await self._service.queue.pending(session_id, limit=1):
                            return
                        self._reply_sent_events[session_id].clear()
        except Exception as error:  # noqa: BLE001 - a sign is a courtesy
            log.debug("typing in %d ended: %r", channel_id, error)

    async def _wait_for_turn_end(
        self, session_id: str, events: asyncio.Queue[ReceivedEvent]
    ) -> bool:
        """Whether the turn was over before the sign must be shown again."""
        sent = asyncio.create_task(self._reply_sent_events[session_id].wait())
        ended = asyncio.create_task(_wait_for_turn_finished(events))
        try:
            done, _ = await asyncio.wait(
                (sent, ended), timeout=self._interval_s, return_when=asyncio.FIRST_COMPLETED
            )
            if ended in done and sent not in done:
                await asyncio.wait((sent,), timeout=min(REPLY_GRACE_S, self._interval_s))
            return bool(done)
        finally:
            for task in (sent, ended):
                task.cancel()
            await asyncio.gather(sent, ended, return_exceptions=True)


async def _wait_for_turn_finished(events: asyncio.Queue[ReceivedEvent]) -> None:
    while not isinstance(await events.get(), TurnFinished):
        pass
