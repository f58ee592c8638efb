"""What was erased, when and by whom: a record that is only added to, without the content.

A user's id and a session's name are personal data themselves, so a record has a digest of them: by
whoever knows the id it can be found, and the id cannot be read from it. The digest is keyed with a
secret of the store, for ids such as phone numbers could be guessed from a plain one.
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
"""Who did it, where it is not somebody with an API key."""
RECORDS_FOLDER = ".erasures"
"""In the folder of a store."""
RECORDS_FILE, SECRET_FILE = "records.jsonl", "secret"
"""The record, a line each, and what digests are keyed with."""
RECORD_VERSION = 1
"""Of the stored shape."""
SECRET_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureRecord:
    """One thing that was done."""

    at: float
    """When it was begun, in seconds since the epoch."""
    by: str
    """Who did it: the name of an API key, `retention` or `command line`."""
    kind: ErasureKind
    """What was erased; by `retention` it is sessions of one agent."""
    tenant: str
    """Whose it was."""
    agent: str = ""
    """The agent; empty for a user and a tenant."""
    target: str = ""
    """A keyed digest of the user's id, or of the session's; empty for a tenant, and for
    `retention`."""
    outcome: ErasureOutcome
    """`begun` is followed by one of the others, unless the process was ended: then the same call is
    to be made again. `incomplete` if something could not be read, `failed` if an error came."""
    sessions: int = 0
    """Sessions that were deleted."""
    messages: int = 0
    """Messages that were erased in sessions that stay."""
    waiting: int = 0
    """Messages that were erased while they waited for their turn."""
    duration_s: float = 0.0
    """Seconds that it took."""


class ErasureRecords(Protocol):
    """Where records are. Every method may raise `StoreUnavailable`."""

    async def add(self, record: ErasureRecord) -> None:
        """Keep a record; when this returns it is durable."""
        ...

    async def newest(
        self, tenant: str | None, *, target: str | None = None, limit: int = 100
    ) -> list[ErasureRecord]:
        """The records of a tenant or of all, or those of one target, the newest first."""
        ...

    async def digest(self, text: str) -> str:
        """What stands for a user's or a session's id in a record."""
        ...


class FileErasureRecords:
    """In a file of the store's folder, which its owner alone can read."""

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
                # A line that a crash has cut off must not spoil the next one.
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
    """HMAC-SHA-256, of which half the digits are enough to tell one from another."""
    return hmac.new(secret, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()[:32]


def encode_erasure_record(record: ErasureRecord) -> str:
    """A line of JSON, without its end."""
    return json.dumps({"v": RECORD_VERSION, **asdict(record)}, separators=(",", ":"))


def decode_erasure_record(line: str | bytes) -> ErasureRecord:
    """The inverse of `encode_erasure_record`. Raises `ValueError`."""
    read = json.loads(line)
    if not isinstance(read, dict):
        raise ValueError("a record of erasures is not a JSON object")  # noqa: TRY004 - as promised
    data = cast("dict[str, Any]", read)
    if data.get("v") != RECORD_VERSION:
        raise ValueError(f"a record of erasures has version {data.get('v')}; upgrade trimtab")
    return ErasureRecord(**{name: value for name, value in data.items() if name != "v"})
