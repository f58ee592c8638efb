"""The application on a real socket: uvicorn, a scripted model, and all else real or in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2

from tests.serve.queue.memory_queue import MemoryQueue
from trimtab.session.tools import Tool
from trimtab.stores.base import Store
from trimtab.testing import MemoryStore, ScriptedProvider
from trimtab_serve.agent.agent import Agent
from trimtab_serve.agent.config.spec import AgentSpec, ServeSpec
from trimtab_serve.api_keys.api_key import create_api_key
from trimtab_serve.api_keys.store import ApiKeyStore
from trimtab_serve.channels.http import HttpServerState, create_http_app
from trimtab_serve.client import Client, RemoteSession
from trimtab_serve.process.http_connections import ConnectionLimits
from trimtab_serve.process.http_server import (
    ManagedUvicornServer,
    build_http_server,
    build_listener_url,
    open_listening_socket,
)
from trimtab_serve.process.local_turns import LocalTurnRunner
from trimtab_serve.service.events.bus import LocalEventBus
from trimtab_serve.service.service import AgentService

AGENTS = ("helper", "other")
PATIENCE = 15.0
MESSAGES = "/v1/agents/helper/sessions/one/messages"
EVENTS = "/v1/agents/helper/sessions/one/events"


@dataclass
class House:
    """A server that runs in this loop."""

    url: str
    offer: HttpServerState
    service: AgentService
    turns: LocalTurnRunner
    provider: Any
    keys: dict[str, str]
    """By their names."""
    api_keys: ApiKeyStore
    own: Client
    """One without a key, for as long as the house stands."""
    server: ManagedUvicornServer
    """What listens."""

    def connections(self) -> list[Any]:
        """Those that are open, with a `transport` each."""
        return list(self.server.server_state.connections)

    def leave_unanswered(self) -> None:
        """Let no turn follow what is posted, as if another process ran it."""
        queue: Any = self.service.queue
        queue.on_posted = lambda _: None

    def client(self, key: str | None = None, **options: Any) -> Client:
        return Client(self.url, key=self.keys.get(key or ""), **options)

    def session(self, name: str = "one", agent: str = "helper") -> RemoteSession:
        return self.own.session(agent, name)

    def http(self, key: str | None = None) -> httpx2.AsyncClient:
        api_key = self.keys.get(key or "")
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        return httpx2.AsyncClient(base_url=self.url, headers=headers, timeout=PATIENCE)


def agent_of(name: str, provider: Any, store: Store, tools: Sequence[Tool], session: Any) -> Agent:
    document = {"name": name, "model": {"name": "claude-sonnet-4-5"}, "session": session}
    spec = AgentSpec.model_validate(document)
    return Agent(spec=spec, system="Help.", store=store, provider=provider, tools=tools, environ={})


@asynccontextmanager
async def house(
    *script: Any,
    provider: Any = None,
    tools: Sequence[Tool] = (),
    keys: bool = False,
    who: Sequence[Mapping[str, Any]] = (),
    serve: Mapping[str, Any] | None = None,
    session: Mapping[str, Any] | None = None,
    max_queued_messages: int = 10_000,
    store: Any = None,
    queue: Any = None,
    limits: ConnectionLimits | None = None,
    **offered: Any,
) -> AsyncGenerator[House]:
    """With `keys`, callers need one. `who` are options of `create_api_key`; the role is `admin`
    unless they name another."""
    provider = provider or ScriptedProvider("anthropic", script)
    store = store or MemoryStore()
    queue = queue or MemoryQueue(store)
    agents = {name: agent_of(name, provider, store, tools, session or {}) for name in AGENTS}
    live = LocalEventBus()
    service = AgentService(
        agents=agents,
        store=store,
        queue=queue,
        event_bus=live,
        max_queued_messages=max_queued_messages,
    )
    turns = LocalTurnRunner(service)
    queue.on_posted = turns.request_turn
    key_options: list[dict[str, Any]] = [{"role": "admin", **one} for one in who]
    new_keys = [create_api_key(**options) for options in key_options]
    api_keys = ApiKeyStore(MemoryQueue(store).transactions)
    for _, key in new_keys:
        await api_keys.add(key)

    async def due(name: str) -> None:
        turns.request_turn(name)

    offer = HttpServerState(
        service=service,
        serve_config=ServeSpec.model_validate(serve or {}),
        api_keys=api_keys if keys else None,
        schedule_turn=due,
        **offered,
    )
    server, listener = (
        build_http_server(create_http_app(offer), drain_seconds=1, limits=limits),
        open_listening_socket("127.0.0.1", 0),
    )
    task = asyncio.create_task(server.serve(sockets=[listener]))
    await server.ready.wait()
    by_name = {stored_key.name: text for text, stored_key in new_keys}
    url = build_listener_url(listener)
    client = Client(url)
    try:
        yield House(url, offer, service, turns, provider, by_name, api_keys, client, server)
    finally:
        await client.close()
        server.should_exit = True
        await offer.close()
        await turns.drain(1)
        await task
        await service.close()


class Held:
    """A model that says so much, and waits until it may go on."""

    dialect = "anthropic"

    def __init__(self, *script: Any, after: int = 6) -> None:
        self._inner = ScriptedProvider("anthropic", script)
        self._after = after
        self.reached = asyncio.Event()
        """Set when it waits."""
        self.go_on = asyncio.Event()

    @property
    def requests(self) -> list[dict[str, Any]]:
        return self._inner.requests

    async def send(self, request: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        count = 0
        async for event in self._inner.send(request):
            if count == self._after:
                self.reached.set()
                await self.go_on.wait()
            count += 1
            yield event

    async def close(self) -> None:
        """Nothing is held."""


async def until(holds: Callable[[], Any]) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(PATIENCE):
        while True:
            outcome = holds()
            if await outcome if asyncio.iscoroutine(outcome) else outcome:
                return
            await asyncio.sleep(0.005)


def problem(answer: httpx2.Response, status: int, kind: str) -> dict[str, Any]:
    """The document of a refusal, which has its form."""
    document = answer.json()
    assert (
        answer.status_code,
        answer.headers["content-type"],
        document["type"],
        document["status"],
    ) == (
        status,
        "application/problem+json",
        f"urn:trimtab:problem:{kind}",
        status,
    )
    assert document["title"]
    assert document["detail"]
    assert document["help"]
    return document
