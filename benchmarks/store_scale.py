"""A session of a million messages against one of a thousand, in each store.

Both are led through `Session` as an agent would, under the same policy and limit, in files without
fsync; PostgreSQL gets the same events, in large batches and with synchronous_commit off. With that
they are built, and from here on everything is durable. The two take turns, the one that begins
changes with each: the session is opened by a store that is opened anew, led on for a few turns, and
closed. CPU times are of this process alone; wall times include what a store does elsewhere, and
what other work on the machine and its disk adds. A compaction falls on some requests, on the first
of one session more often than on that of the other. So all times are lower quartiles, and grow as
these or as the least does, whichever is less. Only growth within one run is claimed; `growth` is
the greater of CPU and wall.

open            `Session.open`: the snapshot, the events it names, the tail behind it
first_append    the first message after an opening: files lock and look at the log's end here
first_request   the first request after an opening, which renders all that is shown
append          a further message, or a reply with its usage
request         a further one: the policy, the record of the call, what is new rendered

`memory` is of processes that do nothing but open the one or the other and make a request: how much
they grow, and how much of the session they hold. `whole_fold_s` is an opening without any snapshot.

--store and --policy choose one; --keep FOLDER builds there, and the next run goes on with it.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import multiprocessing
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.harness import Report, finish, head, parser, progress
from benchmarks.long_session import create, lead, turn
from benchmarks.store_places import STORES, Place, Postgres, no_server, place
from trimtab.engine.log.event import Event
from trimtab.engine.window.checkpoint import snapshot_to_json
from trimtab.session import Session
from trimtab.stores.base import Store
from trimtab.stores.postgres.migrations import migrate

SMALL = 1_000
LARGE = 1_000_000
POLICIES = ("auto", "layered")
MOST = 2.0
"""How much longer anything may take with the large session."""
BATCH = 5_000
"""Messages between two lines of progress."""
WHOLE = 50_000
"""Messages up to which the whole fold is timed, too."""
HELD = ("open", "first_append", "first_request", "append", "request")
TURNS = 2
"""Turns between an opening and the next."""


@dataclass(slots=True)
class Life:
    """A session that is led on from run to run."""

    name: str
    next: int
    """The number of its next turn."""
    wall: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """Seconds of each operation."""
    cpu: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """The same in CPU time of this process."""


async def built(where: Place, policy: str, messages: int) -> Report:
    """Lead a session to so many messages; what that took."""
    store, name = await where.open(hasty=True), name_of(policy, messages)
    if await store.position(name):
        session = await Session.open(store, name)
    else:
        session = await create(store, name, policy)
    said, number = await _standing(store, name)
    start, begun, cpu = said, time.perf_counter(), time.process_time()
    while said < messages:
        number, more = await lead(session, number, min(BATCH, messages - said))
        said += more
        progress(f"{name}: {said:,} messages in {time.perf_counter() - begun:,.0f} s")
    took, cpu = time.perf_counter() - begun, time.process_time() - cpu
    await session.close()
    await store.close()
    if start > messages // 2:
        return {"messages": said}  # most of it was there
    return {
        "messages": said,
        "build_messages_a_second": round((said - start) / took),
        "build_cpu_ms_a_message": round(cpu / (said - start) * 1e3, 3),
    }


def name_of(policy: str, messages: int) -> str:
    return f"{policy}-{messages}"


def build(where: Place, policy: str, messages: int) -> Report:
    """In a process of its own."""
    return asyncio.run(built(where, policy, messages))


async def copied(source: Place, target: Place, name: str) -> None:
    """Take a session over, with a snapshot for each batch, so that words are indexed by and by."""
    one, other = await source.open(), await target.open(hasty=True)
    batch: list[Event] = []

    async def flush() -> None:
        last = batch[-1].seq
        await other.append(name, batch)
        snapshot = await one.snapshot(name, upto=last)
        if snapshot is not None:
            await other.checkpoint(name, snapshot)
        batch.clear()
        progress(f"{name}: {last:,} events copied")

    async for event in one.events(name):
        batch.append(event)
        if len(batch) == BATCH:
            await flush()
    if batch:
        await flush()
    for store in (one, other):
        await store.close()


async def taken_up(where: Place, name: str) -> Life:
    store = await where.open()
    _, number = await _standing(store, name)
    await store.close()
    return Life(name, number)


async def _standing(store: Store, name: str) -> tuple[int, int]:
    """Messages said, and the next turn: the first whose key is not known."""
    listed = [s for s in await store.sessions(limit=10) if s.session == name]
    low, high = 0, listed[0].messages + 1
    while low < high:
        middle = (low + high) // 2
        known = await store.find_key(name, f"in-{middle}")
        low, high = (middle + 1, high) if known is not None else (low, middle)
    return listed[0].messages, low


async def timed(life: Life, name: str, step: Callable[[], Awaitable[Any]]) -> Any:
    wall, cpu = time.perf_counter(), time.process_time()
    result = await step()
    life.cpu[name].append(time.process_time() - cpu)
    life.wall[name].append(time.perf_counter() - wall)
    return result


async def visit(where: Place, life: Life) -> None:
    """Open the session, lead it on, and close it."""
    store = await where.open()
    gc.collect()
    session: Session = await timed(life, "open", lambda: Session.open(store, life.name))
    known: set[str] = set()
    for _ in range(TURNS):
        async for name, step in turn(session, life.next):
            await timed(life, name if name in known else f"first_{name}", step)
            known.add(name)
        life.next += 1
    await session.close()
    await store.close()


def figures(small: Life, large: Life) -> Report:
    """For each operation its times in ms, their spread, and how they grow."""
    out: Report = {}
    for name in HELD:
        for kind in ("cpu", "wall"):
            found = {size: sorted(getattr(life, kind)[name]) for size, life in sized(small, large)}
            for size, times in found.items():
                out[f"{name}_{kind}_ms_{size}"] = _ms(statistics.quantiles(times, n=4)[0])
                out[f"{name}_{kind}_spread_ms_{size}"] = [_ms(times[0]), _ms(times[-1])]
            before = out[f"{name}_{kind}_ms_1k"]
            growth = out[f"{name}_{kind}_ms_large"] / before
            growth = min(growth, found["large"][0] / found["1k"][0])
            out[f"{name}_{kind}_growth"] = round(growth, 2)
        out[f"{name}_growth"] = max(out[f"{name}_cpu_growth"], out[f"{name}_wall_growth"])
    return out


def sized(small: Life, large: Life) -> list[tuple[str, Life]]:
    return [("1k", small), ("large", large)]


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 3)


async def weight(where: Place, name: str) -> Report:
    """What a process holds that opens the session and asks for a request."""
    store = await where.open()
    await store.position(name)
    gc.collect()
    before = _rss()
    session = await Session.open(store, name)
    await session.preview()
    gc.collect()
    window = session.window
    snapshot = snapshot_to_json(window.base.snapshot)
    out = {
        "rss_growth_kb": _rss() - before,
        "entries": len(window.entries),
        "shown": window.visible_messages,
        "events_held": len(window.base.events_since_snapshot) + len(window.base.snapshot_events),
        "snapshot_bytes": len(json.dumps(snapshot)),
    }
    await session.close()
    await store.close()
    return out


def _rss() -> int:
    """KB that this process has in memory."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0


def weighed(where: Place, name: str) -> Report:
    """By a process of its own."""
    code = (
        "import asyncio, json\nfrom pathlib import PosixPath\n"
        "from benchmarks.store_places import Files, Postgres\n"
        "from benchmarks.store_scale import weight\n"
        f"print(json.dumps(asyncio.run(weight({where!r}, {name!r}))))"
    )
    root = Path(__file__).parents[1]
    answer = subprocess.run(  # noqa: S603 - our own
        [sys.executable, "-c", code], cwd=root, check=True, capture_output=True, text=True
    )
    return json.loads(answer.stdout)


async def whole_fold(where: Place, name: str) -> Report:
    """An opening when all snapshots are thrown away."""
    store = await where.open()

    async def nothing(session: str, *, upto: int | None = None) -> None:
        del session, upto

    setattr(store, "snapshot", nothing)  # noqa: B010 - in place of its method
    begun, cpu = time.perf_counter(), time.process_time()
    await Session.open(store, name)
    out = {
        "whole_fold_s": round(time.perf_counter() - begun, 2),
        "whole_fold_cpu_s": round(time.process_time() - cpu, 2),
    }
    await store.close()
    return out


async def measure(where: Place, policy: str, messages: int, rounds: int) -> Report:
    small = await taken_up(where, name_of(policy, SMALL))
    large = await taken_up(where, name_of(policy, messages))
    # What the first visits load (modules, plans, statements) is no part of it.
    for life in (small, large):
        await visit(where, life)
        life.cpu.clear()
        life.wall.clear()
    for number in range(rounds):
        progress(f"{policy}: round {number + 1} of {rounds}")
        for life in (small, large) if number % 2 else (large, small):
            await visit(where, life)
    out = figures(small, large)
    for size, life in sized(small, large):
        out |= {f"{key}_{size}": value for key, value in weighed(where, life.name).items()}
    if messages <= WHOLE:
        out |= await whole_fold(where, large.name)
    return out


async def in_postgres(source: Place, policy: str, messages: int, rounds: int) -> Report:
    with place("postgres") as where:
        assert isinstance(where, Postgres)
        await migrate(where.conninfo)
        await copied(source, where, name_of(policy, SMALL))
        before = where.size([])
        await copied(source, where, name_of(policy, messages))
        size = where.size([]) - before
        found = await measure(where, policy, messages, rounds)
        return {"disk_bytes_a_message": round(size / messages), **found}


async def in_files(where: Place, policy: str, messages: int, rounds: int) -> Report:
    size = where.size([name_of(policy, messages)])
    found = await measure(where, policy, messages, rounds)
    return {"disk_bytes_a_message": round(size / messages), **found}


def main(asked: argparse.Namespace) -> Report:
    messages = asked.messages or (4_000 if asked.quick else LARGE)
    rounds = 10 if asked.quick else 30
    policies, stores = asked.policy or POLICIES, asked.store or STORES
    if "postgres" in stores and (missing := no_server()):
        print(f"passed over: {missing}", file=sys.stderr)
        stores = [store for store in stores if store != "postgres"]
    rows: list[Report] = []
    with place("files", asked.keep) as files:
        tasks = [(files, policy, count) for policy in policies for count in (SMALL, messages)]
        with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
            building = [pool.submit(build, *task) for task in tasks]
        built_as = dict(zip(policies, [each.result() for each in building][1::2], strict=True))
        # PostgreSQL first: measuring leads the sessions on.
        for store in sorted(stores, reverse=True):
            for policy in policies:
                run = in_files if store == "files" else in_postgres
                found = asyncio.run(run(files, policy, messages, rounds))
                rows.append({"store": store, "policy": policy, **built_as[policy], **found})
    worst = {f"{name}_growth": max(row[f"{name}_growth"] for row in rows) for name in HELD}
    return {
        "sample": f"{messages:,} messages against {SMALL:,}, {rounds} openings of each",
        "cases": rows,
        **worst,
        "broken": [f"{name} is {value}" for name, value in worst.items() if value > MOST],
    }


def show(report: Report) -> None:
    for row in report["cases"]:
        print()
        for key, value in row.items():
            print(f"{key}: {value}")
    print()
    for name in HELD:
        print(f"{name}_growth: {report[f'{name}_growth']}")


def start() -> int:
    options = parser(__doc__)
    options.add_argument("--store", choices=STORES, action="append")
    options.add_argument("--policy", choices=POLICIES, action="append")
    options.add_argument("--messages", type=int, help="of the large session")
    options.add_argument("--keep", metavar="FOLDER", help="a folder that stays")
    asked = options.parse_args()
    report = main(asked)
    return finish({**head(("psycopg", "psycopg-pool")), **report}, show, as_json=asked.json)


if __name__ == "__main__":
    sys.exit(start())
