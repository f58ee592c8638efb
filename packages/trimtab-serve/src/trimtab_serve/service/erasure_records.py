"""Records of erasures: what was erased, when and by whom, without the content.

Records are only added, never changed. User ids and session names are personal data, so a record
contains only a digest of them. A caller who knows the id can find the record, but nobody can read
the id from it. The digest is keyed with a secret of the store, because ids such as phone numbers
could be guessed from a plain digest.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, cast

from trimtab.stores.files.disk import (
    make_private_folder,
    open_private_file,
    translate_read_errors,
    translate_write_errors,
    write_file_atomically,
)

ErasureKind = Literal["message", "session", "user", "tenant"]
ErasureOutcome = Literal["begun", "done", "incomplete", "failed"]

BY_COMMAND_LINE, BY_RETENTION = "command line", "retention"
"""Values of `by` for an erasure without an API key."""
RECORDS_FOLDER = ".erasures"
"""Name of the folder, inside the folder of a store."""
RECORDS_FILE, SECRET_FILE = "records.jsonl", "secret"
"""The file of records, one per line, and the key of the digests."""
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
    """`begun`, `done`, `incomplete` or `failed`.

    One of the others follows `begun`, unless the process was killed. Then repeat the same call.
    `incomplete` means that some data was unreadable, `failed` that an error occurred.
    """
    sessions: int = 0
    """Sessions that were deleted."""
    messages: int = 0
    """Messages that were erased in sessions that remain."""
    waiting: int = 0
    """Messages that were erased while they waited for their turn."""
    duration_s: float = 0.0
    """How long it took, in seconds."""


class ErasureRecords(Protocol):
    """Stores erasure records. Every method may raise `StoreUnavailable`."""

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


class FileErasureRecords:
    """Stores the records in a file of the store's folder that only its owner can read."""

    def __init__(self, root: Path) -> None:
        self._folder = root / RECORDS_FOLDER

    async def add(self, record: ErasureRecord) -> None:
        await asyncio.to_thread(self._append_line, encode_erasure_record(record))

    async def newest(
        self, tenant: str | None, *, target: str | None = None, limit: int = 100
    ) -> list[ErasureRecord]:
        return await asyncio.to_thread(self._read_newest, tenant, target, limit)

    async def digest(self, text: str) -> str:
        return compute_target_digest(await asyncio.to_thread(self._load_secret), text)

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
        path, found = self._folder / RECORDS_FILE, list[ErasureRecord]()
        with translate_read_errors(path):
            lines = path.read_bytes().splitlines() if path.exists() else []
        for line in reversed(lines):
            if len(found) == limit:
                break
            try:
                record = decode_erasure_record(line)
            except (ValueError, TypeError):
                continue
            if tenant in (None, record.tenant) and target in (None, record.target):
                found.append(record)
        return found

    def _load_secret(self) -> bytes:
        path = self._folder / SECRET_FILE
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
