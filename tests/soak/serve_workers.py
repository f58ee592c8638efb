"""Workers of a fleet as processes of their own, to be killed at will.

Each is forked from a server that has imported everything and touched nothing, so that a new one is
at work within a moment. What its tools do and what its channel delivers are lines in files: they
stay when the process is gone.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import random
from collections.abc import Collection
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, cast

from trimtab.errors import StoreUnavailable
from trimtab.providers.anthropic import AnthropicProvider
from trimtab.providers.retries import with_retries
from trimtab.session.tools import Tool, ToolInvocation
from trimtab.stores.base import Store
from trimtab.stores.postgres import PostgresStore
from trimtab_serve.agent.agent import Agent
from trimtab_serve.agent.config.spec import AgentSpec
from trimtab_serve.process.heartbeat import WorkerPoolTimings
from trimtab_serve.process.worker_pool import WorkerPool
from trimtab_serve.queue.messages import OutboundMessage
from trimtab_serve.queue.postgres.queue import PostgresMessageQueue
from trimtab_serve.queue.protocol import MessageQueue
from trimtab_serve.service.delivery import ReplyDelivery
from trimtab_serve.service.events.bus import LocalEventBus
from trimtab_serve.service.service import AgentService

MODEL = "claude-sonnet-4-6"
CHANNEL = "phone"
TIMEOUT = 4.0
"""Seconds without a sign of life after which a call is given up."""
LEASE = 5.0
"""Seconds for which a reply is lent to whoever delivers it."""
PACE = WorkerPoolTimings(
    heartbeat_s=0.5,
    takeover_after_s=3.0,
    self_cancel_after_s=2.0,
    poll_s=0.5,
    shutdown_grace_s=5.0,
    restart_delay_s=0.5,
)
"""Faster than by default: workers die every few seconds."""
AT_ONCE = 8
"""Turns that one worker runs side by side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a worker finds everything."""

    conninfo: str
    """The database."""
    url: str
    """The simulator."""
    folder: Path
    """For what tools have done and what was delivered."""

    @property
    def effects(self) -> Path:
        """A line for each time that a tool ran: its name and its key."""
        return self.folder / "effects"

    @property
    def delivered(self) -> Path:
        """A line for each delivery: attempts of unknown end before it, and its key."""
        return self.folder / "delivered"


def preload() -> None:
    """Let all workers be forked from a process that has imported what they need."""
    multiprocessing.set_forkserver_preload([__name__, "anthropic", "anthropic.resources.messages"])


def begin(place: Place) -> ForkServerProcess:
    """One more worker."""
    context = multiprocessing.get_context("forkserver")
    process = context.Process(target=_work, args=(place,), daemon=True)
    process.start()
    return process


def agent_of(place: Place, store: Store) -> Agent:
    """Who answers. Its requests hold the whole history, so that each says which reply it is for."""
    model = {"name": MODEL, "timeout": TIMEOUT}
    spec = AgentSpec.model_validate(
        {"name": "helper", "model": model, "session": {"policy": "full"}}
    )
    provider = AnthropicProvider(api_key="benchmark", base_url=place.url, timeout=TIMEOUT)
    return Agent(
        spec=spec,
        system="You help.",
        store=store,
        provider=with_retries(provider),
        tools=_tools(place),
        environ={},
    )


async def opened(place: Place) -> tuple[AgentService, PostgresMessageQueue]:
    """The service of a worker, or of a channel without turns."""
    store = await PostgresStore.connect(place.conninfo)
    try:
        queue = await PostgresMessageQueue.connect(place.conninfo)
    except BaseException:
        await store.close()
        raise
    agent = agent_of(place, store)
    service = AgentService(
        agents={"helper": agent}, store=store, queue=queue, event_bus=LocalEventBus()
    )
    return service, queue


def _work(place: Place) -> None:
    logging.basicConfig(filename=place.folder / f"worker-{os.getpid()}.log", level=logging.INFO)
    logging.getLogger("procrastinate").setLevel(logging.ERROR)
    logging.getLogger("httpx2").setLevel(logging.ERROR)
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)
    asyncio.run(_serve(place))


async def _serve(place: Place) -> None:
    service, queue = await _patiently(place)

    async def deliver(reply: OutboundMessage) -> None:
        _write(place.delivered, f"{reply.attempts} {reply.key}")

    delivery = ReplyDelivery(cast("MessageQueue", _Lending(queue)), {CHANNEL: deliver})
    queue.on_replies = delivery.wake
    fleet = WorkerPool(service, queue, max_turns=AT_ONCE, timings=PACE)
    await asyncio.gather(fleet.run(), delivery.run(poll_s=0.5))


async def _patiently(place: Place) -> tuple[AgentService, PostgresMessageQueue]:
    """Again and again while the database is away, as whoever starts processes would."""
    while True:
        try:
            return await opened(place)
        except StoreUnavailable:
            await asyncio.sleep(0.2)


class _Lending:
    """A queue whose replies are lent for a short time: whoever had one may be dead."""

    def __init__(self, queue: MessageQueue) -> None:
        self._queue = queue

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)

    async def outgoing(
        self, channels: Collection[str], *, limit: int, lease: float
    ) -> list[OutboundMessage]:
        return await self._queue.lease_replies(channels, limit=limit, lease_s=min(lease, LEASE))


def _tools(place: Place) -> list[Tool]:
    async def act(asked: ToolInvocation) -> str:
        _write(place.effects, f"{asked.name} {asked.key}")
        await asyncio.sleep(random.uniform(0.0, 0.1))  # noqa: S311 - not for secrets
        return f"done by {asked.key}"

    def definition(name: str) -> dict[str, Any]:
        return {"name": name, "description": "Acts.", "input_schema": {"type": "object"}}

    return [
        Tool(definition=definition("once"), run=act),
        Tool(definition=definition("again"), run=act, on_interrupt="rerun"),
    ]


def _write(path: Path, line: str) -> None:
    """In one piece: the kernel has it, whatever becomes of this process."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(file, f"{line}\n".encode())
    finally:
        os.close(file)
