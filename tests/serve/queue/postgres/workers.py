"""Members of a fleet: in this process, or as `python -m tests.serve.queue.postgres.workers` in
another.

Their model answers at once. Where it is told to `hold`, it does when there is a file named `go`, or
so with the member's name. Where it is told to `stall` or to `die`, its process does. What it is
asked is noted in a file, so that another process sees it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import warm
from tests.serve.service.served_agents import agent, inbound
from trimtab.engine.log.event import MessageAdded
from trimtab.engine.log.message import Text
from trimtab.session.tools import Tool
from trimtab.stores.postgres import PostgresStore
from trimtab.testing import ScriptedProvider
from trimtab_serve.process.heartbeat import WorkerPoolTimings
from trimtab_serve.process.worker_pool import WorkerPool
from trimtab_serve.queue.messages import OutboundMessage
from trimtab_serve.queue.postgres.queue import PostgresMessageQueue
from trimtab_serve.service.events.bus import LocalEventBus
from trimtab_serve.service.service import AgentService

PACE = WorkerPoolTimings(
    heartbeat_s=0.2, takeover_after_s=1.5, poll_s=0.2, shutdown_grace_s=5, restart_delay_s=0.2
)
PATIENCE = 30.0


class Holding:
    """Answers with its own name; waits where it is told to."""

    dialect = "anthropic"

    def __init__(self, name: str, folder: Path, script: Sequence[Any] = ()) -> None:
        self._name = name
        self._folder = folder
        self._inner = ScriptedProvider("anthropic", [*script, *[f"I am {name}."] * 10_000])

    async def send(self, request: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        said = _newest(request)
        with (self._folder / "asked").open("a") as asked:
            asked.write(f"{self._name}: {said}\n")
        if said.startswith("die"):
            os.kill(os.getpid(), signal.SIGKILL)
        if said.startswith("stall"):
            time.sleep(2 * PACE.takeover_after_s)  # noqa: ASYNC251 - the loop is to stand still
        if said.startswith("hold"):
            await until(self._may_go)
        async for event in self._inner.send(request):
            yield event

    def _may_go(self) -> bool:
        return any((self._folder / file).exists() for file in ("go", f"go.{self._name}"))

    async def close(self) -> None:
        pass


@dataclass
class Member:
    """A part of the fleet in this process."""

    service: AgentService
    queue: PostgresMessageQueue
    fleet: WorkerPool
    task: asyncio.Task[None]

    async def say(self, text: str, *, key: str = "", session: str = "default/helper/one") -> bool:
        return await self.service.post(inbound(text, key=key or text, session=session))

    async def texts(self, session: str = "default/helper/one") -> list[str]:
        """What was said, in the order of the log."""
        return [
            part.text
            async for event in self.service.store.events(session)
            if isinstance(event.body, MessageAdded)
            for part in event.body.message.parts
            if isinstance(part, Text)
        ]

    async def sent(self) -> list[OutboundMessage]:
        """The replies that are to leave, all of them, as if each had arrived."""
        found: list[OutboundMessage] = []
        while replies := await self.queue.lease_replies(["phone"], limit=100, lease_s=60):
            for reply in replies:
                found.append(reply)
                await self.queue.mark_delivered(reply.number)
        return found

    async def quiet(self) -> None:
        """Until no message waits and no job is left."""
        manager = self.queue.job_queue.app.job_manager

        async def done() -> bool:
            return not await self.queue.depth() and not [*await manager.list_jobs_async()]

        await until(done)


@asynccontextmanager
async def member(
    conninfo: str,
    folder: Path,
    *,
    name: str = "one",
    script: Sequence[Any] = (),
    tools: Sequence[Tool] = (),
    pace: WorkerPoolTimings = PACE,
    fleet: Mapping[str, Any] | None = None,
    run: bool = True,
    provider: Any = None,
    **session: Any,
) -> AsyncGenerator[Member]:
    """A member that works for the length of the block."""
    store, queue = (
        await PostgresStore.connect(conninfo),
        await PostgresMessageQueue.connect(conninfo),
    )
    answering = agent(provider or Holding(name, folder, script), store, tools=tools, **session)
    service = AgentService(
        agents={"helper": answering}, store=store, queue=queue, event_bus=LocalEventBus()
    )
    made = WorkerPool(service, queue, timings=pace, **(fleet or {}))
    task = asyncio.create_task(made.run() if run else asyncio.sleep(0))
    try:
        yield Member(service=service, queue=queue, fleet=made, task=task)
    finally:
        if run and not task.done():
            await made.drain(1)
        await task
        await service.close()
        await store.close()


async def until(condition: Callable[[], Any]) -> None:
    """Wait for something to come true; fails when it does not."""
    async with asyncio.timeout(PATIENCE):
        while True:
            found = condition()
            if await found if asyncio.iscoroutine(found) else found:
                return
            await asyncio.sleep(0.02)


def asked(folder: Path) -> list[str]:
    """What models were asked: who, and the newest word."""
    file = folder / "asked"
    return file.read_text().splitlines() if file.exists() else []


@contextmanager
def other(
    conninfo: str, folder: Path, name: str, *, before: Sequence[str] = ()
) -> Generator[subprocess.Popen[str]]:
    """A member in a process of its own, which works when this begins."""
    command = [
        *before,
        sys.executable,
        "-m",
        "tests.serve.queue.postgres.workers",
        conninfo,
        str(folder),
        name,
    ]
    here = Path(__file__).parents[4]
    sources = (here / "packages").glob("*/src")
    path = os.pathsep.join(map(str, (here, *sources)))
    with warm.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=here, env={**os.environ, "PYTHONPATH": path}
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "working\n"
            yield process
        finally:
            process.kill()


def _newest(request: Mapping[str, Any]) -> str:
    content = request["messages"][-1]["content"]
    if isinstance(content, str):
        return content
    return next((part["text"] for part in reversed(content) if "text" in part), "")


async def _main(conninfo: str, folder: str, name: str) -> None:
    logging.basicConfig(filename=Path(folder) / f"{name}.log", level=logging.INFO)
    async with member(conninfo, Path(folder), name=name, on_message="queue") as working:
        sys.stdout.write("working\n")
        sys.stdout.flush()
        await working.task


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
