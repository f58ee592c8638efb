"""Bots that run: the door, a service with a scripted provider, deliveries, a local Bot API."""

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

from trimtab.agent.agent import Agent
from trimtab.agent.doors import Telegram
from trimtab.agent.spec import Spec
from trimtab.core.event import Said
from trimtab.core.message import Message
from trimtab.gateways.telegram import TelegramDoor, door
from trimtab.session.tools import Tool
from trimtab.stores.store import Store
from trimtab.testing import MemoryStore, ScriptedProvider
from trimtab.testing.mail import MemoryMail
from trimtab.testing.telegram import ServedBotApi
from trimtab.worker.delivery import Delivery
from trimtab.worker.live import LocalLive
from trimtab.worker.local import LocalTurns
from trimtab.worker.service import Service

MODEL = "claude-sonnet-4-5"
ADA, BOB, GROUP = 7, 8, -100123
DEADLINE = 15.0


@dataclass
class Bot:
    """A bot that runs, with what is behind it."""

    door: TelegramDoor
    service: Service
    turns: LocalTurns
    delivery: Delivery
    provider: ScriptedProvider
    served: ServedBotApi

    async def said(self, name: str = f"telegram:{ADA}") -> list[Message]:
        """The messages in a session's log, in order."""
        return [
            event.body.message
            async for event in self.service.store.events(f"default/helper/{name}")
            if isinstance(event.body, Said)
        ]

    async def texts(self, name: str = f"telegram:{ADA}") -> list[tuple[str, str]]:
        return [(message.role, message.text) for message in await self.said(name)]

    async def settled(self) -> None:
        """All updates are confirmed, all turns run, all replies sent."""
        api = self.served.api
        await until(lambda: not api.waiting(), "the confirmation of all updates")
        await asyncio.wait_for(self.turns.idle(), DEADLINE)
        outbox = self.service.mail._box.outbox  # pyright: ignore[reportAttributeAccessIssue]
        await until(lambda: not list(outbox.all()), "the delivery of all replies")


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
    spec = Spec.model_validate(
        {"name": "helper", "model": {"name": MODEL, **model}, "session": session}
    )
    return Agent(spec=spec, system="Help.", store=store, provider=provider, tools=tools, environ={})


@asynccontextmanager
async def running(
    served: ServedBotApi,
    *script: Any,
    run: bool = True,
    deliver: bool = True,
    store: Store | None = None,
    mail: Any = None,
    tools: Sequence[Tool] = (),
    session: dict[str, Any] | None = None,
    model: dict[str, Any] | None = None,
    pace: float = 0.0,
    **block: Any,
) -> AsyncGenerator[Bot]:
    """A bot that is asked things through a local Bot API."""
    provider = ScriptedProvider("anthropic", script)
    store = store or MemoryStore()
    mail = mail or MemoryMail(store)
    service = Service(
        agents={
            "helper": agent_of(provider, store, tools, session=session or {}, model=model or {})
        },
        store=store,
        mail=mail,
        live=LocalLive(),
    )
    turns = LocalTurns(service)
    mail.due = turns.due
    block = {"token": served.api.token, "allow": ["*"], "api": served.url, **block}
    made = door(service, "helper", Telegram.model_validate(block), pace=pace, poll=5.0)
    delivery = Delivery(mail, {"telegram": made.deliver})
    tasks = [asyncio.create_task(made.run())] if run else []
    if deliver:
        tasks.append(asyncio.create_task(delivery.run(every=0.02)))
    if run:
        await until(lambda: made.me is not None, "the bot's start")
    await turns.resume()
    try:
        yield Bot(made, service, turns, delivery, provider, served)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await turns.drain(5)
        await made.close()
        await service.close()


@asynccontextmanager
async def listening(routes: Sequence[Any], listener: socket.socket) -> AsyncGenerator[None]:
    """The routes of a door on a socket, in this loop."""
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
