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
    MAX_MCP_MESSAGE_BYTES,
    McpServerExitDetails,
    limit_messages,
    open_mcp_http,
    open_mcp_stdio,
)
from trimtab_serve.agent.tools.output import keep_head_and_tail
from trimtab_serve.agent.tools.permissions.rules import (
    PermissionGate,
    build_permission_rules,
    format_arguments_for_patterns,
)
from trimtab_serve.agent.tools.shell import check_working_folder, resolve_working_folder
from trimtab_serve.agent.tools.tool_setting import UnusableToolError

# The client logs what servers send, as much as they like. Errors say what matters of it.
for _name in ("mcp", "client"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)

MCP_START_TIMEOUT_S = 30.0
"""Seconds that a server has for its first answer."""
MCP_CLOSE_TIMEOUT_S = 6.0
"""Seconds that a connection has to end. A program is killed after 4."""
SESSION_EXPIRED_MESSAGES = ("Session terminated",)
"""Error messages of the client if the server has forgotten the session, as after a restart."""
HTTP_ANSWER_LOST_PREFIX = "SSE stream "
"""How messages of the client begin if the connection broke before the answer was complete."""
MAX_TOOL_PAGES = 100
"""Maximum number of pages of tools that a server may have."""
MAX_TOOL_DEFINITIONS_BYTES = 1_000_000
"""Maximum size of the names, descriptions and schemas of a server's tools, in bytes of JSON. They
go to the model with each request."""
MAX_RESULT_PARTS = 100
"""Maximum number of texts and pictures of one result."""
MAX_ERROR_BYTES = 2_000
"""Number of bytes to keep of a server's error."""


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
        gave_up = self.state.give_up_reason is not None
        is_closed = self.state.is_closed or self.state.has_exited
        return self.is_lost or gave_up or is_closed or self.owner.done()

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
        loop = asyncio.get_running_loop()
        began = loop.time()
        calling = asyncio.ensure_future(
            link.client.call_tool(tool, dict(arguments), read_timeout_seconds=self._spec.timeout)
        )
        try:
            # A connection may break without an error for the calls that wait.
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
            # Servers use the codes of the client as well, for errors of their own.
            if error.code == REQUEST_TIMEOUT and loop.time() - began >= self._spec.timeout:
                text = f"{self.name} did not answer within {self._spec.timeout:g} seconds"
                raise ToolError(text) from None
            if (
                error.message in SESSION_EXPIRED_MESSAGES
                or (self._spec.url and error.message.startswith(HTTP_ANSWER_LOST_PREFIX))
                or link.is_over
            ):
                raise ToolError(await self._close_lost_connection(link, error)) from None
            raise ToolError(f"the server refused the call: {describe_exception(error)}") from None
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
        life = McpServerExitDetails()
        stop = asyncio.Event()
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
            reasons = (describe_exception(unwrap_exception_group(life.error)), life.describe_exit())
            why = ", ".join(dict.fromkeys(filter(None, reasons)))
            verb = "start" if self._spec.url is None else "answer"
            raise UnusableToolError(
                self.name,
                f"{self._where} did not {verb} as an MCP server: {why}; {self._fix}."
                f"{life.describe_last_stderr()}",
            ) from life.error
        client, server_tools = ready.result()
        return McpConnection(
            client=client, offered=server_tools, owner=owner, stop=stop, state=life
        )

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
                server_tools = await _list_all_tools(client)
                if not ready.done():
                    ready.set_result((client, server_tools))
                await stop.wait()
        except Exception as error:  # noqa: BLE001 - it is told by whoever misses the connection
            life.error = error

    @asynccontextmanager
    async def _transport(self, life: McpServerExitDetails) -> AsyncGenerator[Any]:
        if self._spec.url is None:
            check_working_folder(self._cwd)
            stdio = open_mcp_stdio(self._argv, cwd=self._cwd, env=self._env, state=life)
            yield limit_messages(stdio, life)
            return
        async with open_mcp_http(
            self._spec.url, self._spec.headers, self._spec.timeout + MCP_START_TIMEOUT_S, life
        ) as http:
            yield limit_messages(http, life)


async def _list_all_tools(client: Client) -> list[Offered]:
    out: list[Offered] = []
    cursor = None
    total_bytes = 0
    for _ in range(MAX_TOOL_PAGES):
        page = await client.list_tools(cursor=cursor)
        total_bytes += len(page.model_dump_json())
        if total_bytes > MAX_MCP_MESSAGE_BYTES:
            raise ValueError(f"a list of tools of more than {MAX_MCP_MESSAGE_BYTES:,} bytes")
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
        ended_tasks, _ = await asyncio.wait((owner,), timeout=wait_s)
        if ended_tasks:
            return
        owner.cancel()


def unwrap_exception_group(error: BaseException | None) -> BaseException | None:
    """Return the innermost error of an exception group. Task groups wrap even a single error."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def describe_exception(error: BaseException | None) -> str:
    """Describe an error in few words. A server writes what some of them say."""
    if error is None:
        return ""
    return keep_head_and_tail(str(error), MAX_ERROR_BYTES) or type(error).__name__


MAX_MCP_TOOL_NAME_CHARS = 64
"""Maximum length of a tool's name that every provider allows."""

MAX_PICTURE_BASE64_CHARS = 8_000_000
"""Maximum length of the pictures of a result in base64, regardless of the tool's limit."""
_PICTURE_TYPE = re.compile(r"image/[\w.+-]{1,60}")


def make_mcp_tools(
    server: McpServer, spec: McpToolSpec, offered: Sequence[Offered], gate: PermissionGate
) -> list[Tool]:
    """Return the tools of the server that the model gets."""
    there = {each.name: each for each in offered}
    tool_names = list(there) if spec.only is None else list(spec.only)
    if missing := [name for name in tool_names if name not in there]:
        raise UnusableToolError(
            server.name,
            f"`only` lists {missing[0]!r}, but the server has "
            + keep_head_and_tail(", ".join(there) or "no tools", MAX_ERROR_BYTES),
        )
    names = assign_mcp_tool_names(server.name, tool_names)
    tools = [_make_mcp_tool(names[each], there[each], server, spec, gate) for each in tool_names]
    size = sum(len(_to_json_text(tool.definition)) for tool in tools)
    if size > MAX_TOOL_DEFINITIONS_BYTES:
        raise UnusableToolError(
            server.name,
            f"its {len(tools):,} tools have definitions of {size:,} bytes, but "
            f"{MAX_TOOL_DEFINITIONS_BYTES:,} is the most; name the tools you need in `only`",
        )
    return tools


def assign_mcp_tool_names(server_name: str, tool_names: Iterable[str]) -> dict[str, str]:
    """Return the name that the model uses for each tool: allowed by all providers, and unique."""
    out: dict[str, str] = {}
    names = set[str]()
    for tool in tool_names:
        name = re.sub(r"[^a-zA-Z0-9_-]", "_", f"{server_name}__{tool}")
        if len(name) > MAX_MCP_TOOL_NAME_CHARS or name in names:
            mark = sha256(tool.encode()).hexdigest()[:8]
            name = f"{name[: MAX_MCP_TOOL_NAME_CHARS - 9]}_{mark}"
        out[tool] = name
        names.add(name)
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
    """Convert a result to parts: texts and pictures unchanged, everything else described in words.
    The limit is for all texts of the result together. Pictures have a limit of their own."""
    blocks = result.content
    if not blocks and result.structured_content is not None:
        blocks = [TextContent(text=_to_json_text(result.structured_content))]
    out: list[ToolContent] = []
    text_bytes = max_bytes
    # A picture is not read by its bytes; only what no provider would take is left out.
    picture_chars = max(max_bytes, MAX_PICTURE_BASE64_CHARS)
    for index, block in enumerate(blocks):
        if index == MAX_RESULT_PARTS or text_bytes <= 0:
            out.append(Text(text=f"[… {len(blocks) - index:,} more parts left out …]"))
            break
        picture = _find_picture(block, picture_chars)
        if picture is not None:
            picture_chars -= len(picture.data or "")
            out.append(picture)
            continue
        text = keep_head_and_tail(_describe_block(block), text_bytes)
        text_bytes -= len(text.encode("utf-8", "replace"))
        out.append(Text(text=text))
    return out or [Text(text="[no output]")]


def _find_picture(block: ContentBlock, max_chars: int) -> Media | None:
    """Return the picture of a block if it has one that can be shown."""
    mime = None
    data = ""
    if isinstance(block, ImageContent):
        mime = block.mime_type
        data = block.data
    elif isinstance(block, EmbeddedResource) and isinstance(block.resource, BlobResourceContents):
        mime = block.resource.mime_type
        data = block.resource.blob
    is_shown = len(data) <= max_chars and _PICTURE_TYPE.fullmatch(mime or "")
    return Media(kind="image", mime=mime, data=data) if is_shown else None


def _describe_block(block: ContentBlock) -> str:
    match block:
        case TextContent():
            return block.text or "[an empty text]"
        case ImageContent():
            return _describe_data("image", block.mime_type, block.data)
        case AudioContent():
            return _describe_data("audio", block.mime_type, block.data)
        case ResourceLink():
            about = ", ".join(filter(None, (block.title, block.description, block.mime_type)))
            return f"[link to {block.name}: {block.uri}{about and f' ({about})'}]"
        case EmbeddedResource():
            content = block.resource
            if isinstance(content, BlobResourceContents):
                kind = content.mime_type or "binary data"
                return f"[{content.uri}: {kind}, {len(content.blob) * 3 // 4:,} bytes, not shown]"
            return f"[{content.uri}]\n{content.text}"


def _describe_data(kind: str, mime: str, data: str) -> str:
    return f"[{kind}, {mime}, {len(data) * 3 // 4:,} bytes, not shown]"


def _to_json_text(value: Mapping[str, Any] | Any) -> str:
    return json.dumps(value, ensure_ascii=False)
