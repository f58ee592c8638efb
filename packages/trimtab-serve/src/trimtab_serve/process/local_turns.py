"""Run turns in this process: one per session, a limited number at a time, with retries.

This is for one machine that stores files. On PostgreSQL, a job queue does the same for many
machines.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict, deque
from typing import NamedTuple

from trimtab.errors import StoreError
from trimtab_serve.queue.address import tenant_of_session
from trimtab_serve.queue.sqlite.interrupted_turns import InterruptedTurns
from trimtab_serve.service.retries import RETRY_FOR_S, TurnRetries, log_turn_retry
from trimtab_serve.service.service import AgentNotServed, AgentService
from trimtab_serve.service.turn import MAX_DEBOUNCE_PAUSES, TurnRunReport
from trimtab_serve.service.waiting_notice import send_waiting_notice


def compute_tenant_share(max_jobs: int) -> int:
    """Return how many of a process's jobs one tenant may have at the same time: half of them.

    So slow turns of one tenant leave room for the others.
    """
    return (max_jobs + 1) // 2


log = logging.getLogger("trimtab.server")


class _Line(NamedTuple):
    """Sessions that wait in the same line."""

    tenant: str
    """Their tenant."""
    interrupted: bool
    """Whether their last turns were interrupted."""


class LocalTurnRunner:
    """Runs the turns that are due. The queue calls `request_turn` for each posted message.

    Tenants take turns, and so do the sessions of each tenant. A busy tenant delays only itself.
    Turns that were interrupted run one at a time, so a turn that kills the process takes no
    innocent one with it again.
    """

    def __init__(
        self,
        service: AgentService,
        *,
        max_turns: int = 64,
        max_turns_per_tenant: int | None = None,
        retry_for_s: float = RETRY_FOR_S,
        interrupted: InterruptedTurns | None = None,
    ) -> None:
        self._service = service
        self._interrupted = interrupted
        self._max_turns = max_turns
        self._retry_for_s = retry_for_s
        self._max_turns_per_tenant = max_turns_per_tenant or compute_tenant_share(max_turns)
        self._queues: OrderedDict[_Line, deque[str]] = OrderedDict()
        self._queued: set[str] = set()
        self._running: dict[str, asyncio.Task[None]] = {}
        self._lines: dict[str, _Line] = {}
        self._running_by_line = Counter[_Line]()
        self._rerun: set[str] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._debouncing_since: dict[str, float] = {}
        self._retries: dict[str, TurnRetries] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        self._accepting = True
        service.count_waiting_retries = self.count_waiting_retries

    @property
    def running_count(self) -> int:
        """Number of running turns."""
        return len(self._running)

    async def count_waiting_retries(self) -> int:
        """Return how many sessions wait to retry their turn."""
        return len(self._retries)

    def request_turn(self, session: str) -> None:
        """Request a turn of this session. If one is running, another follows it."""
        if not self._accepting:
            return
        self._idle.clear()
        if session in self._running:
            self._rerun.add(session)
        elif session in self._debouncing_since or (
            session not in self._timers and session not in self._queued
        ):
            self._debounce(session)

    async def resume_waiting(self) -> int:
        """Request turns for the messages that an earlier process left. Return the number of
        sessions."""
        waiting = await self._service.queue.list_waiting_sessions()
        for session in waiting:
            self.request_turn(session)
        return len(waiting)

    async def drain(self, timeout_s: float) -> int:
        """Start no more turns and wait for the running ones. Return how many were cancelled.

        Nothing is lost: the messages still wait, and the next process continues from the log.
        """
        self._accepting = False
        for timer in self._timers.values():
            timer.cancel()
        for waiting in (
            self._timers,
            self._debouncing_since,
            self._queues,
            self._queued,
            self._rerun,
        ):
            waiting.clear()
        running = list(self._running.values())
        if not running:
            self._signal_if_idle()
            return 0
        _, unfinished_tasks = await asyncio.wait(running, timeout=timeout_s)
        for task in unfinished_tasks:
            task.cancel()
        await asyncio.gather(*unfinished_tasks, return_exceptions=True)
        return len(unfinished_tasks)

    def close(self) -> None:
        """Release the file of running turns."""
        if self._interrupted is not None:
            self._interrupted.close()

    async def wait_until_idle(self) -> None:
        """Wait until no turn runs, waits or is to be retried."""
        await self._idle.wait()

    def _debounce(self, session: str) -> None:
        """Wait until no more messages arrive for a moment, because people write in pieces."""
        try:
            pause = self._service.agent_for(session).spec.session.debounce
        except AgentNotServed:
            pause = 0.0  # the turn reports the unknown agent
        if not pause:
            self._queue_session(session)
            return
        now = asyncio.get_running_loop().time()
        since = self._debouncing_since.setdefault(session, now)
        if (timer := self._timers.pop(session, None)) is not None:
            timer.cancel()
        self._queue_after(session, max(0.0, min(pause, since + MAX_DEBOUNCE_PAUSES * pause - now)))

    def _queue_after(self, session: str, delay_s: float) -> None:
        loop = asyncio.get_running_loop()
        self._timers[session] = loop.call_later(delay_s, self._queue_session, session)

    def _queue_session(self, session: str) -> None:
        self._timers.pop(session, None)
        self._debouncing_since.pop(session, None)
        self._queued.add(session)
        self._queues.setdefault(self._line_of(session), deque()).append(session)
        self._start_turns()

    def _start_turns(self) -> None:
        while self._accepting and len(self._running) < self._max_turns:
            session = self._next_session()
            if session is None:
                return
            self._running_by_line[self._lines[session]] += 1
            if self._interrupted is not None:
                self._interrupted.begin(session)
            task = asyncio.create_task(self._run_turn(session), name=f"turn of {session}")
            self._running[session] = task
            task.add_done_callback(lambda _, session=session: self._on_turn_ended(session))

    def _line_of(self, session: str) -> _Line:
        was_interrupted = self._interrupted is not None and session in self._interrupted.times
        return _Line(tenant=tenant_of_session(session), interrupted=was_interrupted)

    def _has_room(self, line: _Line) -> bool:
        if line.interrupted:
            return not any(running.interrupted for running in self._running_by_line)
        return self._running_by_line[line] < self._max_turns_per_tenant

    def _next_session(self) -> str | None:
        """Return the session that waits longest, of the line that was served longest ago."""
        for line, queue in self._queues.items():
            if self._has_room(line):
                session = queue.popleft()
                self._queued.discard(session)
                self._lines[session] = line
                self._queues.move_to_end(line)
                if not queue:
                    del self._queues[line]
                return session
        return None

    async def _run_turn(self, session: str) -> None:
        attempt = TurnRunReport()
        try:
            await self._service.run_turn(session, debounce=False, progress=attempt)
            await self._rerun_if_pending(session)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not self._accepting or task is None or task.cancelling():
                raise
            broken = RuntimeError("a task inside the turn cancelled itself")
            await self._retry_or_give_up(session, broken, attempt)
        except Exception as error:  # noqa: BLE001 - whatever it is, the messages must not be lost
            await self._retry_or_give_up(session, error, attempt)
        else:
            self._retries.pop(session, None)
            if self._interrupted is not None:
                self._interrupted.times.pop(session, None)

    async def _rerun_if_pending(self, session: str) -> None:
        """Request another turn if messages are left: too many for one turn, or of another
        process."""
        if session not in self._rerun and await self._service.queue.pending(session, limit=1):
            self._rerun.add(session)

    async def _retry_or_give_up(
        self, session: str, error: Exception, progress: TurnRunReport
    ) -> None:
        queue = self._service.queue
        retries = self._retries.setdefault(session, TurnRetries(retry_for_s=self._retry_for_s))
        wait = retries.delay_after(error, paused_s=self._service.provider_pause_s(session))
        if wait is None:
            try:
                if not await retries.dead_letter(queue, session, error, progress.epoch):
                    await self._rerun_if_pending(session)
            except StoreError as worse:
                wait = retries.delay_after(worse)
            else:
                del self._retries[session]
                return
        wait = wait or 0.0
        log_turn_retry(session, wait, error)
        await send_waiting_notice(self._service, session, retries)
        if self._accepting:
            self._queue_after(session, wait)

    def _on_turn_ended(self, session: str) -> None:
        del self._running[session]
        if self._interrupted is not None:
            self._interrupted.end(session)
        line = self._lines.pop(session)
        self._running_by_line[line] -= 1
        if not self._running_by_line[line]:
            del self._running_by_line[line]
        again = session in self._rerun
        self._rerun.discard(session)
        if again and self._accepting and session not in self._timers:
            self._debounce(session)
        self._start_turns()
        self._signal_if_idle()

    def _signal_if_idle(self) -> None:
        if not self._running and not self._queued and not self._timers:
            self._idle.set()
