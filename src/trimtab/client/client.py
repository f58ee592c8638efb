"""A server of agents, from a program's side."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

from trimtab.client.session import RemoteSession
from trimtab.client.transport import HttpTransport
from trimtab.http_api_response_types import (
    AgentInfo,
    AgentList,
    DeadLetterSessionInfo,
    DeadLetterSessionList,
    ErasureRecordInfo,
    ErasureRecordList,
    ForgottenTotals,
    HealthStatus,
    SessionCreated,
    SessionInfo,
    SessionPage,
)

REQUEST_TIMEOUT_S = 30.0
"""Seconds that a request may take; streams take as long as they last."""
RECONNECT_TIMEOUT_S = 60.0
"""Seconds that a stream which broke off is tried again for."""


class Client:
    """One server, for the length of an `async with`. Raises `ApiError` and `ServerUnreachable`."""

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
        """Give back connections."""
        await self._wire.close()

    async def list_agents(self) -> list[AgentInfo]:
        """The agents that you may use."""
        return (await self._wire.request_value(AgentList, "GET", "/v1/agents")).agents

    def session(self, agent: str, name: str) -> RemoteSession:
        """A session by its name; the first message begins it."""
        return RemoteSession(self._wire, agent, name)

    async def create_session(self, agent: str, name: str | None = None) -> RemoteSession:
        """A new session; a name is made where none is given."""
        body = {} if name is None else {"name": name}
        made = await self._wire.request_value(
            SessionCreated, "POST", _sessions_path(agent), json=body
        )
        return self.session(made.agent, made.name)

    async def list_sessions(
        self, agent: str, *, page_size: int = 100
    ) -> AsyncGenerator[SessionInfo]:
        """All sessions of an agent, in the order of their names."""
        after: str | None = None
        while True:
            query: dict[str, Any] = {"limit": page_size} | (
                {} if after is None else {"after": after}
            )
            found = await self._wire.request_value(
                SessionPage, "GET", _sessions_path(agent), params=query
            )
            for each in found.sessions:
                yield each
            if found.next is None:
                return
            after = found.next

    async def list_dead_letters(self, *, limit: int = 100) -> list[DeadLetterSessionInfo]:
        """Sessions with dead letters, the newest first; `RemoteSession.resume` retries them."""
        return (
            await self._wire.request_value(
                DeadLetterSessionList, "GET", "/v1/dead-letters", params={"limit": limit}
            )
        ).sessions

    async def erase_user(self, user: str) -> ForgottenTotals:
        """Erase all that is kept of a user of your tenant. This may take minutes: give the client a
        longer `timeout` if there are many sessions."""
        return await self._wire.request_value(ForgottenTotals, "DELETE", _user_path(user))

    def export_user(self, user: str) -> AsyncGenerator[dict[str, Any]]:
        """All that is kept of a user, line by line; raises `ServerUnreachable` if it is cut off."""
        return self._wire.iter_json_lines(f"{_user_path(user)}/export")

    async def erase_tenant(self, tenant: str) -> ForgottenTotals:
        """Erase all sessions of your tenant, which you name to confirm it."""
        return await self._wire.request_value(
            ForgottenTotals, "DELETE", "/v1/tenant", json={"confirm": tenant}
        )

    def export_tenant(self) -> AsyncGenerator[dict[str, Any]]:
        """All that is kept of your tenant, as `export_user`."""
        return self._wire.iter_json_lines("/v1/tenant/export")

    async def list_erasures(
        self, *, user: str | None = None, limit: int = 100
    ) -> list[ErasureRecordInfo]:
        """What was erased, or that of one user, the newest first."""
        query: dict[str, Any] = {"limit": limit} | ({} if user is None else {"user": user})
        found = await self._wire.request_value(
            ErasureRecordList, "GET", "/v1/erasures", params=query
        )
        return found.erasures

    async def health(self) -> str:
        """`ok` where the server runs."""
        return (await self._wire.request_value(HealthStatus, "GET", "/healthz")).status

    async def ready(self) -> str:
        """`ok` where it takes in messages and its store answers; else it raises `ApiError`."""
        return (await self._wire.request_value(HealthStatus, "GET", "/readyz")).status

    async def metrics(self) -> str:
        """Figures for Prometheus; for keys that may read them."""
        return (await self._wire.send_request("GET", "/metrics")).text

    async def openapi(self) -> dict[str, Any]:
        """The description of all requests and answers."""
        return (await self._wire.send_request("GET", "/openapi.json")).json()


def _user_path(user: str) -> str:
    return f"/v1/users/{quote(user, safe='')}"


def _sessions_path(agent: str) -> str:
    return f"/v1/agents/{quote(agent, safe='')}/sessions"
