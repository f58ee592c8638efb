"""Whether those who follow a session see each event once, however they read.

A real server on files with a simulated provider behind it. Many follow a few sessions at the same
time while turns with replies in small pieces run in them: some read as fast as they can, some
slowly, some drop their connection again and again and come back with the id of the last event they
have. In the end each reader's stream is compared with the log and with the replies as they stand
there.

gaps     events of the log that a reader did not get, and replies whose pieces lack something
repeats  events of the log that a reader got twice, and pieces that came twice
late     readers that had not come to the end within a minute of it

All must be 0.
"""

from __future__ import annotations

import asyncio
import random
import re
import sys
import tempfile
import time
from collections import Counter
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.harness import Report, progress, run
from benchmarks.http_served import Server, served
from trimtab_serve.client import Client, RemoteSession, StreamEvent

SEED = 11
FIGURES = ("gaps", "repeats", "late")
PATIENCE = 60.0
HABITS = ("steady", "slow", "dropping", "dropping")
"""How readers read, one after the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    streams: int
    sessions: int
    turns: int
    words: int
    """Of each reply."""


FULL = Size(streams=500, sessions=25, turns=6, words=120)
QUICK = Size(streams=60, sessions=6, turns=3, words=80)


@dataclass
class Reader:
    """One who follows."""

    session: RemoteSession
    habit: str
    dice: random.Random
    turns: int
    events: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Kind and id of those that stand in the log."""
    replies: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Of each reply its pieces and its text."""
    drops: int = 0
    ends: int = 0
    _after: str | None = "0"
    _pieces: str = ""
    _places: set[str] = field(default_factory=set[str])
    repeats: int = 0

    async def run(self) -> None:
        """Read until all turns have ended."""
        while self.ends < self.turns:
            left = self.dice.randint(1, 12) if self.habit == "dropping" else None
            async with aclosing(self.session.follow_events(self._after)) as events:
                async for event in events:
                    self._take(event)
                    if self.ends == self.turns:
                        return
                    if self.habit == "slow":
                        await asyncio.sleep(0.05)
                    left = None if left is None else left - 1
                    if left == 0:
                        break
            self.drops += 1

    def _take(self, event: StreamEvent) -> None:
        self._after = event.id or self._after
        if event.kind == "message.delta":
            self.repeats += str(event.id) in self._places
            self._places.add(str(event.id))
            self._pieces += event.data["text"]
            return
        if event.kind == "turn.started" or event.data.get("outcome", "ok") != "ok":
            self._pieces = ""
        if event.kind == "message" and event.data["role"] == "assistant":
            self.replies.append((self._pieces, event.data["text"]))
            self._pieces = ""
        # Of a usage that comes while pieces do, the place names these as well.
        self.events.append((event.kind, str(event.id).partition(".")[0]))
        self.ends += event.kind == "turn.finished"


def judged(reader: Reader, truth: list[tuple[str, str]]) -> Counter[str]:
    seen = Counter(reader.events)
    out = Counter[str]()
    out["gaps"] += sum((Counter(truth) - seen).values())
    out["repeats"] += sum((seen - Counter(truth)).values()) + reader.repeats
    out["gaps"] += reader.events != truth and not out["gaps"] and not out["repeats"]
    for pieces, text in reader.replies:
        # Who comes when a reply is there gets it as one.
        if pieces and pieces != text:
            out["repeats" if len(pieces) > len(text) else "gaps"] += 1
    in_pieces = sum(bool(pieces) for pieces, _ in reader.replies)
    out["in_pieces"] += in_pieces
    out["replies"] += len(reader.replies)
    if reader.habit == "steady":
        # Of the others many come, or come back, when the reply is there.
        out["steady"] += len(reader.replies)
        out["steady_in_pieces"] += in_pieces
    return out


async def talk(session: RemoteSession, size: Size) -> None:
    """All turns of a session, one after the other."""
    for number in range(size.turns):
        await session.ask(f'simulate: {{"text": {size.words + number}, "pace": 0.02}}')


async def follow_all(server: Server, size: Size) -> dict[str, Any]:
    dice = random.Random(SEED)  # noqa: S311 - to be repeated
    async with Client(server.url, key=server.key, timeout=120.0) as client:
        sessions = [await client.create_session("helper", f"s{n}") for n in range(size.sessions)]
        readers = [
            Reader(
                session=sessions[number % size.sessions],
                habit=HABITS[number // size.sessions % len(HABITS)],
                dice=random.Random(dice.random()),  # noqa: S311 - to be repeated
                turns=size.turns,
            )
            for number in range(size.streams)
        ]
        reading = [asyncio.create_task(reader.run()) for reader in readers]
        while await open_streams(server) < size.streams:  # noqa: ASYNC110 - nobody signals it
            await asyncio.sleep(0.2)
        begun = time.monotonic()
        talking = [asyncio.create_task(talk(session, size)) for session in sessions]
        for number, each in enumerate(asyncio.as_completed(talking)):
            await each
            progress(f"{number + 1} of {size.sessions} sessions have ended")
        _, late = await asyncio.wait(reading, timeout=PATIENCE)
        for task in late:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)
        seconds = time.monotonic() - begun
        out = Counter[str](late=len(late))
        truths = {session.name: await truth_of(session, size) for session in sessions}
        for reader, task in zip(readers, reading, strict=True):
            if task not in late:
                task.result()
                out += judged(reader, truths[reader.session.name])
    return {
        "sample": f"{size.streams} streams on {size.sessions} sessions, {size.turns} turns each, "
        f"seed {SEED}",
        **{name: out[name] for name in FIGURES},
        "events": sum(len(reader.events) for reader in readers),
        "replies": out["replies"],
        "replies_in_pieces": out["in_pieces"],
        "steady_in_pieces": round(out["steady_in_pieces"] / max(1, out["steady"]), 2),
        "drops": sum(reader.drops for reader in readers),
        "seconds": round(seconds, 1),
    }


async def open_streams(server: Server) -> int:
    """How many the server has, by its own figures."""
    async with Client(server.url, key=server.metrics_key) as client:
        figures = await client.metrics()
    told = re.search(r"^trimtab_\w*streams_open (\S+)$", figures, re.MULTILINE)
    return int(float(told[1])) if told is not None else 0


async def truth_of(session: RemoteSession, size: Size) -> list[tuple[str, str]]:
    """The events of the log, as somebody sees them who comes when all is over."""
    reader = Reader(session=session, habit="steady", dice=random.Random(0), turns=size.turns)  # noqa: S311 - unused
    await asyncio.wait_for(reader.run(), PATIENCE)
    return reader.events


def main(quick: bool) -> Report:
    size = QUICK if quick else FULL
    with tempfile.TemporaryDirectory() as folder, served(Path(folder)) as server:
        report = asyncio.run(follow_all(server, size))
        faults = [str(fault)[:600] for fault in server.faults]
    broken = [f"{name} is {report[name]}" for name in FIGURES if report[name]]
    if report["steady_in_pieces"] < 0.05:
        broken.append("hardly a reply was seen while it was written: that shows nothing")
    return {**report, "broken": [*broken, *faults]}


if __name__ == "__main__":
    sys.exit(run(__doc__, main, ("starlette", "uvicorn", "httpx2")))
