"""Many people who write to an agent at once, each the next message when the last was answered."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from itertools import groupby, pairwise
from statistics import quantiles

from trimtab.engine.log.event import MessageAdded
from trimtab.engine.log.message import make_text_message
from trimtab.errors import SessionNotFound
from trimtab.stores.base import Store
from trimtab_serve.queue.messages import InboundMessage, OutboundMessage, ReplyRoute
from trimtab_serve.service.replies import extract_assistant_text

CHANNEL = "phone"
ASKS = "Question"
"""What each message begins with, and nothing else that is said."""
POSTERS = 8
"""Messages that are handed in side by side."""
STUCK = 60.0
"""Seconds without any reply after which nothing more is waited for."""
TENANTS = 8

Post = Callable[[str, str, str], Awaitable[object]]
"""Hands in a session, a key and a text."""


def question(session: str, number: int) -> str:
    """About 300 characters, of which no two are the same."""
    return f"{ASKS} {number} of {session}: what is in the file? " + "Look closely, please. " * 12


def names(count: int) -> list[str]:
    """Sessions of a few tenants."""
    return [f"tenant{n % TENANTS}/helper/s{n:05}" for n in range(count)]


def inbound(session: str, key: str, text: str) -> InboundMessage:
    route = ReplyRoute(channel=CHANNEL, address={"number": session})
    message = make_text_message("user", text)
    return InboundMessage(session=session, message=message, key=key, at=time.time(), route=route)


class Talk:
    """All of them, and what they have got."""

    def __init__(self, sessions: Sequence[str], post: Post) -> None:
        self.sessions = sessions
        self.waits = array("d")
        """Seconds from a message to its reply, in the order of the replies."""
        self.turns = array("d")
        """Seconds that turns took by themselves."""
        self.counts = Counter[str]()
        """`doubled` and `out_of_order` as they were seen from outside, and `again`, marked."""
        self.asked = dict.fromkeys(sessions, 0)
        """Messages that each has sent."""
        self._post = post
        self._left: dict[str, int] = {}
        self._since: dict[str, float] = {}
        self._next: deque[str] = deque()
        self._more = asyncio.Semaphore(0)
        self._answered = asyncio.Event()
        self._got: dict[str, int] = {}
        self._keys: set[str] = set()

    async def round(self, turns: int) -> float:
        """Each has so many turns; returns the seconds until the last reply."""
        self._left = dict.fromkeys(self.sessions, turns)
        posting = [asyncio.create_task(self._posting()) for _ in range(POSTERS)]
        begun = time.perf_counter()
        for session in self.sessions:
            self._says(session)
        try:
            while self._left and not any(task.done() for task in posting):
                self._answered.clear()
                async with asyncio.timeout(STUCK):
                    await self._answered.wait()
        except TimeoutError:
            self._left.clear()
        finally:
            for task in posting:
                task.cancel()
            ends = await asyncio.gather(*posting, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception):
                raise end
        return time.perf_counter() - begun

    def arrived(self, session: str, key: str, seq: int, attempts: int, took: float) -> None:
        """A reply has come out."""
        self._answered.set()
        if key in self._keys:
            self.counts["again" if attempts else "doubled"] += 1
            return
        self._keys.add(key)
        self.counts["out_of_order"] += seq <= self._got.get(session, 0)
        self._got[session] = seq
        if session in self._since:
            self.waits.append(time.perf_counter() - self._since.pop(session))
            self.turns.append(took)
        if self._left.get(session):
            self._left[session] -= 1
            if self._left[session]:
                self._says(session)
            else:
                del self._left[session]

    def got(self, reply: OutboundMessage, took: float) -> None:
        """The same, from a channel."""
        self.arrived(reply.session, reply.key, reply.seq, reply.attempts, took)

    def _says(self, session: str) -> None:
        self._next.append(session)
        self._more.release()

    async def _posting(self) -> None:
        while True:
            await self._more.acquire()
            session = self._next.popleft()
            number = self.asked[session]
            self.asked[session] += 1
            self._since[session] = time.perf_counter()
            await self._post(session, f"k{number}", question(session, number))


async def judged(store: Store, asked: dict[str, int]) -> Counter[str]:
    """`lost`, `doubled` and `out_of_order` by the logs, once each session has had its say."""
    found = Counter[str]()
    for session, count in asked.items():
        keys: list[int] = []
        order: list[str] = []
        try:
            async for event in store.events(session):
                if not isinstance(event.body, MessageAdded):
                    continue
                if event.body.key is not None:
                    keys.append(int(event.body.key.removeprefix("k")))
                    order.append("asked")
                elif extract_assistant_text(event.body.message):
                    order.append("answered")
        except SessionNotFound:
            found["lost"] += count
            continue
        runs = [(who, len([*run])) for who, run in groupby(order)]
        unanswered = runs[-1][1] if runs and runs[-1][0] == "asked" else 0
        found["lost"] += count - len({*keys}) + unanswered
        found["doubled"] += len(keys) - len({*keys})
        found["doubled"] += sum(length - 1 for who, length in runs if who == "answered")
        found["out_of_order"] += sum(one >= other for one, other in pairwise(keys))
    return found


def spread(seconds: Sequence[float]) -> tuple[float, float]:
    """The median and the 99th of a hundred, in milliseconds."""
    parts = quantiles(seconds, n=100) if len(seconds) > 1 else [0.0] * 99
    return round(1000 * parts[49], 1), round(1000 * parts[98], 1)
