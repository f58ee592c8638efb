"""Turns on many machines: workers of Procrastinate, and what they need to outlive one another.

Every process that runs a `Fleet` fetches turns, tells that it lives, and takes over the jobs of
those that no longer do. A database that goes away ends the workers; they begin again when it is
back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from procrastinate import JobContext
from procrastinate.exceptions import ProcrastinateException
from procrastinate.jobs import Job
from procrastinate.worker import Worker
from psycopg import Error

from trimtab.stores.errors import StoreError
from trimtab.worker.fleet_jobs import Jobs
from trimtab.worker.fleet_slots import Slots
from trimtab.worker.fleet_worker import FleetWorker
from trimtab.worker.postgres.mail import PostgresMail
from trimtab.worker.postgres.queue import SUMMARIES, TASKS, TURNS, Due, Kind, due_of
from trimtab.worker.retries import give_up
from trimtab.worker.service import Service

TAKEN = 20
"""Times that a turn is taken over from workers that died in it before it is given up: by then it is
likely to be what kills them."""
RARELY = 60.0
"""Seconds between two looks for what nobody should have to look for."""
TROUBLE = (ProcrastinateException, StoreError, Error, OSError)
"""What a database that goes away is heard by."""

log = logging.getLogger("trimtab.worker")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast the fleet notices things, in seconds."""

    beat: float = 5.0
    """Between two signs of life of a process, and two looks for those without."""
    silence: float = 20.0
    """Without a sign of life after which a process's jobs are taken over, by one that has itself
    been heard for as long: where the database was away, all others have been silent, too."""
    alone: float = 15.0
    """Without a sign of life of its own after which a process breaks off its turns: another one
    will take them over, and must not be met by requests that are sent again."""
    poll: float = 1.0
    """Between two looks for jobs that nobody has told of."""
    patience: float = 30.0
    """That running turns have to end in where the database was lost or the process is stopped."""
    again: float = 1.0
    """Before workers begin again after the database was lost."""


class Fleet:
    """This process's part of the fleet."""

    def __init__(
        self,
        service: Service,
        mail: PostgresMail,
        *,
        at_once: int = 32,
        summaries_at_once: int = 4,
        tenant_at_once: int | None = None,
        pace: Pace | None = None,
    ) -> None:
        self.broken_off = 0
        """Jobs that were another one's by now, or will have been."""
        self._mail = mail
        self._app = mail.queue.app
        self._pace = pace or Pace()
        self._at_once: dict[Kind, int] = {TURNS: at_once, SUMMARIES: summaries_at_once}
        self._slots = Slots(mail.queue.conninfo, tenant_at_once)
        self._jobs = Jobs(service, mail, self._slots)
        self._workers: dict[Kind, Worker] = {}
        self._running: dict[int, _Running] = {}
        self._lost: set[int] = set()
        self._heard = 0.0
        self._steady: float | None = None
        self._open = True
        self._ended = asyncio.Event()
        self._register()
        for agent in service.agents.values():
            agent.later = self._jobs.summarise_later

    async def run(self) -> None:
        """Work until cancelled or drained."""
        self._ended.clear()
        self._heard, self._steady = _now(), None
        beside = [
            asyncio.create_task(self._beating(), name="signs of life"),
            asyncio.create_task(self._sweeping(), name="sweep of the fleet"),
            asyncio.create_task(self._minding(), name="whether the fleet hears of us"),
        ]
        try:
            async with asyncio.TaskGroup() as group:
                for kind in self._at_once:
                    group.create_task(self._working(kind), name=f"workers for {kind}")
        finally:
            for task in beside:
                task.cancel()
            await asyncio.wait(beside)
            await self._slots.close()
            self._ended.set()

    async def drain(self, seconds: float) -> int:
        """Begin nothing more and let what runs end; returns how many turns were handed over."""
        self._open = False
        before = self._jobs.cut_off
        for worker in self._workers.values():
            worker.shutdown_graceful_timeout = seconds
            worker.stop()
        await self._ended.wait()
        return self._jobs.cut_off - before

    def _register(self) -> None:
        steps = {TURNS: self._jobs.turn, SUMMARIES: self._jobs.summary}
        for kind, step in steps.items():
            self._app.task(name=TASKS[kind], queue=kind, pass_context=True)(_task(step))

    async def _working(self, kind: Kind) -> None:
        """One worker after the other; each ends when the database does."""
        while self._open:
            worker = self._workers[kind] = self._worker(kind)
            try:
                await worker.run()
            except TROUBLE as error:
                log.warning("workers for %s begin again in %g s: %r", kind, self._pace.again, error)
            if self._open:
                await asyncio.sleep(self._pace.again)

    def _worker(self, kind: Kind) -> Worker:
        pace = self._pace
        return FleetWorker(
            self._app,
            queues=[kind],
            name=kind,
            concurrency=self._at_once[kind],
            fetch_job_polling_interval=pace.poll,
            abort_job_polling_interval=RARELY,
            shutdown_graceful_timeout=pace.patience,
            # A job ends when what follows from it is kept elsewhere.
            delete_jobs="always",
            install_signal_handlers=False,
            update_heartbeat_interval=pace.beat,
            # Only their names are cleared away by that; whose jobs are taken over we say.
            stalled_worker_timeout=10 * pace.silence,
            worker_middleware=[self._around],
        )

    async def _around(
        self, job: Callable[[], Awaitable[Any]], context: JobContext, worker: Worker
    ) -> Any:
        """Know which jobs run here, and look for the next as soon as one has ended."""
        number, own, task = context.job.id or 0, worker.worker_id or 0, asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine runs in one
        running = self._running[number] = _Running(worker=own, task=task)
        task.add_done_callback(partial(self._done, number, worker))
        try:
            return await job()
        finally:
            running.over = True

    def _done(self, number: int, worker: Worker, task: asyncio.Task[Any]) -> None:
        self._running.pop(number, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.info(
                "the end of job %d was not heard; it was taken over, or will be: %r", number, error
            )
        # What waited behind its lock was announced while it ran; Procrastinate would look again
        # only after its polling interval.
        if isinstance(worker, FleetWorker):
            worker.look()

    async def _sweeping(self) -> None:
        """The jobs of those who give no signs of life, and what else is left behind."""
        looked = 0.0
        while True:
            now = _now()
            try:
                if self._steady is not None and now - self._steady > self._pace.silence:
                    await self._sweep()
                await self._compare()
                if now - looked > RARELY:
                    looked = now
                    await self._mail.rescue()
                    await self._mail.tidy()
            except TROUBLE as error:
                self._steady = None
                log.debug("the fleet was not looked after: %r", error)
            await asyncio.sleep(self._pace.beat)

    async def _minding(self) -> None:
        """Beside the signs of life, which may hang."""
        while True:
            await asyncio.sleep(self._pace.beat)
            if _now() - self._heard > self._pace.alone:
                self._break_off([*self._running], "nobody hears of this process")

    async def _beating(self) -> None:
        """Beside the sweep, which may take its time. Also for workers that wait for their last
        turns and have stopped to tell themselves."""
        while True:
            now = _now()
            try:
                for worker in self._own():
                    await self._app.job_manager.update_heartbeat(worker)
                    self._heard = now
                    self._steady = now if self._steady is None else self._steady
            except TROUBLE as error:
                self._steady = None
                log.debug("this process was not heard: %r", error)
            await asyncio.sleep(self._pace.beat)

    def _own(self) -> set[int]:
        """Workers of this process, those with turns that still run among them."""
        working = {worker.worker_id or 0 for worker in self._workers.values()} - {0}
        return working | {running.worker for running in self._running.values()}

    async def _sweep(self) -> None:
        """Take over from those who are silent."""
        silence = self._pace.silence
        for job in await self._app.job_manager.get_stalled_jobs(seconds_since_heartbeat=silence):
            await self._take_over(job)

    async def _compare(self) -> None:
        """What runs here with what does so as the queue has it."""
        before = {*self._running}
        begun = await self._mail.begun(self._own())
        self._break_off(before - begun, "its job was taken over")
        lost = begun - self._running.keys()
        # Twice in a row, for a job that was fetched a moment ago does not run yet.
        for number in lost & self._lost:
            for job in await self._app.job_manager.list_jobs_async(id=number):
                await self._take_over(job)
        self._lost = lost

    def _break_off(self, numbers: Iterable[int], why: str) -> None:
        """End what is another one's by now, before it sends or does anything more."""
        for number in numbers:
            running = self._running.get(number)
            if running is not None and not running.over:
                log.warning("job %d is broken off: %s", number, why)
                running.over = True
                self.broken_off += 1
                running.task.cancel()

    async def _take_over(self, job: Job) -> None:
        due = due_of(job)
        if due is None or job.id is None:
            return
        following = replace(due, taken=due.taken + 1) if due.taken < TAKEN else None
        if not await self._mail.take_over(job.id, job.worker_id, following):
            return
        if following is not None:
            log.warning("%s of %s: its worker is gone, taken over", due.kind, due.session)
        elif due.kind == TURNS:
            why = f"{TAKEN} workers have died in this turn"
            log.error("turn of %s is given up: %s", due.session, why)
            await give_up(self._mail, due.session, why)


@dataclass(slots=True, kw_only=True)
class _Running:
    """A job that runs here."""

    worker: int
    """Whose it is."""
    task: asyncio.Task[Any]
    """What can be broken off."""
    over: bool = False
    """Whether it was, or has done all but tell the queue."""


def _now() -> float:
    return asyncio.get_running_loop().time()


def _task(step: Callable[[Due], Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    async def run(context: JobContext, **_: Any) -> None:
        due = due_of(context.job)
        if due is not None:
            await step(due)

    return run
