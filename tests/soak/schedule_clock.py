"""Whether each run of a schedule happens as its policy says, once, whatever the clock does.

changes    clocks that are set for daylight saving, forward in spring and back in autumn, in zones
           that change by an hour or by half of one, at night or at midnight
steps      a clock that is set forward or back by somebody: by seconds, 90 minutes, a day, and back
outages    two hours in which nothing runs, some of them in the night of a change; the store is
           opened anew behind them
workers    two processes on PostgreSQL by the clock of this machine; one is killed with SIGKILL and
           another takes its place

The first three are led by a clock that is made up, on files and on PostgreSQL. What must happen is
found by a look at every minute (`clock/expected.py`), which shares nothing with what is measured.

missed     runs that the policy asks for and that did not happen
doubled    runs that happened more than once
early      runs before they were due
late       runs over a second later than they could be; with two workers, over 15 seconds
unasked    runs that the policy does not ask for

All must be 0.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.harness import Report, finish, head, parser, progress, table
from benchmarks.store_places import Postgres, no_server, place
from tests.soak.clock.expected import Span, Wanted, shifts
from tests.soak.clock.lives import FIGURES, OnFiles, OnPostgres, Place, life
from tests.soak.clock.workers import race, work
from trimtab.stores.postgres.migrations import migrate
from trimtab_serve.queue.postgres.job_queue_migrations import migrate_job_queue

ZONES = (
    "Europe/Zurich",
    "America/New_York",
    "Australia/Lord_Howe",
    "America/Havana",
    "Africa/Cairo",
    "Pacific/Chatham",
    "America/Santiago",
    "Asia/Beirut",
)
CRONS = (
    "30 2 * * *",
    "0 2 * * *",
    "30 1 * * *",
    "0 0 * * *",
    "15 1-4 * * *",
    "0 8 * * 1-5",
    "59 23 * * *",
    "0 * * * *",
    "*/20 * * * *",
    "5 */2 * * *",
    "0 12 1 * 0",
)
POLICIES = (("skip", 86_400), ("once", 86_400), ("all", 86_400), ("once", 1800), ("all", 3600))
HOUR = 3600.0
NOON = datetime(2026, 11, 15, 12, 0, 30, tzinfo=UTC).timestamp()
STEPS: dict[str, Sequence[Span]] = {
    "90 minutes forward": [(NOON, NOON + HOUR), (NOON + 2.5 * HOUR, NOON + 4 * HOUR)],
    "90 minutes back": [(NOON, NOON + 2 * HOUR), (NOON + HOUR / 2, NOON + 4 * HOUR)],
    "forward and back": [
        (NOON, NOON + HOUR),
        (NOON + 2.5 * HOUR, NOON + 2.6 * HOUR),
        (NOON + 1.1 * HOUR, NOON + 4 * HOUR),
    ],
    "10 seconds back at the hour": [(NOON, NOON + HOUR - 29), (NOON + HOUR - 39, NOON + 2 * HOUR)],
    "a day forward": [(NOON, NOON + HOUR), (NOON + 25 * HOUR, NOON + 27 * HOUR)],
}


async def changes(store: Place, *, quick: bool) -> list[Report]:
    """Both changes of each zone, with every kind of expression."""
    found: dict[str, Counter[str]] = {}
    around = 5 * HOUR if quick else 14 * HOUR
    # Each look asks a database, and what is due when is the same there.
    zones = ZONES[:3] if quick and isinstance(store, OnPostgres) else ZONES
    for number, zone in enumerate(zones):
        for season, at in shifts(zone, [2026] if quick else [2026, 2027]):
            progress(f"{zone}, {season}")
            wanted = [Wanted(cron=cron, zone=zone) for cron in CRONS]
            span = (at - around + 30, at + around + 30)
            agent = f"changes{number}-{int(at)}"
            found.setdefault(season, Counter())
            found[season] += await life(store, agent, wanted, [span], outage=False)
    return [_row("changes", season, figures) for season, figures in found.items()]


async def steps(store: Place, *, quick: bool) -> list[Report]:
    """A clock that somebody sets, under every policy."""
    rows: list[Report] = []
    for number, (name, spans) in enumerate(STEPS.items()):
        progress(name)
        wanted = _every_policy(["*/20 * * * *", "0 * * * *", "10 13 * * *"][: 2 if quick else 3])
        found = await life(store, f"steps{number}", wanted, spans, outage=False)
        rows.append(_row("steps", name, found))
    return rows


async def outages(store: Place, *, quick: bool) -> list[Report]:
    """Two hours without anybody, by day and in the nights of a change."""
    begins = {"by day": NOON}
    for season, at in shifts("Europe/Zurich", [2026]):
        begins[f"in the night of {season}"] = at - 2.5 * HOUR + 30
    rows: list[Report] = []
    crons = ["*/20 * * * *", "30 2 * * *", "0 * * * *", "10 13 * * *", "0 3 * * *"]
    for number, (name, begin) in enumerate(begins.items()):
        progress(name)
        spans = [(begin, begin + 1.5 * HOUR), (begin + 3.5 * HOUR, begin + 5 * HOUR)]
        wanted = _every_policy(crons[: 2 if quick else 5])
        found = await life(store, f"outages{number}", wanted, spans, outage=True)
        rows.append(_row("outages", name, found))
    return rows


async def on_both(conninfo: str | None, folder: Path, *, quick: bool) -> list[Report]:
    """The parts with a clock that is made up."""
    stores: dict[str, Place] = {"files": OnFiles(folder)}
    if conninfo is not None:
        stores["PostgreSQL"] = OnPostgres(conninfo)
    rows: list[Report] = []
    for name, store in stores.items():
        for part in (changes, steps, outages):
            rows += [{"store": name, **row} for row in await part(store, quick=quick)]
    return rows


async def two_workers(conninfo: str, *, quick: bool) -> tuple[Report, Report]:
    """The part with the clock there is, and how late its runs were."""
    progress("two workers")
    figures, late = await race(conninfo, each_second=5, seconds=6 if quick else 100)
    row = {"store": "PostgreSQL", **_row("workers", "two, one killed and replaced", figures)}
    lateness = {"median": round(statistics.median(late), 3), "worst": round(max(late), 3)}
    if figures["idle_workers"]:
        lateness["idle workers"] = figures["idle_workers"]
    return row, lateness


def main(*, quick: bool) -> Report:
    without = no_server()
    with tempfile.TemporaryDirectory(prefix="trimtab-") as folder, _database(without) as conninfo:
        rows = asyncio.run(on_both(conninfo, Path(folder), quick=quick))
        lateness: Report = {}
        if conninfo is not None:
            row, lateness = asyncio.run(two_workers(conninfo, quick=quick))
            rows.append(row)
    total = Counter[str]()
    for row in rows:
        total.update({key: value for key, value in row.items() if isinstance(value, int)})
    figures = {name: total[name] for name in FIGURES}
    broken = [f"{name} is {value}" for name, value in figures.items() if value]
    broken += ["a worker ran nothing: there was no race"] if "idle workers" in lateness else []
    return {
        "sample": f"{total['schedules']:,} schedules, {total['runs']:,} runs"
        + (f"; without PostgreSQL: {without}" if without else ""),
        "rows": rows,
        "seconds behind the due time with two workers": lateness,
        **figures,
        "broken": broken,
    }


def show(report: Report) -> None:
    rows = report["rows"]
    print(f"\n{table(list(rows[0]), [list(row.values()) for row in rows])}\n")
    for key in ("seconds behind the due time with two workers", *FIGURES):
        print(f"{key}: {report[key]}")


def _every_policy(crons: Sequence[str]) -> list[Wanted]:
    return [
        Wanted(cron=cron, zone="Europe/Zurich", missed=missed, late=late)
        for cron in crons
        for missed, late in POLICIES
    ]


def _row(part: str, setting: str, found: Counter[str]) -> Report:
    counts = {name: found[name] for name in ("schedules", "runs", *FIGURES)}
    return {"part": part, "setting": setting, **counts}


@contextmanager
def _database(without: str | None) -> Generator[str | None]:
    if without:
        yield None
        return
    with place("postgres") as where:
        assert isinstance(where, Postgres)
        asyncio.run(migrate(where.conninfo))
        asyncio.run(migrate_job_queue(where.conninfo))
        yield where.conninfo


def start() -> int:
    options = parser(__doc__)
    options.add_argument("--work", metavar="CONNINFO", help=argparse.SUPPRESS)
    asked = options.parse_args()
    if asked.work:
        asyncio.run(work(asked.work))
        return 0
    versions = head(("cronsim", "tzdata", "psycopg", "procrastinate"))
    return finish({**versions, **main(quick=asked.quick)}, show, as_json=asked.json)


if __name__ == "__main__":
    sys.exit(start())
