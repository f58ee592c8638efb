"""Schedules that live through a time that is made up, on real files and a real database."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol

from tests.soak.clock.expected import Span, Wanted, expected
from trimtab.stores.files import FileStore
from trimtab_serve.queue.messages import InboundMessage
from trimtab_serve.queue.postgres.queue import PostgresMessageQueue
from trimtab_serve.queue.protocol import MessageQueue
from trimtab_serve.queue.sqlite.queue import SqliteMessageQueue
from trimtab_serve.schedules.runner import ScheduleRunner
from trimtab_serve.schedules.schedule import CatchUpPolicy, Schedule
from trimtab_serve.schedules.store import ScheduleStore
from trimtab_serve.schedules.triggers import Trigger, find_next_due_time, parse_cron_trigger

FIGURES = ("missed", "doubled", "early", "late", "unasked")
PUNCTUAL = 1.0
"""Seconds after which a run is late, where nothing held it up."""
LOOK = 900.0
"""Seconds between two looks at most; a runner is there when something is due anyway."""
Opened = tuple[ScheduleStore, MessageQueue]


class Place(Protocol):
    def open(self) -> AbstractAsyncContextManager[Opened]:
        """Schedules with the queue that their messages go to."""
        ...


class OnFiles:
    def __init__(self, root: Path) -> None:
        self.root = root

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Opened]:
        store = FileStore(self.root, fsync=False)
        queue = await SqliteMessageQueue.open(store, fsync=False)
        try:
            yield ScheduleStore(queue.transactions), queue
        finally:
            await queue.close()
            await store.close()


class OnPostgres:
    def __init__(self, conninfo: str) -> None:
        self.conninfo = conninfo

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Opened]:
        queue = await PostgresMessageQueue.connect(self.conninfo)
        try:
            yield ScheduleStore(queue.transactions), queue
        finally:
            await queue.close()


class Clock:
    """Shows what it is told to."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


async def life(
    place: Place, agent: str, wanted: Sequence[Wanted], spans: Sequence[Span], *, outage: bool
) -> Counter[str]:
    """Lead schedules through these spans of time; in an outage the process ends in between."""
    made = [_made(agent, n, one, spans[0][0]) for n, one in enumerate(wanted)]
    clock = Clock(spans[0][0])
    parts = [[span] for span in spans] if outage else [list(spans)]
    for n, part in enumerate(parts):
        async with place.open() as (schedules, _):
            if not n:
                for one in made:
                    await schedules.upsert(one)
            runner = ScheduleRunner(schedules, [agent], clock=clock, poll_s=LOOK)
            for span in part:
                await _pass(runner, clock, span)
    out = Counter(schedules=len(made))
    async with place.open() as (_, queue):
        for one, schedule in zip(wanted, made, strict=True):
            messages = await queue.pending(schedule.session, limit=1_000_000)
            out += judged(expected(one, spans), messages)
    return out


def judged(
    due: dict[float, float], messages: Sequence[InboundMessage], punctual: float = PUNCTUAL
) -> Counter[str]:
    """What happened against what must have."""
    happened = Counter(float(inbound.key.rpartition("/")[2]) for inbound in messages)
    at = {float(inbound.key.rpartition("/")[2]): inbound.at for inbound in messages}
    return Counter(
        runs=len(messages),
        missed=sum(one not in happened for one in due),
        doubled=sum(count - 1 for count in happened.values()),
        unasked=sum(one not in due for one in happened),
        early=sum(when < one for one, when in at.items()),
        late=sum(when > due[one] + punctual for one, when in at.items() if one in due),
    )


async def _pass(runner: ScheduleRunner, clock: Clock, span: Span) -> None:
    """Let time go by as the runner sleeps, now and then a little longer than it wanted."""
    pick = random.Random(span[0])  # noqa: S311 - not for secrets
    clock.now, end = span
    while True:
        wait = await runner.run_due()
        if clock.now >= end:
            return
        clock.now = min(end, clock.now + wait + pick.random() * PUNCTUAL / 2)


def _made(agent: str, number: int, wanted: Wanted, now: float) -> Schedule:
    when = parse_cron_trigger(wanted.cron, wanted.zone)
    policies: dict[str, CatchUpPolicy] = {"skip": "skip", "once": "once", "all": "all"}
    return kept(
        agent, number, when, now, catch_up=policies[wanted.missed], catch_up_window=wanted.late
    )


def kept(
    agent: str,
    number: int,
    when: Trigger,
    now: float,
    *,
    catch_up: CatchUpPolicy = "once",
    catch_up_window: int = 86_400,
) -> Schedule:
    """A schedule with a session of its own."""
    return Schedule(
        id=f"default/{agent}/s{number}",
        session=f"default/{agent}/s{number}",
        message="What is new?",
        trigger=when,
        origin="file",
        created_at=now,
        next_run_at=find_next_due_time(when, now),
        catch_up=catch_up,
        catch_up_window=catch_up_window,
    )
