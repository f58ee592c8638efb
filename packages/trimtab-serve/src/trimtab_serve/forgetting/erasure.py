"""Erase messages, sessions, users and tenants, and record it.

Sessions that belong to one user are deleted. In sessions that others share, the user's messages are
erased, together with the answers of the agent and its tools. Messages of others stay.

The erasure of a user or a tenant is a job (`ErasureJob`), because it may take long. Each of its
steps can be repeated safely. If the process ends, another one leases the job and finds the rest.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field, replace

from trimtab.errors import SessionNotFound, StoreUnavailable, TrimtabError
from trimtab.stores.subjects import find_subject
from trimtab_serve.forgetting.user_shares import (
    UserShare,
    find_share,
    find_user_shares,
    list_tenant_sessions,
    without_tenant,
)
from trimtab_serve.metrics.recording import count_erasure, watch_erasure
from trimtab_serve.schedules.schedule import Schedule
from trimtab_serve.service.erasure_records import (
    ErasureEnd,
    ErasureJob,
    ErasureKind,
    ErasureRecord,
    ErasureRecords,
)
from trimtab_serve.service.message_erasure import ErasedMessagesRecord
from trimtab_serve.service.service import AgentService

MAX_LISTED = 1_000_000
"""Maximum number of schedules that are searched."""
MAX_PASSES = 10
"""Maximum number of passes over a session or a tenant. Each pass finds what arrived meanwhile."""
MAX_WAIT_FOR_TURN_S = 5.0
"""Seconds that a turn in another process may take from reading the queue to writing the log."""
TURN_POLL_S = 0.05
LEASE_S = 15.0
HEARTBEAT_S = 3.0
"""Seconds for which a process has a job to itself, and between two extensions of that."""
MAX_ATTEMPTS = 5
"""How often a job is begun before it fails because the store is unavailable."""
WORKERS = 2
"""Jobs that a process runs at the same time, of different tenants."""
JOB_POLL_S = 0.2
"""Seconds between two looks at a job that another process runs."""
MAX_CLOCK_SKEW_S = 60.0
"""Seconds by which the clocks of two processes may differ."""

log = logging.getLogger("trimtab.server")

SaveProgress = Callable[[], Awaitable[None]]
"""Stores the numbers of a job, so that its record is right even if the process is killed."""
ShowProgress = Callable[[ErasureJob], None]
"""Called with a job each time its numbers may have changed."""


class ErasureOutpaced(StoreUnavailable):
    """New data arrived faster than it could be erased."""


class CopyOfErasedData(TrimtabError, RuntimeError):
    """A session was forked while data in it was erased. The fork was deleted."""

    def __init__(self) -> None:
        super().__init__(
            "data of this session is being erased, so it was not forked; try again after that"
        )


@dataclass(slots=True, kw_only=True)
class ErasureTotals:
    """Numbers of an erasure."""

    sessions: int = 0
    """Sessions that were deleted."""
    messages: int = 0
    """Messages that were erased in sessions that remain."""
    waiting: int = 0
    """Messages that were erased while they waited for their turn."""
    to_do: int = 0
    """Sessions that were found and are not yet erased."""
    unreadable: list[str] = field(default_factory=list[str])
    """Sessions with a damaged log, whose content is unknown: `AGENT/NAME`."""
    configured_schedules: list[str] = field(default_factory=list[str])
    """Schedules of agent.yaml that will create a deleted session again: `AGENT/NAME`."""


async def erase_message(
    service: AgentService, session: str, handle: str, *, why: str = "", by: str
) -> ErasedMessagesRecord:
    """Call `AgentService.erase_message` and record it."""
    async with recorded_erasure(service.erasure_records, "message", session, by=by) as totals:
        record = await service.erase_message(session, handle, why=why)
        totals.messages = len(record.positions)
        return record


async def delete_session(service: AgentService, session: str, *, by: str) -> None:
    """Call `AgentService.delete_session` and record it."""
    async with recorded_erasure(service.erasure_records, "session", session, by=by) as totals:
        await service.delete_session(session)
        totals.sessions = 1


async def start_erasure(
    records: ErasureRecords,
    tenant: str,
    *,
    user: str = "",
    agents: Collection[str] | None = None,
    by: str,
) -> ErasureJob:
    """Store a job that erases a user, or all of the tenant. If it exists, return that one."""
    limited_to = None if agents is None else tuple(sorted(agents))
    user_and_agents = (user, limited_to)
    for job in await records.list_jobs(tenant):
        if job.finished_at is None and (job.user, job.agents) == user_and_agents:
            return job
    job = ErasureJob(
        id=secrets.token_hex(16),
        kind="user" if user else "tenant",
        tenant=tenant,
        user=user,
        target=await records.digest(user) if user else "",
        agents=limited_to,
        by=by,
        at=time.time(),
    )
    await records.save_job(job)
    return job


async def find_erasure(records: ErasureRecords, tenant: str, job_id: str) -> ErasureJob | None:
    """Return a job of a tenant. None if there is none, or if it was finished long ago."""
    return next((job for job in await records.list_jobs(tenant) if job.id == job_id), None)


async def run_erasure(service: AgentService, job_id: str | None = None) -> bool:
    """Run a job, or the oldest one. Return False if there is none that can run now.

    If the store is unavailable, the job stays, and can be run again when its lease has expired.
    """
    records = service.erasure_records
    claim = await records.claim_job(job_id, lease_s=LEASE_S)
    if claim is None:
        return False
    job = replace(claim, attempts=claim.attempts + 1)
    totals = ErasureTotals(sessions=job.sessions, messages=job.messages, waiting=job.waiting)
    log.info("erasure %s of a %s began", job.id, job.kind, extra=_log_fields(job))
    state: ErasureEnd = "failed"
    reason = ""
    try:
        with watch_erasure():
            async with _heartbeat(records, job, totals) as save_progress:
                if job.kind == "user":
                    await _erase_user(service, job, totals, save_progress)
                else:
                    await _erase_tenant(service, job.tenant, totals, save_progress)
        state = "incomplete" if totals.unreadable else "done"
    except asyncio.CancelledError:
        # The process ends. Another one continues at once.
        with suppress(StoreUnavailable):
            await records.save_job(_with_totals(job, totals))
        raise
    except Exception as error:
        is_outage = isinstance(error, StoreUnavailable) and not isinstance(error, ErasureOutpaced)
        if is_outage and job.attempts < MAX_ATTEMPTS:
            log.warning("erasure %s will be tried again: %s", job.id, error)
            await records.save_job(_with_totals(job, totals), lease_s=LEASE_S)
            return True
        reason = str(error) if isinstance(error, StoreUnavailable) else "see the log of the server"
        log.exception("erasure %s failed", job.id, extra=_log_fields(job))
    now = time.time()
    finished_job = replace(
        _with_totals(job, totals), state=state, reason=reason, user="", finished_at=now, to_do=0
    )
    await records.add(finished_job.to_record(now))
    await records.save_job(finished_job)
    count_erasure(job.kind, state)
    log.info("erasure %s: %s", job.id, state, extra=_log_fields(finished_job))
    return True


async def run_erasures(service: AgentService, *, poll_s: float) -> None:
    """Run all jobs that nobody runs, until cancelled."""

    async def work() -> None:
        task = asyncio.current_task()
        # Python 3.11 may lose a cancellation inside wait_for, which connection pools use.
        while task is None or not task.cancelling():
            try:
                while await run_erasure(service):
                    pass
            except Exception as error:  # noqa: BLE001 - whatever it is, the next look comes
                log.warning("running erasures failed; retrying later: %r", error)
            await asyncio.sleep(poll_s)

    async with asyncio.TaskGroup() as workers:
        for _ in range(WORKERS):
            workers.create_task(work())


async def wait_for_erasure(
    records: ErasureRecords,
    job: ErasureJob,
    show_progress: ShowProgress,
    wait: Callable[[], Awaitable[None]],
) -> ErasureJob:
    """Wait until a job is finished, and return it. `wait` is awaited between two looks.

    Raises `StoreUnavailable` if it failed.
    """
    while True:
        current = await find_erasure(records, job.tenant, job.id)
        if current is None:
            raise StoreUnavailable(f"erasure {job.id} does not exist any more")
        show_progress(current)
        if current.state == "failed":
            raise StoreUnavailable(f"the erasure failed: {current.reason}")
        if current.finished_at is not None:
            return current
        await wait()


async def finish_erasure(
    service: AgentService, job: ErasureJob, show_progress: ShowProgress = lambda _: None
) -> ErasureJob:
    """Run a job, or wait for the process that runs it. Raises `StoreUnavailable` if it failed."""
    running = asyncio.create_task(run_erasure(service, job.id))

    async def wait() -> None:
        nonlocal running
        await asyncio.wait([running], timeout=JOB_POLL_S)
        if running.done():
            if not running.result():  # another process runs it, or another job of the tenant
                await asyncio.sleep(JOB_POLL_S)
            running = asyncio.create_task(run_erasure(service, job.id))

    try:
        return await wait_for_erasure(service.erasure_records, job, show_progress, wait)
    finally:
        running.cancel()
        await asyncio.wait([running])


async def erase_user(
    service: AgentService,
    tenant: str,
    user: str,
    *,
    by: str,
    agents: Collection[str] | None = None,
) -> ErasureJob:
    """Erase a user of a tenant in the sessions of these agents, or of all agents, and wait."""
    records = service.erasure_records
    job = await start_erasure(records, tenant, user=user, agents=agents, by=by)
    return await finish_erasure(service, job)


async def erase_tenant(service: AgentService, tenant: str, *, by: str) -> ErasureJob:
    """Erase all sessions of a tenant with their waiting messages and schedules, and wait."""
    return await finish_erasure(
        service, await start_erasure(service.erasure_records, tenant, by=by)
    )


async def delete_copy_of_erased_data(service: AgentService, session: str, since: float) -> None:
    """Delete a fork if data of it was erased since then, or is being erased.

    A search of the erasure may have ended before the fork was written, and the fork may have been
    copied before its parent was erased. Raises `CopyOfErasedData`.
    """
    tenant = session.partition("/")[0]
    records = service.erasure_records
    jobs = [
        job
        for job in await records.list_jobs(tenant)
        if job.finished_at is None or job.finished_at > since - MAX_CLOCK_SKEW_S
    ]
    if not jobs:
        return
    subjects: set[str] = set()
    with suppress(SessionNotFound):
        async for event in service.store.events(session):
            if (subject := find_subject(event)) is not None:
                subjects.add(subject)
    digests = {await records.digest(subject) for subject in subjects}
    if any(job.kind == "tenant" or job.target in digests for job in jobs):
        with suppress(SessionNotFound):
            await service.delete_session(session)
        raise CopyOfErasedData


async def _erase_user(
    service: AgentService, job: ErasureJob, totals: ErasureTotals, save_progress: SaveProgress
) -> None:
    for _ in range(MAX_PASSES):
        totals.unreadable = []
        shares = await find_user_shares(
            service, job.tenant, job.user, job.agents, totals.unreadable
        )
        if not shares:
            return
        totals.to_do = len(shares)
        for share in shares:
            if share.is_own:
                await _delete_with_schedules(service, share.session, totals)
            else:
                await _erase_share(service, share, job.user, totals)
            totals.to_do -= 1
            await save_progress()
    raise _kept_coming("messages of the user")


async def _erase_tenant(
    service: AgentService, tenant: str, totals: ErasureTotals, save_progress: SaveProgress
) -> None:
    for _ in range(MAX_PASSES):
        sessions = [session async for session in list_tenant_sessions(service, tenant)]
        if not sessions:
            break
        totals.to_do = len(sessions)
        for session in sessions:
            await _delete_with_schedules(service, session, totals)
            totals.to_do -= 1
            await save_progress()
    else:
        raise _kept_coming(f"sessions of tenant {tenant}")
    for one in await _list_schedules(service, f"{tenant}/"):
        if one.origin == "tool" and service.schedules is not None:
            await service.schedules.remove(one.id)


@asynccontextmanager
async def _heartbeat(
    records: ErasureRecords, job: ErasureJob, totals: ErasureTotals
) -> AsyncGenerator[SaveProgress]:
    """Keep the lease of a job while the block runs, and yield what stores its progress."""
    is_over = asyncio.Event()
    lock = asyncio.Lock()  # older numbers must not land after newer ones

    async def save_progress() -> None:
        async with lock:
            try:
                await records.save_job(_with_totals(job, totals), lease_s=LEASE_S)
            except StoreUnavailable as error:
                log.warning("the progress of erasure %s was not stored: %s", job.id, error)

    async def beat() -> None:
        while not is_over.is_set():
            await save_progress()
            with suppress(TimeoutError):
                await asyncio.wait_for(is_over.wait(), HEARTBEAT_S)

    beating = asyncio.create_task(beat())
    try:
        yield save_progress
    finally:
        # A write that has begun must not land after the next one.
        is_over.set()
        await asyncio.wait([beating])


def _with_totals(job: ErasureJob, totals: ErasureTotals) -> ErasureJob:
    lists = ("unreadable", "configured_schedules")
    values = {**asdict(totals), **{name: tuple(getattr(totals, name)) for name in lists}}
    return replace(job, **values)


def _log_fields(job: ErasureJob) -> dict[str, object]:
    numbers = {name: getattr(job, name) for name in ("sessions", "messages", "waiting")}
    return {"event": "erasure", "tenant": job.tenant, "kind": job.kind, "id": job.id, **numbers}


@asynccontextmanager
async def recorded_erasure(
    records: ErasureRecords | None, kind: ErasureKind, session: str, *, by: str
) -> AsyncGenerator[ErasureTotals]:
    """Record the erasure that the block makes in a session, also if it fails.

    If the block raises `LookupError`, there was nothing to erase, and nothing is recorded.
    """
    tenant, agent, _ = session.split("/", 2) if session.count("/") >= 2 else ("", "", session)
    totals = ErasureTotals()
    if records is None:
        yield totals
        return
    target = await records.digest(session)
    start_time = time.time()
    outcome: ErasureEnd | None = "failed"
    try:
        yield totals
        outcome = "done"
    except LookupError:
        outcome = None
        raise
    finally:
        if outcome is not None:
            record = ErasureRecord(
                at=start_time,
                by=by,
                kind=kind,
                tenant=tenant,
                agent=agent,
                target=target,
                outcome=outcome,
                sessions=totals.sessions,
                messages=totals.messages,
                duration_s=round(time.time() - start_time, 3),
            )
            await records.add(record)


async def _erase_share(
    service: AgentService, share: UserShare, user: str, totals: ErasureTotals
) -> None:
    """Erase a user's share of a session that others use, until nothing is left of it."""
    rest = share
    for _ in range(MAX_PASSES):
        if rest.is_own or rest.is_empty:
            break
        if rest.waiting_keys:
            await service.erase_waiting_messages(rest.session, rest.waiting_keys)
            totals.waiting += len(rest.waiting_keys)
            await _wait_for_turn_elsewhere(service, rest)
        if rest.positions:
            handles = [f"m{position}" for position in rest.positions]
            # The reason does not name the user, because it stays in the log.
            await service.erase_message(rest.session, handles, why="the user's data was erased")
            totals.messages += len(handles)
        rest = await find_share(service, rest.session, user)
    if rest.is_empty:
        return
    if not rest.is_own:
        raise _kept_coming("messages of the user in one session")
    await _delete_with_schedules(service, rest.session, totals)


def _kept_coming(what: str) -> ErasureOutpaced:
    return ErasureOutpaced(
        f"the erasure made {MAX_PASSES} passes, and new {what} arrived during each one. Some are "
        "not erased: stop the sender, or try again"
    )


async def _wait_for_turn_elsewhere(service: AgentService, share: UserShare) -> None:
    """Wait for a turn of another process that has read the messages before they were erased.

    It may write them to the log, and the next pass finds them there.
    """
    if await service.queue.dead_letter_reason(share.session) is not None:
        return
    deadline = time.monotonic() + MAX_WAIT_FOR_TURN_S
    for key in share.waiting_keys:
        while await service.store.find_key(share.session, key) is None:
            if time.monotonic() > deadline:
                return
            await asyncio.sleep(TURN_POLL_S)


async def _delete_with_schedules(
    service: AgentService, session: str, totals: ErasureTotals
) -> None:
    if service.schedules is not None:
        for one in await service.schedules.find(session=session, limit=MAX_LISTED):
            if one.origin == "file":
                totals.configured_schedules.append(without_tenant(one.id))
    try:
        await service.delete_session(session)
        totals.sessions += 1
    except SessionNotFound:  # another process deleted it first, or left replies
        await service.queue.forget_session(session)


async def _list_schedules(service: AgentService, prefix: str) -> list[Schedule]:
    if service.schedules is None:
        return []
    schedules = await service.schedules.find(limit=MAX_LISTED)
    return [one for one in schedules if one.session.startswith(prefix)]
