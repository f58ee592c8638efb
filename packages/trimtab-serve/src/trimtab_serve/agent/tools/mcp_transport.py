"""Transports to MCP servers, with limits for what a server may send.

A server is a program that writes one message per line, or an HTTP address. For programs, the MCP
client's own transport keeps a line of any length in memory and lets the program write to the user's
terminal. Over HTTP, the client would unpack a compressed answer of any size.
"""

from __future__ import annotations

import asyncio
from asyncio.subprocess import PIPE, Process, SubprocessStreamProtocol
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self, cast

import anyio
import httpx2
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.dispatcher import coerce_request_id
from mcp.shared.message import SessionMessage
from mcp_types import (
    JSONRPCError,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
    jsonrpc_message_adapter,
)

from trimtab_serve.agent.tools.output import HeadTailBuffer
from trimtab_serve.agent.tools.process import (
    GROUP_POLL_INTERVAL_S,
    TERMINATION_GRACE_S,
    kill_process_group,
    terminate_process_group,
)

MAX_MCP_MESSAGE_BYTES = 16_000_000
"""Maximum size of one message of a server in bytes."""
TOO_LONG = f"a message of more than {MAX_MCP_MESSAGE_BYTES:,} bytes"
MAX_UNREQUESTED_MESSAGES = 10_000
"""Maximum number of messages that a server may send between two answers to requests."""
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
    is_closed: bool = False
    """Whether the server no longer takes or sends messages."""

    @contextmanager
    def note_end(self) -> Generator[None]:
        """Record at the end of the block that one direction of the connection has ended."""
        try:
            yield
        finally:
            self.is_closed = True

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
        group.start_soon(_forward_to_stdin, process, from_client, state)
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
                # Its end. Calls that wait fail when the stream is closed.
                with suppress(TimeoutError):
                    await asyncio.wait_for(process.wait(), TERMINATION_GRACE_S)
                return
            except asyncio.LimitOverrunError:
                state.give_up_reason = TOO_LONG
                return
            await to_client.send(_parse_message(line))


def _parse_message(line: bytes) -> SessionMessage | Exception:
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        # Programs print to stdout what is no message; the client passes over it.
        return error


async def _forward_to_stdin(
    process: Process,
    from_client: MemoryObjectReceiveStream[SessionMessage],
    state: McpServerExitDetails,
) -> None:
    assert process.stdin is not None  # noqa: S101 - a pipe was asked for
    with from_client, state.note_end(), suppress(OSError):
        async for client_message in from_client:
            text = client_message.message.model_dump_json(by_alias=True, exclude_unset=True)
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
        # Not wait(): it also waits for other processes that hold the pipes.
        if process.returncode is not None:
            break
        await asyncio.sleep(GROUP_POLL_INTERVAL_S)
    await terminate_process_group(process)


class _RequestIdRecorder:
    """The stream to a server, which records the ids of requests that are not answered yet."""

    def __init__(self, to_server: Any) -> None:
        self.unanswered = set[RequestId]()
        self._to_server = to_server

    async def send(self, item: SessionMessage, /) -> None:
        if isinstance(item.message, JSONRPCRequest):
            self.unanswered.add(coerce_request_id(item.message.id))
        await self._to_server.send(item)

    async def aclose(self) -> None:
        await self._to_server.aclose()

    async def __aenter__(self) -> Self:
        await self._to_server.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> bool | None:
        return await self._to_server.__aexit__(*error)

    def take_answer(self, item: SessionMessage | Exception) -> bool:
        """Return whether an item is the first answer to a request."""
        message = item.message if isinstance(item, SessionMessage) else None
        if not isinstance(message, JSONRPCResponse | JSONRPCError) or message.id is None:
            return False
        request_id = coerce_request_id(message.id)
        is_expected = request_id in self.unanswered
        self.unanswered.discard(request_id)
        return is_expected


class _Readable(Protocol):
    """The end of a transport that messages of the server come from."""

    def __aiter__(self) -> AsyncIterator[SessionMessage | Exception]: ...


@asynccontextmanager
async def limit_messages(
    transport: AbstractAsyncContextManager[tuple[_Readable, Any]], state: McpServerExitDetails
) -> AsyncGenerator[
    tuple[MemoryObjectReceiveStream[SessionMessage | Exception], _RequestIdRecorder]
]:
    """Give up a connection whose server sends messages without end, and remove schemas of results.

    The client would check results by these schemas on the event loop, and a regular expression in a
    schema may never end.
    """
    to_client, from_server = anyio.create_memory_object_stream[SessionMessage | Exception](0)

    async def forward(messages: _Readable, requests: _RequestIdRecorder) -> None:
        message_count = 0
        with (
            to_client,
            state.note_end(),
            suppress(anyio.BrokenResourceError, anyio.ClosedResourceError),
        ):
            async for message in messages:
                _remove_result_schemas(message)
                message_count = 0 if requests.take_answer(message) else message_count + 1
                if message_count > MAX_UNREQUESTED_MESSAGES:
                    state.give_up_reason = (
                        f"more than {MAX_UNREQUESTED_MESSAGES:,} messages that nobody asked for"
                    )
                    return
                await to_client.send(message)

    with to_client, from_server:
        async with transport as (messages, to_server), anyio.create_task_group() as group:
            requests = _RequestIdRecorder(to_server)
            group.start_soon(forward, messages, requests)
            try:
                yield from_server, requests
            finally:
                group.cancel_scope.cancel()


def _remove_result_schemas(item: SessionMessage | Exception) -> None:
    message = item.message if isinstance(item, SessionMessage) else None
    if isinstance(message, JSONRPCResponse):
        tools = message.result.get("tools")
        for tool in cast("list[Any]", tools) if isinstance(tools, list) else ():
            if isinstance(tool, dict):
                cast("dict[str, Any]", tool).pop("outputSchema", None)


class McpMessageRefused(httpx2.TransportError):
    """An answer is so large that it would fill the memory, or compressed and may be."""


class _BoundedByteStream(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream, state: McpServerExitDetails) -> None:
        self._stream = stream
        self._state = state

    async def __aiter__(self) -> AsyncIterator[bytes]:
        total = 0
        async for chunk in self._stream:
            total += len(chunk)
            if total > MAX_MCP_MESSAGE_BYTES:
                self._state.give_up_reason = TOO_LONG
                raise McpMessageRefused(TOO_LONG)
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


@asynccontextmanager
async def open_mcp_http(
    url: str, headers: Mapping[str, str], read_timeout_s: float, state: McpServerExitDetails
) -> AsyncGenerator[Any]:
    """Open the HTTP transport with these headers. `read_timeout_s` limits the time between two
    bytes."""

    async def bound_response(response: httpx2.Response) -> None:
        encoding = response.headers.get("content-encoding", "identity").strip().lower()
        if encoding != "identity":
            # A few bytes may become gigabytes, and the client unpacks all that arrived at once.
            state.give_up_reason = (
                f"an answer with Content-Encoding {encoding[:40]!r}, although Trimtab accepts "
                "only answers that are not compressed"
            )
            raise McpMessageRefused(state.give_up_reason)
        stream = cast("httpx2.AsyncByteStream", response.stream)
        response.stream = _BoundedByteStream(stream, state)

    all_headers = {"Accept-Encoding": "identity", **headers}
    limits = httpx2.Timeout(30.0, read=read_timeout_s)
    hooks = {"response": [bound_response]}
    async with httpx2.AsyncClient(headers=all_headers, timeout=limits, event_hooks=hooks) as client:
        yield streamable_http_client(
            url, http_client=client, max_sse_event_size=MAX_MCP_MESSAGE_BYTES
        )
