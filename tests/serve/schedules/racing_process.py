"""A process that runs what is due, to race with others or to be killed: see `main`."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

from tests.serve.schedules.places import AGENTS, Files, Postgres, run
from trimtab_serve.queue.messages import InboundMessage
from trimtab_serve.schedules import store


def tell(word: object) -> None:
    """Let whoever has started this process read it."""
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def stop(word: str) -> None:
    """Tell that a point is reached, and wait for the end."""
    tell(word)
    while True:
        signal.pause()


async def killed_before_the_message(where: str, now: float) -> None:
    class Stopping(Postgres):
        def check(self, inbound: InboundMessage) -> None:
            stop("claimed")

    async with Stopping(where).open() as schedules:
        await schedules.run_next_due(now, AGENTS)


async def killed_behind_the_message(where: str, now: float) -> None:
    def never(*_: Any) -> None:
        stop("posted")

    # The message is in the transaction; that it ran is not yet.
    store.record_runs = never
    async with Files(Path(where)).open() as schedules:
        await schedules.run_next_due(now, AGENTS)


async def race(where: str, now: float) -> None:
    place = Postgres(where)
    async with place.open() as schedules:
        tell("ready")
        await asyncio.to_thread(sys.stdin.readline)
        count = 0
        for minute in range(1, 21):
            count += await run(schedules, now + 60 * minute + 1)
        tell(count)


def main() -> None:
    what, where, now = sys.argv[1:]
    verbs = {
        "claimed": killed_before_the_message,
        "posted": killed_behind_the_message,
        "race": race,
    }
    asyncio.run(verbs[what](where, float(now)))


if __name__ == "__main__":
    main()
