"""Run turns on many machines with Procrastinate workers.

Every process with a `WorkerPool` fetches turns, sends heartbeats, and takes over the jobs of
processes without heartbeats. If the database becomes unavailable, the workers end and start again
later.

This module also changes Procrastinate's worker so that it misses no notification. The original
waits for a notification, fetches jobs, and clears all notifications. It would lose one that arrives
during the fetch, and find its job only at the next poll.
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

from trimtab.errors import StoreError
from trimtab_serve.agent.agent import Agent
from trimtab_serve.process.jobs import TurnAndSummaryJobHandlers
from trimtab_serve.process.tenant_slots import TenantSlots
from trimtab_serve.queue.postgres.procrastinate_jobs import (
    SUMMARY_QUEUE,
    TASK_NAMES,
    TURN_QUEUE,
    JobKind,
    JobPayload,
    RunningJob,
    current_job,
    parse_job_payload,
)
from trimtab_serve.queue.postgres.queue import PostgresMessageQueue
from trimtab_serve.service.retries import RETRY_FOR_S, dead_letter_with_apology
from trimtab_serve.service.service import AgentService

MAX_TAKEOVERS = 20
"""Maximum number of takeovers of a turn whose worker died. After that, the turn itself is probably
what kills the workers."""
HOUSEKEEPING_INTERVAL_S = 60.0
"""Seconds between two housekeeping runs."""
DATABASE_ERRORS = (ProcrastinateException, StoreError, Error, OSError)
"""Errors of an unavailable database."""

log = logging.getLogger("trimtab.server")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPoolTimings:
    """Intervals and timeouts of the worker pool, in seconds."""

    heartbeat_s: float = 5.0
    """Between two heartbeats of a process, and between two checks of the others."""
    takeover_after_s: float = 20.0
    """Without a heartbeat before the jobs of a process are taken over.

    A process takes over only after its own heartbeats worked for this long. After a database
    outage, all processes look silent.
    """
    self_cancel_after_s: float = 15.0
    """Without a successful heartbeat before a process cancels its own turns.

    Another process will take them over, and no request must be sent twice at the same time.
    """
    poll_s: float = 1.0
    """Between two polls for jobs without a notification."""
    shutdown_grace_s: float = 30.0
    """For running turns to end, after the database is lost or the process is stopped."""
    restart_delay_s: float = 1.0
    """Before workers restart after the database was lost."""


class WorkerPool:
    """The workers of this process."""

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
        """Number of jobs that were cancelled because another process has them, or soon will."""
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
        """Let workers make an agent's summaries."""
        agent.schedule_summary = self._job_runner.queue_summary

    async def run(self) -> None:
        """Run jobs until cancelled or drained."""
        self._ended.clear()
        self._last_heartbeat, self._heartbeats_since = _loop_time(), None
        beside = [
            asyncio.create_task(self._heartbeat_loop(), name="heartbeats"),
            asyncio.create_task(self._housekeeping_loop(), name="housekeeping of the workers"),
            asyncio.create_task(self._watch_own_heartbeat(), name="check of our own heartbeat"),
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
        """Start no more turns and wait for the running ones. Return how many were handed over."""
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
        """Run a worker, and start another one when it fails with the database."""
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
            # A job ends when its result is stored elsewhere.
            delete_jobs="always",
            install_signal_handlers=False,
            update_heartbeat_interval=pace.heartbeat_s,
            # This only deletes the worker's row. Which jobs are taken over is decided here.
            stalled_worker_timeout=10 * pace.takeover_after_s,
            worker_middleware=[self._track_job],
        )

    async def _track_job(
        self, run_job: Callable[[], Awaitable[Any]], context: JobContext, worker: Worker
    ) -> Any:
        """Track the jobs that run here, and fetch the next one as soon as a job has ended."""
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
                "the end of job %d was not recorded; another worker takes the job over: %r",
                job_id,
                error,
            )
        # A job that waited for this lock was announced while this one ran. Procrastinate would
        # fetch it only after its polling interval.
        if isinstance(worker, WakeableWorker):
            worker.wake()

    async def _housekeeping_loop(self) -> None:
        """Take over jobs of processes without heartbeats, and clean up."""
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
                log.debug("checking other workers failed: %r", error)
            await asyncio.sleep(self._timings.heartbeat_s)

    async def _watch_own_heartbeat(self) -> None:
        """Cancel the jobs here if the heartbeat fails. It is a separate task, because a heartbeat
        may hang."""
        while True:
            await asyncio.sleep(self._timings.heartbeat_s)
            if _loop_time() - self._last_heartbeat > self._timings.self_cancel_after_s:
                self._cancel_jobs(
                    [*self._running], "the heartbeat of this process failed for too long"
                )

    async def _heartbeat_loop(self) -> None:
        """Send heartbeats.

        It is a separate task, because housekeeping may be slow. It also covers workers that wait
        for their last turns and send no heartbeats of their own.
        """
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
                log.debug("heartbeat failed: %r", error)
            await asyncio.sleep(self._timings.heartbeat_s)

    def _own_worker_ids(self) -> set[int]:
        """Return the ids of this process's workers, including those that only finish their
        turns."""
        working = {worker.worker_id or 0 for worker in self._workers.values()} - {0}
        return working | {running.worker_id for running in self._running.values()}

    async def _take_over_stalled_jobs(self) -> None:
        """Take over the jobs of processes without heartbeats."""
        silence = self._timings.takeover_after_s
        for job in await self._app.job_manager.get_stalled_jobs(seconds_since_heartbeat=silence):
            await self._take_over_job(job)

    async def _reconcile_running_jobs(self) -> None:
        """Compare the jobs that run here with the jobs that the queue lists for this process."""
        before = {*self._running}
        begun = await self._queue.list_running_jobs(self._own_worker_ids())
        self._cancel_jobs(before - begun, "its job was taken over")
        lost = begun - self._running.keys()
        # Missing twice in a row, because a job that was just fetched does not run yet.
        for number in lost & self._unknown_jobs:
            for job in await self._app.job_manager.list_jobs_async(id=number):
                await self._take_over_job(job)
        self._unknown_jobs = lost

    def _cancel_jobs(self, job_ids: Iterable[int], why: str) -> None:
        """Cancel jobs that another process has, before they send or do anything more."""
        for number in job_ids:
            running = self._running.get(number)
            if running is not None and not running.over:
                log.warning("cancelling job %d: %s", number, why)
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
            log.warning("taking over %s of session %s: its worker is gone", due.kind, due.session)
        elif due.kind == TURN_QUEUE:
            why = f"{MAX_TAKEOVERS} workers died in this turn"
            log.error(
                "turn of session %s abandoned; its messages are dead letters: %s",
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
    """An event that keeps notifications which arrived after the last wait."""

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
    """A worker that can be woken."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._new_job_event = NoLostWakeupEvent()

    def wake(self) -> None:
        """Fetch jobs now. One that waited for a lock may be free, for example."""
        self._new_job_event.set()

    async def _persist_job_status(self, *arguments: Any, **options: Any) -> None:
        """Report the end of a job to the queue, unless the end of its turn already did."""
        job = current_job.get()
        if job is None or not job.ended:
            await super()._persist_job_status(*arguments, **options)
