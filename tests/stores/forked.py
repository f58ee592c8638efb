"""A process that forks while it has a store: a program, because a process with threads should not.

Run as `python -m tests.stores.forked SCENARIO KIND LOCATION`. It prints what it saw.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from tests.conversations import user
from trimtab.errors import SessionClosed, SessionLockedByOtherProcess
from trimtab.session import Session
from trimtab.stores import open_store
from trimtab.stores.base import Store
from trimtab.testing import MemoryStore

LONG = "long " * 300


def fork(act: Callable[[], object]) -> int:
    """Act in a forked process, whose status is 0 unless that raises."""
    child = os.fork()
    if child:
        return child
    try:
        act()
    except BaseException as error:  # noqa: BLE001 - the process ends here
        print(type(error).__name__, error, flush=True)
        os._exit(1)
    os._exit(0)


def wait_for(child: int) -> None:
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == 0, f"the forked process ended with {status}"


async def texts(store: Store, name: str) -> list[str]:
    session = await Session.open(store, name)
    return [logged.message.text[:6] async for logged in session.messages()]


def share_store(store: Store) -> None:
    """The fork has the store as another process has it, and not the session of its parent."""

    async def begin() -> Session:
        session = await Session.create(store, "s", model="gpt-4o")
        await session.add(user("before"))
        return session

    session = asyncio.run(begin())

    async def use_in_fork() -> None:
        try:
            await session.add(user("child " + LONG))
        except SessionClosed as refusal:
            print(str(refusal).replace(str(os.getppid()), "PARENT"), flush=True)
        await session.close()
        try:
            await (await Session.open(store, "s")).add(user("child "))
        except SessionLockedByOtherProcess:
            print("locked by the parent", flush=True)
        own = await Session.create(store, "own", model="gpt-4o")
        async with own.claim_turn(wait=0):
            await own.add(user("own"))
        print(await texts(store, "own"), flush=True)
        await own.close()

    wait_for(fork(lambda: asyncio.run(use_in_fork())))

    async def go_on() -> None:
        await session.add(user("parent"))
        print(await texts(store, "s"), flush=True)
        await session.close()

    asyncio.run(go_on())
    wait_for(fork(lambda: asyncio.run(add_when_free(store))))

    async def end() -> None:
        print(await texts(store, "s"), flush=True)
        await store.close()

    asyncio.run(end())


async def add_when_free(store: Store) -> None:
    async with await Session.open(store, "s") as session:
        await session.add(user("after"))


def outlive_parent(store: Store) -> None:
    """A fork that lives on holds neither the session nor the turn of a parent that was killed."""

    async def begin() -> None:
        await Session.create(store, "s", model="gpt-4o")
        await store.release("s")

    asyncio.run(begin())
    pipe, its_pipe = os.pipe()

    async def hold_and_die() -> NoReturn:
        async with store.hold_turn("s", wait=5):
            if not os.fork():
                os.close(its_pipe)
                with suppress(OSError):
                    os.read(pipe, 1)  # until the first process ends
                os._exit(0)
            os.kill(os.getpid(), 9)
        raise AssertionError

    child = fork(lambda: asyncio.run(hold_and_die()))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -9

    async def take_over() -> None:
        began = time.monotonic()
        async with store.hold_turn("s", wait=10):
            print("free", time.monotonic() - began < 8, flush=True)
        await store.close()

    asyncio.run(take_over())
    os.write(its_pipe, b".")


def open_place(kind: str, location: str) -> Store:
    return MemoryStore() if kind == "memory" else asyncio.run(open_store(location))


if __name__ == "__main__":
    scenario, kind, location = sys.argv[1:]
    {"share": share_store, "outlive": outlive_parent}[scenario](open_place(kind, location))
