"""A connection to an MCP server: one task owns it, calls come from others, and it may be lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import httpx2
from mcp import Client, MCPError
from mcp_types import CONNECTION_CLOSED, REQUEST_TIMEOUT, CallToolResult, Implementation
from mcp_types import Tool as Offered

from trimtab.agent.spec import McpTool
from trimtab.agent.tools.command import found_program
from trimtab.agent.tools.environment import environment
from trimtab.agent.tools.mcp_http import http
from trimtab.agent.tools.mcp_stdio import Life, stdio
from trimtab.agent.tools.shell import working_folder
from trimtab.agent.tools.unusable import ToolUnusable
from trimtab.session.tools import Failed

# What it logs would come to the terminal where nobody has set up logging.
for _name in ("mcp", "client"):
    logging.getLogger(_name).addHandler(logging.NullHandler())

START = 30.0
"""Seconds that a server has to answer for the first time."""
CLOSE = 6.0
"""Seconds that a connection has to end; a program is killed after 4."""
EXPIRED = ("Session terminated",)
"""What the client says of a server that has forgotten it, as after a restart."""
PAGES = 100
"""Pages of tools that a server may have."""


@dataclass(slots=True, kw_only=True)
class Link:
    """A connection that was made."""

    client: Client
    """The client, owned by the task."""
    offered: list[Offered]
    """What the server can do."""
    owner: asyncio.Task[None]
    """Done when the connection is over."""
    stop: asyncio.Event
    """Set to end it."""
    life: Life
    """Of the server's process, if it has one."""
    lost: bool = False
    """Whether a call found it broken."""

    @property
    def over(self) -> bool:
        return self.lost or self.owner.done() or self.life.over

    async def close(self, patience: float = CLOSE) -> None:
        self.stop.set()
        await _ended(self.owner, patience)


class Server:
    """An MCP server of `agent.yaml`."""

    def __init__(self, name: str, spec: McpTool, folder: Path, environ: Mapping[str, str]) -> None:
        if (spec.command is None) == (spec.url is None):
            raise ToolUnusable(name, "give either command or url, and not both")
        self.name = name
        self._spec = spec
        self._env = environment(spec.env, environ)
        self._cwd = working_folder(name, spec.cwd, folder)
        self._link: Link | None = None
        self._linking = asyncio.Lock()
        self._argv: tuple[str, ...] = ()
        if spec.command is not None:
            program = found_program(name, spec.command[0], self._cwd, self._env)
            self._argv = (program, *spec.command[1:])

    async def offered(self) -> list[Offered]:
        """What the server can do; raises ToolUnusable if it does not come up."""
        return (await self._linked()).offered

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> CallToolResult:
        """One call; raises Failed with what to tell the model."""
        try:
            link = await self._linked()
        except ToolUnusable as error:
            raise Failed(f"the server was lost, and could not be started again: {error}") from error
        calling = asyncio.ensure_future(
            link.client.call_tool(tool, dict(arguments), read_timeout_seconds=self._spec.timeout)
        )
        try:
            # A connection may break without a word to those who wait.
            await asyncio.wait((calling, link.owner), return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not calling.done():
                calling.cancel()
                await asyncio.wait((calling,))
        if calling.cancelled():
            raise Failed(await self._lost(link))
        try:
            return calling.result()
        except MCPError as error:
            if error.code == REQUEST_TIMEOUT:
                said = f"{self.name} did not answer within {self._spec.timeout:g} seconds"
                raise Failed(said) from None
            if error.code == CONNECTION_CLOSED or error.message in EXPIRED or link.over:
                raise Failed(await self._lost(link, error)) from None
            raise Failed(f"the server refused the call: {error.message}") from None
        except (OSError, httpx2.HTTPError) as error:
            raise Failed(await self._lost(link, error)) from None

    async def close(self) -> None:
        if self._link is not None:
            await self._link.close()

    async def _lost(self, link: Link, error: BaseException | None = None) -> str:
        link.lost = True
        # Only the end tells the cause. A server that is gone does not answer a goodbye either.
        await link.close(CLOSE if self._spec.url is None else 1.0)
        why = link.life.ending() or said_by(leaf(link.life.error) or error)
        again = "connects to it again" if self._spec.command is None else "starts it again"
        return (
            f"the server {self.name} was lost in the middle of the call{why and f' ({why})'}; "
            f"whether the call had an effect is not known. The next call {again}."
            f"{link.life.last_words()}"
        )

    async def _linked(self) -> Link:
        async with self._linking:
            if self._link is not None and self._link.over:
                await self._link.close()
                self._link = None
            if self._link is None:
                self._link = await self._connect()
            return self._link

    async def _connect(self) -> Link:
        life, stop = Life(), asyncio.Event()
        ready: asyncio.Future[tuple[Client, list[Offered]]] = (
            asyncio.get_running_loop().create_future()
        )
        owner = asyncio.create_task(self._own(ready, stop, life), name=f"mcp {self.name}")
        try:
            async with asyncio.timeout(START):
                await asyncio.wait((ready, owner), return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            await _abandon(owner)
            raise ToolUnusable(
                self.name,
                f"{self._where} did not answer as an MCP server within {START:g} seconds; "
                f"{self._fix}."
                f"{life.last_words()}",
            ) from None
        except BaseException:
            await _abandon(owner)
            raise
        if not ready.done():
            why = ", ".join(filter(None, (said_by(leaf(life.error)), life.ending())))
            verb = "start" if self._spec.url is None else "answer"
            raise ToolUnusable(
                self.name,
                f"{self._where} did not {verb} as an MCP server: {why}; {self._fix}."
                f"{life.last_words()}",
            ) from life.error
        client, offered = ready.result()
        return Link(client=client, offered=offered, owner=owner, stop=stop, life=life)

    @property
    def _where(self) -> str:
        return self._spec.url or " ".join(self._spec.command or ())

    @property
    def _fix(self) -> str:
        if self._spec.url is None:
            return "run the command by hand to see what it needs"
        return "see that the server runs, and check `url`"

    async def _own(
        self,
        ready: asyncio.Future[tuple[Client, list[Offered]]],
        stop: asyncio.Event,
        life: Life,
    ) -> None:
        """The whole life of one connection, in one task: its scopes end where they began."""
        info = Implementation(name="trimtab", version=version("trimtab"))
        try:
            async with (
                self._transport(life) as transport,
                Client(transport, client_info=info, cache=None) as client,
            ):
                offered = await _all_offered(client)
                if not ready.done():
                    ready.set_result((client, offered))
                await stop.wait()
        except Exception as error:  # noqa: BLE001 - it is told by whoever misses the connection
            life.error = error

    @asynccontextmanager
    async def _transport(self, life: Life) -> AsyncGenerator[Any]:
        if self._spec.url is None:
            yield stdio(self._argv, cwd=self._cwd, env=self._env, life=life)
            return
        async with http(self._spec.url, self._spec.headers, self._spec.timeout + START) as made:
            yield made


async def _all_offered(client: Client) -> list[Offered]:
    out: list[Offered] = []
    cursor = None
    for _ in range(PAGES):
        page = await client.list_tools(cursor=cursor)
        out += page.tools
        cursor = page.next_cursor
        if not cursor:
            break
    return out


async def _abandon(owner: asyncio.Task[None]) -> None:
    owner.cancel()
    await _ended(owner, CLOSE)


async def _ended(owner: asyncio.Task[None], patience: float) -> None:
    """Wait for it, and not for ever: a goodbye over HTTP may never be answered."""
    for _ in range(3):
        done, _ = await asyncio.wait((owner,), timeout=patience)
        if done:
            return
        owner.cancel()


def leaf(error: BaseException | None) -> BaseException | None:
    """What is at the bottom of a group of errors: groups are how tasks say one thing."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def said_by(error: BaseException | None) -> str:
    return "" if error is None else str(error) or type(error).__name__
