"""A bot on a simulated Discord: the real library, real sockets, a scripted model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from tests.serve.service.served_agents import Served, served
from tests.simulators.discord import DiscordSimulator, serve_simulated_discord
from trimtab.session.tools import Tool, ToolInvocation
from trimtab.stores.base import Store
from trimtab_serve.agent.config.spec import DiscordSpec
from trimtab_serve.channels.base import Channel
from trimtab_serve.channels.discord import DiscordTiming, create_discord_channel
from trimtab_serve.queue.messages import OutboundMessage
from trimtab_serve.queue.protocol import MessageQueue
from trimtab_serve.service.delivery import ReplyDelivery

PACE = DiscordTiming(
    identify_interval_s=0.01,
    guild_ready_timeout_s=0.05,
    first_reconnect_wait_s=0.02,
    max_retry_wait_s=0.2,
    typing_interval_s=0.05,
    max_rate_limit_wait_s=1.0,
    first_intake_retry_s=0.01,
    edit_pause_s=0.05,
)
PATIENCE = 10.0
"""Seconds after which something that should have happened has not."""


def said(request: Any) -> str:
    """What the user said last in a request."""
    content = request["messages"][-1]["content"]
    return content if isinstance(content, str) else content[0]["text"]


class Waiting:
    """A tool that ends when it is told to."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()
        properties = {"type": "object", "properties": {}}
        definition = {"name": "wait", "description": "Wait.", "input_schema": properties}
        self.tool = Tool(definition=definition, run=self._run)

    async def _run(self, asked: ToolInvocation) -> str:
        self.begun.set()
        await self.go_on.wait()
        return "waited"


def echo(request: Any) -> str:
    return f"You said: {said(request)}"


@dataclass
class House:
    """All of it."""

    discord: DiscordSimulator
    served: Served
    channel: Channel
    tasks: list[asyncio.Task[Any]] = field(default_factory=list)
    tried: list[OutboundMessage] = field(default_factory=list)

    async def deliver(self, reply: OutboundMessage) -> None:
        self.tried.append(reply)
        await self.channel.deliver(reply)

    def session(self, channel: int) -> str:
        return f"default/helper/discord:{channel}"

    async def texts(self, channel: int) -> list[tuple[str, str]]:
        session = self.session(channel)
        if not await self.served.service.store.position(session):
            return []
        return await self.served.texts(session)

    async def posted(self, channel: int, count: int = 1) -> list[str]:
        """What the bot says in a channel, when it has said so much."""
        await until(lambda: len(self.discord.list_posted_texts(channel)) >= count)
        return self.discord.list_posted_texts(channel)

    async def heard(self, channel: int, user: Any) -> None:
        """Wait until all that was said so far is handled: something behind it is answered."""
        before = len(self.discord.list_posted_texts(channel))
        await self.discord.post_user_message(channel, user, "Are you there?")
        await until(lambda: len(self.discord.list_posted_texts(channel)) > before)


async def until(condition: Callable[[], Any], patience: float = PATIENCE) -> None:
    async with asyncio.timeout(patience):
        while not condition():  # noqa: ASYNC110 - whatever it is, nobody signals it
            await asyncio.sleep(0.005)


async def eventually(condition: Callable[[], Awaitable[Any]], patience: float = PATIENCE) -> None:
    async with asyncio.timeout(patience):
        while not await condition():  # noqa: ASYNC110 - whatever it is, nobody signals it
            await asyncio.sleep(0.005)


@asynccontextmanager
async def living(
    discord: DiscordSimulator,
    *script: Any,
    allow: Any = ("*",),
    deny: Any = (),
    threads: bool = True,
    store: Store | None = None,
    queue: MessageQueue | None = None,
    pace: DiscordTiming = PACE,
    connected: bool = True,
    tools: Any = (),
    **more: Any,
) -> AsyncGenerator[House]:
    """A bot that is connected."""
    agents = served(*(script or [echo] * 50), store=store, queue=queue, tools=tools)
    block = DiscordSpec.model_validate(
        {
            "token": discord.options.token,
            "allow": [str(one) for one in allow],
            "deny": [str(one) for one in deny],
            "threads": threads,
            "api": discord.url,
            **more,
        }
    )
    house = House(
        discord, agents, create_discord_channel(agents.service, "helper", block, timing=pace)
    )
    delivery = ReplyDelivery(agents.service.queue, {"discord": house.deliver})
    house.tasks = [
        asyncio.create_task(house.channel.run()),
        asyncio.create_task(delivery.run(poll_s=0.01)),
    ]
    try:
        if connected:
            async with asyncio.timeout(PATIENCE):
                await discord.gateway.identified.wait()
        yield house
    finally:
        await agents.turns.drain(1.0)
        for task in house.tasks:
            task.cancel()
        for task in house.tasks:
            with suppress(asyncio.CancelledError, Exception):
                await task
        await house.channel.close()


@asynccontextmanager
async def at_home(*script: Any, **options: Any) -> AsyncGenerator[House]:
    """A Discord with one bot and nothing special."""
    async with serve_simulated_discord() as discord, living(discord, *script, **options) as house:
        yield house
