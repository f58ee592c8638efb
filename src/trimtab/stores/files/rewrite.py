"""A log written anew, with some events changed, and what the old one left behind swept away.

The new log takes the old one's place by one rename. A marker stands from before the rename until
all is swept, so that whoever writes next after a crash ends the work.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, BinaryIO

from trimtab.core.event import Event, Said
from trimtab.stores.blobs import digests
from trimtab.stores.files.blobs import keep_blobs, sweep_blobs
from trimtab.stores.files.disk import NEW, open_file, put_file, sync_folder
from trimtab.stores.files.events import from_line, to_line
from trimtab.stores.files.log import INDEX, LOG, NONE, LogView, next_entry, pack_entry, parsed

MARKER = "sweep"
TORN = "events.torn"
"""What was cut off behind the last whole batch."""


def rewrite_log(
    view: LogView,
    change: Callable[[Event], Event],
    added: Iterable[bytes],
    *,
    fsync: bool,
) -> bool:
    """Put a changed log, with whole lines added, in the old one's place.

    True if some message has lost its idempotency key.
    """
    folder = view.folder
    put_file(folder / MARKER, b"", fsync=fsync)
    key_lost = False
    try:
        with _created(folder / LOG) as log, _created(folder / INDEX) as index:
            entry = NONE
            for line, data, lost in _changed(view, change, added, fsync=fsync):
                key_lost |= lost
                entry = next_entry(entry, log.tell(), data)
                log.write(line)
                index.write(pack_entry(entry))
            for file in (log, index):
                file.flush()
                if fsync:
                    os.fsync(file.fileno())
    except BaseException:
        drop_unfinished(folder)
        (folder / MARKER).unlink()
        raise
    # From here on the new log counts: an index that does not fit it is not believed.
    for name in (LOG, INDEX):
        _new(folder / name).replace(folder / name)
    if fsync:
        sync_folder(folder)
    return key_lost


def swept(view: LogView, *, fsync: bool) -> None:
    """Remove what the log no longer names, then the marker."""
    folder = view.folder
    needed = {
        digest
        for seq, line in view.lines(1, view.last.seq)
        if b'"blobs":' in line
        for digest in digests(_whole(view, seq, line))
    }
    sweep_blobs(folder, needed, fsync=fsync)
    (folder / TORN).unlink(missing_ok=True)
    if fsync:
        sync_folder(folder)
    (folder / MARKER).unlink(missing_ok=True)


def drop_unfinished(folder: Path) -> None:
    """Remove files that a crash or a full disk left unfinished."""
    for path in (*folder.glob("*" + NEW), *folder.glob("blobs/*" + NEW)):
        path.unlink(missing_ok=True)


def _changed(
    view: LogView,
    change: Callable[[Event], Event],
    added: Iterable[bytes],
    *,
    fsync: bool,
) -> Iterable[tuple[bytes, dict[str, Any], bool]]:
    """Lines of the new log, what they say, and whether a key was lost in one."""
    for seq, line in view.lines(1, view.last.seq):
        old = from_line(view, seq, line)
        new = change(old)
        if new.seq != seq:
            raise ValueError(f"event {seq} was changed into one at {new.seq}; it must stay there")
        written = to_line(new)
        if new is old or written.text == line.strip():
            yield line, _whole(view, seq, line), False
            continue
        keep_blobs(view.folder, written.blobs, fsync=fsync)
        first, last = b" " if line.startswith(b" ") else b"", b" " if line[-2:-1] == b" " else b""
        yield first + written.text + last + b"\n", json.loads(written.text), _lost(old, new)
    for line in added:
        yield line, json.loads(line), False


def _lost(old: Event, new: Event) -> bool:
    was = old.body.key if isinstance(old.body, Said) else None
    return was is not None and (not isinstance(new.body, Said) or new.body.key != was)


def _whole(view: LogView, seq: int, line: bytes) -> dict[str, Any]:
    data = parsed(line)
    if data is None:
        raise view.damaged(seq)
    return data


def _new(path: Path) -> Path:
    return path.with_name(path.name + NEW)


def _created(path: Path) -> BinaryIO:
    return os.fdopen(open_file(_new(path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb")
