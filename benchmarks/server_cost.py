"""What a PostgreSQL of this machine spends on one database: pages, write-ahead log, CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg

SIZES = """
SELECT sum(pg_total_relation_size(c.oid))::bigint, sum(pg_indexes_size(c.oid))::bigint
FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
WHERE nspname IN ('trimtab', 'trimtab_queue') AND relkind = 'r'
"""
CLIENTS = """
SELECT pid FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> %s
"""
WAL = """
WITH records AS MATERIALIZED (
    SELECT xid::text AS x, record_length AS bytes, fpi_length AS images,
           record_type LIKE 'COMMIT%%' AS commits,
           block_ref LIKE '%%/' || (SELECT oid FROM pg_database WHERE datname = current_database())
                          || '/%%' AS ours
    FROM pg_get_wal_records_info(%s::pg_lsn, %s::pg_lsn)
), mine AS (SELECT DISTINCT x FROM records WHERE ours AND x <> '0')
SELECT sum(bytes - images)::bigint, sum(bytes)::bigint, count(*) FILTER (WHERE commits)
FROM records WHERE ours OR x IN (SELECT x FROM mine)
"""


class Backends:
    """The server's side: sizes, write-ahead log, and CPU of the backends that serve us."""

    def __init__(self, conninfo: str) -> None:
        self._own = psycopg.connect(conninfo, autocommit=True)
        self._seconds: dict[int, float] = {}
        self._kept = self._keep_wal()

    def _keep_wal(self) -> bool:
        """Keep the write-ahead log until this connection ends; False where we may not look."""
        slot = f"footprint_{self._own.info.backend_pid}"
        try:
            self._own.execute("CREATE EXTENSION IF NOT EXISTS pg_walinspect")
            query = "SELECT pg_create_physical_replication_slot(%s, true, true)"
            self._own.execute(query, [slot])
        except psycopg.Error:
            return False
        return True

    def look(self) -> dict[str, float]:
        """Sizes are those behind a vacuum: what died, and pages taken in advance, are no one's."""
        before = self._position()
        for (pid,) in self._own.execute(CLIENTS, [self._own.info.backend_pid]):
            if (seconds := cpu_of(pid)) is not None:
                self._seconds[pid] = seconds
        self._own.execute("VACUUM")
        disk, indexes = self._row(SIZES)
        return {
            "disk": disk,
            "indexes": indexes,
            "wal_before": before,
            "wal_behind": self._position(),
            "server": sum(self._seconds.values()),
            "connections": len(self._seconds),
        }

    def wal(self, begin: float, end: float) -> list[float] | None:
        """Bytes of ours between two positions, without and with full-page images, and commits;
        None where the server does not let us look."""
        if not self._kept:
            return None
        return [float(count) for count in self._row(WAL, [lsn(begin), lsn(end)])]

    def _position(self) -> float:
        """Of the write-ahead log, in bytes since its beginning."""
        return float(self._row("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")[0])

    def close(self) -> None:
        self._own.close()

    def _row(self, query: str, values: list[Any] | None = None) -> tuple[Any, ...]:
        row = self._own.execute(query.encode(), values).fetchone()
        assert row is not None
        return row


def lsn(position: float) -> str:
    return f"{int(position) >> 32:X}/{int(position) & 0xFFFFFFFF:X}"


def cpu_of(pid: int) -> float | None:
    """Seconds that a process of this machine has run; None where it is on another."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
    except (OSError, ValueError):
        return None
