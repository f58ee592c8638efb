"""Show the typing indicator while a turn runs. The platform hides it after some seconds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from trimtab.session.events import TurnFinished
from trimtab_serve.queue.messages import InboundMessage
from trimtab_serve.service.events.bus import ReceivedEvent
from trimtab_serve.service.service import AgentService

Target = TypeVar("Target")
"""The platform's type for the place that shows the indicator."""

TURN_SILENCE_TIMEOUT_S = 600.0
"""Seconds without an event after which the indicator no longer waits for a turn."""
REPLY_GRACE_S = 5.0
"""Seconds to wait for the reply after the end of its turn."""

log = logging.getLogger("trimtab.server")


@dataclass(slots=True, kw_only=True)
class _WatchedTurn:
    """The turn for which the indicator is shown."""

    events: asyncio.Queue[ReceivedEvent]
    """Events of its session."""
    last_event_at: float
    """Time of the last event, by the loop's clock."""
    reply_sent: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a reply was sent."""

    async def wait_until_finished(self) -> None:
        """Return when the turn has ended."""
        event = None
        while not isinstance(event, TurnFinished):
            event = await self.events.get()
            self.last_event_at = asyncio.get_running_loop().time()

    async def wait_for_end(self, interval_s: float) -> bool:
        """Return whether the turn ended within this time, including its reply."""
        reply_task = asyncio.create_task(self.reply_sent.wait())
        end_task = asyncio.create_task(self.wait_until_finished())
        try:
            ended_tasks, _ = await asyncio.wait(
                (reply_task, end_task), timeout=interval_s, return_when=asyncio.FIRST_COMPLETED
            )
            if end_task in ended_tasks and reply_task not in ended_tasks:
                await asyncio.wait((reply_task,), timeout=min(REPLY_GRACE_S, interval_s))
            return bool(ended_tasks)
        finally:
            for task in (reply_task, end_task):
                task.cancel()
            await asyncio.gather(reply_task, end_task, return_exceptions=True)


class TypingIndicator(Generic[Target]):
    """Shows the indicator in one place per session."""

    def __init__(
        self,
        service: AgentService,
        show_typing: Callable[[Target], Awaitable[None]],
        *,
        interval_s: float,
    ) -> None:
        self._service = service
        self._show_typing = show_typing
        self._interval_s = interval_s
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._turns: dict[str, _WatchedTurn] = {}

    async def post_message(self, inbound: InboundMessage, target: Target) -> bool:
        """Post a message, and show the indicator until its turn has ended.

        Returns and raises what `AgentService.post` does.
        """
        # Before the post, because the turn may end before the post returns.
        self._start(inbound.session, target)
        is_new = False
        try:
            is_new = await self._service.post(inbound)
        finally:
            if not is_new:
                self.on_reply_sent(inbound.session)
        return is_new

    def on_reply_sent(self, session_id: str) -> None:
        """Stop because a reply was sent, unless other messages wait."""
        if session_id in self._turns:
            self._turns[session_id].reply_sent.set()

    async def close(self) -> None:
        """Stop showing the indicator."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, session_id: str, target: Target) -> None:
        if session_id in self._tasks:
            return
        subscription = ExitStack()
        # Here and not in the task, which may begin later than the turn.
        events = subscription.enter_context(self._service.event_bus.subscribe(session_id))
        now = asyncio.get_running_loop().time()
        turn = self._turns[session_id] = _WatchedTurn(events=events, last_event_at=now)
        task = asyncio.create_task(
            self._show_until_replied(session_id, target, turn), name=f"typing in {session_id}"
        )
        self._tasks[session_id] = task
        task.add_done_callback(lambda _: self._forget_session(session_id, subscription))

    def _forget_session(self, session_id: str, subscription: ExitStack) -> None:
        del self._tasks[session_id], self._turns[session_id]
        subscription.close()

    async def _show_until_replied(
        self, session_id: str, target: Target, turn: _WatchedTurn
    ) -> None:
        loop = asyncio.get_running_loop()
        try:
            while loop.time() - turn.last_event_at < TURN_SILENCE_TIMEOUT_S:
                await self._show_typing(target)
                if await turn.wait_for_end(self._interval_s):
                    # The messages that arrived meanwhile have another turn.
                    if not await self._service.queue.pending(session_id, limit=1):
                        return
                    turn.reply_sent.clear()
        except Exception as error:  # noqa: BLE001 - the sign is a courtesy
            log.debug("typing in %s ended: %r", session_id, error)
