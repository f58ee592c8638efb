"""Snapshots of one session: the newest as `state.yaml`, the earlier ones in the index.

Both files can be deleted. `state.yaml` has a line for each key with its value as JSON, which is
also YAML.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from trimtab.engine.window.checkpoint import Snapshot, snapshot_from_json, snapshot_to_json
from trimtab.stores.files.disk import write_file_atomically
from trimtab.stores.files.index import RecentKeys, SessionIndex

NEWEST_SNAPSHOT_FILE = "state.yaml"

_UNQUOTED_YAML_KEY = re.compile(r"(?!(?:y|n|yes|no|on|off|true|false|null)$)[a-z_][a-z0-9_]*")
"""Keys that YAML reads as text without quotes."""
_YAML_DOCUMENT_END = "...\n"
"""The end marker of a YAML document. A truncated file has none."""


def save_snapshot(
    folder: Path,
    snapshot: Snapshot,
    index: SessionIndex,
    recent: RecentKeys,
    position: int,
    *,
    fsync: bool,
) -> bool:
    """Save a snapshot. It replaces one at the same position.

    Return whether the index now has the keys up to the last position of the log.
    """
    new = snapshot_to_json(snapshot)
    now = _read_newest(folder)
    earlier = None if now is None or now["seq"] == new["seq"] else min(now, new, key=_position)
    has_keys = index.update(recent, position, earlier, fsync=fsync)
    if earlier is not new:
        data = dump_snapshot_yaml(new).encode()
        write_file_atomically(folder / NEWEST_SNAPSHOT_FILE, data, fsync=fsync)
    return has_keys


def find_newest_snapshot(folder: Path, last_position: int) -> Snapshot | None:
    """Return the newest snapshot at or before a position.

    Raise `NewerSnapshotError` if a newer version of trimtab wrote it.
    """
    snapshot_json = _read_newest(folder)
    if snapshot_json is None or snapshot_json["seq"] > last_position:
        with closing(SessionIndex(folder)) as index:
            snapshot_json = index.find_snapshot(last_position)
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


def _position(snapshot_json: Mapping[str, Any]) -> int:
    return snapshot_json["seq"]
