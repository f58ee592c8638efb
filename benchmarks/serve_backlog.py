"""How a fleet works off what has piled up: one long queue, many short ones, and what they leave.

One session has 10,000 messages waiting and 10,000 sessions one each, sent at the same time; then
one process begins to work. Its model answers at once, so what is measured is ours: the log, the
message queue and the job queue. While the rest of the one session is worked off, others come and
go.

many        the sessions with one message each: turns a second, and how much longer a turn takes
            than in a queue that is all but empty; by how many places a session's turn began sooner
            or later than its message was taken in
one         the session with all the messages: whether they are in order, the turns they took, how
            much longer those at the end took than those at the beginning
beside      how long somebody else waits for a reply meanwhile, against an empty queue
bloat       bytes of the tables that turns pass through, after 100,000 turns that do nothing but
            pass; what the outbox keeps of replies that have left is told apart

No turn may take more than twice as long as in an empty queue, nobody be moved by more than run
side by side and are taken in at once, and the tables may not grow with the number of turns.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count, pairwise
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import psycopg

from benchmarks.crash.cluster import cluster, programs
from benchmarks.harness import Report, finish, head, parser, progress, skip
from trimtab.engine.log.event import MessageAdded
from trimtab.engine.log.message import make_text_message
from trimtab.session import Session
from trimtab.session.events import TurnFinished
from trimtab.stores.postgres import PostgresStore
from trimtab.stores.postgres.connection_pool import ConnectionPool
from trimtab.stores.postgres.migrations import migrate
from trimtab_serve.agent.agent import Agent
from trimtab_serve.agent.config.spec import AgentSpec
from trimtab_serve.process.worker_pool import WorkerPool
from trimtab_serve.queue.messages import InboundMessage, OutboundMessage, ReplyRoute
from trimtab_serve.queue.postgres.job_queue_migrations import migrate_job_queue
from trimtab_serve.queue.postgres.procrastinate_jobs import (
    ProcrastinateJobQueue,
    add_job_queue_options,
)
from trimtab_serve.queue.postgres.queue import PostgresMessageQueue
from trimtab_serve.service.delivery import ReplyDelivery
from trimtab_serve.service.events.bus import LocalEventBus
from trimtab_serve.service.service import AgentService
from trimtab_serve.service.turn import MAX_MESSAGES_PER_TURN, TurnRunReport

ONE = "default/helper/one"
AT_ONCE = 16
"""Turns side by side."""
POSTERS = 8
"""Who take messages in side by side."""
FEW = 60
"""Sessions of a queue that is all but empty."""
BESIDE = 30
"""Who come and go while the one session is worked off."""
SLOWER = 2.0
"""How much longer a turn may take."""
MOVED = AT_ONCE + POSTERS
"""Places by which a session's turn may begin sooner or later than its message was taken in."""
BOUND = 64 << 20
"""Bytes of the tables that turns pass through, at most."""
MANY = 50_000
"""Turns from which on their tables must have stopped to grow."""
GROWN = 1.25
"""How much larger they may be in the second half than in the first."""
SESSIONS = 1_000
"""Among which the turns that pass go round."""
WAITING = 200
"""Messages that wait meanwhile."""
CHANNEL = "phone"
MODEL = "claude-sonnet-4-6"
PACKAGES = ("procrastinate", "psycopg")
PASSED = ("trimtab.inbox", "procrastinate_jobs", "procrastinate_events")
"""Tables in which a turn leaves nothing behind."""

_SIZES = """
SELECT name, pg_total_relation_size(name::regclass)
FROM unnest(%s::text[]) AS name
"""


class Noted(PostgresMessageQueue):
    """Knows in which order messages were taken in, and turns were begun and finished."""

    def __init__(self, connections: ConnectionPool, queue: ProcrastinateJobQueue) -> None:
        super().__init__(connections, queue)
        self.taken: dict[str, None] = {}
        """Sessions by their first message."""
        self.started: dict[str, None] = {}
        """And by their first turn."""
        self.done: list[tuple[str, float]] = []
        """Sessions and times, in order."""
        self.turns = Counter[str]()
        """How many each session has had."""
        self._more = asyncio.Event()

    async def post(self, inbound: InboundMessage) -> bool:
        kept = await super().post(inbound)
        self.taken.setdefault(inbound.session)
        return kept

    async def pending_after_open_posts(self, session: str, *, limit: int) -> list[InboundMessage]:
        self.started.setdefault(session)
        return await super().pending_after_open_posts(session, limit=limit)

    async def finish_turn(
        self,
        session: str,
        epoch: int,
        answered: Collection[int],
        replies: Sequence[OutboundMessage],
    ) -> None:
        await super().finish_turn(session, epoch, answered, replies)
        self.done.append((session, time.monotonic()))
        self.turns[session] += 1
        self._more.set()

    async def turned(self, turns: int, session: str | None = None) -> float:
        """Wait for so many turns, of all or of one; when the last of all was finished."""
        while (len(self.done) if session is None else self.turns[session]) < turns:
            self._more.clear()
            await self._more.wait()
            progress(f"{len(self.done):,} turns")
        return self.done[-1][1] if self.done else 0.0


class Quick:
    """A model that answers at once."""

    dialect = "anthropic"

    def __init__(self) -> None:
        self._numbers = count(1)

    async def send(self, request: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        usage = {"input_tokens": 100, "output_tokens": 2}
        message = {
            "id": f"msg_{next(self._numbers)}",
            "type": "message",
            "role": "assistant",
            "model": request["model"],
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage,
        }
        yield {"type": "message_start", "message": message}
        block = {"type": "text", "text": ""}
        yield {"type": "content_block_start", "index": 0, "content_block": block}
        delta = {"type": "text_delta", "text": "Yes."}
        yield {"type": "content_block_delta", "index": 0, "delta": delta}
        yield {"type": "content_block_stop", "index": 0}
        ended = {"stop_reason": "end_turn", "stop_sequence": None}
        yield {"type": "message_delta", "delta": ended, "usage": {"output_tokens": 2}}
        yield {"type": "message_stop"}

    async def close(self) -> None:
        """Nothing is held."""


class Passing(AgentService):
    """Its turns do nothing but pass: the messages go, a reply leaves."""

    async def answer(
        self, session: str, *, gather: bool = True, attempt: TurnRunReport | None = None
    ) -> TurnFinished:
        del gather
        messages = await self.queue.pending(session, limit=MAX_MESSAGES_PER_TURN)
        if attempt is not None:
            attempt.full = len(messages) == MAX_MESSAGES_PER_TURN
        route = ReplyRoute(channel=CHANNEL, address={})
        replies = [
            OutboundMessage(
                session=session, seq=1, text="Yes.", route=route, key=f"{session}/{each.key}"
            )
            for each in messages
        ]
        await self.queue.finish_turn(session, 0, [each.number for each in messages], replies)
        return TurnFinished(reason="done", calls=0)


@dataclass(slots=True, kw_only=True)
class Shop:
    """One process of a fleet, which works when it is told to."""

    service: AgentService
    queue: Noted
    fleet: WorkerPool

    async def post(self, sessions: Sequence[str], numbers: Sequence[int]) -> None:
        """A message for each, one after the other."""
        for session, number in zip(sessions, numbers, strict=True):
            message = make_text_message("user", f"Message {number}: is all well?")
            await self.queue.post(
                InboundMessage(session=session, message=message, key=f"k{number}", at=time.time())
            )

    @asynccontextmanager
    async def working(self) -> AsyncGenerator[None]:
        """For the length of the block."""
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.fleet.run())
            yield
            task.cancel()


@asynccontextmanager
async def shop(conninfo: str, kind: type[AgentService] = AgentService) -> AsyncGenerator[Shop]:
    store, queue = await PostgresStore.connect(conninfo), await Noted.connect(conninfo)
    spec = AgentSpec.model_validate({"name": "helper", "model": {"name": MODEL}})
    agent = Agent(spec=spec, system="", store=store, provider=Quick(), tools=(), environ={})
    service = kind(agents={"helper": agent}, store=store, queue=queue, event_bus=LocalEventBus())
    try:
        yield Shop(
            service=service, queue=queue, fleet=WorkerPool(service, queue, max_turns=AT_ONCE)
        )
    finally:
        await service.close()
        await store.close()


def names(prefix: str, size: int) -> list[str]:
    return [f"default/helper/{prefix}{number}" for number in range(size)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Empty:
    """How long things take where little else waits, in seconds."""

    turn: float
    """A turn among few, with as many side by side as may be."""
    batch: float
    """A turn of one session that takes as many messages as a turn does."""
    wait: float
    """Until somebody has a reply; half of them sooner."""


async def empty(conninfo: str) -> Empty:
    async with shop(conninfo) as own, own.working():
        await beside(own, "warm", FEW)
        waits = await beside(own, "alone", BESIDE)
    many, one = names("few", FEW), "default/helper/batch"
    async with shop(conninfo) as own:
        await own.post(many, range(FEW))
        async with own.working():
            await own.queue.turned(FEW)
    times = [at for _, at in own.queue.done]
    async with shop(conninfo) as own:
        size = 10 * MAX_MESSAGES_PER_TURN
        await own.post([one] * size, range(size))
        async with own.working():
            await own.queue.turned(10)
    return Empty(
        turn=(times[-1] - times[0]) / (FEW - 1),
        batch=median(between(own.queue.done, one)),
        wait=median(waits),
    )


def between(done: Sequence[tuple[str, float]], session: str) -> list[float]:
    """Seconds from one turn of a session to its next."""
    return [after - one for one, after in pairwise(at for name, at in done if name == session)]


async def beside(own: Shop, prefix: str, most: int, until: int | None = None) -> list[float]:
    """One new session after the other: seconds until each is answered; so many, or until the one
    has had so many turns."""
    waits: list[float] = []
    while len(waits) < most and (until is None or own.queue.turns[ONE] < until):
        name, begun = f"default/helper/{prefix}{len(waits)}", time.monotonic()
        await own.post([name], [0])
        waits.append(await own.queue.turned(1, name) - begun)
    return waits


async def backlog(conninfo: str, size: int) -> Report:
    """Both queues, worked off; the figures, and what did not hold."""
    base = await empty(conninfo)
    many, turns = names("s", size), -(-size // MAX_MESSAGES_PER_TURN)
    async with shop(conninfo) as own:
        parts = [range(first, size, POSTERS) for first in range(POSTERS)]
        posting = [own.post([many[number] for number in part], part) for part in parts]
        await asyncio.gather(own.post([ONE] * size, range(size)), *posting)
        queue, begun = own.queue, time.monotonic()
        async with own.working():
            # The one session has its turn, goes behind all the others, and has its next.
            await own.queue.turned(size + 1)
            waits = await beside(own, "beside", 20 * BESIDE, turns)
            await own.queue.turned(turns, ONE)
        said = [
            event.body.key
            async for event in own.service.store.events(ONE)
            if isinstance(event.body, MessageAdded) and event.body.message.role == "user"
        ]
    in_order = said == [f"k{number}" for number in range(size)]
    return judged(base, begun, queue, many, waits, in_order=in_order)


def judged(
    base: Empty,
    begun: float,
    queue: Noted,
    many: Sequence[str],
    waits: Sequence[float],
    *,
    in_order: bool,
) -> Report:
    chosen, done = frozenset(many), queue.done
    ended = [(name, at) for name, at in done if name in chosen]
    place = {name: index for index, name in enumerate(n for n in queue.taken if n in chosen)}
    moved = [abs(place[n] - i) for i, n in enumerate(n for n in queue.started if n in chosen)]
    turn = (ended[-1][1] - ended[0][1]) / (len(ended) - 1)
    tenths = [ended[len(ended) * part // 10 :][: len(ended) // 10] for part in range(10)]
    paces = [(tenth[-1][1] - tenth[0][1]) / (len(tenth) - 1) for tenth in tenths]
    batches = between(done, ONE)[1:]
    quarter = max(1, len(batches) // 4)
    slower = {
        "many": turn / base.turn,
        "one": median(batches) / base.batch,
        "one_at_its_end": median(batches[-quarter:]) / base.batch,
        "beside": median(waits) / base.wait,
    }
    waited = quantiles([at - begun for _, at in ended], n=100)
    return {
        "empty_queue": {
            "turns_a_second": round(1 / base.turn),
            "batch_ms": round(base.batch * 1000, 1),
            "wait_ms": round(base.wait * 1000, 1),
        },
        "many": {
            "sessions": len(ended),
            "turns_a_second": round(1 / turn),
            "slowest_tenth": round(1 / max(paces)),
            "wait_s": {
                "p1": round(waited[0], 2),
                "p50": round(waited[49], 2),
                "p99": round(waited[98], 2),
            },
            "places_moved": {"p50": median(moved), "max": max(moved)},
        },
        "one": {
            "turns": len(batches) + 2,
            "in_order": in_order,
            "batch_ms": {
                "p50": round(median(batches) * 1000, 1),
                "max": round(max(batches) * 1000, 1),
            },
        },
        "beside": {"sessions": len(waits), "wait_ms": round(median(waits) * 1000, 1)},
        "times_slower": {name: round(value, 2) for name, value in slower.items()},
        "broken": [
            *(
                f"{name}: {value:.2f} times slower"
                for name, value in slower.items()
                if value > SLOWER
            ),
            *([] if in_order else ["the one session's messages are not in order"]),
            *([] if max(moved) <= MOVED else [f"somebody was moved by {max(moved)} places"]),
        ],
    }


async def bloat(conninfo: str, turns: int) -> Report:
    """Sizes of the tables while so many turns pass."""
    sizes: list[dict[str, int]] = []
    async with (
        shop(conninfo, Passing) as own,
        own.working(),
        asyncio.TaskGroup() as group,
    ):
        for name in names("p", SESSIONS):  # of one that is gone no reply is kept
            await Session.create(own.service.store, name, model=MODEL)
        begun = time.monotonic()
        delivery = ReplyDelivery(own.queue, {CHANNEL: _arrived})
        own.queue.on_replies = delivery.wake
        tasks = [group.create_task(_keep_busy(own, part)) for part in range(POSTERS)]
        tasks.append(group.create_task(delivery.run()))
        for tenth in range(1, 11):
            await own.queue.turned(turns * tenth // 10)
            sizes.append(_sizes(conninfo))
        seconds = time.monotonic() - begun
        for task in tasks:
            task.cancel()
    passed = [sum(size[name] for name in PASSED) for size in sizes]
    kept, rows = sizes[-1]["trimtab.outbox"], _kept(conninfo)
    most, half = max(passed), max(passed[:5])
    return {
        "bloat": {
            "turns": turns,
            "turns_a_second": round(turns / seconds),
            "megabytes_by_tenth": [round(size / 2**20, 1) for size in passed],
            "outbox_megabytes": round(kept / 2**20, 1),
            "outbox_bytes_a_reply": round(kept / max(1, rows)),
        },
        "broken": [
            *([] if most <= BOUND else [f"{most:,} bytes of tables that should be empty"]),
            *([] if turns < MANY or most <= GROWN * half else [f"tables grow: {passed}"]),
        ],
    }


async def _arrived(reply: OutboundMessage) -> None:
    del reply


async def _keep_busy(own: Shop, part: int) -> None:
    """Messages for one session after the other, with a few that wait at any time."""
    for number in count(part, POSTERS):
        await own.queue.turned(number - WAITING)
        await own.post([f"default/helper/p{number % SESSIONS}"], [number])


def _sizes(conninfo: str) -> dict[str, int]:
    with psycopg.connect(add_job_queue_options(conninfo)) as connection:
        return dict(connection.execute(_SIZES, [[*PASSED, "trimtab.outbox"]]).fetchall())


def _kept(conninfo: str) -> int:
    with psycopg.connect(conninfo) as connection:
        row = connection.execute("SELECT count(*) FROM trimtab.outbox").fetchone()
    return row[0] if row else 0


def main(where: Path, asked: argparse.Namespace) -> Report:
    size = asked.size or (500 if asked.quick else 10_000)
    turns = asked.turns or (1_500 if asked.quick else 100_000)
    with cluster(where) as server:
        asyncio.run(migrate(server.conninfo))
        asyncio.run(migrate_job_queue(server.conninfo))
        first = asyncio.run(backlog(server.conninfo, size))
        second = asyncio.run(bloat(server.conninfo, turns))
    sample = (
        f"{size:,} messages of one session, {size:,} sessions with one, {turns:,} turns that pass"
    )
    broken = [*first.pop("broken"), *second.pop("broken")]
    return {"sample": sample, **first, **second, "broken": broken}


def start() -> int:
    options = parser(__doc__)
    options.add_argument("--size", type=int, help="messages of the one, and sessions of the many")
    options.add_argument("--turns", type=int, help="turns that pass")
    asked = options.parse_args()
    where = programs()
    if where is None:
        why = "the programs of a PostgreSQL server are not installed"
        return skip(why, as_json=asked.json)
    return finish({**head(PACKAGES), **main(where, asked)}, as_json=asked.json)


if __name__ == "__main__":
    sys.exit(start())
