"""A process that writes to a store and tells, over a pipe, what it tries and what was acknowledged.

It is forked from one that has never touched a store, and ends by SIGKILL or by itself. What it
tells before a write may be there afterwards; what it tells after the write returned must be.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import sys
import time
import traceback
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, cast

from trimtab.engine.log.event import Event, dump_event_line
from trimtab.session import Session
from trimtab.stores.base import Store

LIMIT = 12_000
"""Tokens of a request, so that there is much to hide."""
LARGE = 70_000
"""Characters of a result that is kept outside of its event."""

Tell = Callable[[dict[str, Any]], None]
_write = os.write
"""The real one, whatever is put in its place."""


class Told:
    """A store whose writes are told."""

    def __init__(self, store: Store, tell: Tell) -> None:
        self._store = store
        self._tell = tell

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def append(
        self, session: str, events: Sequence[Event], *, epoch: int | None = None
    ) -> None:
        self._tell({"try": session, "lines": [dump_event_line(event) for event in events]})
        await self._store.append(session, events, epoch=epoch)
        self._tell({"ack": session})

    async def rewrite(
        self, session: str, events: Sequence[Event], change: Callable[[Event], Event]
    ) -> None:
        log = [dump_event_line(change(event)) async for event in self._store.events(session)]
        self._tell({"try": session, "log": log + [dump_event_line(event) for event in events]})
        await self._store.rewrite(session, events, change)
        self._tell({"ack": session})

    async def delete(self, session: str) -> None:
        self._tell({"try": session, "log": []})
        await self._store.delete(session)
        self._tell({"ack": session})


def told(store: Store, tell: Tell) -> Store:
    return cast("Store", Told(store, tell))


async def create(store: Store, name: str) -> Session:
    return await Session.create(
        store, name, model="gpt-4o", policy="layered", max_input_tokens=LIMIT
    )


def steps(session: Session, number: int) -> Iterator[Callable[[], Awaitable[Any]]]:
    """A turn, step by step; each may be done again after an error and is then done once."""
    ids = [f"c{number}.{index}" for index in range(2)]
    calls = [
        {"id": name, "type": "function", "function": {"name": "look", "arguments": "{}"}}
        for name in ids
    ]
    user = {"role": "user", "content": f"Question {number}. " + "What is it? " * 30}
    handles: list[str] = []

    async def ask() -> None:
        handles.append(await session.add(user, key=f"u{number}"))

    yield ask
    yield session.request
    called = {"role": "assistant", "content": f"Looking {number}", "tool_calls": calls}
    yield lambda: session.add(_reply(f"r{number}.1", called))
    for index, name in enumerate(ids):
        size = LARGE if index and number % 3 == 0 else 900
        text = f"Result {number}.{index} " + "x y " * (size // 4)
        result = {"role": "tool", "tool_call_id": name, "content": text}
        yield lambda name=name, result=result: session.add(result, key=name)
    yield session.request
    answer = {"role": "assistant", "content": f"Answer {number}. " + "It is. " * 40}
    yield lambda: session.add(_reply(f"r{number}.2", answer))
    if number % 4 == 1:
        yield session.recorder.checkpoint
    if number % 4 == 3:
        yield lambda: session.erase(handles[-1], reason="asked")


async def lead(session: Session, number: int) -> None:
    for step in steps(session, number):
        await step()


def _reply(name: str, said: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": name,
        "object": "chat.completion",
        "model": "gpt-4o",
        "choices": [{"index": 0, "finish_reason": "stop", "message": said}],
        "usage": {"prompt_tokens": 900, "completion_tokens": 90},
    }


class Process:
    """A forked process that runs an async function, and what it tells."""

    def __init__(self, run: Callable[[Tell], Awaitable[None]]) -> None:
        self._read, write = os.pipe()
        sys.stdout.flush()
        self.pid = os.fork()
        if not self.pid:
            os.close(self._read)
            os._exit(_run(run, write))
        os.close(write)
        self._rest = b""
        self._heard = deque[bytes]()

    def hear(self, timeout: float | None = None) -> Iterator[dict[str, Any]]:
        """What it tells, until it ends or for so many seconds."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            while self._heard:
                yield json.loads(self._heard.popleft())
            left = None if end is None else max(end - time.monotonic(), 0)
            if not select.select([self._read], [], [], left)[0]:
                return
            data = os.read(self._read, 1 << 20)
            if not data:
                return
            # A line that was cut short tells of nothing: neither had its write begun, if it was to
            # announce one, nor is an acknowledgement one that nobody heard.
            *lines, self._rest = (self._rest + data).split(b"\n")
            self._heard.extend(lines)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def end(self) -> int:
        """Wait for its end: 0, or the signal, negative. All it told must have been heard."""
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self._read)
        if status not in (0, -signal.SIGKILL):
            raise RuntimeError(f"a process that was to write or to look ended with {status}")
        return status


def _run(run: Callable[[Tell], Awaitable[None]], pipe: int) -> int:
    def tell(what: dict[str, Any]) -> None:
        data = json.dumps(what).encode() + b"\n"
        while data:
            data = data[_write(pipe, data) :]

    async def whole() -> None:
        await run(tell)

    try:
        asyncio.run(whole())
    except BaseException:  # noqa: BLE001 - the process ends here, whatever it was
        traceback.print_exc()
        return 1
    return 0
