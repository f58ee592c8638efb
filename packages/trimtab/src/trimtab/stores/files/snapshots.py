"""Snapshots of one session: the newest as `state.yaml`, the earlier ones in `snapshots.jsonl`.

Both files can be deleted. `state.yaml` has a line for each key with its value as JSON, which is
also YAML. The lines of `snapshots.jsonl` are sorted by position, for binary search.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from trimtab.engine.window.checkpoint import Snapshot, snapshot_from_json, snapshot_to_json
from trimtab.stores.files.disk import open_private_file, write_all_at, write_file_atomically

NEWEST_SNAPSHOT_FILE = "state.yaml"
EARLIER_SNAPSHOTS_FILE = "snapshots.jsonl"

_UNQUOTED_YAML_KEY = re.compile(r"(?!(?:y|n|yes|no|on|off|true|false|null)$)[a-z_][a-z0-9_]*")
"""Keys that YAML reads as text without quotes."""
_YAML_DOCUMENT_END = "...\n"
"""The end marker of a YAML document. A truncated file has none."""
_READ_BLOCK_BYTES = 16 * 1024


def save_snapshot(folder: Path, snapshot: Snapshot, *, fsync: bool) -> None:
    """Save a snapshot. It replaces one at the same position."""
    new = snapshot_to_json(snapshot)
    now = _read_newest(folder)
    if now is not None and now["seq"] > new["seq"]:
        _insert_earlier(folder, new, fsync=fsync)
        return
    if now is not None and now["seq"] < new["seq"]:
        _append_earlier(folder, now, fsync=fsync)
    write_file_atomically(
        folder / NEWEST_SNAPSHOT_FILE, dump_snapshot_yaml(new).encode(), fsync=fsync
    )


def find_newest_snapshot(folder: Path, last_position: int) -> Snapshot | None:
    """Return the newest snapshot at or before a position.

    Raise `NewerSnapshotError` if a newer version of trimtab wrote it.
    """
    now = _read_newest(folder)
    snapshot_json = (
        now
        if now is not None and now["seq"] <= last_position
        else _find_earlier(folder, last_position)
    )
    return snapshot_from_json(snapshot_json) if snapshot_json is not None else None


def dump_snapshot_yaml(snapshot_json: Mapping[str, Any]) -> str:
    """Return a line for each key, and one that ends the document."""
    lines = (
        f"{key if _UNQUOTED_YAML_KEY.fullmatch(key) else json.dumps(key)}: {json.dumps(value)}\n"
        for key, value in snapshot_json.items()
    )
    return "".join(lines) + _YAML_DOCUMENT_END


def parse_snapshot_yaml(text: str) -> dict[str, Any]:
    """Parse what `dump_snapshot_yaml` writes. Raise ValueError for any other YAML."""
    data: dict[str, Any] = {}
    if not text.endswith(_YAML_DOCUMENT_END):
        raise ValueError("the end is missing")
    for line in text.removesuffix(_YAML_DOCUMENT_END).splitlines():
        if line.startswith('"'):
            key, end = json.JSONDecoder().raw_decode(line)
            value = line[end:].removeprefix(": ")
        else:
            key, _, value = line.partition(": ")
        data[key] = json.loads(value)
    return data


def _read_newest(folder: Path) -> dict[str, Any] | None:
    try:
        data = parse_snapshot_yaml((folder / NEWEST_SNAPSHOT_FILE).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        # Somebody edited the file by hand, so it is not a snapshot any more.
        return None
    return data if isinstance(data.get("seq"), int) else None


def _append_earlier(folder: Path, data: dict[str, Any], *, fsync: bool) -> None:
    path = folder / EARLIER_SNAPSHOTS_FILE
    fd = open_private_file(path, os.O_RDWR | os.O_CREAT)
    try:
        end = _whole_lines_end(fd)
        last = _parse_line(_line_at(fd, end - 1, end)[1]) if end else {"seq": 0}
        if last is not None and last["seq"] < data["seq"]:
            os.ftruncate(fd, end)
            write_all_at(fd, end, _encode_line(data))
            if fsync:
                os.fsync(fd)
            return
    finally:
        os.close(fd)
    _insert_earlier(folder, data, fsync=fsync)


def _insert_earlier(folder: Path, data: dict[str, Any], *, fsync: bool) -> None:
    """Insert a snapshot among the earlier ones by its position."""
    path = folder / EARLIER_SNAPSHOTS_FILE
    snapshots = {data["seq"]: data}
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    for line in lines:
        if (other := _parse_line(line)) is not None:
            snapshots.setdefault(other["seq"], other)
    write_file_atomically(
        path, b"".join(_encode_line(snapshots[seq]) for seq in sorted(snapshots)), fsync=fsync
    )


def _find_earlier(folder: Path, last_position: int) -> dict[str, Any] | None:
    try:
        fd = os.open(folder / EARLIER_SNAPSHOTS_FILE, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        low = 0
        high = _whole_lines_end(fd)
        newest = None
        while low < high:
            start, line = _line_at(fd, (low + high) // 2, high)
            data = _parse_line(line)
            if data is None:
                return None
            if data["seq"] <= last_position:
                newest = data
                low = start + len(line)
            else:
                high = start
        return newest
    finally:
        os.close(fd)


def _whole_lines_end(fd: int) -> int:
    """Return the bytes up to the end of the last whole line. A crash may have cut the next one."""
    end = os.fstat(fd).st_size
    return _line_start(fd, end)


def _line_at(fd: int, offset: int, end: int) -> tuple[int, bytes]:
    """Return the offset of the line that contains a byte, and the line."""
    start = _line_start(fd, offset)
    line = b""
    while b"\n" not in line and start + len(line) < end:
        line += os.pread(fd, _READ_BLOCK_BYTES, start + len(line))
    return start, line[: line.find(b"\n") + 1]


def _line_start(fd: int, offset: int) -> int:
    """Return the offset of the line that contains a byte."""
    while offset > 0:
        start = max(offset - _READ_BLOCK_BYTES, 0)
        newline = os.pread(fd, offset - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        offset = start
    return 0


def _encode_line(data: Mapping[str, Any]) -> bytes:
    return json.dumps(data, separators=(",", ":")).encode() + b"\n"


def _parse_line(line: bytes) -> dict[str, Any] | None:
    try:
        data = json.loads(line)
    except ValueError:
        return None
    if isinstance(data, dict) and isinstance(cast("dict[str, Any]", data).get("seq"), int):
        return cast("dict[str, Any]", data)
    return None
