"""A process that serves from files and is killed: `python -m tests.serve.service.killed_process
URL`.

It reads one life a line, JSON, and forks for each, so that what is imported is imported once. A
life takes up what the one before has left, posts the messages it is handed, and ends when all is
answered and delivered, or by SIGKILL at a chosen write to the disk, tool or delivery.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.serve.service.served_agents import MODEL, PHONE, inbound, served
from tests.session.turns.sessions import definition
from tests.soak.crash.points import Points, die
from trimtab.providers.anthropic import AnthropicProvider
from trimtab.session import Session
from trimtab.session.tools import Tool, ToolInvocation
from trimtab.session.turn import run_turn
from trimtab.stores.files import FileStore
from trimtab.testing import MemoryStore
from trimtab_serve.queue.messages import OutboundMessage
from trimtab_serve.queue.sqlite.queue import SqliteMessageQueue
from trimtab_serve.service.delivery import ReplyDelivery

LAST_WORD = Points()
"""For a life that ends with its first delivery."""


class Outside:
    """What cannot be taken back: what tools have done, and what has left; a line each."""

    def __init__(self, root: Path, points: Points) -> None:
        self._points = points
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._done = os.open(root / "done", flags, 0o666)
        self._got = os.open(root / "got", flags, 0o666)

    async def act(self, asked: ToolInvocation) -> str:
        self._note("tool", self._done, asked.key)
        return "done"

    async def deliver(self, reply: OutboundMessage) -> None:
        self._note("channel", self._got, [reply.session, reply.key, reply.attempts, reply.text])
        if self._points is LAST_WORD:
            die()  # it has arrived, and nobody knows

    def _note(self, name: str, file: int, what: object) -> None:
        line = f"{json.dumps(what)}\n".encode()
        self._points.at(name, lambda: os.write(file, line), None)


async def live(
    root: Path,
    url: str,
    messages: Sequence[Sequence[str]],
    points: Points,
    tell: Callable[..., Any],
) -> None:
    """One life."""
    outside = Outside(root, points)
    tool = Tool(definition=definition("act"), run=outside.act)
    store = FileStore(root / "sessions")
    queue = await SqliteMessageQueue.open(store)
    provider = AnthropicProvider(api_key="test", base_url=url)
    house = served(store=store, queue=queue, provider=provider, tools=[tool])
    delivery = ReplyDelivery(queue, {PHONE.channel: outside.deliver})
    queue.on_replies = delivery.wake
    sending = asyncio.create_task(delivery.run(poll_s=60))
    await house.turns.resume_waiting()
    for session, key, text in messages:
        await house.service.post(inbound(text, key=key, session=session))
        tell("kept", session, key)
    await house.turns.wait_until_idle()
    while await queue.count_waiting_replies():  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(0.005)
    sending.cancel()
    await asyncio.wait([sending])
    await house.service.close()
    await store.close()
    await provider.close()
    tell("quiet")


async def warm_up(url: str) -> None:
    """What the SDK imports and builds at its first call, once for all lives."""
    provider = AnthropicProvider(api_key="warm", base_url=url)
    session = await Session.create(MemoryStore(), "warm", model=MODEL, dialect="anthropic")
    await run_turn(session, provider, message={"role": "user", "content": "Hello."})
    await provider.close()


def main() -> None:
    def tell(*words: str) -> None:
        os.write(1, f"{json.dumps(words)}\n".encode())

    asyncio.run(warm_up(sys.argv[1]))
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if not child:
            points = (
                LAST_WORD if order["mode"] == "channel" else Points(order["point"], order["mode"])
            )
            points.install()
            asyncio.run(live(Path(order["root"]), order["url"], order["messages"], points, tell))
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        tell("ended", str(status))


if __name__ == "__main__":
    main()
