"""Turns on many machines: workers of Procrastinate, and what they need to outlive one another.

Every process that runs a `WorkerPool` fetches turns, tells that it lives, and takes over the jobs
of those that no longer do. A database that goes away ends the workers; they begin again when it is
back.

Procrastinate's worker, which misses no call to look for jobs.

It waits for a call, looks for jobs, and forgets calls. One that came while it was looking would be
forgotten with the others, and what it was about found only at the next look by the clock.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from procrastinate import JobContext
from procrastinate.exceptions import ProcrastinateException
from procrastinate.jobs import Job
from procrastinate.worker import Worker
from psycopg import Error

from trimtab.agent.agent import Agent
from trimtab.errors import StoreError
from trimtab.server.postgres.procrastinate_jobs import (
    SUMMARY_QUEUE,
    TASK_NAMES,
    TURN_QUEUE,
    JobKind,
    JobPayload,
    RunningJob,
    current_job,
    parse_job_payload,
)
from trimtab.server.postgres.tenant_slots import TenantSlots
from trimtab.server.postgres.turn_and_summary_jobs import TurnAndSummaryJobHandlers
from trimtab.server.queue.postgres import PostgresMessageQueue
from trimtab.server.retries import RETRY_FOR_S, dead_letter_with_apology
from trimtab.server.service import AgentService

MAX_TAKEOVERS = 20
"""Times that a turn is taken over from workers that died in it before it is given up: by then it is
likely to be what kills them."""
HOUSEKEEPING_INTERVAL_S = 60.0
"""Seconds between two looks for what nobody should have to look for."""
DATABASE_ERRORS = (ProcrastinateException, StoreError, Error, OSError)
"""What a database that goes away is heard by."""

log = logging.getLogger("trimtab.server")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPoolTimings:
    """How fast the fleet notices things, in seconds."""

    heartbeat_s: float = 5.0
    """Between two signs of life of a process, and two looks for those without."""
    takeover_after_s: float = 20.0
    """Without a sign of life after which a process's jobs are taken over, by one that has itself
    been heard for as long: where the database was away, all others have been silent, too."""
    self_cancel_after_s: float = 15.0
    """Without a sign of life of its own after which a process breaks off its turns: another one
    will take them over, and must not be met by requests that are sent again."""
    poll_s: float = 1.0
    """Between two looks for jobs that nobody has told of."""
    shutdown_grace_s: float = 30.0
    """That running turns have to end in where the database was lost or the process is stopped."""
    restart_delay_s: float = 1.0
    """Before workers begin again after the database was lost."""


class WorkerPool:
    """This process's part of the fleet."""

    def __init__(
        self,
        service: AgentService,
        queue: PostgresMessageQueue,
        *,
        max_turns: int = 32,
        max_summaries: int = 4,
        max_turns_per_tenant: int | None = None,
        retry_for_s: float = RETRY_FOR_S,
        timings: WorkerPoolTimings | None = None,
    ) -> None:
        self.cancelled_jobs = 0
        """Jobs that were another one's by now, or will have been."""
        self._queue = queue
        self._app = queue.job_queue.app
        self._timings = timings or WorkerPoolTimings()
        self._max_jobs: dict[JobKind, int] = {TURN_QUEUE: max_turns, SUMMARY_QUEUE: max_summaries}
        self._slots = TenantSlots(queue.job_queue.conninfo, max_turns_per_tenant)
        self._job_runner = TurnAndSummaryJobHandlers(
            service, queue, self._slots, retry_for_s=retry_for_s
        )
        service.count_waiting_retries = queue.count_waiting_retries
        self._workers: dict[JobKind, Worker] = {}
        self._running: dict[int, RunningJob] = {}
        self._unknown_jobs: set[int] = set()
        self._last_heartbeat = 0.0
        self._heartbeats_since: float | None = None
        self._accepting = True
        self._ended = asyncio.Event()
        self._register_tasks()
        for agent in service.agents.values():
            self.prepare_agent(agent)

    def prepare_agent(self, agent: Agent) -> None:
        """Let the fleet write an agent's summaries."""
        agent.schedule_summary = self._job_runner.queue_summary

    async def run(self) -> None:
        """Work until cancelled or drained."""
        self._ended.clear()
        self._last_heartbeat, self._heartbeats_since = _loop_time(), None
        beside = [
            asyncio.create_task(self._heartbeat_loop(), name="signs of life"),
            asyncio.create_task(self._housekeeping_loop(), name="sweep of the fleet"),
            asyncio.create_task(self._watch_own_heartbeat(), name="whether the fleet hears of us"),
        ]
        try:
            async with asyncio.TaskGroup() as group:
                for kind in self._max_jobs:
                    group.create_task(self._keep_worker_running(kind), name=f"workers for {kind}")
        finally:
            for task in beside:
                task.cancel()
            await asyncio.wait(beside)
            await self._slots.close()
            self._ended.set()

    async def drain(self, timeout_s: float) -> int:
        """Begin nothing more and let what runs end; returns how many turns were handed over."""
        self._accepting = False
        before = self._job_runner.handed_over
        for worker in self._workers.values():
            worker.shutdown_graceful_timeout = timeout_s
            worker.stop()
        await self._ended.wait()
        return self._job_runner.handed_over - before

    def _register_tasks(self) -> None:
        steps = {
            TURN_QUEUE: self._job_runner.run_turn_job,
            SUMMARY_QUEUE: self._job_runner.run_summary_job,
        }
        for kind, step in steps.items():
            self._app.task(name=TASK_NAMES[kind], queue=kind, pass_context=True)(_build_task(step))

    async def _keep_worker_running(self, kind: JobKind) -> None:
        """One worker after the other; each ends when the database does."""
        while self._accepting:
            worker = self._workers[kind] = self._build_worker(kind)
            try:
                await worker.run()
            except DATABASE_ERRORS as error:
                log.warning(
                    "workers for %s failed; restarting in %g s: %r",
                    kind,
                    self._timings.restart_delay_s,
                    error,
                )
            if self._accepting:
                await asyncio.sleep(self._timings.restart_delay_s)

    def _build_worker(self, kind: JobKind) -> Worker:
        pace = self._timings
        return WakeableWorker(
            self._app,
            queues=[kind],
            name=kind,
            concurrency=self._max_jobs[kind],
            fetch_job_polling_interval=pace.poll_s,
            abort_job_polling_interval=HOUSEKEEPING_INTERVAL_S,
            shutdown_graceful_timeout=pace.shutdown_grace_s,
            # A job ends when what follows from it is kept elsewhere.
            delete_jobs="always",
            install_signal_handlers=False,
            update_heartbeat_interval=pace.heartbeat_s,
            # Only their names are cleared away by that; whose jobs are taken over we say.
            stalled_worker_timeout=10 * pace.takeover_after_s,
            worker_middleware=[self._track_job],
        )

    async def _track_job(
        self, run_job: Callable[[], Awaitable[Any]], context: JobContext, worker: Worker
    ) -> Any:
        """Know which jobs run here, and look for the next as soon as one has ended."""
        number, own, task = context.job.id or 0, worker.worker_id or 0, asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine runs in one
        running = self._running[number] = RunningJob(id=number, worker_id=own, task=task)
        current_job.set(running)
        task.add_done_callback(partial(self._on_job_done, number, worker))
        try:
            return await run_job()
        finally:
            running.over = True

    def _on_job_done(self, job_id: int, worker: Worker, task: asyncio.Task[Any]) -> None:
        self._running.pop(job_id, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.info(
                "the end of job %d was not recorded; another worker has taken it over, or will: %r",
                job_id,
                error,
            )
        # What waited behind its lock was announced while it ran; Procrastinate would look again
        # only after its polling interval.
        if isinstance(worker, WakeableWorker):
            worker.wake()

    async def _housekeeping_loop(self) -> None:
        """The jobs of those who give no signs of life, and what else is left behind."""
        looked = 0.0
        while True:
            now = _loop_time()
            try:
                if (
                    self._heartbeats_since is not None
                    and now - self._heartbeats_since > self._timings.takeover_after_s
                ):
                    await self._take_over_stalled_jobs()
                await self._reconcile_running_jobs()
                if now - looked > HOUSEKEEPING_INTERVAL_S:
                    looked = now
                    await self._queue.queue_stranded_sessions()
                    await self._queue.delete_expired_replies()
            except DATABASE_ERRORS as error:
                self._heartbeats_since = None
                log.debug("the check of other workers failed: %r", error)
            await asyncio.sleep(self._timings.heartbeat_s)

    async def _watch_own_heartbeat(self) -> None:
        """Beside the signs of life, which may hang."""
        while True:
            await asyncio.sleep(self._timings.heartbeat_s)
            if _loop_time() - self._last_heartbeat > self._timings.self_cancel_after_s:
                self._cancel_jobs([*self._running], "nobody hears of this process")

    async def _heartbeat_loop(self) -> None:
        """Beside the sweep, which may take its time. Also for workers that wait for their last
        turns and have stopped to tell themselves."""
        while True:
            now = _loop_time()
            try:
                for worker in self._own_worker_ids():
                    await self._app.job_manager.update_heartbeat(worker)
                    self._last_heartbeat = now
                    self._heartbeats_since = (
                        now if self._heartbeats_since is None else self._heartbeats_since
                    )
            except DATABASE_ERRORS as error:
                self._heartbeats_since = None
                log.debug("the heartbeat failed: %r", error)
            await asyncio.sleep(self._timings.heartbeat_s)

    def _own_worker_ids(self) -> set[int]:
        """Workers of this process, those with turns that still run among them."""
        working = {worker.worker_id or 0 for worker in self._workers.values()} - {0}
        return working | {running.worker_id for running in self._running.values()}

    async def _take_over_stalled_jobs(self) -> None:
        """Take over from those who are silent."""
        silence = self._timings.takeover_after_s
        for job in await self._app.job_manager.get_stalled_jobs(seconds_since_heartbeat=silence):
            await self._take_over_job(job)

    async def _reconcile_running_jobs(self) -> None:
        """What runs here with what does so as the queue has it."""
        before = {*self._running}
        begun = await self._queue.list_running_jobs(self._own_worker_ids())
        self._cancel_jobs(before - begun, "its job was taken over")
        lost = begun - self._running.keys()
        # Twice in a row, for a job that was fetched a moment ago does not run yet.
        for number in lost & self._unknown_jobs:
            for job in await self._app.job_manager.list_jobs_async(id=number):
                await self._take_over_job(job)
        self._unknown_jobs = lost

    def _cancel_jobs(self, job_ids: Iterable[int], why: str) -> None:
        """End what is another one's by now, before it sends or does anything more."""
        for number in job_ids:
            running = self._running.get(number)
            if running is not None and not running.over:
                log.warning("job %d is cancelled: %s", number, why)
                running.over = True
                self.cancelled_jobs += 1
                running.task.cancel()

    async def _take_over_job(self, job: Job) -> None:
        due = parse_job_payload(job)
        if due is None or job.id is None:
            return
        following = replace(due, taken=due.taken + 1) if due.taken < MAX_TAKEOVERS else None
        if not await self._queue.take_over_job(job.id, job.worker_id, following):
            return
        if following is not None:
            log.warning("%s of session %s: its worker is gone; taken over", due.kind, due.session)
        elif due.kind == TURN_QUEUE:
            why = f"{MAX_TAKEOVERS} workers have died in this turn"
            log.error(
                "turn of session %s failed for good; its messages are dead letters: %s",
                due.session,
                why,
            )
            await dead_letter_with_apology(self._queue, due.session, why)


def _loop_time() -> float:
    return asyncio.get_running_loop().time()


def _build_task(step: Callable[[JobPayload], Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    async def run(context: JobContext, **_: Any) -> None:
        due = parse_job_payload(context.job)
        if due is not None:
            await step(due)

    return run


class NoLostWakeupEvent(asyncio.Event):
    """An event that is cleared only of what was heard."""

    def __init__(self) -> None:
        super().__init__()
        self._set_count = self._seen_count = 0

    def set(self) -> None:
        self._set_count += 1
        super().set()

    async def wait(self) -> Literal[True]:
        await super().wait()
        self._seen_count = self._set_count
        return True

    def clear(self) -> None:
        if self._seen_count == self._set_count:
            super().clear()


class WakeableWorker(Worker):
    """A worker that can be told to look."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._new_job_event = NoLostWakeupEvent()

    def wake(self) -> None:
        """There may be a job: one that waited behind a lock, for example."""
        self._new_job_event.set()

    async def _persist_job_status(self, *arguments: Any, **options: Any) -> None:
        """Tell the queue that a job has ended, unless its turn's end has told it already."""
        job = current_job.get()
        if job is None or not job.ended:
            await super()._persist_job_status(*arguments, **options)
