"""A server of agents, from a program's side."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

from trimtab.client.session import RemoteSession
from trimtab.client.wire import Wire
from trimtab.gateways.http.answers import (
    AgentInfo,
    Agents,
    Created,
    DeadInfo,
    DeadPage,
    Health,
    SessionInfo,
    SessionPage,
)

TIMEOUT = 30.0
"""Seconds that a request may take; streams take as long as they last."""
PATIENCE = 60.0
"""Seconds that a stream which broke off is tried again for."""


class Client:
    """One server, for the length of an `async with`. Raises `Refused` and `Unreachable`."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:8080",
        *,
        key: str | None = None,
        timeout: float = TIMEOUT,
        patience: float = PATIENCE,
    ) -> None:
        self._wire = Wire(url, key, timeout=timeout, patience=patience)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Give back connections."""
        await self._wire.close()

    async def agents(self) -> list[AgentInfo]:
        """The agents that you may use."""
        return (await self._wire.ask(Agents, "GET", "/v1/agents")).agents

    def session(self, agent: str, name: str) -> RemoteSession:
        """A session by its name; the first message begins it."""
        return RemoteSession(self._wire, agent, name)

    async def create(self, agent: str, name: str | None = None) -> RemoteSession:
        """A new session; a name is made where none is given."""
        body = {} if name is None else {"name": name}
        made = await self._wire.ask(Created, "POST", _sessions(agent), json=body)
        return self.session(made.agent, made.name)

    async def sessions(self, agent: str, *, page: int = 100) -> AsyncGenerator[SessionInfo]:
        """All sessions of an agent, in the order of their names."""
        after: str | None = None
        while True:
            query: dict[str, Any] = {"limit": page} | ({} if after is None else {"after": after})
            found = await self._wire.ask(SessionPage, "GET", _sessions(agent), params=query)
            for each in found.sessions:
                yield each
            if found.next is None:
                return
            after = found.next

    async def dead(self, *, limit: int = 100) -> list[DeadInfo]:
        """Sessions whose turns were given up, the newest first; `RemoteSession.resume` tries
        again."""
        return (await self._wire.ask(DeadPage, "GET", "/v1/dead", params={"limit": limit})).dead

    async def health(self) -> str:
        """`ok` where the server runs."""
        return (await self._wire.ask(Health, "GET", "/healthz")).status

    async def ready(self) -> str:
        """`ok` where it takes in messages and its store answers; else it raises `Refused`."""
        return (await self._wire.ask(Health, "GET", "/readyz")).status

    async def metrics(self) -> str:
        """Figures for Prometheus; for keys that may read them."""
        return (await self._wire.answer("GET", "/metrics")).text

    async def openapi(self) -> dict[str, Any]:
        """The description of all requests and answers."""
        return (await self._wire.answer("GET", "/openapi.json")).json()


def _sessions(agent: str) -> str:
    return f"/v1/agents/{quote(agent, safe='')}/sessions"
