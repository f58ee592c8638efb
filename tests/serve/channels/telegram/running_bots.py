"""Bots that run: the channel, a service with a scripted provider, deliveries, a local Bot API."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn
from starlette.applications import Starlette

from tests.serve.queue.memory_queue import MemoryQueue
from tests.simulators.telegram import ServedTelegramSimulator
from trimtab.engine.log.event import MessageAdded
from trimtab.engine.log.message import Message
from trimtab.session.tools import Tool
from trimtab.stores.base import Store
from trimtab.testing import MemoryStore, ScriptedProvider
from trimtab_serve.agent.agent import Agent
from trimtab_serve.agent.config.spec import AgentSpec, TelegramSpec
from trimtab_serve.channels.telegram import TelegramChannel
from trimtab_serve.process.local_turns import LocalTurnRunner
from trimtab_serve.queue.sqlite.queue import SqliteMessageQueue
from trimtab_serve.service.delivery import ReplyDelivery
from trimtab_serve.service.events.bus import LocalEventBus
from trimtab_serve.service.service import AgentService

MODEL = "claude-sonnet-4-5"
ADA, BOB, GROUP = 7, 8, -100123
DEADLINE = 15.0


@dataclass
class Bot:
    """A bot that runs, with what is behind it."""

    channel: TelegramChannel
    service: AgentService
    turns: LocalTurnRunner
    delivery: ReplyDelivery
    provider: ScriptedProvider
    served: ServedTelegramSimulator

    async def said(self, name: str = f"telegram:{ADA}") -> list[Message]:
        """The messages in a session's log, in order."""
        return [
            event.body.message
            async for event in self.service.store.events(f"default/helper/{name}")
            if isinstance(event.body, MessageAdded)
        ]

    async def texts(self, name: str = f"telegram:{ADA}") -> list[tuple[str, str]]:
        return [(message.role, message.text) for message in await self.said(name)]

    async def settled(self) -> None:
        """All updates are confirmed, all turns run, all replies sent."""
        api = self.served.simulator
        await until(lambda: not api.list_pending_updates(), "the confirmation of all updates")
        await asyncio.wait_for(self.turns.wait_until_idle(), DEADLINE)
        queue = self.service.queue
        assert isinstance(queue, SqliteMessageQueue)
        async with asyncio.timeout(DEADLINE):
            while await queue.count_waiting_replies():  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(0.005)


async def until(true: Callable[[], Any], what: str = "it") -> None:
    """Wait for a condition; a test that waits in vain fails."""
    ends = time.monotonic() + DEADLINE
    while not true():
        assert time.monotonic() < ends, f"{what} did not happen within {DEADLINE:g} s"
        await asyncio.sleep(0.005)


def agent_of(
    provider: ScriptedProvider,
    store: Store,
    tools: Sequence[Tool] = (),
    *,
    session: dict[str, Any],
    model: dict[str, Any],
) -> Agent:
    spec = AgentSpec.model_validate(
        {"name": "helper", "model": {"name": MODEL, **model}, "session": session}
    )
    return Agent(spec=spec, system="Help.", store=store, provider=provider, tools=tools, environ={})


@asynccontextmanager
async def running(
    served: ServedTelegramSimulator,
    *script: Any,
    run: bool = True,
    deliver: bool = True,
    store: Store | None = None,
    queue: Any = None,
    tools: Sequence[Tool] = (),
    session: dict[str, Any] | None = None,
    model: dict[str, Any] | None = None,
    pace: float = 0.0,
    edit_pause: float = 0.01,
    **block: Any,
) -> AsyncGenerator[Bot]:
    """A bot that is asked things through a local Bot API."""
    provider = ScriptedProvider("anthropic", script)
    store = store or MemoryStore()
    queue = queue or MemoryQueue(store)
    service = AgentService(
        agents={
            "helper": agent_of(provider, store, tools, session=session or {}, model=model or {})
        },
        store=store,
        queue=queue,
        event_bus=LocalEventBus(),
    )
    turns = LocalTurnRunner(service)
    queue.on_posted = turns.request_turn
    # Telegram calls https alone, and the simulator of it http.
    webhook = {"webhook": block.pop("webhook", None)}
    block = {"token": served.simulator.token, "allow": ["*"], "api": served.url, **block}
    channel = TelegramChannel(
        service,
        "helper",
        TelegramSpec.model_validate(block).model_copy(update=webhook),
        min_interval_s=pace,
        poll_timeout_s=5.0,
        edit_pause_s=edit_pause,
    )
    delivery = ReplyDelivery(queue, {"telegram": channel.deliver})
    tasks = [asyncio.create_task(channel.run())] if run else []
    if deliver:
        tasks.append(asyncio.create_task(delivery.run(poll_s=0.02)))
    if run:
        await until(lambda: channel.identity is not None, "the bot's start")
    await turns.resume_waiting()
    try:
        yield Bot(channel, service, turns, delivery, provider, served)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await turns.drain(5)
        await channel.close()
        await service.close()


@asynccontextmanager
async def listening(routes: Sequence[Any], listener: socket.socket) -> AsyncGenerator[None]:
    """The routes of a channel on a socket, in this loop."""
    config = uvicorn.Config(
        Starlette(routes=list(routes)), log_config=None, log_level="error", lifespan="off"
    )
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined, method-assign]
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        await until(lambda: server.started, "the server's start")
        yield
    finally:
        server.should_exit = True
        await task


def free_socket() -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", 0))
    listener.listen(64)
    return listener
