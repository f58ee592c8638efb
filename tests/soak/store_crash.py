"""What a store still has after its process, its client or its server was ended at any moment.

A process appends through `Session` and tells over a pipe what it tries, and after each write that
it was acknowledged. It is killed with SIGKILL; then a fresh process opens the store, reads the
whole log, compares what the session would send next with what a fold of that log would, looks for
every idempotency key, and writes on.

points     files: before, in the midst of and after every single write to the disk (open, write,
           fsync, truncate, rename, unlink, mkdir, rmdir) of a turn, a batch with large texts, a new
           session, a checkpoint, an erasure, a fork, a deletion and a repair; fsync on and off
random     files: at random moments of a session that is led on, again and again; fsync on and off
tails      files that a machine without power may leave: the log cut at every byte of its last
           batch, garbage behind it, a bit turned over in its last line, a bad byte in its middle;
           index, snapshots and keys cut or gone
clients    PostgreSQL: the client is killed at random moments
stops      PostgreSQL: a server of our own, stock settings, is stopped with `pg_ctl stop -m
           immediate` while six sessions append at once; they go on with it when it is back

lost_acknowledged   acknowledged events that are not there, byte for byte at their position
duplicated          events or messages that are there twice, or whose key is not known any more
gaps                positions that are not the one before and one
torn_batches        appends of which a part is there
wrong_requests      sessions that would send something else than a fold of their whole log
stuck               sessions that cannot be opened, or not written on
unsaid              damage in the middle of a log that no error tells of

All must be 0. A killed process leaves its writes in the system's cache: only the server stops and
the tails say anything of a machine that loses power. An append whose answer never came may be there
or not, once and as a whole.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.harness import Report, finish, head, parser, progress
from benchmarks.store_places import Postgres, no_server, place
from tests.soak.crash import server, tails
from tests.soak.crash.cluster import cluster, programs
from tests.soak.crash.files import Place, at_point, at_random, kill_points, ready
from tests.soak.crash.ledger import FIGURES
from trimtab.stores.postgres.migrations import migrate

SEED = 4
PARTS = ("points", "random", "tails", "clients", "stops")
HELD = (*FIGURES, "unsaid")
FULL = {"points": 0, "random": 120, "tails": 0, "clients": 100, "stops": 50}
"""How many of each, for each setting of fsync where there are two; 0 for all there are."""
QUICK = {"points": 18, "random": 6, "tails": 6, "clients": 12, "stops": 3}


def points(where: Place, most: int, pick: random.Random) -> Counter[str]:
    every = list(kill_points(where))
    out = Counter(points=len(every))
    chosen = pick.sample(every, most) if most else every
    for number, (act, point, mode) in enumerate(chosen, 1):
        progress(f"files, fsync {where.fsync}: {act}, {mode} write {point}; {number}")
        found = at_point(where, act, point, mode)
        _say(found, f"fsync {where.fsync}, {act}: killed {mode} write {point}")
        out += found
    return out


def damages(where: Place, most: int, pick: random.Random) -> Counter[str]:
    every = [*tails.cuts(where)]
    few = most or 60
    cases = [
        *(pick.sample(every, most) if most else every),
        *tails.garbage(where, pick, few),
        *tails.flips(where, pick, few),
        *tails.made_again(where, pick, 2 if most else 20),
    ]
    out = tails.middle(where, pick, few)
    for number, (name, damage) in enumerate(cases, 1):
        progress(f"damage {number} of {len(cases)}: {name}")
        found = tails.survived(where, name, damage)
        _say(found, name)
        out += found
    return out


def on_files(part: str, most: int, pick: random.Random) -> list[Report]:
    run = {"points": points, "random": at_random, "tails": damages}[part]
    rows: list[Report] = []
    for fsync in (True, False) if part != "tails" else (False,):
        with tempfile.TemporaryDirectory(prefix="trimtab-") as folder:
            found = run(ready(Path(folder) / "files", fsync=fsync), most, pick)
        rows.append({"part": part, "setting": f"fsync {'on' if fsync else 'off'}", **found})
    return rows


def on_postgres(part: str, most: int, pick: random.Random) -> list[Report]:
    if part == "clients":
        if missing := no_server():
            return [{"part": part, "setting": missing}]
        with place("postgres") as where:
            assert isinstance(where, Postgres)
            asyncio.run(migrate(where.conninfo))
            found = server.clients(where.conninfo, most, pick)
        return [{"part": part, "setting": "stock", **found}]
    installed = programs()
    if installed is None:
        return [{"part": part, "setting": "passed over: initdb is not installed"}]
    with cluster(installed) as own:
        asyncio.run(migrate(own.conninfo))
        found = server.stops(own, most, pick)
    return [{"part": part, "setting": "stock", **found}]


def main(asked: argparse.Namespace) -> Report:
    counts = QUICK if asked.quick else FULL
    pick = random.Random(SEED)  # noqa: S311 - not for secrets
    rows: list[Report] = []
    for part in asked.part or PARTS:
        run = on_files if part in ("points", "random", "tails") else on_postgres
        rows += run(part, counts[part], pick)
    total = Counter[str]()
    for row in rows:
        total.update({key: value for key, value in row.items() if isinstance(value, int)})
    figures = {name: total[name] for name in HELD}
    figures["missed"] = total["missed"]  # a process that ended before it could be killed
    return {
        "sample": f"{total['kills']} kills, {total['stops']} server stops, {total['damages']} "
        f"damaged files; seed {SEED}",
        "parts": rows,
        **figures,
        "broken": [f"{name} is {value}" for name, value in figures.items() if value],
    }


def show(report: Report) -> None:
    for row in report["parts"]:
        print(", ".join(f"{key}: {value}" for key, value in row.items()))
    for name in HELD:
        print(f"{name}: {report[name]}")


def _say(found: Counter[str], where: str) -> None:
    """What was found where, as soon as something was."""
    bad: dict[str, Any] = {name: found[name] for name in (*HELD, "missed") if found[name]}
    if bad:
        print(f"{where}: {bad}", file=sys.stderr)


def start() -> int:
    options = parser(__doc__)
    options.add_argument("--part", choices=PARTS, action="append")
    asked = options.parse_args()
    # Each repair is told of, which is what happens here all the time.
    logging.getLogger("trimtab").setLevel(logging.ERROR)
    logging.getLogger("psycopg").setLevel(logging.CRITICAL)
    report = main(asked)
    return finish({**head(("psycopg", "psycopg-pool")), **report}, show, as_json=asked.json)


if __name__ == "__main__":
    sys.exit(start())
