"""The log of one session, `events.jsonl`, and the index that finds a position in it.

Each line is an event. The lines of one append are one batch. All lines except the last end in a
space, and all except the first begin with one. So an incomplete batch after a crash is recognised
by its last whole line. JSON, `cat` and `grep` ignore these spaces.

The index, `events.idx`, has 32 bytes for each event: the offset of its line, and the counts up to
it. It is a cache. An entry counts only if the line at its offset is that event. Otherwise the index
is built again from the log.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from trimtab.engine.log.event import check_event_version
from trimtab.errors import LogDamaged
from trimtab.stores.files.disk import open_private_file, write_all_at

LOG_FILE = "events.jsonl"
INDEX_FILE = "events.idx"

_ENTRY_STRUCT = struct.Struct(">QQIII")
INDEX_ENTRY_BYTES = _ENTRY_STRUCT.size + 4
"""Bytes of an entry with its checksum. It is a power of two, so that no entry spans two pages."""

_LINE_START = re.compile(rb' ?\{"version":\d+,"seq":(\d+),')
_MAX_LINE_START_BYTES = 64
_MAX_WRONG_ENTRIES = 1_024
"""Maximum number of wrong entries at the end of the index before it is built again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexEntry:
    seq: int
    """Position of the event."""
    offset: int
    """Byte offset of its line."""
    epoch: int
    """Epoch of the newest claimed turn up to here."""
    messages: int
    """Number of messages up to here."""
    fork: int
    """Position of the newest fork event up to here; 0 for none."""


ENTRY_BEFORE_FIRST = IndexEntry(seq=0, offset=0, epoch=0, messages=0, fork=0)
"""The entry before the first event."""


def pack_index_entry(entry: IndexEntry) -> bytes:
    data = _ENTRY_STRUCT.pack(entry.offset, entry.epoch, entry.messages, entry.fork, entry.seq)
    return data + zlib.crc32(data).to_bytes(4, "big")


def _unpack_index_entry(data: bytes) -> IndexEntry | None:
    if len(data) < INDEX_ENTRY_BYTES or zlib.crc32(data[:-4]).to_bytes(4, "big") != data[-4:]:
        return None
    offset, epoch, messages, fork, seq = _ENTRY_STRUCT.unpack(data[:-4])
    return IndexEntry(seq=seq, offset=offset, epoch=epoch, messages=messages, fork=fork)


def build_next_index_entry(
    previous: IndexEntry, offset: int, event_json: Mapping[str, Any]
) -> IndexEntry:
    """Return the index entry of an event that follows another one."""
    kind = event_json.get("kind")
    seq = previous.seq + 1
    epoch = previous.epoch
    if kind == "turn" and event_json.get("state") == "claimed":
        epoch = max(epoch, event_json["epoch"])
    return IndexEntry(
        seq=seq,
        offset=offset,
        epoch=epoch,
        messages=previous.messages + (kind == "message"),
        fork=seq if kind == "fork" else previous.fork,
    )


def mark_batch_lines(event_lines: Sequence[bytes]) -> list[bytes]:
    """Mark lines as the batch of one append."""
    last = len(event_lines) - 1
    return [
        (b" " if index else b"") + line + (b" \n" if index < last else b"\n")
        for index, line in enumerate(event_lines)
    ]


def parse_log_line(line: bytes) -> dict[str, Any] | None:
    """Parse a line of a log; None if it is not one whole line."""
    if not line.endswith(b"\n"):
        return None
    try:
        data = json.loads(line.decode())
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", data) if isinstance(data, dict) else None


class LogView:
    """A view of a log for one operation: its end, and any of its lines.

    With `verify_last_batch` it checks that the last batch is complete and does not trust the index.
    """

    def __init__(self, folder: Path, *, verify_last_batch: bool = False) -> None:
        self.folder = folder
        self.path = folder / LOG_FILE
        self._files = contextlib.ExitStack()
        try:
            self._log = self._files.enter_context(self.path.open("rb"))
            self._index = self._opened_index(folder / INDEX_FILE)
            self.size = os.fstat(self._log.fileno()).st_size
            """Bytes of the log, including an unfinished batch at its end."""
            self._kept = 0
            self._rest = bytearray()
            self.last = ENTRY_BEFORE_FIRST
            """The entry of the last event."""
            self.end = 0
            """Bytes of the log up to the end of the last event."""
            self._settle(careful=verify_last_batch)
        except BaseException:
            self._files.close()
            raise

    def __enter__(self) -> LogView:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def _opened_index(self, path: Path) -> int | None:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        self._files.callback(os.close, fd)
        return fd

    def read_lines(self, first: int, last: int) -> Iterator[tuple[int, bytes]]:
        """Yield positions and lines in order, up to the end."""
        if not 1 <= first <= min(last, self.last.seq):
            return
        self._log.seek(self.get_index_entry(first).offset)
        for seq in range(first, min(last, self.last.seq) + 1):
            yield seq, self._log.readline()

    def get_index_entry(self, seq: int) -> IndexEntry:
        """Return the entry of an existing event. If the index does not have it, it is built
        again."""
        entry = self._believed(seq)
        if entry is None:
            self._scan(ENTRY_BEFORE_FIRST, 0)
            entry = self._believed(seq)
        if entry is None:
            raise self.damage_error(seq)
        return entry

    def damage_error(self, line_number: int) -> LogDamaged:
        return LogDamaged(
            f"{self.path}, line {line_number}: this is not event {line_number} of the log, "
            "but more lines follow; nothing was changed: restore that line or the whole "
            "file from a backup"
        )

    def write_index(self) -> None:
        """Write what this view knows to the index on the disk."""
        fd = open_private_file(self.path.with_name(INDEX_FILE), os.O_WRONLY | os.O_CREAT)
        try:
            os.ftruncate(fd, self._kept * INDEX_ENTRY_BYTES)
            write_all_at(fd, self._kept * INDEX_ENTRY_BYTES, bytes(self._rest))
        finally:
            os.close(fd)

    def _settle(self, *, careful: bool) -> None:
        """Find the end of the log. Read what the index does not know, or what the log no longer
        has."""
        entry_count = (
            os.fstat(self._index).st_size // INDEX_ENTRY_BYTES if self._index is not None else 0
        )
        self._kept = entry_count
        for seq in range(entry_count, max(entry_count - _MAX_WRONG_ENTRIES, 0), -1):
            entry = self._believed(seq)
            line = self._line_of(entry)
            if entry is None or line is None or line.endswith(b" \n"):
                continue
            if not careful or self._is_whole(entry, line):
                self._scan(entry, entry.offset + len(line))
                return
        self._scan(ENTRY_BEFORE_FIRST, 0)

    def _scan(self, before: IndexEntry, offset: int) -> None:
        """Read the lines after one, batch by batch. Only the last batch may be unfinished."""
        self._kept, self._rest, self.last, self.end = before.seq, bytearray(), before, offset
        pending = bytearray()
        broken = 0
        self._log.seek(offset)
        while offset < self.size:
            line = self._log.readline()
            offset += len(line)
            data = parse_log_line(line) if offset <= self.size else None
            if broken:
                # A batch that begins behind a bad line: what is bad had been acknowledged.
                if data is not None and not line.startswith(b" "):
                    raise self.damage_error(broken)
            elif data is None:
                broken = before.seq + 1
            elif data.get("seq") != before.seq + 1:
                raise self.damage_error(before.seq + 1)
            else:
                check_event_version(data)
                before = build_next_index_entry(before, offset - len(line), data)
                pending += pack_index_entry(before)
                if not line.endswith(b" \n"):
                    self._rest += pending
                    pending.clear()
                    self.last = before
                    self.end = offset

    def _is_whole(self, entry: IndexEntry, line: bytes) -> bool:
        """Whether the other lines of a batch are valid, given its last line."""
        for seq in range(entry.seq - 1, max(entry.seq - _MAX_WRONG_ENTRIES, 0), -1):
            if not line.startswith(b" "):
                break
            next_line = self._line_of(self._believed(seq))
            if next_line is None:
                return False
            line = next_line
        return True

    def _line_of(self, entry: IndexEntry | None) -> bytes | None:
        """Return the line of an entry; None if it cannot be read."""
        if entry is None:
            return None
        self._log.seek(entry.offset)
        line = self._log.readline()
        data = parse_log_line(line)
        return line if data is not None and data.get("seq") == entry.seq else None

    def _believed(self, seq: int) -> IndexEntry | None:
        """Return the entry if its line exists."""
        if seq > self._kept:
            start = (seq - self._kept - 1) * INDEX_ENTRY_BYTES
            data = bytes(self._rest[start : start + INDEX_ENTRY_BYTES])
        elif self._index is not None:
            data = os.pread(self._index, INDEX_ENTRY_BYTES, (seq - 1) * INDEX_ENTRY_BYTES)
        else:
            return None
        entry = _unpack_index_entry(data)
        if entry is None or entry.seq != seq or entry.offset >= self.size:
            return None
        start = _LINE_START.match(self._begins(entry.offset))
        return entry if start is not None and int(start[1]) == seq else None

    def _begins(self, offset: int) -> bytes:
        """Return the beginning of the line at an offset; empty if no line begins there."""
        self._log.seek(max(offset - 1, 0))
        if offset and self._log.read(1) != b"\n":
            return b""
        return self._log.read(_MAX_LINE_START_BYTES)
