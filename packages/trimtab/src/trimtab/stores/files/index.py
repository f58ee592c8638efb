"""`index.db`: what takes long to find in the other files of a session. It may always be deleted.

- `keys`: positions of messages by the hash of their idempotency key. A position counts only if the
  message there has the key.
- `indexed`: the last position whose key, if any, is in `keys`. The later keys are in the writer's
  memory, and other readers find them in the log.
- `snapshots`: all except the newest.

An index that cannot be read has nothing. One that cannot be written stays as it was.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from trimtab.stores.files.disk import open_private_file
from trimtab.stores.files.log_file import LogView, parse_log_line

INDEX_FILE = "index.db"
BUSY_TIMEOUT_S = 5.0
"""Seconds to wait for another process that reads or writes."""

_TABLES = (
    "keys (hash INTEGER, position INTEGER, PRIMARY KEY (hash, position)) WITHOUT ROWID",
    "indexed (position INTEGER NOT NULL)",
    "snapshots (position INTEGER PRIMARY KEY, body TEXT NOT NULL)",
)


@dataclass(frozen=True, slots=True)
class RecentKeys:
    """The positions of the keys that the index does not have yet."""

    after: int
    """The last position that the index has."""
    positions: dict[str, int]


def read_recent_keys(view: LogView, after: int) -> RecentKeys:
    """Return the keys of the messages after a position."""
    positions: dict[str, int] = {}
    for seq, line in view.read_lines(after + 1, view.last.seq):
        if b'"key":' not in line:
            continue
        data = parse_log_line(line)
        if data is None:
            raise view.damage_error(seq)
        if data.get("kind") == "message" and data.get("key") is not None:
            positions[data["key"]] = seq
    return RecentKeys(after, positions)


class SessionIndex:
    """The index of one session, opened when it is first used. Use it from one thread at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / INDEX_FILE
        self._connection: sqlite3.Connection | None = None

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. The next use opens it again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def delete(self) -> None:
        """Delete the file. The next lookup of a key reads the log."""
        self.close()
        self._path.unlink(missing_ok=True)

    def look_up_key(self, key: str) -> tuple[int, list[int]]:
        """Return the last indexed position, and where the message with a key may be."""
        rows = self._fetch(
            "SELECT indexed.position, keys.position FROM indexed LEFT JOIN keys ON hash = ?",
            _hash_key(key),
        )
        after = rows[0][0] if rows else 0
        return after, [position for _, position in rows if position is not None]

    def find_key(self, view: LogView, key: str, recent: RecentKeys | None) -> int | None:
        """Return the position of the message with a key. `recent` has the keys that its writer
        knows."""
        after, positions = self.look_up_key(key)
        if recent is None or recent.after > after:
            recent = read_recent_keys(view, after)
        if key in recent.positions:
            return recent.positions[key]
        for position in positions:
            for _, line in view.read_lines(position, position):
                data = parse_log_line(line)
                if data is not None and data.get("kind") == "message" and data.get("key") == key:
                    return position
        return None

    def find_snapshot(self, last_position: int) -> dict[str, Any] | None:
        """Return the newest snapshot here at or before a position."""
        rows = self._fetch(
            "SELECT body FROM snapshots WHERE position <= ? ORDER BY position DESC LIMIT 1",
            last_position,
        )
        return json.loads(rows[0][0]) if rows else None

    def update(
        self,
        recent: RecentKeys,
        position: int,
        snapshot_json: Mapping[str, Any] | None,
        *,
        fsync: bool,
    ) -> bool:
        """Add the keys up to a position, and a snapshot. Return False if that is not possible."""
        self.close()  # the file may have been deleted meanwhile
        # SQLite gives the mode of the file to its journal.
        with contextlib.suppress(FileExistsError):
            os.close(open_private_file(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL))
        try:
            with self._open() as connection:
                connection.execute(f"PRAGMA synchronous = {'NORMAL' if fsync else 'OFF'}")
                connection.execute("BEGIN IMMEDIATE")
                for table in _TABLES:
                    connection.execute(f"CREATE TABLE IF NOT EXISTS {table}")
                (after,) = connection.execute("SELECT max(position) FROM indexed").fetchone()
                if (after or 0) < recent.after:
                    with LogView(self._folder) as view:
                        recent = read_recent_keys(view, 0)
                rows = [(_hash_key(key), seq) for key, seq in recent.positions.items()]
                connection.executemany("INSERT OR IGNORE INTO keys VALUES (?, ?)", rows)
                connection.execute(
                    "REPLACE INTO indexed (rowid, position) VALUES (1, ?)", [position]
                )
                if snapshot_json is not None:
                    row = (snapshot_json["seq"], json.dumps(snapshot_json))
                    connection.execute("REPLACE INTO snapshots VALUES (?, ?)", row)
        except sqlite3.OperationalError:
            return False  # the disk is full, for example
        except sqlite3.DatabaseError:
            self.delete()
            return False
        return True

    def _fetch(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        try:
            return self._open().execute(query, values).fetchall()
        except sqlite3.Error:
            self.close()
            return []

    def _open(self) -> sqlite3.Connection:
        """Return a connection to the file, if it exists. The caller begins the transactions."""
        if self._connection is None:
            self._connection = sqlite3.connect(
                f"{self._path.absolute().as_uri()}?mode=rw",
                uri=True,
                timeout=BUSY_TIMEOUT_S,
                isolation_level=None,
                check_same_thread=False,
            )
        return self._connection


def _hash_key(key: str) -> int:
    digest = sha256(key.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big", signed=True)
