"""Connect to MCP servers, and offer their tools as tools of the agent.

One task owns each connection, calls come from other tasks, and the connection may be lost.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import httpx2
from mcp import Client, MCPError
from mcp_types import (
    CONNECTION_CLOSED,
    REQUEST_TIMEOUT,
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    Implementation,
    ResourceLink,
    TextContent,
)
from mcp_types import Tool as Offered

from trimtab.engine.log.message import Media, Text
from trimtab.session.tools import Tool, ToolContent, ToolError, ToolInvocation
from trimtab_serve.agent.config.spec import McpToolSpec
from trimtab_serve.agent.environment import build_tool_environment
from trimtab_serve.agent.tools.command import find_program
from trimtab_serve.agent.tools.mcp_transport import (
    McpServerExitDetails,
    open_mcp_http,
    open_mcp_stdio,
)
from trimtab_serve.agent.tools.output import keep_head_and_tail
from trimtab_serve.agent.tools.permissions.rules import (
    PermissionGate,
    build_permission_rules,
    format_arguments_for_patterns,
)
from trimtab_serve.agent.tools.shell import resolve_working_folder
from trimtab_serve.agent.tools.unusable_tool_error import UnusableToolError

# What it logs would come to the terminal where nobody has set up logging.
for _name in ("mcp", "client"):
    logging.getLogger(_name).addHandler(logging.NullHandler())

MCP_START_TIMEOUT_S = 30.0
"""Seconds that a server has for its first answer."""
MCP_CLOSE_TIMEOUT_S = 6.0
"""Seconds that a connection has to end. A program is killed after 4."""
SESSION_EXPIRED_MESSAGES = ("Session terminated",)
"""Error messages of the client if the server has forgotten the session, as after a restart."""
MAX_TOOL_PAGES = 100
"""Maximum number of pages of tools that a server may have."""


@dataclass(slots=True, kw_only=True)
class McpConnection:
    """An open connection."""

    client: Client
    """The client. The task owns it."""
    offered: list[Offered]
    """The tools of the server."""
    owner: asyncio.Task[None]
    """The task of the connection. It is done when the connection is over."""
    stop: asyncio.Event
    """Set it to end the connection."""
    state: McpServerExitDetails
    """The state of the server's process, if it has one."""
    is_lost: bool = False
    """Whether a call found that the connection is broken."""

    @property
    def is_over(self) -> bool:
        return self.is_lost or self.owner.done() or self.state.has_exited

    async def close(self, wait_s: float = MCP_CLOSE_TIMEOUT_S) -> None:
        self.stop.set()
        await _wait_until_ended(self.owner, wait_s)


class McpServer:
    """An MCP server of `agent.yaml`."""

    def __init__(
        self, name: str, spec: McpToolSpec, folder: Path, environ: Mapping[str, str]
    ) -> None:
        if (spec.command is None) == (spec.url is None):
            raise UnusableToolError(name, "set either command or url, not both")
        self.name = name
        self._spec = spec
        self._env = build_tool_environment(spec.env, environ)
        self._cwd = resolve_working_folder(name, spec.cwd, folder)
        self._link: McpConnection | None = None
        self._linking = asyncio.Lock()
        self._argv: tuple[str, ...] = ()
        if spec.command is not None:
            program = find_program(name, spec.command[0], self._cwd, self._env)
            self._argv = (program, *spec.command[1:])

    async def list_tools(self) -> list[Offered]:
        """Return the tools of the server. Raises `UnusableToolError` if it does not start."""
        return (await self._get_connection()).offered

    async def call_tool(self, tool: str, arguments: Mapping[str, Any]) -> CallToolResult:
        """Call a tool. Raises `ToolError` with a text for the model."""
        try:
            link = await self._get_connection()
        except UnusableToolError as error:
            raise ToolError(
                f"the server was lost and could not be started again: {error}"
            ) from error
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
            raise ToolError(await self._close_lost_connection(link))
        try:
            return calling.result()
        except MCPError as error:
            if error.code == REQUEST_TIMEOUT:
                said = f"{self.name} did not answer within {self._spec.timeout:g} seconds"
                raise ToolError(said) from None
            if (
                error.code == CONNECTION_CLOSED
                or error.message in SESSION_EXPIRED_MESSAGES
                or link.is_over
            ):
                raise ToolError(await self._close_lost_connection(link, error)) from None
            raise ToolError(f"the server refused the call: {error.message}") from None
        except (OSError, httpx2.HTTPError) as error:
            raise ToolError(await self._close_lost_connection(link, error)) from None

    async def close(self) -> None:
        if self._link is not None:
            await self._link.close()

    async def _close_lost_connection(
        self, link: McpConnection, error: BaseException | None = None
    ) -> str:
        link.is_lost = True
        # Only the end tells the cause. A server that is gone does not answer a goodbye either.
        await link.close(MCP_CLOSE_TIMEOUT_S if self._spec.url is None else 1.0)
        why = link.state.describe_exit() or describe_exception(
            unwrap_exception_group(link.state.error) or error
        )
        again = "connects to it again" if self._spec.command is None else "starts it again"
        return (
            f"the server {self.name} was lost in the middle of the call{why and f' ({why})'}; "
            f"it is unknown whether the call had an effect. The next call {again}."
            f"{link.state.describe_last_stderr()}"
        )

    async def _get_connection(self) -> McpConnection:
        async with self._linking:
            if self._link is not None and self._link.is_over:
                await self._link.close()
                self._link = None
            if self._link is None:
                self._link = await self._connect()
            return self._link

    async def _connect(self) -> McpConnection:
        life, stop = McpServerExitDetails(), asyncio.Event()
        ready: asyncio.Future[tuple[Client, list[Offered]]] = (
            asyncio.get_running_loop().create_future()
        )
        owner = asyncio.create_task(
            self._run_connection(ready, stop, life), name=f"mcp {self.name}"
        )
        try:
            async with asyncio.timeout(MCP_START_TIMEOUT_S):
                await asyncio.wait((ready, owner), return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            await _abandon(owner)
            raise UnusableToolError(
                self.name,
                f"{self._where} did not answer as an MCP server within {MCP_START_TIMEOUT_S:g} "
                "seconds; "
                f"{self._fix}."
                f"{life.describe_last_stderr()}",
            ) from None
        except BaseException:
            await _abandon(owner)
            raise
        if not ready.done():
            why = ", ".join(
                filter(
                    None,
                    (describe_exception(unwrap_exception_group(life.error)), life.describe_exit()),
                )
            )
            verb = "start" if self._spec.url is None else "answer"
            raise UnusableToolError(
                self.name,
                f"{self._where} did not {verb} as an MCP server: {why}; {self._fix}."
                f"{life.describe_last_stderr()}",
            ) from life.error
        client, offered = ready.result()
        return McpConnection(client=client, offered=offered, owner=owner, stop=stop, state=life)

    @property
    def _where(self) -> str:
        return self._spec.url or " ".join(self._spec.command or ())

    @property
    def _fix(self) -> str:
        if self._spec.url is None:
            return "run the command by hand to see what it needs"
        return "check that the server is running, and check `url`"

    async def _run_connection(
        self,
        ready: asyncio.Future[tuple[Client, list[Offered]]],
        stop: asyncio.Event,
        life: McpServerExitDetails,
    ) -> None:
        """Run one connection from start to end in one task, because its scopes must end in the same
        task."""
        info = Implementation(name="trimtab", version=version("trimtab"))
        try:
            async with (
                self._transport(life) as transport,
                Client(transport, client_info=info, cache=None) as client,
            ):
                offered = await _list_all_tools(client)
                if not ready.done():
                    ready.set_result((client, offered))
                await stop.wait()
        except Exception as error:  # noqa: BLE001 - it is told by whoever misses the connection
            life.error = error

    @asynccontextmanager
    async def _transport(self, life: McpServerExitDetails) -> AsyncGenerator[Any]:
        if self._spec.url is None:
            yield open_mcp_stdio(self._argv, cwd=self._cwd, env=self._env, state=life)
            return
        async with open_mcp_http(
            self._spec.url, self._spec.headers, self._spec.timeout + MCP_START_TIMEOUT_S
        ) as made:
            yield made


async def _list_all_tools(client: Client) -> list[Offered]:
    out: list[Offered] = []
    cursor = None
    for _ in range(MAX_TOOL_PAGES):
        page = await client.list_tools(cursor=cursor)
        out += page.tools
        cursor = page.next_cursor
        if not cursor:
            break
    return out


async def _abandon(owner: asyncio.Task[None]) -> None:
    owner.cancel()
    await _wait_until_ended(owner, MCP_CLOSE_TIMEOUT_S)


async def _wait_until_ended(owner: asyncio.Task[None], wait_s: float) -> None:
    """Wait until the connection has ended, but not for ever: the server may never answer the
    goodbye."""
    for _ in range(3):
        done, _ = await asyncio.wait((owner,), timeout=wait_s)
        if done:
            return
        owner.cancel()


def unwrap_exception_group(error: BaseException | None) -> BaseException | None:
    """Return the innermost error of an exception group. Task groups wrap even a single error."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def describe_exception(error: BaseException | None) -> str:
    return "" if error is None else str(error) or type(error).__name__


MAX_MCP_TOOL_NAME_CHARS = 64
"""Maximum length of a tool's name that every provider allows."""

MAX_PICTURE_BASE64_CHARS = 8_000_000
"""Maximum length of a picture in base64, regardless of the tool's limit."""


def make_mcp_tools(
    server: McpServer, spec: McpToolSpec, offered: Sequence[Offered], gate: PermissionGate
) -> list[Tool]:
    """Return the tools of the server that the model gets."""
    there = {each.name: each for each in offered}
    wanted = list(there) if spec.only is None else list(spec.only)
    if missing := [name for name in wanted if name not in there]:
        raise UnusableToolError(
            server.name,
            f"`only` lists {missing[0]!r}, but the server has {', '.join(there) or 'no tools'}",
        )
    names = assign_mcp_tool_names(server.name, wanted)
    return [_make_mcp_tool(names[each], there[each], server, spec, gate) for each in wanted]


def assign_mcp_tool_names(server_name: str, tool_names: Iterable[str]) -> dict[str, str]:
    """Return the name that the model uses for each tool: allowed by all providers, and unique."""
    out: dict[str, str] = {}
    for tool in tool_names:
        name = re.sub(r"[^a-zA-Z0-9_-]", "_", f"{server_name}__{tool}")
        if len(name) > MAX_MCP_TOOL_NAME_CHARS or name in out.values():
            mark = sha256(tool.encode()).hexdigest()[:8]
            name = f"{name[: MAX_MCP_TOOL_NAME_CHARS - 9]}_{mark}"
        out[tool] = name
    return out


def _make_mcp_tool(
    name: str, offered: Offered, server: McpServer, spec: McpToolSpec, gate: PermissionGate
) -> Tool:
    async def run(asked: ToolInvocation) -> list[ToolContent]:
        result = await server.call_tool(offered.name, asked.arguments)
        content = convert_mcp_result(result, spec.max_output_bytes)
        if result.is_error:
            raise ToolError(content)
        return content

    return Tool(
        definition={
            "name": name,
            "description": offered.description or offered.title or offered.name,
            "input_schema": offered.input_schema,
        },
        run=run,
        on_interrupt=spec.on_interrupt,
        # A server that was lost may have to start first, and the client has the time limit itself.
        timeout=spec.timeout + 60,
        check_permission=gate.make_permission_check(
            build_permission_rules(spec),
            lambda asked: f"{name} {format_arguments_for_patterns(asked.arguments)}".rstrip(),
        ),
    )


def convert_mcp_result(result: CallToolResult, max_bytes: int) -> list[ToolContent]:
    """Convert a result to parts: texts and pictures unchanged, everything else described in
    words."""
    out: list[ToolContent] = [_convert_block(block, max_bytes) for block in result.content]
    if not out and result.structured_content is not None:
        out = [Text(text=keep_head_and_tail(_to_json_text(result.structured_content), max_bytes))]
    return out or [Text(text="[no output]")]


def _convert_block(block: ContentBlock, max_bytes: int) -> ToolContent:
    match block:
        case TextContent():
            return Text(text=keep_head_and_tail(block.text, max_bytes) or "[an empty text]")
        case ImageContent():
            return _convert_media("image", block.mime_type, block.data, max_bytes)
        case AudioContent():
            return _convert_media("audio", block.mime_type, block.data, max_bytes)
        case ResourceLink():
            about = ", ".join(filter(None, (block.title, block.description, block.mime_type)))
            return Text(text=f"[link to {block.name}: {block.uri}{about and f' ({about})'}]")
        case EmbeddedResource():
            return _convert_resource(block, max_bytes)


def _convert_resource(block: EmbeddedResource, max_bytes: int) -> ToolContent:
    held = block.resource
    if isinstance(held, BlobResourceContents):
        if (held.mime_type or "").startswith("image/"):
            return _convert_media("image", held.mime_type, held.blob, max_bytes)
        size = f"{len(held.blob) * 3 // 4:,} bytes"
        return Text(text=f"[{held.uri}: {held.mime_type or 'binary data'}, {size}, not shown]")
    return Text(text=f"[{held.uri}]\n{keep_head_and_tail(held.text, max_bytes)}")


def _convert_media(kind: Any, mime: str | None, data: str, max_bytes: int) -> ToolContent:
    # A picture is not read by its bytes; only what no provider would take is left out.
    most = max(max_bytes, MAX_PICTURE_BASE64_CHARS)
    if kind != "image" or len(data) > most:
        return Text(text=f"[{kind}, {mime}, {len(data) * 3 // 4:,} bytes, not shown]")
    return Media(kind=kind, mime=mime, data=data)


def _to_json_text(value: Mapping[str, Any] | Any) -> str:
    return json.dumps(value, ensure_ascii=False)
