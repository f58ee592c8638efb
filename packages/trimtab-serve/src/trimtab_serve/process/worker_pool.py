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
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from time import monotonic
from typing import Any, Literal

from procrastinate import JobContext
from procrastinate.connector import BaseConnector
from procrastinate.exceptions import ProcrastinateException
from procrastinate.jobs import Job
from procrastinate.manager import JobManager
from procrastinate.worker import Worker
from psycopg import Error

from trimtab.errors import StoreError
from trimtab.stores.postgres.escaping import escape_for_text_column
from trimtab_serve.agent.agent import Agent
from trimtab_serve.process.heartbeat import Heartbeat, WorkerPoolTimings
from trimtab_serve.process.jobs import TurnAndSummaryJobHandlers
from trimtab_serve.process.local_turns import compute_tenant_share
from trimtab_serve.process.tenant_slots import TenantSlots
from trimtab_serve.queue.postgres.procrastinate_jobs import (
    SUMMARY_QUEUE,
    TASK_NAMES,
    TURN_QUEUE,
    JobKind,
    JobPayload,
    RunningJob,
    current_job,
    is_interrupted_job,
    parse_job_payload,
    tenant_of_job,
)
from trimtab_serve.queue.postgres.queue import PostgresMessageQueue
from trimtab_serve.service.retries import RETRY_FOR_S
from trimtab_serve.service.service import AgentService

HOUSEKEEPING_INTERVAL_S = 60.0
"""Seconds between two housekeeping runs."""
INTERRUPTED_REST_S = 2.0
"""Seconds after an interrupted job of a tenant in which interrupted jobs of others come first."""
DATABASE_ERRORS = (ProcrastinateException, StoreError, Error, OSError)
"""Errors of an unavailable database."""

log = logging.getLogger("trimtab.server")


class WorkerPool:
    """The workers of this process."""

    def __init__(
        self,
        service: AgentService,
        queue: PostgresMessageQueue,
        *,
        max_turns: int = 64,
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
        self._max_jobs_per_tenant: dict[JobKind, int] = {
            kind: compute_tenant_share(count) for kind, count in self._max_jobs.items()
        }
        if max_turns_per_tenant is not None:
            self._max_jobs_per_tenant[TURN_QUEUE] = max_turns_per_tenant
        self._job_runner = TurnAndSummaryJobHandlers(
            service, queue, self._slots, retry_for_s=retry_for_s
        )
        service.count_waiting_retries = queue.count_waiting_retries
        self._workers: dict[JobKind, WakeableWorker] = {}
        self._running: dict[int, RunningJob] = {}
        self._unknown_jobs: set[int] = set()
        self._resting_until: dict[str, float] = {}
        self._heartbeat = Heartbeat(
            queue.job_queue.conninfo,
            self._timings,
            list_worker_ids=self._own_worker_ids,
            cancel_jobs=self._cancel_unheard_jobs,
        )
        self._accepting = True
        self._ended = asyncio.Event()
        self._app.job_manager = FetchingJobManager(self._app.connector, self._fetch_job)
        self._register_tasks()
        for agent in service.agents.values():
            self.prepare_agent(agent)

    def prepare_agent(self, agent: Agent) -> None:
        """Let workers make an agent's summaries."""
        agent.schedule_summary = self._job_runner.queue_summary

    async def run(self) -> None:
        """Run jobs until cancelled or drained."""
        self._ended.clear()
        beside = [
            asyncio.create_task(self._heartbeat.run(), name="heartbeats"),
            asyncio.create_task(self._housekeeping_loop(), name="housekeeping of the workers"),
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

    async def _fetch_job(self, queues: Iterable[str] | None, worker_id: int) -> Job | None:
        """Fetch a job that may run here now. Tenants at their limit keep no others waiting."""
        kind = TURN_QUEUE if queues is None or TURN_QUEUE in queues else SUMMARY_QUEUE
        running = [job for worker in self._workers.values() for job in worker.running_jobs()]
        counts = Counter(tenant_of_job(job) for job in running if job.queue == kind)
        limit = self._max_jobs_per_tenant[kind]
        full = [tenant for tenant, count in counts.items() if count >= limit]
        if kind == TURN_QUEUE:
            full += map(escape_for_text_column, self._slots.refused_tenants())
        return await self._queue.fetch_job(
            kind,
            worker_id,
            excluded_tenants=full,
            # Tenants take turns, so many slow ones of one tenant do not hold up the others.
            excluded_interrupted_tenants=[
                tenant for tenant, until in self._resting_until.items() if until > monotonic()
            ],
            # One at a time, because it may be what ends its process.
            exclude_interrupted=any(map(is_interrupted_job, running)),
        )

    def _build_worker(self, kind: JobKind) -> WakeableWorker:
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
            # The thread of `Heartbeat` does this.
            update_heartbeat_interval=HOUSEKEEPING_INTERVAL_S,
            # This only deletes the worker's row. Which jobs are taken over is decided here.
            stalled_worker_timeout=10 * pace.takeover_after_s,
            worker_middleware=[self._track_job],
        )

    async def _track_job(
        self, run_job: Callable[[], Awaitable[Any]], context: JobContext, worker: Worker
    ) -> Any:
        """Track the jobs that run here, and fetch the next one as soon as a job has ended."""
        number = context.job.id or 0
        worker_id = worker.worker_id or 0
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine runs in one
        running = self._running[number] = RunningJob(id=number, worker_id=worker_id, task=task)
        current_job.set(running)
        task.add_done_callback(partial(self._on_job_done, context.job, worker))
        try:
            return await run_job()
        finally:
            running.over = True

    def _on_job_done(self, job: Job, worker: Worker, task: asyncio.Task[Any]) -> None:
        self._running.pop(job.id or 0, None)
        if is_interrupted_job(job):
            self._resting_until[tenant_of_job(job)] = monotonic() + INTERRUPTED_REST_S
        if not task.cancelled() and (error := task.exception()) is not None:
            log.info(
                "the end of job %d was not recorded; another worker takes the job over: %r",
                job.id,
                error,
            )
        # A job that waited for this lock or this tenant was announced while this one ran.
        # Procrastinate would fetch it only after its polling interval.
        if isinstance(worker, WakeableWorker):
            worker.wake()

    async def _housekeeping_loop(self) -> None:
        """Take over jobs of processes without heartbeats, and clean up."""
        last_run = 0.0
        while True:
            now = monotonic()
            try:
                if self._heartbeat.heard_for_s() > self._timings.takeover_after_s:
                    await self._take_over_stalled_jobs()
                await self._reconcile_running_jobs()
                if now - last_run > HOUSEKEEPING_INTERVAL_S:
                    last_run = now
                    await self._queue.queue_stranded_sessions()
                    await self._queue.delete_expired_replies()
            except DATABASE_ERRORS as error:
                self._heartbeat.heard_since = None
                log.debug("checking other workers failed: %r", error)
            await asyncio.sleep(self._timings.heartbeat_s)

    def _own_worker_ids(self) -> set[int]:
        """Return the ids of this process's workers, including those that only finish their
        turns. The thread of the heartbeat calls this, so it copies before it reads."""
        workers = [*self._workers.values()]
        running_jobs = [*self._running.values()]
        working = {worker.worker_id or 0 for worker in workers} - {0}
        return working | {running.worker_id for running in running_jobs}

    async def _take_over_stalled_jobs(self) -> None:
        """Take over the jobs of other processes without heartbeats."""
        silence = self._timings.takeover_after_s
        own_ids = self._own_worker_ids()
        jobs = await self._app.job_manager.get_stalled_jobs(seconds_since_heartbeat=silence)
        for job in sorted(jobs, key=lambda job: job.id or 0):
            if job.worker_id not in own_ids:
                await self._take_over_job(job, interrupted=True)

    async def _reconcile_running_jobs(self) -> None:
        """Compare the jobs that run here with the jobs that the queue lists for this process."""
        before = {*self._running}
        job_numbers = await self._queue.list_running_jobs(self._own_worker_ids())
        self._cancel_jobs(before - job_numbers, "its job was taken over")
        unknown_numbers = job_numbers - self._running.keys()
        # Missing twice in a row, because a job that was just fetched does not run yet.
        for number in unknown_numbers & self._unknown_jobs:
            for job in await self._app.job_manager.list_jobs_async(id=number):
                await self._take_over_job(job, interrupted=False)
        self._unknown_jobs = unknown_numbers

    def _cancel_unheard_jobs(self, stalled: bool) -> None:
        """Cancel all jobs, because other processes have not heard of this one for too long."""
        for running in self._running.values():
            running.stalled = running.stalled or stalled
        self._cancel_jobs([*self._running], "the heartbeat of this process failed for too long")

    def _cancel_jobs(self, job_ids: Iterable[int], why: str) -> None:
        """Cancel jobs that another process has, before they send or do anything more."""
        for number in job_ids:
            running = self._running.get(number)
            if running is not None and not running.over:
                log.warning("cancelling job %d: %s", number, why)
                running.over = True
                self.cancelled_jobs += 1
                running.task.cancel()

    async def _take_over_job(self, job: Job, *, interrupted: bool) -> None:
        payload = parse_job_payload(job)
        if payload is not None and job.id is not None:
            await self._job_runner.hand_over(
                job.id, job.worker_id, payload, interrupted=interrupted
            )


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


class FetchingJobManager(JobManager):
    """A job manager that fetches jobs in another way."""

    def __init__(
        self,
        connector: BaseConnector,
        fetch: Callable[[Iterable[str] | None, int], Awaitable[Job | None]],
    ) -> None:
        super().__init__(connector)
        self._fetch = fetch

    async def fetch_job(self, queues: Iterable[str] | None, worker_id: int) -> Job | None:
        """Return the job to run next, after it has begun."""
        return await self._fetch(queues, worker_id)


class WakeableWorker(Worker):
    """A worker that can be woken."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._new_job_event = NoLostWakeupEvent()

    def running_jobs(self) -> list[Job]:
        """Return the jobs that were fetched and have not ended."""
        return [context.job for context in self._running_jobs.values()]

    def wake(self) -> None:
        """Fetch jobs now. One that waited for a lock may be free, for example."""
        self._new_job_event.set()

    async def _persist_job_status(self, *arguments: Any, **options: Any) -> None:
        """Report the end of a job to the queue, unless the end of its turn already did."""
        job = current_job.get()
        if job is None or not job.ended:
            await super()._persist_job_status(*arguments, **options)
