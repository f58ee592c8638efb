"""Transports to MCP servers, with a limit for the size of a message.

A server is a program that writes one message per line, or an HTTP address. For programs, the MCP
client's own transport keeps a line of any length in memory and lets the program write to the user's
terminal.
"""

from __future__ import annotations

import asyncio
from asyncio.subprocess import PIPE, Process, SubprocessStreamProtocol
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import anyio
import httpx2
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from trimtab_serve.agent.tools.output import HeadTailBuffer
from trimtab_serve.agent.tools.process import (
    GROUP_POLL_INTERVAL_S,
    TERMINATION_GRACE_S,
    kill_process_group,
    terminate_process_group,
)

MAX_MCP_MESSAGE_BYTES = 16_000_000
"""Maximum size of one message of a server in bytes."""
MAX_SERVER_STDERR_BYTES = 4_000
"""Number of bytes to keep of a server's stderr."""

McpStreams = tuple[
    MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]
]


@dataclass(slots=True, kw_only=True)
class McpServerExitDetails:
    """The state of a server that is connected, or was."""

    stderr: HeadTailBuffer = field(default_factory=lambda: HeadTailBuffer(MAX_SERVER_STDERR_BYTES))
    """The server's stderr."""
    process: Process | None = None
    """The process, once it runs."""
    give_up_reason: str | None = None
    """Why the connection was given up, if it was."""
    error: BaseException | None = None
    """The error that ended the connection, if it broke."""

    @property
    def has_exited(self) -> bool:
        """Whether the process has ended."""
        return self.process is not None and self.process.returncode is not None

    def describe_exit(self) -> str:
        """Describe briefly how the process ended. The text is empty if that is unknown."""
        status = None if self.process is None else self.process.returncode
        if self.give_up_reason or status is None:
            return self.give_up_reason or ""
        return f"exit status {status}" if status >= 0 else f"signal {-status}"

    def describe_last_stderr(self) -> str:
        """Return the last lines of stderr to append to a sentence, or an empty text."""
        lines = self.stderr.to_text().strip().splitlines()[-10:]
        return "".join(("\nLast lines on stderr:\n", "\n".join(lines))) if lines else ""


@asynccontextmanager
async def open_mcp_stdio(
    argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], state: McpServerExitDetails
) -> AsyncGenerator[McpStreams]:
    """Start the program. At the end, stop it and everything that it started."""
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.subprocess_exec(
        lambda: SubprocessStreamProtocol(limit=MAX_MCP_MESSAGE_BYTES, loop=loop),
        *argv,
        cwd=cwd,
        env=dict(env),
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        start_new_session=True,
    )
    process = state.process = Process(transport, protocol, loop)
    to_client, from_server = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    to_server, from_client = anyio.create_memory_object_stream[SessionMessage](0)
    async with anyio.create_task_group() as group:
        group.start_soon(_forward_stdout, process, to_client, state)
        group.start_soon(_forward_to_stdin, process, from_client)
        group.start_soon(_collect_stderr, process, state)
        try:
            yield from_server, to_server
        finally:
            try:
                await _end(process)
            finally:
                if kill_process_group(process):
                    # It ends at once, and must be fetched before the event loop is gone.
                    with anyio.move_on_after(TERMINATION_GRACE_S, shield=True):
                        await process.wait()
                transport.close()
                for stream in (to_client, from_server, to_server, from_client):
                    stream.close()
                group.cancel_scope.cancel()


async def _forward_stdout(
    process: Process,
    to_client: MemoryObjectSendStream[SessionMessage | Exception],
    state: McpServerExitDetails,
) -> None:
    assert process.stdout is not None  # noqa: S101 - a pipe was asked for
    with to_client, suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        while True:
            try:
                line = await process.stdout.readuntil(b"\n")
            except (asyncio.IncompleteReadError, ConnectionError):
                # Its end; who waits for an answer is told when the stream is closed.
                with suppress(TimeoutError):
                    await asyncio.wait_for(process.wait(), TERMINATION_GRACE_S)
                return
            except asyncio.LimitOverrunError:
                state.give_up_reason = f"a message of more than {MAX_MCP_MESSAGE_BYTES:,} bytes"
                return
            await to_client.send(_parse_message(line))


def _parse_message(line: bytes) -> SessionMessage | Exception:
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        # Programs print to stdout what is no message; the client passes over it.
        return error


async def _forward_to_stdin(
    process: Process, from_client: MemoryObjectReceiveStream[SessionMessage]
) -> None:
    assert process.stdin is not None  # noqa: S101 - a pipe was asked for
    with from_client, suppress(OSError):
        async for said in from_client:
            text = said.message.model_dump_json(by_alias=True, exclude_unset=True)
            process.stdin.write(text.encode() + b"\n")
            await process.stdin.drain()


async def _collect_stderr(process: Process, state: McpServerExitDetails) -> None:
    assert process.stderr is not None  # noqa: S101 - a pipe was asked for
    with suppress(OSError):
        while chunk := await process.stderr.read(1 << 16):
            state.stderr.add(chunk)


async def _end(process: Process) -> None:
    """Wait until the server ends after its input has ended, and stop it if it does not."""
    if process.stdin is not None:
        process.stdin.close()
    for _ in range(int(TERMINATION_GRACE_S / GROUP_POLL_INTERVAL_S)):
        # Not wait(): it waits for all who hold the pipes as well.
        if process.returncode is not None:
            break
        await asyncio.sleep(GROUP_POLL_INTERVAL_S)
    await terminate_process_group(process)


class McpMessageTooLong(httpx2.TransportError):
    """An answer is so large that it would fill the memory."""

    def __init__(self) -> None:
        super().__init__(f"a message of more than {MAX_MCP_MESSAGE_BYTES:,} bytes")


class _BoundedByteStream(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        total = 0
        async for chunk in self._stream:
            total += len(chunk)
            if total > MAX_MCP_MESSAGE_BYTES:
                raise McpMessageTooLong
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


@asynccontextmanager
async def open_mcp_http(
    url: str, headers: Mapping[str, str], read_timeout_s: float
) -> AsyncGenerator[Any]:
    """Open the HTTP transport with these headers. `read_timeout_s` limits the time between two
    bytes."""
    # What comes compressed would grow unseen.
    sent = {"Accept-Encoding": "identity", **headers}
    limits = httpx2.Timeout(30.0, read=read_timeout_s)
    hooks = {"response": [_bound_response]}
    async with httpx2.AsyncClient(headers=sent, timeout=limits, event_hooks=hooks) as client:
        yield streamable_http_client(
            url, http_client=client, max_sse_event_size=MAX_MCP_MESSAGE_BYTES
        )


async def _bound_response(response: httpx2.Response) -> None:
    if "text/event-stream" not in response.headers.get("content-type", ""):
        response.stream = _BoundedByteStream(cast("httpx2.AsyncByteStream", response.stream))
