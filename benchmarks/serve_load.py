"""An agent under load: many sessions at once, turns with tools, on files and on PostgreSQL.

    python -m benchmarks.serve_load [--lane files|postgres|steady] [--part 0.5] [--quick] [--json]

2,000 people write at the same time, each the next message when the last was answered, 10 in all. A
turn is a message of about 300 characters, a call of a tool, its result of about 1,000 characters,
and a reply of 60 words: two requests to the simulator, which is a process of its own, over HTTP and
through Anthropic's SDK. On files one process serves; on PostgreSQL two processes of a fleet do, and
those who write are in a third; the server has its stock settings. All share this machine's cores
with the simulator and the database.

lost           messages that are not in the log, or have no reply behind them
doubled        messages that are there twice, replies behind a reply, replies that left again
               without the mark that they may have arrived
out_of_order   messages, or replies, that came before an earlier one
p50_ms, p99_ms from a message to its reply, most of it spent waiting for a turn: all write at once
turn_p50_ms    of the turn by itself, from its claim to its last word; turn_p99_ms likewise
turns_s        turns in a second
worker_ms      CPU of the processes that serve, for one turn
start_mb       memory of these processes after the first of the rounds; middle_mb, end_mb later

bare           the same turns as plain Procrastinate jobs on the same database, which make the same
               calls of the SDK and the same inserts and nothing else; in turn with ours, round by
               round, so that whatever else the machine does befalls both
ratio          turns_s of ours by turns_s of bare, the median of the rounds

steady         on files again, in a window of 6,000 tokens; three quarters of the sessions stay
               open, and have 90 turns each: after some 40 each has as much in memory as it ever
               will, where those of the other lanes still grow

The first three must be 0, and memory of `steady` flat: at the end at most 5 % above the middle.
`ratio` is to be `LEAST` at least.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from os import getpid
from pathlib import Path
from statistics import mean, median
from typing import Any

from benchmarks.harness import Report, finish, head, parser, progress
from benchmarks.load import bare
from benchmarks.load.model import CALLS_A_TURN, model
from benchmarks.load.served import (
    cpu_of,
    member,
    memory_of,
    on_files,
    on_postgres,
    processes,
)
from benchmarks.load.talk import Talk, judged, names, spread
from tests.soak.crash.cluster import cluster, programs
from trimtab.engine.log.event import ModelCall, TurnProgressRecord, dump_event_line
from trimtab.stores.postgres.migrations import migrate
from trimtab_serve.queue.postgres.job_queue_migrations import migrate_job_queue
from trimtab_serve.service.session_cache import MAX_OPEN_SESSIONS

LANES = ("files", "postgres", "steady")
SESSIONS = {"full": 2_000, "quick": 40}
ROUNDS = {"full": 5, "quick": 3}
TURNS = {"full": 2, "quick": 2}
"""Of each session, in each round."""
STEADY = {"full": (64, 9, 10), "quick": (12, 3, 6)}
"""Sessions, rounds and turns of the lane of that name."""
WINDOW = 6_000
"""Its tokens."""
FLAT, LEAST = 1.05, 0.75
ZERO = ("lost", "doubled", "out_of_order")
PACKAGES = ("anthropic", "procrastinate", "psycopg")


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    sessions: list[str]
    rounds: int
    turns: int

    @property
    def whole(self) -> int:
        return len(self.sessions) * self.rounds * self.turns


@dataclass(slots=True)
class Seen:
    """The rounds of one lane."""

    lane: str
    seconds: list[float] = field(default_factory=list[float])
    cpu: list[float] = field(default_factory=list[float])
    memory: list[float] = field(default_factory=list[float])

    async def round(self, talk: Talk, size: Size, gauge: Callable[[], tuple[float, float]]) -> None:
        progress(f"{self.lane}: round {len(self.seconds) + 1} of {size.rounds}")
        before = gauge()[0]
        self.seconds.append(await talk.round(size.turns))
        after, memory = gauge()
        self.cpu.append(after - before)
        self.memory.append(memory)

    def row(self, talk: Talk, size: Size, found: Counter[str]) -> Report:
        each = size.turns * len(size.sessions)
        rates = [each / seconds for seconds in self.seconds]
        waited, turned = spread(talk.waits), spread(talk.turns)
        return {
            "lane": self.lane,
            "turns": len(talk.waits),
            **{name: found[name] + talk.counts[name] for name in ZERO},
            "p50_ms": waited[0],
            "p99_ms": waited[1],
            "turn_p50_ms": turned[0],
            "turn_p99_ms": turned[1],
            "turns_s": round(size.whole / sum(self.seconds), 1),
            "slowest": round(min(rates), 1),
            "fastest": round(max(rates), 1),
            "worker_ms": round(1000 * sum(self.cpu) / size.whole, 1),
            "start_mb": round(self.memory[0]),
            "middle_mb": round(self.memory[len(self.memory) // 2]),
            "end_mb": round(self.memory[-1]),
        }


def alone(*given: Any) -> Report:
    """`files` in a process of its own: the memory of no other lane is in its figures."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_run_files, *given).result()


def _run_files(*given: Any) -> Report:
    logging.getLogger("trimtab").setLevel(logging.ERROR)  # a window that fills up is the point
    return asyncio.run(files(*given))


async def files(
    size: Size, url: str, lane: str, window: int | None = None, kept: int = MAX_OPEN_SESSIONS
) -> Report:
    seen = Seen(lane)

    def gauge() -> tuple[float, float]:
        return cpu_of(getpid()), memory_of(getpid())

    with tempfile.TemporaryDirectory(prefix="trimtab-") as root:
        async with on_files(Path(root), url, size.sessions, window, kept) as (talk, store):
            for _ in range(size.rounds):
                await seen.round(talk, size, gauge)
            return seen.row(talk, size, await judged(store, talk.asked))


async def postgres(size: Size, url: str, conninfo: str) -> tuple[Report, Report, list[float]]:
    await migrate(conninfo)
    await migrate_job_queue(conninfo)
    await bare.set_up(conninfo)
    async with on_postgres(conninfo, url, size.sessions) as (talk, store):
        with processes(member, conninfo, url) as fleet:
            sizes = await warm_up(fleet, conninfo, url)
            with processes(bare.worker, conninfo, url, sizes) as jobs:
                async with bare.talking(conninfo, size.sessions) as plain:
                    ours, theirs = Seen("postgres"), Seen("bare")
                    for _ in range(size.rounds):
                        with fleet.heard_by(talk.arrived):
                            await ours.round(talk, size, lambda: (fleet.cpu(), fleet.memory()))
                        with jobs.heard_by(plain.arrived):
                            await theirs.round(plain, size, lambda: (jobs.cpu(), jobs.memory()))
        found = await judged(store, talk.asked)
    ratios = [b / a for a, b in zip(ours.seconds, theirs.seconds, strict=True)]
    row = theirs.row(plain, size, Counter(lost=size.whole - len(plain.waits)))
    return ours.row(talk, size, found), row, ratios


async def warm_up(fleet: Any, conninfo: str, url: str) -> dict[str, int]:
    """A few turns of ours; how long the events are that are not messages, in bytes."""
    sessions = [f"warm/helper/s{n}" for n in range(8)]
    async with on_postgres(conninfo, url, sessions) as (talk, store):
        with fleet.heard_by(talk.arrived):
            await talk.round(2)
        events = [event async for event in store.events(sessions[0])]
    kinds: dict[str, type[Any]] = {"call": ModelCall, "turn": TurnProgressRecord}
    return {
        name: round(mean(len(dump_event_line(e)) for e in events if isinstance(e.body, kind)))
        for name, kind in kinds.items()
    }


def main(asked: Any) -> Report:
    named = "quick" if asked.quick else "full"
    count = max(1, round(SESSIONS[named] * asked.part))
    size = Size(sessions=names(count), rounds=ROUNDS[named], turns=TURNS[named])
    sessions, rounds, turns = STEADY[named]
    few = Size(sessions=names(sessions), rounds=rounds, turns=turns)
    rows: list[Report] = []
    told: Report = {}
    broken: list[str] = []
    with model() as simulator:
        url = simulator.recv()
        for lane in asked.lane or LANES:
            if lane == "files":
                rows.append(alone(size, url, lane))
            elif lane == "steady":
                rows.append(alone(few, url, lane, WINDOW, len(few.sessions) * 3 // 4))
            elif (found := programs()) is None:
                told["postgres"] = "skipped: no programs of a PostgreSQL server are installed"
            else:
                with cluster(found) as server:
                    ours, plain, ratios = asyncio.run(postgres(size, url, server.conninfo))
                rows += [ours, plain]
                told["ratio"] = round(median(ratios), 2)
                told["ratio_spread"] = f"{min(ratios):.2f} to {max(ratios):.2f}"
        simulator.send("stats")
        refused = simulator.recv()["refused"]
    for row in rows:
        broken += wrong(row, few if row["lane"] == "steady" else size)
    if refused:
        broken.append(f"the simulator refused {refused} requests")
    if not asked.quick and told.get("ratio", 1.0) < LEAST:
        told["limited"] = f"ratio is below {LEAST}"
    sizes = [(lane, few if lane == "steady" else size) for lane in asked.lane or LANES]
    told_of = [f"{n}: {len(s.sessions):,} sessions at once, {s.whole:,} turns" for n, s in sizes]
    sample = "; ".join([*told_of, f"{CALLS_A_TURN} requests a turn"])
    return {"sample": sample, "rows": rows, **told, "broken": broken}


def wrong(row: Report, size: Size) -> list[str]:
    found = [f"{row['lane']}: {name} is {row[name]}" for name in ZERO if row[name]]
    if row["turns"] != size.whole:
        found.append(f"{row['lane']}: {row['turns']} of {size.whole} turns were answered")
    if row["lane"] == "steady" and row["end_mb"] > FLAT * row["middle_mb"]:
        found.append(f"{row['lane']}: memory grew from {row['middle_mb']} to {row['end_mb']} MB")
    return found


if __name__ == "__main__":
    options = parser(__doc__)
    options.add_argument("--lane", action="append", choices=LANES, help="one alone")
    options.add_argument("--part", type=float, default=1.0, help="of the sessions")
    given = options.parse_args()
    sys.exit(finish({**head(PACKAGES), **main(given)}, as_json=given.json))
