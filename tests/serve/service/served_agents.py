"""Agents that are served, with a scripted provider and all else real or in memory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.serve.queue.memory_queue import MemoryQueue
from trimtab.engine.log.event import MessageAdded
from trimtab.engine.log.message import Text, make_text_message
from trimtab.errors import ProviderError, ProviderFailureDetails
from trimtab.session.tools import Tool
from trimtab.stores.base import Store
from trimtab.stores.factory import find_spending_ledger
from trimtab.testing import MemoryStore, ScriptedProvider
from trimtab_serve.agent.agent import Agent
from trimtab_serve.agent.config.spec import AgentSpec, CostSpec, ServeSpec, TenantLimitsSpec
from trimtab_serve.process.local_turns import LocalTurnRunner
from trimtab_serve.queue.messages import InboundMessage, OutboundMessage, ReplyRoute
from trimtab_serve.queue.protocol import MessageQueue
from trimtab_serve.queue.sqlite.queue import SqliteMessageQueue
from trimtab_serve.service.events.bus import LocalEventBus
from trimtab_serve.service.service import AgentService

MODEL = "claude-sonnet-4-5"
SESSION = "default/helper/one"
PHONE = ReplyRoute(channel="phone", address={"number": 7})


def agent(provider: Any, store: Store, *, tools: Sequence[Tool] = (), **session: Any) -> Agent:
    spec = AgentSpec.model_validate(
        {"name": "helper", "model": {"name": MODEL}, "session": session}
    )
    return Agent(spec=spec, system="Help.", store=store, provider=provider, tools=tools, environ={})


@dataclass
class Served:
    """A service with one agent, `helper`, and turns in this process."""

    service: AgentService
    turns: LocalTurnRunner
    provider: ScriptedProvider

    async def say(self, text: str, *, key: str, session: str = SESSION, route: Any = PHONE) -> bool:
        return await self.service.post(inbound(text, key=key, session=session, route=route))

    async def texts(self, session: str = SESSION) -> list[tuple[str, str]]:
        """Who said what, in the order of the log."""
        return [
            (event.body.message.role, part.text)
            async for event in self.service.store.events(session)
            if isinstance(event.body, MessageAdded)
            for part in event.body.message.parts
            if isinstance(part, Text)
        ]

    async def sent(self) -> list[OutboundMessage]:
        """The replies that are to leave, all of them, as if each had arrived."""
        replies_sent: list[OutboundMessage] = []
        while replies := await self.service.queue.lease_replies(["phone"], limit=10, lease_s=60):
            for reply in replies:
                replies_sent.append(reply)
                await self.service.queue.mark_delivered(reply.number)
        return replies_sent


def served(
    *script: Any,
    queue: MessageQueue | None = None,
    store: Store | None = None,
    provider: Any = None,
    runs: Mapping[str, Any] | None = None,
    **options: Any,
) -> Served:
    """The script is the provider's, unless one is given; `runs` are options of `LocalTurns`."""
    provider = provider or ScriptedProvider("anthropic", script)
    store = store or MemoryStore()
    queue = queue or MemoryQueue(store)
    service = AgentService(
        agents={"helper": agent(provider, store, **options)},
        store=store,
        queue=queue,
        event_bus=LocalEventBus(),
    )
    turns = LocalTurnRunner(service, **(runs or {}))
    if isinstance(queue, MemoryQueue | SqliteMessageQueue):
        queue.on_posted = turns.request_turn
    return Served(service=service, turns=turns, provider=provider)


def with_ceilings(
    service: Any, clock: Any = None, *, cost_per_day: float | None = None, **cost: float
) -> None:
    """Give the agent of a service ceilings, and each tenant this one."""
    agent = service.agents["helper"]
    serve = ServeSpec(tenant_limits=TenantLimitsSpec(cost_per_day=cost_per_day))
    model = agent.spec.model.model_copy(update={"max_output_tokens": 4_000})
    agent.spec = agent.spec.model_copy(
        update={"cost": CostSpec(**cost), "model": model, "serve": serve}
    )
    agent.spending_ledger = find_spending_ledger(service.store)
    agent.clock = clock or time.time


class Gated:
    """A provider whose replies wait until they are let through; says who waits."""

    dialect = "anthropic"

    def __init__(self, *script: Any) -> None:
        self.inner = ScriptedProvider("anthropic", script)
        self.open = asyncio.Event()
        self.waiting: list[str] = []
        """Of each request that waits now, what was said last."""
        self.begun: list[str] = []
        """Of each request that ever came, in order."""

    async def send(self, request: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        last = str(request["messages"][-1]["content"][-1].get("text", ""))
        self.begun.append(last)
        self.waiting.append(last)
        try:
            await self.open.wait()
        finally:
            self.waiting.remove(last)
        async for event in self.inner.send(request):
            yield event

    async def close(self) -> None:
        """Nothing is held."""


FORBIDDEN = "forbidden"


class Censor:
    """A provider that rejects each request with a forbidden text, and answers what came last."""

    dialect = "anthropic"

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error or ProviderError(
            ProviderFailureDetails(kind="rejected", message="flagged", status=400)
        )
        self.requests: list[str] = []

    async def send(self, request: Any) -> AsyncIterator[Any]:
        self.requests.append(str(request["messages"]))
        if FORBIDDEN in self.requests[-1]:
            raise self.error
        last = request["messages"][-1]["content"][-1]
        said = last.get("text", "a result")
        async for event in ScriptedProvider("anthropic", [f"To {said}"]).send(request):
            yield event

    async def close(self) -> None:
        """Nothing is held."""


async def until(holds: Callable[[], Any], *, seconds: float = 10.0) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110 - whatever it is, nobody signals it
            await asyncio.sleep(0.001)


def inbound(text: str, *, key: str, session: str = SESSION, route: Any = PHONE) -> InboundMessage:
    return InboundMessage(
        session=session, message=make_text_message("user", text), key=key, at=1.0, route=route
    )
