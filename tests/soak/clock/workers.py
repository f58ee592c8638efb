"""Two processes on one database, by the clock of this machine; one of them is killed."""

from __future__ import annotations

import asyncio
import logging
import math
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests.soak.clock.lives import OnPostgres, judged, kept
from trimtab_serve.schedules.runner import ScheduleRunner
from trimtab_serve.schedules.store import ScheduleStore
from trimtab_serve.schedules.triggers import Trigger, parse_cron_trigger

ROOT = Path(__file__).parents[3]
AGENT = "raced"
READY = "ready\n"
LOOK = 0.5
"""Seconds between two looks at most: what is kept when a worker sleeps already is seen in time."""
HEAD = 2.0
"""Seconds before the first is due, in which the schedules are kept."""
PUNCTUAL = 15.0
"""Seconds after which a run is late: a worker in service looks so often by itself."""


class Told(logging.Handler):
    """A line on standard output for each schedule that was run here."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno == logging.INFO:
            sys.stdout.write("ran\n")
            sys.stdout.flush()


async def work(conninfo: str) -> None:
    """A process that runs what is due, until it is ended."""
    log = logging.getLogger("trimtab.schedules")
    log.addHandler(Told())
    log.setLevel(logging.INFO)
    async with OnPostgres(conninfo).open() as (schedules, _):
        sys.stdout.write(READY)
        sys.stdout.flush()
        await ScheduleRunner(schedules, [AGENT], poll_s=LOOK).run()


async def race(conninfo: str, each_second: int, seconds: int) -> tuple[Counter[str], list[float]]:
    """So many one-off schedules each second, and some by cron; the lateness of each run."""
    place = OnPostgres(conninfo)
    async with place.open() as (schedules, queue):
        with ExitStack() as held:
            first, second = _started(conninfo, held), _started(conninfo, held)
            begin = math.ceil(time.time() + HEAD)
            whens = [
                Trigger(at=float(begin + s)) for s in range(seconds) for _ in range(each_second)
            ]
            whens += [parse_cron_trigger("* * * * *")] * each_second
            for number, when in enumerate(whens):
                await schedules.upsert(kept(AGENT, number, when, begin - 0.5))
            await asyncio.sleep(begin + seconds / 2 - time.time())
            first.process.kill()
            third = _started(conninfo, held)
            end = max(time.time(), begin + seconds)
            await _until_done(schedules, end)
            for one in (second, third):
                one.process.kill()
            shares = [one.ran() for one in (first, second)]
        out, lateness = Counter(schedules=len(whens), kills=1), list[float]()
        for number, when in enumerate(whens):
            messages = await queue.pending(f"default/{AGENT}/s{number}", limit=1000)
            # What came due since is none of this.
            messages = [one for one in messages if int(one.key.rpartition("/")[2]) <= end]
            out += judged({due: due for due in _due(when, begin, end)}, messages, PUNCTUAL)
            lateness += [one.at - int(one.key.rpartition("/")[2]) for one in messages]
    out["idle_workers"] = sum(not share for share in shares)
    return out, lateness


async def _until_done(schedules: ScheduleStore, end: float) -> None:
    """Until nothing is due any more that was due then, or nobody can say it has not had time."""
    await asyncio.sleep(max(0.0, end - time.time()))
    while time.time() < end + 2 * PUNCTUAL:
        coming = await schedules.next_due([AGENT])
        if coming is None or coming > end:
            return
        await asyncio.sleep(0.1)


def _due(when: Trigger, begin: float, end: float) -> list[float]:
    if when.at is not None:
        return [when.at]
    first = math.ceil(begin / 60) * 60.0
    return [first + 60 * n for n in range(math.floor((end - first) / 60) + 1)]


@dataclass(frozen=True, slots=True)
class _Worker:
    process: subprocess.Popen[str]
    out: IO[str]

    def ran(self) -> int:
        """How many schedules, once it is ended."""
        return len(self.out.read().split())


def _started(conninfo: str, held: ExitStack) -> _Worker:
    """A worker that looks."""
    command = [sys.executable, "-m", "tests.soak.schedule_clock", "--work", conninfo]
    process = held.enter_context(
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    )
    held.callback(process.kill)
    assert process.stdout is not None
    if process.stdout.readline() != READY:
        raise RuntimeError("a worker has not begun")
    return _Worker(process, process.stdout)
