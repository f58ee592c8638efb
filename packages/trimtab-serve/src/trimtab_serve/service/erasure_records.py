"""Records of erasures: what was erased, when and by whom, without the content. And their jobs.

The erasure of a user or a tenant is a job that any process can continue. A job names the user until
it is finished. It is deleted a day later.

Records are only added, never changed. User ids and session names are personal data, so a record
contains only a digest of them. A caller who knows the id can find the record, but nobody can read
the id from it. The digest is keyed with a secret of the store, because ids such as phone numbers
could be guessed from a plain digest.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import os
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, cast

from trimtab.stores.files.disk import (
    UNFINISHED_SUFFIX,
    make_private_folder,
    open_private_file,
    translate_read_errors,
    translate_write_errors,
    write_file_atomically,
)

ErasureKind = Literal["message", "session", "user", "tenant"]
ErasureEnd = Literal["done", "incomplete", "failed"]
ErasureOutcome = Literal["running"] | ErasureEnd

BY_COMMAND_LINE = "command line"
BY_RETENTION = "retention"
"""Values of `by` for an erasure without an API key."""
RECORDS_FOLDER = ".erasures"
"""Name of the folder, inside the folder of a store."""
RECORDS_FILE = "records.jsonl"
DIGEST_KEY_FILE = "secret"
JOBS_FOLDER = "jobs"
"""The file of records, one per line, the key of the digests, and the folder of jobs."""
JOB_RETENTION_S = 86_400.0
"""Seconds for which a finished job can be read. Its record stays."""
RECORD_VERSION = 1
"""Version of the stored format."""
SECRET_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureRecord:
    """One erasure."""

    at: float
    """When it began, in seconds since the epoch."""
    by: str
    """The name of an API key, `retention` or `command line`."""
    kind: ErasureKind
    """What was erased. For `retention` it is sessions of one agent."""
    tenant: str
    """The tenant that owned it."""
    agent: str = ""
    """The agent. Empty for a user and a tenant."""
    target: str = ""
    """A keyed digest of the user's id or the session's id. Empty for a tenant and for
    `retention`."""
    outcome: ErasureOutcome
    """`running`, `done`, `incomplete` or `failed`.

    `incomplete` means that some data was unreadable, `failed` that an error occurred. A job that is
    not finished is listed as `running`, but not recorded.
    """
    sessions: int = 0
    """Sessions that were deleted."""
    messages: int = 0
    """Messages that were erased in sessions that remain."""
    waiting: int = 0
    """Messages that were erased while they waited for their turn."""
    duration_s: float = 0.0
    """How long it took, in seconds."""
    id: str = ""
    """The id of the job. Empty for a message and a session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureJob:
    """The erasure of a user or a tenant."""

    id: str
    """Names the job."""
    kind: Literal["user", "tenant"]
    """What to erase."""
    tenant: str
    """The tenant, or the tenant of the user."""
    user: str = ""
    """The user. Empty for a tenant, and when the job is finished."""
    target: str = ""
    """A keyed digest of the user's id. Empty for a tenant."""
    agents: tuple[str, ...] | None = None
    """The agents whose sessions are searched. None for all agents."""
    by: str
    """The name of an API key, or `command line`."""
    at: float
    """When it was requested, in seconds since the epoch."""
    state: ErasureOutcome = "running"
    """`running` until it is finished."""
    attempts: int = 0
    """How often a process has begun it."""
    to_do: int = 0
    """Sessions that were found and are not yet erased."""
    sessions: int = 0
    """Sessions that were deleted."""
    messages: int = 0
    """Messages that were erased in sessions that remain."""
    waiting: int = 0
    """Messages that were erased while they waited for their turn."""
    unreadable: tuple[str, ...] = ()
    """Sessions with a damaged log, whose content is unknown: `AGENT/NAME`."""
    configured_schedules: tuple[str, ...] = ()
    """Schedules of agent.yaml that will create a deleted session again: `AGENT/NAME`."""
    reason: str = ""
    """Why it failed."""
    finished_at: float | None = None
    """When it was finished. None while it runs."""

    def to_record(self, now: float) -> ErasureRecord:
        """Return the record of this job."""
        return ErasureRecord(
            at=self.at,
            by=self.by,
            kind=self.kind,
            tenant=self.tenant,
            target=self.target,
            outcome=self.state,
            sessions=self.sessions,
            messages=self.messages,
            waiting=self.waiting,
            duration_s=round(now - self.at, 3),
            id=self.id,
        )


class ErasureRecords(Protocol):
    """Stores erasure records and jobs. Every method may raise `StoreUnavailable`."""

    async def add(self, record: ErasureRecord) -> None:
        """Add a record. It is durable when this returns."""
        ...

    async def newest(
        self, tenant: str | None, *, target: str | None = None, limit: int = 100
    ) -> list[ErasureRecord]:
        """Return the records of one tenant or of all, or of one target, newest first."""
        ...

    async def digest(self, text: str) -> str:
        """Return the digest that a record contains in place of a user's or a session's id."""
        ...

    async def save_job(self, job: ErasureJob, *, lease_s: float = 0.0) -> None:
        """Add a job, or replace it. Nobody else can claim it for `lease_s` seconds.

        It is durable when this returns. Jobs that were finished long ago are deleted.
        """
        ...

    async def claim_job(self, job_id: str | None, *, lease_s: float) -> ErasureJob | None:
        """Lease a job, or the oldest one, to run it. Return None if there is none to run.

        A job cannot be leased while it or another job of its tenant is leased, and when it is
        finished.
        """
        ...

    async def list_jobs(self, tenant: str | None = None) -> list[ErasureJob]:
        """Return the jobs of one tenant or of all that are not deleted, the oldest first."""
        ...


def find_claimable_job(
    jobs: Sequence[ErasureJob], leases: Mapping[str, float], job_id: str | None, now: float
) -> ErasureJob | None:
    """Return the job that can be leased now. `leases` are the ends of the leases by job."""
    busy = {job.tenant for job in jobs if job.finished_at is None and leases.get(job.id, 0) > now}
    return next(
        (
            job
            for job in jobs
            if job.finished_at is None and job.tenant not in busy and job_id in (None, job.id)
        ),
        None,
    )


async def list_running_and_recorded(
    records: ErasureRecords, tenant: str | None, *, target: str | None = None, limit: int = 100
) -> list[ErasureRecord]:
    """Return the running jobs and the records, newest first."""
    now = time.time()
    running = [
        job.to_record(now)
        for job in reversed(await records.list_jobs(tenant))
        if job.finished_at is None and target in (None, job.target)
    ]
    return [*running, *await records.newest(tenant, target=target, limit=limit)][:limit]


class MemoryErasureRecords:
    """Keeps the records in memory, for a service without a store of its own for them."""

    def __init__(self) -> None:
        self._records: list[ErasureRecord] = []
        self._jobs: dict[str, ErasureJob] = {}
        self._leases: dict[str, float] = {}
        self._secret = secrets.token_bytes(SECRET_BYTES)

    async def add(self, record: ErasureRecord) -> None:
        self._records.insert(0, record)

    async def newest(
        self, tenant: str | None, *, target: str | None = None, limit: int = 100
    ) -> list[ErasureRecord]:
        return [
            one
            for one in self._records
            if tenant in (None, one.tenant) and target in (None, one.target)
        ][:limit]

    async def digest(self, text: str) -> str:
        return compute_target_digest(self._secret, text)

    async def save_job(self, job: ErasureJob, *, lease_s: float = 0.0) -> None:
        self._jobs[job.id], self._leases[job.id] = job, time.time() + lease_s

    async def claim_job(self, job_id: str | None, *, lease_s: float) -> ErasureJob | None:
        now = time.time()
        job = find_claimable_job([*self._jobs.values()], self._leases, job_id, now)
        if job is not None:
            self._leases[job.id] = now + lease_s
        return job

    async def list_jobs(self, tenant: str | None = None) -> list[ErasureJob]:
        return [job for job in self._jobs.values() if tenant in (None, job.tenant)]


class FileErasureRecords:
    """Stores the records in a file of the store's folder that only its owner can read.

    Each job is a file in a folder beside it. Only the process that serves the folder runs jobs, so
    leases are in its memory and end with it.
    """

    def __init__(self, root: Path) -> None:
        self._folder = root / RECORDS_FOLDER
        self._leases: dict[str, float] = {}
        self._saving = threading.Lock()

    async def add(self, record: ErasureRecord) -> None:
        await asyncio.to_thread(self._append_line, encode_erasure_record(record))

    async def newest(
        self, tenant: str | None, *, target: str | None = None, limit: int = 100
    ) -> list[ErasureRecord]:
        return await asyncio.to_thread(self._read_newest, tenant, target, limit)

    async def digest(self, text: str) -> str:
        return compute_target_digest(await asyncio.to_thread(self._load_secret), text)

    async def save_job(self, job: ErasureJob, *, lease_s: float = 0.0) -> None:
        self._leases[job.id] = time.time() + lease_s
        await asyncio.to_thread(self._save_job, job)

    async def claim_job(self, job_id: str | None, *, lease_s: float) -> ErasureJob | None:
        jobs = await self.list_jobs()
        now = time.time()
        job = find_claimable_job(jobs, self._leases, job_id, now)
        if job is not None:
            self._leases[job.id] = now + lease_s
        return job

    async def list_jobs(self, tenant: str | None = None) -> list[ErasureJob]:
        jobs = await asyncio.to_thread(self._read_jobs)
        return [job for job in jobs if tenant in (None, job.tenant)]

    def _save_job(self, job: ErasureJob) -> None:
        path = self._folder / JOBS_FOLDER / f"{job.id}.json"
        with translate_write_errors(path), self._saving:
            make_private_folder(path.parent)
            for unfinished in path.parent.glob("*" + UNFINISHED_SUFFIX):
                unfinished.unlink()  # a process ended while it wrote, and the user's name is in it
            write_file_atomically(path, encode_erasure_job(job).encode(), fsync=True)
            if job.finished_at is None:
                return
            for old in self._read_jobs():
                if (old.finished_at or time.time()) < time.time() - JOB_RETENTION_S:
                    (path.parent / f"{old.id}.json").unlink(missing_ok=True)

    def _read_jobs(self) -> list[ErasureJob]:
        """Return the jobs, the oldest first."""
        folder = self._folder / JOBS_FOLDER
        jobs = list[ErasureJob]()
        with translate_read_errors(folder):
            for path in folder.glob("*.json"):
                with contextlib.suppress(FileNotFoundError):
                    jobs.append(decode_erasure_job(path.read_text()))
        return sorted(jobs, key=lambda job: job.at)

    def _append_line(self, line: str) -> None:
        path = self._folder / RECORDS_FILE
        with translate_write_errors(path):
            make_private_folder(self._folder)
            fd = open_private_file(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
            try:
                size = os.fstat(fd).st_size
                # A line that a crash has truncated must not damage the next one.
                whole = size == 0 or os.pread(fd, 1, size - 1) == b"\n"
                os.write(fd, (b"" if whole else b"\n") + line.encode() + b"\n")
                os.fsync(fd)
            finally:
                os.close(fd)

    def _read_newest(
        self, tenant: str | None, target: str | None, limit: int
    ) -> list[ErasureRecord]:
        path = self._folder / RECORDS_FILE
        records = list[ErasureRecord]()
        with translate_read_errors(path):
            lines = path.read_bytes().splitlines() if path.exists() else []
        for line in reversed(lines):
            if len(records) == limit:
                break
            try:
                record = decode_erasure_record(line)
            except (ValueError, TypeError):
                continue
            if tenant in (None, record.tenant) and target in (None, record.target):
                records.append(record)
        return records

    def _load_secret(self) -> bytes:
        path = self._folder / DIGEST_KEY_FILE
        with translate_read_errors(path):
            if path.exists():
                return path.read_bytes()
        secret = secrets.token_bytes(SECRET_BYTES)
        with translate_write_errors(path):
            make_private_folder(self._folder)
            write_file_atomically(path, secret, fsync=True)
        return secret


def compute_target_digest(secret: bytes, text: str) -> str:
    """Return the first half of an HMAC-SHA-256, which is enough to distinguish ids."""
    return hmac.new(secret, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()[:32]


def encode_erasure_job(job: ErasureJob) -> str:
    """Return a job as JSON."""
    return json.dumps({"v": RECORD_VERSION, **asdict(job)}, separators=(",", ":"))


def decode_erasure_job(text: str) -> ErasureJob:
    """Read what `encode_erasure_job` wrote."""
    data: dict[str, Any] = json.loads(text)
    del data["v"]
    for name in ("agents", "unreadable", "configured_schedules"):
        data[name] = None if data[name] is None else tuple(data[name])
    return ErasureJob(**data)


def encode_erasure_record(record: ErasureRecord) -> str:
    """Return one line of JSON without a newline."""
    return json.dumps({"v": RECORD_VERSION, **asdict(record)}, separators=(",", ":"))


def decode_erasure_record(line: str | bytes) -> ErasureRecord:
    """Read what `encode_erasure_record` wrote. Raises `ValueError`."""
    read = json.loads(line)
    if not isinstance(read, dict):
        raise ValueError("invalid erasure record: not a JSON object")  # noqa: TRY004 - as promised
    data = cast("dict[str, Any]", read)
    if data.get("v") != RECORD_VERSION:
        raise ValueError(f"unknown erasure record version {data.get('v')}; upgrade trimtab")
    return ErasureRecord(**{name: value for name, value in data.items() if name != "v"})
