"""What is under load: one process on files, or a fleet on PostgreSQL."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

from benchmarks.load.model import MAX_TOKENS, MODEL, SYSTEM, tools
from benchmarks.load.talk import CHANNEL, Talk, inbound
from trimtab.providers.anthropic import AnthropicProvider
from trimtab.providers.retries import with_retries
from trimtab.session.events import TurnEvent, TurnFinished, TurnStarted
from trimtab.stores.base import Store
from trimtab.stores.files import FileStore
from trimtab.stores.postgres import PostgresStore
from trimtab_serve.agent.agent import Agent
from trimtab_serve.agent.config.spec import AgentSpec
from trimtab_serve.process.local_turns import LocalTurnRunner
from trimtab_serve.process.worker_pool import WorkerPool
from trimtab_serve.queue.messages import OutboundMessage
from trimtab_serve.queue.postgres.queue import PostgresMessageQueue
from trimtab_serve.queue.sqlite.queue import SqliteMessageQueue
from trimtab_serve.service.delivery import ReplyDelivery
from trimtab_serve.service.events.bus import LocalEventBus
from trimtab_serve.service.service import AgentService
from trimtab_serve.service.session_cache import MAX_OPEN_SESSIONS

AT_ONCE = 32
"""Turns side by side on files."""
WORKERS, EACH = 2, 16
"""Processes of a fleet, and turns side by side in each."""


class Timing(LocalEventBus):
    """Knows how long each session's last turn took, in seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.took: dict[str, float] = {}
        self._begun: dict[str, float] = {}

    def publish(self, session: str, event: TurnEvent) -> None:
        if isinstance(event, TurnStarted):
            self._begun[session] = time.perf_counter()
        elif isinstance(event, TurnFinished):
            self.took[session] = time.perf_counter() - self._begun.pop(session)
        super().publish(session, event)


def agent_of(store: Store, url: str, window: int | None = None) -> Agent:
    model = {"name": MODEL, "max_output_tokens": MAX_TOKENS, "context_window": window}
    provider = with_retries(AnthropicProvider(api_key="benchmark", base_url=url))
    return Agent(
        spec=AgentSpec.model_validate({"name": "helper", "model": model}),
        system=SYSTEM,
        store=store,
        provider=provider,
        tools=tools(),
        environ={},
    )


def service_of(
    store: Store, queue: Any, url: str, window: int | None = None, kept: int = MAX_OPEN_SESSIONS
) -> tuple[AgentService, Timing]:
    live = Timing()
    agents = {"helper": agent_of(store, url, window)}
    service = AgentService(
        agents=agents,
        store=store,
        queue=queue,
        event_bus=live,
        max_open_sessions=kept,
        max_queued_messages=100_000,
    )
    return service, live


@asynccontextmanager
async def on_files(
    root: Path,
    url: str,
    sessions: list[str],
    window: int | None = None,
    kept: int = MAX_OPEN_SESSIONS,
) -> AsyncGenerator[tuple[Talk, Store]]:
    """This process serves, and those who write are in it, too."""
    store = FileStore(root)
    queue = await SqliteMessageQueue.open(store)
    service, live = service_of(store, queue, url, window, kept)
    turns = LocalTurnRunner(service, max_turns=AT_ONCE)
    queue.on_posted = turns.request_turn
    talk = Talk(sessions, lambda *said: service.post(inbound(*said)))

    async def deliver(reply: OutboundMessage) -> None:
        talk.got(reply, live.took.pop(reply.session, 0.0))

    delivery = ReplyDelivery(queue, {CHANNEL: deliver})
    queue.on_replies = delivery.wake
    sending = asyncio.create_task(delivery.run())
    try:
        yield talk, store
    finally:
        await turns.drain(10)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        await service.close()
        await store.close()


@asynccontextmanager
async def on_postgres(
    conninfo: str, url: str, sessions: list[str]
) -> AsyncGenerator[tuple[Talk, Store]]:
    """Those who write, without any turns: the fleet has them."""
    store, queue = (
        await PostgresStore.connect(conninfo),
        await PostgresMessageQueue.connect(conninfo),
    )
    service, _ = service_of(store, queue, url)
    try:
        yield Talk(sessions, lambda *said: service.post(inbound(*said))), store
    finally:
        await service.close()
        await store.close()


@contextmanager
def processes(work: Callable[..., None], *given: Any) -> Generator[Processes]:
    """A few that work until they are told to end."""
    made = Processes(work, *given)
    try:
        yield made
    finally:
        for process in made.all:
            process.kill()
            process.join()


class Processes:
    """What they deliver is heard here."""

    def __init__(self, work: Callable[..., None], *given: Any) -> None:
        self.all: list[SpawnProcess] = []
        self._pipes: list[Connection] = []
        context = multiprocessing.get_context("spawn")
        for _ in range(WORKERS):
            ours, its = context.Pipe()
            process = context.Process(target=work, args=(its, *given), daemon=True)
            process.start()
            its.close()
            self.all.append(process)
            self._pipes.append(ours)
        for pipe in self._pipes:
            pipe.recv()

    @contextmanager
    def heard_by(self, arrived: Callable[..., None]) -> Generator[None]:
        """Within this loop."""
        loop = asyncio.get_running_loop()

        def hear(pipe: Connection) -> None:
            while pipe.poll():
                arrived(*pipe.recv())

        for pipe in self._pipes:
            loop.add_reader(pipe.fileno(), hear, pipe)
        try:
            yield
        finally:
            for pipe in self._pipes:
                loop.remove_reader(pipe.fileno())

    def cpu(self) -> float:
        """Seconds that all have used so far."""
        return sum(cpu_of(process.pid or 0) for process in self.all)

    def memory(self) -> float:
        """Of all, in MB."""
        return sum(memory_of(process.pid or 0) for process in self.all)


def member(pipe: Connection, conninfo: str, url: str) -> None:
    """A process of the fleet."""
    logging.getLogger("procrastinate").setLevel(logging.ERROR)
    asyncio.run(_member(pipe, conninfo, url))


async def _member(pipe: Connection, conninfo: str, url: str) -> None:
    store, queue = (
        await PostgresStore.connect(conninfo),
        await PostgresMessageQueue.connect(conninfo),
    )
    service, live = service_of(store, queue, url)
    fleet = WorkerPool(service, queue, max_turns=EACH)

    async def deliver(reply: OutboundMessage) -> None:
        took = live.took.pop(reply.session, 0.0)
        pipe.send((reply.session, reply.key, reply.seq, reply.attempts, took))

    delivery = ReplyDelivery(queue, {CHANNEL: deliver})
    queue.on_replies = delivery.wake
    pipe.send("ready")
    await asyncio.gather(fleet.run(), delivery.run())


def cpu_of(pid: int) -> float:
    """Seconds of CPU that a process has used."""
    told = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(told[11]) + int(told[12])) / os.sysconf("SC_CLK_TCK")


def memory_of(pid: int) -> float:
    """Of a process, in MB."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6
