"""The process of `trimtab sidecar`, until it is stopped or its input ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

from trimtab.sidecar.http_server import HttpServer
from trimtab.sidecar.redacted_conversations import FILE_NAME, RedactedConversations
from trimtab.sidecar.sidecar import MAX_CONVERSATIONS, Sidecar
from trimtab.sidecar.state_file import SOCKET_NAME, StateFile
from trimtab.sidecar.stdio import serve_stdio


def run_on_stdio(
    *, folder: Path, store: str | None, max_conversations: int = MAX_CONVERSATIONS
) -> None:
    """Answer the calls on standard input until it ends, or until nobody reads the answers."""
    redacted = RedactedConversations(folder / FILE_NAME)
    sidecar = Sidecar(store, max_conversations=max_conversations, redacted=redacted)
    if not sys.stdin.isatty():
        # Control-C in a terminal reaches this process as well. The agent decides what it means.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        sidecar.run(serve_stdio(sidecar, sys.stdin.buffer, sys.stdout.buffer))
    except* BrokenPipeError:
        sidecar.run(sidecar.close())
        os._exit(1)  # a thread still reads, and Python would report what it cannot flush
    sidecar.run(sidecar.close())


def run_over_http(
    *,
    folder: Path,
    store: str | None,
    port: int,
    uses_socket: bool,
    max_conversations: int,
) -> None:
    """Listen until the process is told to stop.

    Raises:
        OSError: If it cannot listen.
        SidecarRunning: If another sidecar uses the folder.
        UnsafeStateFolder: If others could read or replace what is in the folder.
    """
    state = StateFile(folder)
    with state.hold():
        token = state.read_or_make_token()
        redacted = RedactedConversations(folder / FILE_NAME)
        sidecar = Sidecar(store, max_conversations=max_conversations, redacted=redacted)
        server = HttpServer(sidecar, token=token)
        path = folder / SOCKET_NAME
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        if uses_socket:
            sidecar.run(server.listen_on_socket(str(path)))
            state.write(token=token, socket=str(path))
        else:
            state.write(token=token, url=sidecar.run(server.listen(port)))
        sys.stderr.write(f"trimtab: the sidecar listens; {state.path} says where\n")
        try:
            _wait_for_signal()
        finally:
            state.write(token=token)
            sidecar.run(_stop(server, sidecar))


async def _stop(server: HttpServer, sidecar: Sidecar) -> None:
    await server.close()
    with contextlib.suppress(asyncio.CancelledError):
        await sidecar.close()


def _wait_for_signal() -> None:
    stopped = threading.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        stopped.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    stopped.wait()
