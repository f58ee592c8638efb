"""Read piped input line by line without keeping the process from ending."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator

STDIN_CHUNK_BYTES = 65_536
"""Bytes to read at a time."""


async def read_stdin_lines() -> AsyncIterator[str]:
    """Yield lines of standard input as they arrive.

    A daemon thread reads them, so a signal ends the process even if the other end of the pipe stays
    open.
    """
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes] = asyncio.Queue()
    source = sys.stdin.fileno()

    def read() -> None:
        while True:
            try:
                chunk = os.read(source, STDIN_CHUNK_BYTES)
            except OSError:
                chunk = b""
            try:
                loop.call_soon_threadsafe(chunks.put_nowait, chunk)
            except RuntimeError:
                return  # the loop has ended
            if not chunk:
                return

    threading.Thread(target=read, daemon=True).start()
    rest = b""
    while chunk := await chunks.get():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.decode("utf-8", "replace")
    if rest:
        yield rest.decode("utf-8", "replace")


async def read_stdin_text() -> str:
    """Read all of standard input."""
    return "\n".join([line async for line in read_stdin_lines()])
