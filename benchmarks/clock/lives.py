"""Schedules that live through a time that is made up, on real files and a real database."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol

from benchmarks.clock.expected import Span, Wanted, expected
from trimtab.server.queue.inbound_outbound import InboundMessage
from trimtab.server.queue.postgres import PostgresMessageQueue
from trimtab.server.queue.protocol import MessageQueue
from trimtab.server.queue.sqlite import SqliteMessageQueue
from trimtab.server.schedules.postgres import PostgresScheduleStore
from trimtab.server.schedules.protocol import ScheduleStore
from trimtab.server.schedules.runner import ScheduleRunner
from trimtab.server.schedules.schedule import CatchUpPolicy, Schedule
from trimtab.server.schedules.sqlite import SqliteScheduleStore
from trimtab.server.schedules.triggers import Trigger, find_next_due_time, parse_cron_trigger
from trimtab.stores.files import FileStore

FIGURES = ("missed", "doubled", "early", "late", "unasked")
PUNCTUAL = 1.0
"""Seconds after which a run is late, where nothing held it up."""
LOOK = 900.0
"""Seconds between two looks at most; a door is there when something is due anyway."""
Opened = tuple[ScheduleStore, MessageQueue]


class Place(Protocol):
    def open(self) -> AbstractAsyncContextManager[Opened]:
        """Schedules with the mail that their letters go to."""
        ...


class OnFiles:
    def __init__(self, root: Path) -> None:
        self.root = root

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Opened]:
        store = FileStore(self.root, fsync=False)
        mail = await SqliteMessageQueue.open(store, fsync=False)
        schedules = SqliteScheduleStore(mail)
        try:
            yield schedules, mail
        finally:
            await schedules.close()
            await mail.close()
            await store.close()


class OnPostgres:
    def __init__(self, conninfo: str) -> None:
        self.conninfo = conninfo

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Opened]:
        mail = await PostgresMessageQueue.connect(self.conninfo)
        try:
            yield PostgresScheduleStore(mail.borrow_connection, mail.post_in_transaction), mail
        finally:
            await mail.close()


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
            door = ScheduleRunner(schedules, [agent], clock=clock, poll_s=LOOK)
            for span in part:
                await _pass(door, clock, span)
    out = Counter(schedules=len(made))
    async with place.open() as (_, mail):
        for one, schedule in zip(wanted, made, strict=True):
            letters = await mail.pending(schedule.session, limit=1_000_000)
            out += judged(expected(one, spans), letters)
    return out


def judged(
    due: dict[float, float], letters: Sequence[InboundMessage], punctual: float = PUNCTUAL
) -> Counter[str]:
    """What happened against what must have."""
    happened = Counter(float(letter.key.rpartition("/")[2]) for letter in letters)
    at = {float(letter.key.rpartition("/")[2]): letter.at for letter in letters}
    return Counter(
        runs=len(letters),
        missed=sum(one not in happened for one in due),
        doubled=sum(count - 1 for count in happened.values()),
        unasked=sum(one not in due for one in happened),
        early=sum(when < one for one, when in at.items()),
        late=sum(when > due[one] + punctual for one, when in at.items() if one in due),
    )


async def _pass(door: ScheduleRunner, clock: Clock, span: Span) -> None:
    """Let time go by as the door sleeps, now and then a little longer than it wanted."""
    pick = random.Random(span[0])  # noqa: S311 - not for secrets
    clock.now, end = span
    while True:
        wait = await door.run_due()
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
