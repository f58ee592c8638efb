"""Write a log again with some events changed, and remove what only the old log needed.

The new log replaces the old one with one rename. A marker file exists from before the rename until
everything is removed. So the next writer after a crash can finish the work.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, BinaryIO

from trimtab.engine.log.event import Event, MessageAdded
from trimtab.stores.files.disk import (
    UNFINISHED_SUFFIX,
    fsync_folder,
    open_private_file,
    replace_file,
    write_file_atomically,
)
from trimtab.stores.files.event_lines import (
    delete_unneeded_blobs,
    encode_event_line_and_blobs,
    event_from_line,
    save_blobs,
)
from trimtab.stores.files.log_file import (
    END_FILE,
    LOG_FILE,
    LogView,
    parse_log_line,
)
from trimtab.stores.large_texts import list_blob_digests

SWEEP_MARKER_FILE = "sweep"
TORN_WRITES_FILE = "events.torn"
"""The file for bytes that were cut off after the last whole batch."""


def replace_log_file(
    view: LogView,
    change: Callable[[Event], Event],
    added_lines: Iterable[bytes],
    *,
    fsync: bool,
) -> bool:
    """Replace the log by a changed one with whole lines added.

    Return True if some message has lost its idempotency key.
    """
    folder = view.folder
    write_file_atomically(folder / SWEEP_MARKER_FILE, b"", fsync=fsync)
    unfinished = view.path.with_name(LOG_FILE + UNFINISHED_SUFFIX)
    key_lost = False
    try:
        with _create_unfinished_file(unfinished) as log:
            for line, is_key_lost in _iter_changed_lines(view, change, fsync=fsync):
                key_lost |= is_key_lost
                log.write(line)
            log.writelines(added_lines)
            log.flush()
            if fsync:
                os.fsync(log.fileno())
    except BaseException:
        delete_unfinished_files(folder)
        (folder / SWEEP_MARKER_FILE).unlink()
        raise
    # A list of sessions by recency shows when a log was written, which this is not.
    times = view.path.stat()
    os.utime(unfinished, ns=(times.st_atime_ns, times.st_mtime_ns))
    (folder / END_FILE).unlink(missing_ok=True)
    view.close()  # Windows does not replace an open file
    replace_file(unfinished, view.path)
    if fsync:
        fsync_folder(folder)
    return key_lost


def delete_unreferenced_data(view: LogView, *, fsync: bool) -> None:
    """Remove what the log no longer names, then the marker."""
    folder = view.folder
    digests = {
        digest
        for seq, line in view.read_lines(1, view.last.seq)
        if b'"blobs":' in line
        for digest in list_blob_digests(_parse_whole_line(view, seq, line))
    }
    delete_unneeded_blobs(folder, digests, fsync=fsync)
    (folder / TORN_WRITES_FILE).unlink(missing_ok=True)
    if fsync:
        fsync_folder(folder)
    (folder / SWEEP_MARKER_FILE).unlink(missing_ok=True)


def delete_unfinished_files(folder: Path) -> None:
    """Remove files that a crash or a full disk left unfinished."""
    for path in (
        *folder.glob("*" + UNFINISHED_SUFFIX),
        *folder.glob("blobs/*" + UNFINISHED_SUFFIX),
    ):
        path.unlink(missing_ok=True)


def _iter_changed_lines(
    view: LogView, change: Callable[[Event], Event], *, fsync: bool
) -> Iterable[tuple[bytes, bool]]:
    """Yield the changed lines, and whether a key was lost."""
    for seq, line in view.read_lines(1, view.last.seq):
        old = event_from_line(view, seq, line)
        new = change(old)
        if new.seq != seq:
            raise ValueError(
                f"event {seq} was changed into one at {new.seq}; it must keep its position"
            )
        new_line = encode_event_line_and_blobs(new)
        if new is old or new_line.text == line.strip():
            yield line, False
            continue
        save_blobs(view.folder, new_line.blobs, fsync=fsync)
        first = b" " if line.startswith(b" ") else b""
        last = b" " if line[-2:-1] == b" " else b""
        yield first + new_line.text + last + b"\n", _lost_idempotency_key(old, new)


def _lost_idempotency_key(old: Event, new: Event) -> bool:
    was = old.body.key if isinstance(old.body, MessageAdded) else None
    return was is not None and (not isinstance(new.body, MessageAdded) or new.body.key != was)


def _parse_whole_line(view: LogView, seq: int, line: bytes) -> dict[str, Any]:
    data = parse_log_line(line)
    if data is None:
        raise view.damage_error(seq)
    return data


def _create_unfinished_file(path: Path) -> BinaryIO:
    return os.fdopen(open_private_file(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb")
