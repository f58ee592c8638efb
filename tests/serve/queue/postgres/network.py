"""Rooms of a network of their own, from which the database is reached by a wire that can be cut."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass

import pytest


@dataclass(frozen=True)
class Room:
    """A network namespace with one wire to ours."""

    name: str
    gate: str
    """Our end's address."""

    @property
    def before(self) -> list[str]:
        """What stands before a command that runs in it."""
        return ["ip", "netns", "exec", self.name]

    def cut(self) -> None:
        _ip("link", "set", f"{self.name}h", "down")

    def join(self) -> None:
        _ip("link", "set", f"{self.name}h", "up")


@contextmanager
def room(number: int) -> Generator[Room]:
    """A room, removed at the end; skips where this machine allows none."""
    if shutil.which("ip") is None:
        pytest.skip("iproute2 is not installed")
    name, net = f"tt{os.getpid() % 10_000}{number}", f"10.213.{os.getpid() % 250}.{number * 4}"
    base = net.rsplit(".", 1)
    ours, theirs = (f"{base[0]}.{int(base[1]) + place}" for place in (1, 2))
    try:
        _ip("netns", "add", name)
        _ip("link", "add", f"{name}h", "type", "veth", "peer", "name", "wire", "netns", name)
        _ip("addr", "add", f"{ours}/30", "dev", f"{name}h")
        _ip("link", "set", f"{name}h", "up")
        _ip("-n", name, "addr", "add", f"{theirs}/30", "dev", "wire")
        _ip("-n", name, "link", "set", "wire", "up")
        _ip("-n", name, "link", "set", "lo", "up")
    except subprocess.CalledProcessError as error:
        _remove(name)
        pytest.skip(f"no network of its own is allowed here: {error.stderr.strip()}")
    try:
        yield Room(name, ours)
    finally:
        _remove(name)


@asynccontextmanager
async def passing(host: str, to: tuple[str, int]) -> AsyncGenerator[int]:
    """A port at a room's gate that leads to a server of ours."""
    pumps: set[asyncio.Task[None]] = set()

    async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65_536):
                sink.write(data)
                await sink.drain()
        except OSError:
            return
        finally:
            sink.transport.abort()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(*to)
        for task in (pump(reader, back), pump(there, writer)):
            pumps.add(asyncio.create_task(task))

    server = await asyncio.start_server(accept, host, 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in pumps:
            task.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        await server.wait_closed()
        await asyncio.sleep(0)  # for what is closed to be let go


def _remove(name: str) -> None:
    for what in (("link", "del", f"{name}h"), ("netns", "del", name)):
        with suppress(subprocess.CalledProcessError):
            _ip(*what)


def _ip(*arguments: str) -> None:
    program = shutil.which("ip") or "ip"
    subprocess.run([program, *arguments], check=True, capture_output=True, text=True)
