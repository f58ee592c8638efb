"""The client of a server of agents."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import quote

from trimtab_serve.client.session import RemoteSession
from trimtab_serve.client.transport import HttpTransport
from trimtab_serve.client.types import (
    AgentInfo,
    AgentList,
    DeadLetterSessionInfo,
    DeadLetterSessionList,
    ErasureRecordInfo,
    ErasureRecordList,
    ErasureStatus,
    HealthStatus,
    SessionCreated,
    SessionInfo,
    SessionPage,
)

REQUEST_TIMEOUT_S = 30.0
"""Seconds that a request may take. Streams have no limit."""
ERASURE_POLL_S = 1.0
"""Seconds between two looks at an erasure that runs."""
RECONNECT_TIMEOUT_S = 60.0
"""Seconds for which a broken stream tries to reconnect."""


class Client:
    """A connection to one server, to be used in an `async with` block.

    Its methods raise `ApiError` if the server refuses a request, and `ServerUnreachable` if it does
    not answer.

    Args:
        url: The address of the server.
        key: The API key. None if the server needs no key.
        timeout: Seconds that a request may take. Streams have no limit.
        reconnect_timeout: Seconds for which a broken stream tries to reconnect.

    Example:
        ::

            async with Client("http://127.0.0.1:8080", key="…") as client:
                print(await client.session("my-agent", "first").ask("Good morning!"))
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8080",
        *,
        key: str | None = None,
        timeout: float = REQUEST_TIMEOUT_S,
        reconnect_timeout: float = RECONNECT_TIMEOUT_S,
    ) -> None:
        self._wire = HttpTransport(url, key, timeout=timeout, reconnect_timeout=reconnect_timeout)

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
        """Close all connections."""
        await self._wire.close()

    async def list_agents(self) -> list[AgentInfo]:
        """Return the agents that you may use."""
        return (await self._wire.request_value(AgentList, "GET", "/v1/agents")).agents

    def session(self, agent: str, name: str) -> RemoteSession:
        """Return a session by its name, without a request. The first message creates it."""
        return RemoteSession(self._wire, agent, name)

    async def create_session(self, agent: str, name: str | None = None) -> RemoteSession:
        """Create a session. If `name` is None, the server chooses a name."""
        body = {} if name is None else {"name": name}
        creation = await self._wire.request_value(
            SessionCreated, "POST", _sessions_path(agent), json=body
        )
        return self.session(creation.agent, creation.name)

    async def list_sessions(
        self, agent: str, *, order: Literal["name", "recent"] = "name", page_size: int = 100
    ) -> AsyncGenerator[SessionInfo]:
        """Yield all sessions of an agent by name, or the last active ones first.

        Args:
            agent: The name of the agent.
            order: `name` or `recent`.
            page_size: Number of sessions to fetch with each request.
        """
        after: str | None = None
        while True:
            query: dict[str, Any] = {"limit": page_size, "order": order} | (
                {} if after is None else {"after": after}
            )
            page = await self._wire.request_value(
                SessionPage, "GET", _sessions_path(agent), params=query
            )
            for each in page.sessions:
                yield each
            if page.next is None:
                return
            after = page.next

    async def list_dead_letters(self, *, limit: int = 100) -> list[DeadLetterSessionInfo]:
        """Return up to `limit` sessions with dead letters, newest first.

        `RemoteSession.resume` retries them.
        """
        return (
            await self._wire.request_value(
                DeadLetterSessionList, "GET", "/v1/dead-letters", params={"limit": limit}
            )
        ).sessions

    async def erase_user(self, user: str) -> ErasureStatus:
        """Erase all data of a user of your tenant, wait for the end, and return what was erased."""
        return await self._wait_for_erasure(
            await self._wire.request_value(ErasureStatus, "DELETE", _user_path(user))
        )

    def export_user(self, user: str) -> AsyncGenerator[dict[str, Any]]:
        """Yield all data of a user, line by line.

        Raises:
            ServerUnreachable: The connection ended before the export was complete.
        """
        return self._wire.iter_json_lines(f"{_user_path(user)}/export")

    async def erase_tenant(self, tenant: str) -> ErasureStatus:
        """Erase all sessions of your tenant, wait for the end, and return what was erased.

        Args:
            tenant: The name of your tenant, as a confirmation.
        """
        return await self._wait_for_erasure(
            await self._wire.request_value(
                ErasureStatus, "DELETE", "/v1/tenant", json={"confirm": tenant}
            )
        )

    async def erasure(self, erasure_id: str) -> ErasureStatus:
        """Return the state of the erasure of a user or a tenant."""
        return await self._wire.request_value(ErasureStatus, "GET", f"/v1/erasures/{erasure_id}")

    async def _wait_for_erasure(self, status: ErasureStatus) -> ErasureStatus:
        while status.state == "running":
            await asyncio.sleep(ERASURE_POLL_S)
            status = await self.erasure(status.id)
        return status

    def export_tenant(self) -> AsyncGenerator[dict[str, Any]]:
        """Yield all data of your tenant, line by line, as `export_user` does."""
        return self._wire.iter_json_lines("/v1/tenant/export")

    async def list_erasures(
        self, *, user: str | None = None, limit: int = 100
    ) -> list[ErasureRecordInfo]:
        """Return up to `limit` erasures, newest first. `user` selects those of one user."""
        query: dict[str, Any] = {"limit": limit} | ({} if user is None else {"user": user})
        record_list = await self._wire.request_value(
            ErasureRecordList, "GET", "/v1/erasures", params=query
        )
        return record_list.erasures

    async def health(self) -> str:
        """Return `ok` if the server runs."""
        return (await self._wire.request_value(HealthStatus, "GET", "/healthz")).status

    async def ready(self) -> str:
        """Return `ok` if the server accepts messages and its store answers.

        Raises:
            ApiError: The server runs, but is not ready.
        """
        return (await self._wire.request_value(HealthStatus, "GET", "/readyz")).status

    async def metrics(self) -> str:
        """Return the metrics for Prometheus. The key must be allowed to read them."""
        return (await self._wire.send_request("GET", "/metrics")).text

    async def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document, which describes all requests and answers."""
        return (await self._wire.send_request("GET", "/openapi.json")).json()


def _user_path(user: str) -> str:
    return f"/v1/users/{quote(user, safe='')}"


def _sessions_path(agent: str) -> str:
    return f"/v1/agents/{quote(agent, safe='')}/sessions"
