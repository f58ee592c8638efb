"""The sign that the bot is writing, while a turn runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from trimtab.session.happenings import Ended
from trimtab.worker.live import Heard
from trimtab.worker.service import Service

Show = Callable[[int], Awaitable[None]]
"""Shows the sign in a channel, for ten seconds."""

LONGEST = 600.0
"""Seconds that the sign is shown at most for one message."""
SOON = 5.0
"""Seconds that it stays behind a turn's end, until the reply is there."""

log = logging.getLogger("trimtab.discord")


class Indicator:
    """Signs by session, at most one each."""

    def __init__(self, service: Service, show: Show, *, every: float) -> None:
        self._service = service
        self._show = show
        self._every = every
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._sent: dict[str, asyncio.Event] = {}

    def begin(self, session: str, channel: int) -> None:
        """A message waits; show it until its turn is over."""
        if session in self._tasks:
            return
        self._sent[session] = asyncio.Event()
        task = asyncio.create_task(self._run(session, channel), name=f"typing in {channel}")
        self._tasks[session] = task
        task.add_done_callback(lambda _: self._ended(session))

    def replied(self, session: str) -> None:
        """A reply has left."""
        if session in self._sent:
            self._sent[session].set()

    async def close(self) -> None:
        """Show nothing any more."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, session: str) -> None:
        del self._tasks[session], self._sent[session]

    async def _run(self, session: str, channel: int) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + LONGEST
        try:
            with self._service.live.watch(session) as heard:
                while loop.time() < until:
                    await self._show(channel)
                    if await self._over(session, heard):
                        # Of messages that came meanwhile another turn is made.
                        if not await self._service.mail.pending(session, limit=1):
                            return
                        self._sent[session].clear()
        except Exception as error:  # noqa: BLE001 - a sign is a courtesy
            log.debug("typing in %d ended: %r", channel, error)

    async def _over(self, session: str, heard: asyncio.Queue[Heard]) -> bool:
        """Whether the turn was over before the sign must be shown again."""
        sent = asyncio.create_task(self._sent[session].wait())
        ended = asyncio.create_task(_until_ended(heard))
        try:
            done, _ = await asyncio.wait(
                (sent, ended), timeout=self._every, return_when=asyncio.FIRST_COMPLETED
            )
            if ended in done and sent not in done:
                await asyncio.wait((sent,), timeout=min(SOON, self._every))
            return bool(done)
        finally:
            for task in (sent, ended):
                task.cancel()
            await asyncio.gather(sent, ended, return_exceptions=True)


async def _until_ended(heard: asyncio.Queue[Heard]) -> None:
    while not isinstance(await heard.get(), Ended):
        pass
