"""Where each idempotency key of a session stands: a hash table on the disk, `keys.idx`.

Keys that came since the last checkpoint are in the log's tail and in the writer's memory. A
checkpoint puts them into the table. The table is a cache: it holds hashes and positions, and a
position counts only if the message there has the key; without it the log is read again.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path

from trimtab.stores.files.disk import open_file, put_file, write_at
from trimtab.stores.files.log import LogView, parsed

KEYS = "keys.idx"

_PAIR = struct.Struct(">QQ")
"""The header is the last position taken in and the number of keys; a slot is a hash and the key's
position, 0 where it is free."""
_FIRST_SLOTS = 256


def keyed_upto(folder: Path) -> int:
    """The last position whose key, if it has one, is in the table."""
    try:
        with (folder / KEYS).open("rb") as file:
            return _header(file.fileno())[0]
    except FileNotFoundError:
        return 0


def keys_in(view: LogView, first: int) -> dict[str, int]:
    """The keys of the messages from a position on."""
    found: dict[str, int] = {}
    for seq, line in view.lines(first, view.last.seq):
        if b'"key":' not in line:
            continue
        data = parsed(line)
        if data is None:
            raise view.damaged(seq)
        if data.get("kind") == "message" and data.get("key") is not None:
            found[data["key"]] = seq
    return found


def find_key(view: LogView, key: str) -> int | None:
    """The position of the message in the log whose key the table has."""
    for seq in key_candidates(view.folder, key):
        for _, line in view.lines(seq, seq):
            data = parsed(line)
            if data is not None and data.get("kind") == "message" and data.get("key") == key:
                return seq
    return None


def key_candidates(folder: Path, key: str) -> list[int]:
    """Where the key may stand, by its hash alone."""
    wanted = _hash(key)
    try:
        with (folder / KEYS).open("rb") as file:
            probed = list(_probe(file.fileno(), wanted))
    except FileNotFoundError:
        return []
    return [seq for _, hashed, seq in probed if seq and hashed == wanted]


def keep_keys(folder: Path, keys: Mapping[str, int], upto: int, *, fsync: bool) -> None:
    """Take keys into the table, and all positions up to one for taken in. Twice is harmless."""
    path = folder / KEYS
    fd = open_file(path, os.O_RDWR | os.O_CREAT)
    try:
        before, count = _header(fd)
        if keys and (count + len(keys)) * 2 > _slots(fd):
            table = _grown(fd, keys, upto)
            put_file(path, table, fsync=fsync)
            return
        for key, seq in keys.items():
            _insert(fd, _hash(key), seq)
            # By position: one that a crash had left in the table was not counted yet.
            count += seq > before
        if keys and fsync:
            os.fsync(fd)
        # Behind the keys themselves: after a crash it may say less than there is, never more.
        write_at(fd, 0, _PAIR.pack(upto, count))
    finally:
        os.close(fd)


def drop_keys(folder: Path) -> None:
    """Forget the table; whoever needs a key reads the log."""
    (folder / KEYS).unlink(missing_ok=True)


def _header(fd: int) -> tuple[int, int]:
    data, slots = os.pread(fd, _PAIR.size, 0), _slots(fd)
    upto, count = _PAIR.unpack(data) if len(data) == _PAIR.size else (0, 0)
    # In a table that was cut nothing is found: its slots are too few, or no power of two.
    whole = not count or (slots >= _FIRST_SLOTS and not slots & (slots - 1) and count * 2 <= slots)
    return (upto, count) if whole else (0, 0)


def _slots(fd: int) -> int:
    return max(os.fstat(fd).st_size // _PAIR.size - 1, 0)


def _hash(key: str) -> int:
    return int.from_bytes(sha256(key.encode("utf-8", "surrogatepass")).digest()[:8], "big")


def _probe(fd: int, hashed: int) -> Iterator[tuple[int, int, int]]:
    """Slots in which a hash may stand, up to the first free one: offset, hash, position."""
    slots = _slots(fd)
    for step in range(slots):
        offset = ((hashed + step) % slots + 1) * _PAIR.size
        found, seq = _PAIR.unpack(os.pread(fd, _PAIR.size, offset))
        yield offset, found, seq
        if not seq:
            return


def _insert(fd: int, hashed: int, seq: int) -> None:
    for offset, found, there in _probe(fd, hashed):
        if (found, there) == (hashed, seq):
            return
        if not there:
            write_at(fd, offset, _PAIR.pack(hashed, seq))
            return
    raise AssertionError("a table is never more than half full")


def _grown(fd: int, keys: Mapping[str, int], upto: int) -> bytes:
    """A table of at least four slots for each key."""
    pairs = {(_hash(key), seq) for key, seq in keys.items()}
    data = os.pread(fd, os.fstat(fd).st_size, 0)[_PAIR.size :]
    pairs.update((hashed, seq) for hashed, seq in _PAIR.iter_unpack(data) if seq)
    slots = _FIRST_SLOTS
    while slots < 4 * len(pairs):
        slots *= 2
    table = bytearray((slots + 1) * _PAIR.size)
    table[: _PAIR.size] = _PAIR.pack(upto, len(pairs))
    for hashed, seq in pairs:
        slot = hashed % slots
        while any(table[(slot + 1) * 16 + 8 : (slot + 2) * 16]):
            slot = (slot + 1) % slots
        table[(slot + 1) * 16 : (slot + 2) * 16] = _PAIR.pack(hashed, seq)
    return bytes(table)
