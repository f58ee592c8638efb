"""What becomes of messages while workers are killed, the database crashes and the model fails.

A fleet of processes answers messages of many sessions through PostgreSQL, with tools and an outbox.
Every few seconds one of them is ended with SIGKILL and another takes its place; the database, a
server of its own, is crashed twice and started again; the simulated model fails 5 % of its calls
and hangs in 1 %. Then all is left in peace until nothing waits, and the logs are compared with what
was sent and with what the simulator, the tools and the channel have seen.

lost               messages that are not in the log, once and with a reply behind them
doubled            replies behind a reply, with nothing said in between
out_of_order       messages that stand in the log before one that was sent earlier
repeated_calls     requests sent after their reply was in the log, counted at the simulator
tools_twice        tools that do not say `rerun` and ran twice, and calls with more than one key
undelivered        replies in the log that have not left
unmarked           replies that left again without the mark that they may have arrived
unrecorded_repeats replies that were sent and never recorded: at most the number of kills

All but the last must be 0. Of `outbox_duplicates`, replies that left again with a mark because
whoever had sent them was killed before it could say so, and of `reruns` the number is told.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from statistics import quantiles
from typing import Any

from benchmarks.harness import Report, finish, head, parser, progress, skip
from tests.soak.crash.cluster import Cluster, cluster, programs
from tests.soak.serve_troubles import Asked, Troubled, fates, repeated, unrecorded
from tests.soak.serve_workers import CHANNEL, Place, begin, opened, preload
from tests.soak.turn_crash import twice
from trimtab.engine.log.event import MessageAdded
from trimtab.engine.log.message import make_text_message
from trimtab.errors import StoreUnavailable
from trimtab.stores.postgres.migrations import migrate
from trimtab.testing.server import serve_simulated_provider
from trimtab_serve.queue.messages import InboundMessage, ReplyRoute
from trimtab_serve.queue.postgres.job_queue_migrations import migrate_job_queue
from trimtab_serve.queue.postgres.queue import PostgresMessageQueue
from trimtab_serve.service.replies import extract_assistant_text
from trimtab_serve.service.service import AgentService

SEED = 8
WORKERS = 4
RATE = 6.0
"""Messages a second, over all sessions."""
KILLS = (2.5, 5.0)
"""Seconds between two, from and to."""
DOWN = (0.5, 3.0)
"""Seconds that the database is away, from and to."""
CRASHES = (1 / 3, 2 / 3)
"""When it is, as parts of the run."""
PATIENCE = 240.0
"""Seconds in which all that waits is answered when there is peace."""
ZERO = (
    *("lost", "doubled", "out_of_order", "repeated_calls", "tools_twice"),
    *("undelivered", "unmarked"),
)
PACKAGES = ("procrastinate", "psycopg", "anthropic")


@dataclass(slots=True)
class Run:
    """What is done, and what was seen."""

    place: Place
    server: Cluster
    seconds: float
    sessions: int
    pick: random.Random
    posted: dict[str, list[tuple[str, float]]] = field(default_factory=dict[str, Any])
    """By session, the key and the time of what was taken in, in order."""
    found: Counter[str] = field(default_factory=Counter[str])
    waits: list[float] = field(default_factory=list[float])
    """Seconds from a message to its reply, each."""
    replies: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """By session, the ids of the replies in the log."""
    peace: float = 0.0
    """Seconds from the last message until nothing waited."""

    async def lead(self) -> None:
        service, queue = await opened(self.place)
        workers = [begin(self.place) for _ in range(WORKERS)]
        try:
            async with asyncio.TaskGroup() as group:
                killing = group.create_task(self._kill(workers))
                crashing = group.create_task(self._crash())
                end = time.monotonic() + self.seconds
                names = [f"default/helper/s{number}" for number in range(self.sessions)]
                posting = [group.create_task(self._post(service, name, end)) for name in names]
                await asyncio.wait([crashing, *posting])
                killing.cancel()
            begun = time.monotonic()
            await self._quiet(queue)
            self.peace = time.monotonic() - begun
            self.replies = await self._look_back(service)
            self.found["given_up"] += len(await queue.list_dead_letters())
        finally:
            for worker in workers:
                worker.kill()
                worker.join()
            await service.close()
            await service.store.close()

    async def _post(self, service: AgentService, name: str, end: float) -> None:
        """Messages of one session at random times, each until it was taken in."""
        number = 0
        while (left := end - time.monotonic()) > 0:
            await asyncio.sleep(min(left, self.pick.expovariate(RATE / self.sessions)))
            number += 1
            await self._one(service, name, number)
            progress(f"{left:.0f} s left, {self.found['kills']} kills")

    async def _one(self, service: AgentService, name: str, number: int) -> None:
        message = make_text_message("user", f"{name} {number} is what I say.")
        key, route = f"k{number}", ReplyRoute(channel=CHANNEL, address={})
        inbound = InboundMessage(
            session=name, message=message, key=key, at=time.time(), route=route
        )
        while True:
            try:
                await service.post(inbound)
            except StoreUnavailable:
                self.found["refused_posts"] += 1
                await asyncio.sleep(0.2)
            else:
                break
        self.posted.setdefault(name, []).append((key, inbound.at))

    async def _kill(self, workers: list[ForkServerProcess]) -> None:
        while True:
            await asyncio.sleep(self.pick.uniform(*KILLS))
            index = self.pick.randrange(WORKERS)
            if not workers[index].is_alive():
                self.found["died"] += 1
            workers[index].kill()
            workers[index].join()
            workers[index] = begin(self.place)
            self.found["kills"] += 1

    async def _crash(self) -> None:
        begun = time.monotonic()
        for part in CRASHES:
            await asyncio.sleep(begun + part * self.seconds - time.monotonic())
            await asyncio.to_thread(self.server.stop)
            await asyncio.sleep(self.pick.uniform(*DOWN))
            await asyncio.to_thread(self.server.start)
            self.found["crashes"] += 1

    async def _quiet(self, queue: PostgresMessageQueue) -> None:
        """Until no message waits, no job is left and all replies have left; or for so long."""
        manager, end = queue.job_queue.app.job_manager, time.monotonic() + PATIENCE
        while time.monotonic() < end:
            async with queue.borrow_connection() as connection:
                query = b"SELECT count(*) FROM trimtab.outbox WHERE state = 'waiting'"
                row = await (await connection.execute(query)).fetchone()
            leaving = row[0] if row else 0
            jobs = [*await manager.list_jobs_async()]
            if not leaving and not jobs and not await queue.depth():
                return
            await asyncio.sleep(0.2)
        self.found["not_quiet"] += 1

    async def _look_back(self, service: AgentService) -> dict[str, list[str]]:
        """Compare the logs with what was sent; the ids of replies by session."""
        replies: dict[str, list[str]] = {}
        left = Counter(line.split(" ", 1)[1].split("@")[0] for line in _lines(self.place.delivered))
        for name, posted in self.posted.items():
            said = [
                (event.seq, event.at, event.body)
                async for event in service.store.events(name)
                if isinstance(event.body, MessageAdded)
            ]
            replies[name] = [body.reply_id or "" for _, _, body in said if _is_reply(body)]
            self._compare(posted, said)
            keys = [
                f"{name}/m{seq}" for seq, _, body in said if extract_assistant_text(body.message)
            ]
            self.found["undelivered"] += sum(key not in left for key in keys)
        return replies

    def _compare(
        self, posted: list[tuple[str, float]], said: list[tuple[int, float, MessageAdded]]
    ) -> None:
        keys = [body.key or "" for _, _, body in said if body.message.role == "user"]
        expected = [key for key, _ in posted]
        self.found["lost"] += (Counter(expected) - Counter(keys)).total()
        self.found["lost"] += (Counter(keys) - Counter(expected)).total()
        self.found["out_of_order"] += sum(a != b for a, b in zip(expected, keys, strict=False))
        came, open_ = dict(posted), list[str]()
        for _, at, body in said:
            if body.message.role == "user":
                open_.append(body.key or "")
            elif _is_reply(body) and not body.message.calls:
                self.found["doubled"] += not open_
                self.found["turns"] += 1
                self.waits += [at - came[key] for key in open_ if key in came]
                open_.clear()
        self.found["lost"] += len(open_)


def _is_reply(body: MessageAdded) -> bool:
    return body.message.role == "assistant"


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def report_of(run: Run, asked: list[Asked]) -> Report:
    found, effects = run.found, _lines(run.place.effects)
    found["repeated_calls"] = repeated(asked, run.replies)
    found["unrecorded_repeats"] = unrecorded(asked, run.replies)
    found["tools_twice"] = twice("\n".join(effects))
    found["reruns"] = _more(line for line in effects if line.startswith("again "))
    delivered = [line.split(" ", 1) for line in _lines(run.place.delivered)]
    found["outbox_duplicates"] = _more(key for _, key in delivered)
    first = Counter(key for attempts, key in delivered if attempts == "0")
    found["unmarked"] = sum(count - 1 for count in first.values())
    broken = [f"{name} is {found[name]}" for name in (*ZERO, "given_up", "died", "not_quiet")]
    broken = [line for line in broken if not line.endswith(" 0")]
    if found["unrecorded_repeats"] > found["kills"]:
        repeats, kills = found["unrecorded_repeats"], found["kills"]
        broken.append(f"unrecorded_repeats is {repeats} and there were {kills} kills")
    messages = sum(map(len, run.posted.values()))
    names = ("unrecorded_repeats", "outbox_duplicates", "reruns", "given_up", "died")
    waits = quantiles(run.waits, n=100) if len(run.waits) > 1 else [0.0] * 99
    return {
        "sample": f"{run.seconds:g} s, {messages:,} messages in {len(run.posted)} sessions, "
        f"{WORKERS} workers, {found['kills']} kills, {found['crashes']} crashes of the database, "
        f"seed {SEED}",
        **{name: found[name] for name in (*ZERO, *names)},
        "turns": found["turns"],
        "requests": len(asked),
        **dict(sorted(fates(asked).items())),
        "tools": len(effects),
        "refused_posts": found["refused_posts"],
        "wait_seconds": {
            "p50": round(waits[49], 2),
            "p99": round(waits[98], 2),
            "max": round(max(run.waits, default=0.0), 2),
        },
        "seconds_until_quiet": round(run.peace, 1),
        "broken": broken,
    }


def _more(lines: Iterable[str]) -> int:
    """How many are there again."""
    return sum(count - 1 for count in Counter(lines).values())


def main(where: Path, seconds: float, folder: Path) -> Report:
    pick = random.Random(SEED)  # noqa: S311 - not for secrets
    preload()
    with (
        cluster(where) as server,
        serve_simulated_provider(tokenizer="estimate", seed="s") as served,
    ):
        asyncio.run(migrate(server.conninfo))
        asyncio.run(migrate_job_queue(server.conninfo))
        model = Troubled(served, random.Random(SEED))  # noqa: S311 - not for secrets
        served.simulator.script = model
        place = Place(conninfo=server.conninfo, url=served.url, folder=folder)
        sessions = max(20, int(seconds * RATE / 40))
        run = Run(place, server, seconds, sessions, pick)
        asyncio.run(run.lead())
        return report_of(run, model.asked)


def start() -> int:
    for told in ("psycopg.pool", "uvicorn.error"):  # of what was asked for
        logging.getLogger(told).setLevel(logging.CRITICAL)
    options = parser(__doc__)
    options.add_argument("--seconds", type=float, help="how long; 600, or 40 with --quick")
    options.add_argument("--keep", type=Path, help="a folder for the workers' logs")
    asked = options.parse_args()
    where = programs()
    if where is None:
        why = "the programs of a PostgreSQL server are not installed"
        return skip(why, as_json=asked.json)
    seconds = asked.seconds or (40.0 if asked.quick else 600.0)
    with tempfile.TemporaryDirectory(prefix="trimtab-") as folder:
        kept = asked.keep or Path(folder)
        kept.mkdir(parents=True, exist_ok=True)
        report = main(where, seconds, kept)
    return finish({**head(PACKAGES), **report}, as_json=asked.json)


if __name__ == "__main__":
    sys.exit(start())
