"""The log of one session, `events.jsonl`, and what is known of its end.

Each line is an event. The lines of one append are one batch. All lines except the last end in a
space, and all except the first begin with one. So an incomplete batch after a crash is recognised
by its last whole line. JSON, `cat` and `grep` ignore these spaces.

A line begins with its position, so an event is found by bisection. `events.end` has the offset of
the last line and the counts up to it. It is a cache: it counts only if that line is that event, and
otherwise the log is read from its beginning.
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
from trimtab.stores.files.disk import open_private_file, read_at, write_all_at

LOG_FILE = "events.jsonl"
END_FILE = "events.end"

_END_STRUCT = struct.Struct(">QQIII")
_LINE_START = re.compile(rb' ?\{"version":\d+,"seq":(\d+),')
_BLOCK_BYTES = 4 * 1024
"""Bytes to read at once when the beginning of a line is looked for."""
_MAX_SKIPPED_LINES = 64
"""Lines up to which it is faster to read than to look for a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnd:
    """The last event of a log."""

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


EMPTY_LOG = LogEnd(seq=0, offset=0, epoch=0, messages=0, fork=0)


def save_log_end(folder: Path, end: LogEnd) -> None:
    """Write what is known of the end of a log to the disk. It may fail, because readers also look
    at what comes after."""
    data = _END_STRUCT.pack(end.offset, end.epoch, end.messages, end.fork, end.seq)
    with contextlib.suppress(OSError):
        fd = open_private_file(folder / END_FILE, os.O_WRONLY | os.O_CREAT)
        try:
            write_all_at(fd, 0, data + zlib.crc32(data).to_bytes(4, "big"))
        finally:
            os.close(fd)


def _read_log_end(folder: Path) -> LogEnd:
    try:
        data = (folder / END_FILE).read_bytes()
    except FileNotFoundError:
        return EMPTY_LOG
    if len(data) <= 4 or zlib.crc32(data[:-4]).to_bytes(4, "big") != data[-4:]:
        return EMPTY_LOG
    offset, epoch, messages, fork, seq = _END_STRUCT.unpack(data[:-4])
    return LogEnd(seq=seq, offset=offset, epoch=epoch, messages=messages, fork=fork)


def advance_log_end(previous: LogEnd, offset: int, event_json: Mapping[str, Any]) -> LogEnd:
    """Return the end of a log after one more event."""
    kind = event_json.get("kind")
    seq = previous.seq + 1
    epoch = previous.epoch
    if kind == "turn" and event_json.get("state") == "claimed":
        epoch = max(epoch, event_json["epoch"])
    return LogEnd(
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

    With `verify_last_batch` it checks that the last batch is complete.
    """

    def __init__(self, folder: Path, *, verify_last_batch: bool = False) -> None:
        self.folder = folder
        self.path = folder / LOG_FILE
        self._log = self.path.open("rb")
        try:
            self.size = os.fstat(self._log.fileno()).st_size
            """Bytes of the log, including an unfinished batch at its end."""
            self._next = (1, 0)
            """Position and offset of the line after the one that was read last."""
            self.last = EMPTY_LOG
            """The last event."""
            self.end = 0
            """Bytes of the log up to the end of the last event."""
            self._find_end(careful=verify_last_batch)
        except BaseException:
            self._log.close()
            raise

    def __enter__(self) -> LogView:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._log.close()

    def read_lines(self, first: int, last: int) -> Iterator[tuple[int, bytes]]:
        """Yield positions and lines in order, up to the end."""
        if not 1 <= first <= min(last, self.last.seq):
            return
        seq, offset = self._next
        if not seq <= first <= seq + _MAX_SKIPPED_LINES:
            seq = first
            offset = self._find_line(first)
        self._log.seek(offset)
        while seq <= min(last, self.last.seq):
            line = self._log.readline()
            offset += len(line)
            self._next = (seq + 1, offset)
            if seq >= first:
                yield seq, line
            seq += 1

    def damage_error(self, line_number: int) -> LogDamaged:
        return LogDamaged(
            f"{self.path}, line {line_number}: this is not event {line_number} of the log, "
            "but more lines follow; nothing was changed: restore that line or the whole "
            "file from a backup"
        )

    def _find_end(self, *, careful: bool) -> None:
        """Find the end of the log. Read what was appended after the known end, or everything."""
        known = _read_log_end(self.folder)
        line = self._read_line(known.offset, known.seq)
        if line is None or line.endswith(b" \n") or (careful and not self._is_whole(known, line)):
            self._scan(EMPTY_LOG, 0)
        else:
            self._scan(known, known.offset + len(line))

    def _scan(self, before: LogEnd, offset: int) -> None:
        """Read the lines after one, batch by batch. Only the last batch may be unfinished."""
        self.last = before
        self.end = offset
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
            elif data.get("seq") != before.seq + 1 or "version" not in data:
                raise self.damage_error(before.seq + 1)
            else:
                check_event_version(data)
                before = advance_log_end(before, offset - len(line), data)
                if not line.endswith(b" \n"):
                    self.last = before
                    self.end = offset

    def _is_whole(self, last: LogEnd, line: bytes) -> bool:
        """Whether the other lines of a batch are valid, given its last line."""
        start = last.offset
        seq = last.seq
        while line.startswith(b" "):
            start = self._find_line_start(start - 1)
            seq -= 1
            previous = self._read_line(start, seq)
            if previous is None:
                return False
            line = previous
        return True

    def _read_line(self, offset: int, seq: int) -> bytes | None:
        """Return the line at an offset; None if it is not this event."""
        if self._find_line_start(offset) != offset:
            return None
        self._log.seek(offset)
        line = self._log.readline()
        is_event = _read_position(line) == seq and parse_log_line(line) is not None
        return line if is_event else None

    def _find_line(self, seq: int) -> int:
        """Return the offset of an existing event."""
        low = 0
        high = self.end
        while low < high:
            start = self._find_line_start((low + high) // 2)
            self._log.seek(start)
            line = self._log.readline()
            position = _read_position(line)
            if position == seq:
                return start
            if position is None:
                break
            if position < seq:
                low = start + len(line)
            else:
                high = start
        self._scan(EMPTY_LOG, 0)  # it names the line that is damaged
        raise self.damage_error(seq)

    def _find_line_start(self, offset: int) -> int:
        """Return the offset of the line that contains a byte."""
        while offset > 0:
            start = max(offset - _BLOCK_BYTES, 0)
            newline = read_at(self._log.fileno(), offset - start, start).rfind(b"\n")
            if newline >= 0:
                return start + newline + 1
            offset = start
        return 0


def _read_position(line: bytes) -> int | None:
    start = _LINE_START.match(line)
    return int(start[1]) if start else None
