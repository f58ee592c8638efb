"""An MCP server that is a program: its messages are lines, of a length that is bounded.

The client's own transport keeps a line of any length in memory and lets the program write to the
user's terminal.
"""

from __future__ import annotations

import asyncio
from asyncio.subprocess import PIPE, Process, SubprocessStreamProtocol
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from trimtab.agent.tools.output import Kept
from trimtab.agent.tools.process import GRACE, TICK, end_group, kill_group

MESSAGE = 16_000_000
"""Bytes that one message of a server may have."""
WORDS = 4_000
"""Bytes that are kept of what a server says on stderr."""

Streams = tuple[
    MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]
]


@dataclass(slots=True, kw_only=True)
class Life:
    """What is known of a server that is connected, or was."""

    words: Kept = field(default_factory=lambda: Kept(WORDS))
    """What it said on stderr."""
    process: Process | None = None
    """The process, once it runs."""
    wrong: str | None = None
    """Why it was given up, if it was."""
    error: BaseException | None = None
    """What ended the connection, if it broke."""

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.process is not None and self.process.returncode is not None

    def ending(self) -> str:
        """How it ended, in a word; nothing where that is not known."""
        status = None if self.process is None else self.process.returncode
        if self.wrong or status is None:
            return self.wrong or ""
        return f"exit status {status}" if status >= 0 else f"signal {-status}"

    def last_words(self) -> str:
        """What it said last, to be put behind a sentence; or nothing."""
        lines = self.words.text().strip().splitlines()[-10:]
        return "".join(("\nIt said last:\n", "\n".join(lines))) if lines else ""


@asynccontextmanager
async def stdio(
    argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], life: Life
) -> AsyncGenerator[Streams]:
    """The program, started; afterwards it has ended, with all that it started."""
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.subprocess_exec(
        lambda: SubprocessStreamProtocol(limit=MESSAGE, loop=loop),
        *argv,
        cwd=cwd,
        env=dict(env),
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        start_new_session=True,
    )
    process = life.process = Process(transport, protocol, loop)
    to_client, from_server = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    to_server, from_client = anyio.create_memory_object_stream[SessionMessage](0)
    async with anyio.create_task_group() as group:
        group.start_soon(_listen, process, to_client, life)
        group.start_soon(_speak, process, from_client)
        group.start_soon(_overhear, process, life)
        try:
            yield from_server, to_server
        finally:
            try:
                await _end(process)
            finally:
                if kill_group(process):
                    # It ends at once, and must be fetched before the event loop is gone.
                    with anyio.move_on_after(GRACE, shield=True):
                        await process.wait()
                transport.close()
                for stream in (to_client, from_server, to_server, from_client):
                    stream.close()
                group.cancel_scope.cancel()


async def _listen(
    process: Process, to_client: MemoryObjectSendStream[SessionMessage | Exception], life: Life
) -> None:
    assert process.stdout is not None  # noqa: S101 - a pipe was asked for
    with to_client, suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        while True:
            try:
                line = await process.stdout.readuntil(b"\n")
            except (asyncio.IncompleteReadError, ConnectionError):
                # Its end; who waits for an answer is told when the stream is closed.
                with suppress(TimeoutError):
                    await asyncio.wait_for(process.wait(), GRACE)
                return
            except asyncio.LimitOverrunError:
                life.wrong = f"a message of more than {MESSAGE:,} bytes"
                return
            await to_client.send(_message(line))


def _message(line: bytes) -> SessionMessage | Exception:
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        # Programs print to stdout what is no message; the client passes over it.
        return error


async def _speak(process: Process, from_client: MemoryObjectReceiveStream[SessionMessage]) -> None:
    assert process.stdin is not None  # noqa: S101 - a pipe was asked for
    with from_client, suppress(OSError):
        async for said in from_client:
            text = said.message.model_dump_json(by_alias=True, exclude_unset=True)
            process.stdin.write(text.encode() + b"\n")
            await process.stdin.drain()


async def _overhear(process: Process, life: Life) -> None:
    assert process.stderr is not None  # noqa: S101 - a pipe was asked for
    with suppress(OSError):
        while chunk := await process.stderr.read(1 << 16):
            life.words.add(chunk)


async def _end(process: Process) -> None:
    """A server is to end when its input does; one that does not is ended."""
    if process.stdin is not None:
        process.stdin.close()
    for _ in range(int(GRACE / TICK)):
        # Not wait(): it waits for all who hold the pipes as well.
        if process.returncode is not None:
            break
        await asyncio.sleep(TICK)
    await end_group(process)
