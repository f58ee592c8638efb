"""Run the jobs of a worker: one turn, or one summary.

A job ends only when its result is stored as another job or a queued message. Until then, another
worker can take it over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace

from trimtab.errors import StaleOwner, StoreUnavailable
from trimtab.observe import instrument
from trimtab.session import Session
from trimtab.session.model_summaries import summarise_session_logging_errors
from trimtab.session.spending import clear_spending_account
from trimtab_serve.process.tenant_slots import REFUSED_TENANT_S, TenantSlots
from trimtab_serve.queue.address import tenant_of_session
from trimtab_serve.queue.postgres.procrastinate_jobs import (
    SUMMARY_QUEUE,
    TURN_QUEUE,
    JobPayload,
    current_job,
)
from trimtab_serve.queue.postgres.queue import PostgresMessageQueue
from trimtab_serve.queue.protocol import MAX_INTERRUPTIONS
from trimtab_serve.service.retries import (
    RETRY_FOR_S,
    TurnRetries,
    abandon_interrupted_turn,
    log_turn_retry,
)
from trimtab_serve.service.service import AgentNotServed, AgentService
from trimtab_serve.service.turn import MAX_MESSAGES_PER_TURN, TurnRunReport
from trimtab_serve.service.waiting_notice import send_waiting_notice

DATABASE_RETRY_S = 1.0
"""Seconds before a turn is retried that failed because the database was unavailable."""
HANDOVER_TIMEOUT_S = 5.0
"""Seconds in which a cancelled turn can queue itself again. Otherwise it is taken over later."""

log = logging.getLogger("trimtab.server")


class TurnAndSummaryJobHandlers:
    """Runs the jobs of this process."""

    def __init__(
        self,
        service: AgentService,
        queue: PostgresMessageQueue,
        slots: TenantSlots,
        *,
        retry_for_s: float = RETRY_FOR_S,
    ) -> None:
        self._service = service
        self._queue = queue
        self._slots = slots
        self._retry_for_s = retry_for_s
        self.handed_over = 0
        """Number of turns that were cancelled and handed over."""

    async def run_turn_job(self, payload: JobPayload) -> None:
        """Answer the waiting messages of a session."""
        attempt = TurnRunReport()
        try:
            async with self._slots.hold_slot(tenant_of_session(payload.session)) as free:
                if not free:
                    await self._retry_until_database_is_back(
                        lambda: self._queue.replace_queued_job(payload, delay_s=REFUSED_TENANT_S)
                    )
                    return
                pending = await self._queue.pending_after_open_posts(
                    payload.session, limit=MAX_MESSAGES_PER_TURN
                )
                await self._service.run_turn(
                    payload.session,
                    debounce=not payload.is_retry,
                    progress=attempt,
                    pending=pending,
                )
            if attempt.full and await self._queue.pending(payload.session, limit=1):
                # More messages than one turn takes: queue it after all other waiting jobs. Messages
                # that arrived meanwhile have their own job.
                await self._queue.defer_job(JobPayload(session=payload.session))
        except asyncio.CancelledError:
            self.handed_over += 1
            await self._hand_over_cancelled(payload)
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the messages must not be lost
            await self._retry_or_give_up(payload, error, attempt)

    async def run_summary_job(self, payload: JobPayload) -> None:
        """Make the summary that a session's policy wants, in parallel to its turns."""
        try:
            agent = self._service.agent_for(payload.session)
            if agent.summariser is None or not await self._service.store.position(payload.session):
                return  # deleted; this job must not create it again
            clear_spending_account()
            async with self._service.open_session(payload.session) as session:
                with agent.charge_calls(session):
                    await summarise_session_logging_errors(
                        session,
                        agent.summariser,
                        instrument(
                            lambda happening: self._service.event_bus.publish(
                                payload.session, happening
                            ),
                            agent=agent.spec.name,
                            session=payload.session,
                        ),
                    )
            if payload.interrupted:
                await self._queue.end_interruptions(payload)
        except (AgentNotServed, StoreUnavailable) as error:
            # The next turn requests it again.
            log.warning("summary of session %s failed: %s", payload.session, error)

    async def queue_summary(self, session: Session) -> None:
        """Queue a job for a session's summary. `run_turn` calls this."""
        try:
            await self._queue.defer_job(JobPayload(session=session.id, kind=SUMMARY_QUEUE))
        except StoreUnavailable as error:
            log.warning("queueing the summary of session %s failed: %s", session.id, error)

    async def _retry_or_give_up(
        self, payload: JobPayload, error: Exception, progress: TurnRunReport
    ) -> None:
        """Retry later or abandon the turn. Return when the decision is stored."""
        match error:
            case StaleOwner():
                # Another process has the turn now. If that is not a worker, our job still has to
                # run.
                log.info(
                    "turn of session %s was taken over by another process: %s",
                    payload.session,
                    error,
                )
                await self._retry_until_database_is_back(lambda: self._requeue_if_pending(payload))
            case StoreUnavailable():
                log.warning(
                    "turn of session %s is waiting for the database: %s", payload.session, error
                )
                await self._retry_until_database_is_back(
                    lambda: self._queue.replace_queued_job(payload, delay_s=DATABASE_RETRY_S)
                )
            case _:
                retries = TurnRetries(
                    payload.tries,
                    failing_since=payload.failing_since or None,
                    retry_for_s=self._retry_for_s,
                    single_process=False,
                )
                pause = self._service.provider_pause_s(payload.session)
                wait = retries.delay_after(error, paused_s=pause)
                if wait is None:
                    await self._retry_until_database_is_back(
                        lambda: self._dead_letter(payload, retries, error, progress)
                    )
                    return
                log_turn_retry(payload.session, wait, error)
                await send_waiting_notice(self._service, payload.session, retries)
                since = retries.failing_since or 0.0
                again = replace(payload, tries=retries.attempts, failing_since=since)
                await self._retry_until_database_is_back(
                    lambda: self._queue.replace_queued_job(again, delay_s=wait)
                )

    async def _dead_letter(
        self, payload: JobPayload, retries: TurnRetries, error: Exception, progress: TurnRunReport
    ) -> None:
        if not await retries.dead_letter(self._queue, payload.session, error, progress.epoch):
            await self._requeue_if_pending(payload)

    async def _requeue_if_pending(self, payload: JobPayload) -> None:
        if await self._queue.pending(payload.session, limit=1):
            await self._queue.defer_job(payload, delay_s=DATABASE_RETRY_S)

    async def hand_over(
        self, job_id: int, worker_id: int | None, payload: JobPayload, *, interrupted: bool
    ) -> bool:
        """Queue a job again that its worker will not end. Return False if the job has changed.

        With `interrupted`, its process has vanished or stalled. If this has happened too often, the
        job itself is the likely cause, and its messages become dead letters.
        """
        times = await self._queue.hand_over_job(job_id, worker_id, payload, interrupted=interrupted)
        if times is None:
            return False
        if times < MAX_INTERRUPTIONS:
            if interrupted:
                log.warning(
                    "%s of session %s run again: the process vanished or stalled (%d of %d times)",
                    payload.kind,
                    payload.session,
                    times,
                    MAX_INTERRUPTIONS,
                )
        elif payload.kind == TURN_QUEUE:
            await abandon_interrupted_turn(self._queue, payload.session, times)
        return True

    async def _hand_over_cancelled(self, payload: JobPayload) -> None:
        job = current_job.get()
        if job is None:
            return
        log.info("turn of session %s continues in another process", payload.session)
        try:
            async with asyncio.timeout(HANDOVER_TIMEOUT_S):
                if await self.hand_over(job.id, job.worker_id, payload, interrupted=job.stalled):
                    job.ended = True
        except (StoreUnavailable, TimeoutError) as error:
            log.warning(
                "queueing the turn of session %s for another process failed: %r",
                payload.session,
                error,
            )

    async def _retry_until_database_is_back(self, step: Callable[[], Awaitable[object]]) -> None:
        """Repeat a step until the database is available, because the job must not end before."""
        wait = 0.2
        while True:
            try:
                await step()
            except StoreUnavailable as error:
                log.debug("waiting for the database: %s", error)
                await asyncio.sleep(wait)
                wait = min(2.0, wait * 2)
            else:
                return
