"""Snapshots of one session: the newest as `state.yaml`, the earlier ones in `snapshots.jsonl`.

Both can be thrown away. `state.yaml` has a line for each key with its value as JSON, which is YAML
too. The lines of `snapshots.jsonl` stand in the order of their positions and are found by halving.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from trimtab.core.snapshot import Snapshot, snapshot_from_json, snapshot_to_json
from trimtab.stores.files.disk import open_file, put_file, write_at

STATE = "state.yaml"
EARLIER = "snapshots.jsonl"

_PLAIN = re.compile(r"(?!(?:y|n|yes|no|on|off|true|false|null)$)[a-z_][a-z0-9_]*")
"""Keys that YAML takes for text without quotes."""
_END = "...\n"
"""How YAML ends a document: one that was cut has none."""
_BLOCK = 16 * 1024


def keep_snapshot(folder: Path, snapshot: Snapshot, *, fsync: bool) -> None:
    """Keep one more; one at the same position is replaced."""
    new, now = snapshot_to_json(snapshot), _state(folder)
    if now is not None and now["seq"] > new["seq"]:
        _insert(folder, new, fsync=fsync)
        return
    if now is not None and now["seq"] < new["seq"]:
        _append(folder, now, fsync=fsync)
    put_file(folder / STATE, to_yaml(new).encode(), fsync=fsync)


def find_snapshot(folder: Path, upto: int) -> Snapshot | None:
    """The newest at or before a position. `NewerSnapshot` if a later release wrote it."""
    now = _state(folder)
    found = now if now is not None and now["seq"] <= upto else _earlier(folder, upto)
    return snapshot_from_json(found) if found is not None else None


def to_yaml(data: Mapping[str, Any]) -> str:
    """One line for each key, and one that ends the document."""
    lines = (
        f"{key if _PLAIN.fullmatch(key) else json.dumps(key)}: {json.dumps(value)}\n"
        for key, value in data.items()
    )
    return "".join(lines) + _END


def from_yaml(text: str) -> dict[str, Any]:
    """The inverse of `to_yaml`, which is all the YAML that is understood; ValueError for other."""
    data: dict[str, Any] = {}
    if not text.endswith(_END):
        raise ValueError("the end is missing")
    for line in text.removesuffix(_END).splitlines():
        if line.startswith('"'):
            key, end = json.JSONDecoder().raw_decode(line)
            value = line[end:].removeprefix(": ")
        else:
            key, _, value = line.partition(": ")
        data[key] = json.loads(value)
    return data


def _state(folder: Path) -> dict[str, Any] | None:
    try:
        data = from_yaml((folder / STATE).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        # Whoever edited it by hand has thrown it away.
        return None
    return data if isinstance(data.get("seq"), int) else None


def _append(folder: Path, data: dict[str, Any], *, fsync: bool) -> None:
    path = folder / EARLIER
    fd = open_file(path, os.O_RDWR | os.O_CREAT)
    try:
        end = _whole(fd)
        last = _parsed(_line_at(fd, end - 1, end)[1]) if end else {"seq": 0}
        if last is not None and last["seq"] < data["seq"]:
            os.ftruncate(fd, end)
            write_at(fd, end, _line(data))
            if fsync:
                os.fsync(fd)
            return
    finally:
        os.close(fd)
    _insert(folder, data, fsync=fsync)


def _insert(folder: Path, data: dict[str, Any], *, fsync: bool) -> None:
    """Put a snapshot among the earlier ones, where its position belongs."""
    path = folder / EARLIER
    kept = {data["seq"]: data}
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    for line in lines:
        if (other := _parsed(line)) is not None:
            kept.setdefault(other["seq"], other)
    put_file(path, b"".join(_line(kept[seq]) for seq in sorted(kept)), fsync=fsync)


def _earlier(folder: Path, upto: int) -> dict[str, Any] | None:
    try:
        fd = os.open(folder / EARLIER, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        low, high, found = 0, _whole(fd), None
        while low < high:
            start, line = _line_at(fd, (low + high) // 2, high)
            data = _parsed(line)
            if data is None:
                return None
            if data["seq"] <= upto:
                found, low = data, start + len(line)
            else:
                high = start
        return found
    finally:
        os.close(fd)


def _whole(fd: int) -> int:
    """Bytes up to the end of the last whole line: a crash may have torn the one behind."""
    end = os.fstat(fd).st_size
    return _line_start(fd, end)


def _line_at(fd: int, offset: int, end: int) -> tuple[int, bytes]:
    """Where the line around an offset begins, and the line."""
    start, line = _line_start(fd, offset), b""
    while b"\n" not in line and start + len(line) < end:
        line += os.pread(fd, _BLOCK, start + len(line))
    return start, line[: line.find(b"\n") + 1]


def _line_start(fd: int, offset: int) -> int:
    """Where the line begins that a byte belongs to."""
    while offset > 0:
        start = max(offset - _BLOCK, 0)
        found = os.pread(fd, offset - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        offset = start
    return 0


def _line(data: Mapping[str, Any]) -> bytes:
    return json.dumps(data, separators=(",", ":")).encode() + b"\n"


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        data = json.loads(line)
    except ValueError:
        return None
    if isinstance(data, dict) and isinstance(cast("dict[str, Any]", data).get("seq"), int):
        return cast("dict[str, Any]", data)
    return None
