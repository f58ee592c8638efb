"""The position of each idempotency key of a session: a hash table on the disk, `keys.idx`.

Keys since the last checkpoint are in the log's tail and in the writer's memory. A checkpoint adds
them to the table. The table is a cache of hashes and positions. A position counts only if the
message there has the key. Without the table the log is read again.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path

from trimtab.stores.files.disk import open_private_file, write_all_at, write_file_atomically
from trimtab.stores.files.log_file import LogView, parse_log_line

KEY_INDEX_FILE = "keys.idx"

_SLOT_STRUCT = struct.Struct(">QQ")
"""The header has the last indexed position and the number of keys. A slot has a hash and the key's
position, 0 if it is free."""
_MIN_SLOTS = 256


def read_last_indexed_position(folder: Path) -> int:
    """Return the last position whose key, if any, is in the table."""
    try:
        with (folder / KEY_INDEX_FILE).open("rb") as file:
            return _read_header(file.fileno())[0]
    except FileNotFoundError:
        return 0


def scan_log_for_keys(view: LogView, first_position: int) -> dict[str, int]:
    """Return the keys of the messages from a position on."""
    positions: dict[str, int] = {}
    for seq, line in view.read_lines(first_position, view.last.seq):
        if b'"key":' not in line:
            continue
        data = parse_log_line(line)
        if data is None:
            raise view.damage_error(seq)
        if data.get("kind") == "message" and data.get("key") is not None:
            positions[data["key"]] = seq
    return positions


def find_indexed_key_position(view: LogView, key: str) -> int | None:
    """Return the position of the message with this key, if the table has it."""
    for seq in list_candidate_positions(view.folder, key):
        for _, line in view.read_lines(seq, seq):
            data = parse_log_line(line)
            if data is not None and data.get("kind") == "message" and data.get("key") == key:
                return seq
    return None


def list_candidate_positions(folder: Path, key: str) -> list[int]:
    """Return the possible positions of the key, by its hash alone."""
    key_hash = _hash_key(key)
    try:
        with (folder / KEY_INDEX_FILE).open("rb") as file:
            slots = list(_probe_slots(file.fileno(), key_hash))
    except FileNotFoundError:
        return []
    return [seq for _, slot_hash, seq in slots if seq and slot_hash == key_hash]


def save_keys_to_index(
    folder: Path, positions_by_key: Mapping[str, int], last_position: int, *, fsync: bool
) -> None:
    """Add keys to the table, and mark all positions up to `last_position` as indexed. It can be
    repeated."""
    path = folder / KEY_INDEX_FILE
    fd = open_private_file(path, os.O_RDWR | os.O_CREAT)
    try:
        before, count = _read_header(fd)
        if positions_by_key and (count + len(positions_by_key)) * 2 > _count_slots(fd):
            table = _build_larger_table(fd, positions_by_key, last_position)
            write_file_atomically(path, table, fsync=fsync)
            return
        for key, seq in positions_by_key.items():
            _insert_slot(fd, _hash_key(key), seq)
            # By position: one that a crash had left in the table was not counted yet.
            count += seq > before
        if positions_by_key and fsync:
            os.fsync(fd)
        # Behind the keys themselves: after a crash it may say less than there is, never more.
        write_all_at(fd, 0, _SLOT_STRUCT.pack(last_position, count))
    finally:
        os.close(fd)


def delete_key_index(folder: Path) -> None:
    """Delete the table. The next lookup of a key reads the log."""
    (folder / KEY_INDEX_FILE).unlink(missing_ok=True)


def _read_header(fd: int) -> tuple[int, int]:
    data = os.pread(fd, _SLOT_STRUCT.size, 0)
    slots = _count_slots(fd)
    upto, count = _SLOT_STRUCT.unpack(data) if len(data) == _SLOT_STRUCT.size else (0, 0)
    # In a table that was cut nothing is found: its slots are too few, or no power of two.
    whole = not count or (slots >= _MIN_SLOTS and not slots & (slots - 1) and count * 2 <= slots)
    return (upto, count) if whole else (0, 0)


def _count_slots(fd: int) -> int:
    return max(os.fstat(fd).st_size // _SLOT_STRUCT.size - 1, 0)


def _hash_key(key: str) -> int:
    return int.from_bytes(sha256(key.encode("utf-8", "surrogatepass")).digest()[:8], "big")


def _probe_slots(fd: int, key_hash: int) -> Iterator[tuple[int, int, int]]:
    """Yield slots that may contain a hash, up to the first free one: offset, hash, position."""
    slots = _count_slots(fd)
    for step in range(slots):
        offset = ((key_hash + step) % slots + 1) * _SLOT_STRUCT.size
        slot_hash, seq = _SLOT_STRUCT.unpack(os.pread(fd, _SLOT_STRUCT.size, offset))
        yield offset, slot_hash, seq
        if not seq:
            return


def _insert_slot(fd: int, key_hash: int, seq: int) -> None:
    for offset, slot_hash, there in _probe_slots(fd, key_hash):
        if (slot_hash, there) == (key_hash, seq):
            return
        if not there:
            write_all_at(fd, offset, _SLOT_STRUCT.pack(key_hash, seq))
            return
    raise AssertionError("a table is never more than half full")


def _build_larger_table(fd: int, keys: Mapping[str, int], last_position: int) -> bytes:
    """Build a table with at least four slots for each key."""
    pairs = {(_hash_key(key), seq) for key, seq in keys.items()}
    data = os.pread(fd, os.fstat(fd).st_size, 0)[_SLOT_STRUCT.size :]
    pairs.update((key_hash, seq) for key_hash, seq in _SLOT_STRUCT.iter_unpack(data) if seq)
    slots = _MIN_SLOTS
    while slots < 4 * len(pairs):
        slots *= 2
    table = bytearray((slots + 1) * _SLOT_STRUCT.size)
    table[: _SLOT_STRUCT.size] = _SLOT_STRUCT.pack(last_position, len(pairs))
    for key_hash, seq in pairs:
        slot = key_hash % slots
        while any(table[(slot + 1) * 16 + 8 : (slot + 2) * 16]):
            slot = (slot + 1) % slots
        table[(slot + 1) * 16 : (slot + 2) * 16] = _SLOT_STRUCT.pack(key_hash, seq)
    return bytes(table)
