"""Ends a process at each write of the SQLite queue, for real, and looks at what it leaves.

Run as a program: `python -m tests.serve.queue.queue_crash FOLDER STEP`. It prints at how many
writes a process was ended: at each, or each so many. What it was told of before is there, once and
in order; what it was doing is done or is not.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

from tests.serve.queue.queues import S, claimed, give_up, inbound, keys, numbers, reply
from tests.soak.crash.points import MODES, Points
from tests.stores.folders import holding
from trimtab.stores.files import FileStore
from trimtab_serve.queue.sqlite.queue import SqliteMessageQueue

T = "default/helper/two"
WORD = "zq4711needle"
LARGE = f"{WORD} " * 2_000
"""More than a page, so that what is deleted is not all in one place."""
TOLD = "told"
"""The file that says how many steps were acknowledged."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What an onlooker sees of a queue."""

    one: tuple[str, ...] = ()
    """Keys that wait in the first session."""
    two: tuple[str, ...] = ()
    """Keys that wait in the second."""
    replies: tuple[str, ...] = ()
    """Keys of replies that wait, in order."""
    dead: tuple[str, ...] = ()
    """Sessions that were given up."""


Step = tuple[Callable[[SqliteMessageQueue], Awaitable[object]], Seen]
"""What is done, and what is to be seen after it."""


async def _finish(queue: SqliteMessageQueue, count: int, *names: str) -> None:
    replies = [reply(f"{S}/{name}", seq=number) for number, name in enumerate(names, 1)]
    await queue.finish_turn(S, 1, (await numbers(queue))[:count], replies)


async def _deliver(queue: SqliteMessageQueue) -> None:
    (leased_reply,) = await queue.lease_replies(["phone"], limit=1, lease_s=60)
    await queue.mark_delivered(leased_reply.number)


async def _refuse(queue: SqliteMessageQueue) -> None:
    (leased_reply,) = await queue.lease_replies(["phone"], limit=1, lease_s=60)
    await queue.mark_undeliverable(leased_reply.number, "blocked")


async def _post_together(queue: SqliteMessageQueue) -> None:
    await asyncio.gather(*(queue.post(inbound(key, session=T)) for key in ("x", "y", "z")))


STEPS: list[Step] = [
    (lambda queue: queue.post(inbound("a", LARGE)), Seen(one=("a",))),
    (lambda queue: queue.post(inbound("b")), Seen(one=("a", "b"))),
    (
        lambda queue: queue.post(inbound("w", LARGE, session=T)),
        Seen(one=("a", "b"), two=("w",)),
    ),
    (
        lambda queue: _finish(queue, 1, "r1", "r2"),
        Seen(one=("b",), two=("w",), replies=("r1", "r2")),
    ),
    (_deliver, Seen(one=("b",), two=("w",), replies=("r2",))),
    (_post_together, Seen(one=("b",), two=("w", "x", "y", "z"), replies=("r2",))),
    (
        lambda queue: give_up(queue, T, f"ProviderError: {WORD}"),
        Seen(one=("b",), two=("w", "x", "y", "z"), replies=("r2",), dead=(T,)),
    ),
    (
        lambda queue: _finish(queue, 1, "r3"),
        Seen(two=("w", "x", "y", "z"), replies=("r2", "r3"), dead=(T,)),
    ),
    (
        lambda queue: queue.erase_messages(T, [], ["w"]),
        Seen(two=("w", "x", "y", "z"), replies=("r2", "r3"), dead=(T,)),
    ),
    (
        lambda queue: queue.revive(T),
        Seen(two=("w", "x", "y", "z"), replies=("r2", "r3")),
    ),
    (_refuse, Seen(two=("w", "x", "y", "z"), replies=("r3",), dead=(S,))),
    (lambda queue: queue.forget_session(T), Seen(replies=("r3",), dead=(S,))),
    (lambda queue: queue.forget_session(S), Seen()),
]
ERASED = 9
"""The step after which no file may hold the word: the first session's row of it is long gone."""


async def live(root: Path, told: Callable[[int], object]) -> None:
    """All steps, one after the other."""
    store = FileStore(root)
    queue = await SqliteMessageQueue.open(store)
    # So that the log is copied into the database again and again.
    queue.database._writer.execute("PRAGMA wal_autocheckpoint=8")  # pyright: ignore[reportAttributeAccessIssue]
    for number, (act, _) in enumerate(STEPS, 1):
        await act(queue)
        told(number)
    await queue.close()
    await store.close()


async def _look(root: Path) -> Seen:
    """What is there, as whoever serves next finds it; replies are taken out on the way."""
    store = FileStore(root)
    queue = await SqliteMessageQueue.open(store)
    # Those of the second come together, in whatever order.
    one, two = await keys(queue), sorted(await keys(queue, T))
    dead = tuple(page.session for page in await queue.list_dead_letters())
    replies: list[str] = []
    while page := await queue.lease_replies(["phone"], limit=10, lease_s=60):
        replies.extend(each.key.removeprefix(f"{S}/") for each in page)
        for each in page:
            await queue.mark_delivered(each.number)
    for key in one:
        assert not await queue.post(inbound(key)), f"{key} was kept twice"
    assert await queue.post(inbound("new"))
    assert (await keys(queue))[-1] == "new"
    await queue.close()
    await store.close()
    return Seen(one=tuple(one), two=tuple(two), replies=tuple(replies), dead=dead)


def check(root: Path) -> None:
    """What was told is there; the step that was under way is done or is not."""
    path = root / TOLD
    step_count = len(path.read_bytes())
    if step_count >= ERASED:
        assert holding(root, WORD) == [], f"after {step_count} steps"
    states = [Seen(), *(state_of_step for _, state_of_step in STEPS)]
    states_allowed = states[step_count : step_count + 2]
    if STEPS[step_count : step_count + 1] and STEPS[step_count][0] is _post_together:
        # Each is kept or is not.
        few = [("w", *each) for count in (1, 2) for each in combinations("xyz", count)]
        states_allowed += [replace(states_allowed[0], two=two) for two in few]
    state = asyncio.run(_look(root))
    assert state in states_allowed, (step_count, state, states_allowed)
    if state != states[step_count] and step_count + 1 >= ERASED:
        # It is known as erased, so whoever has opened it has made it true.
        assert holding(root, WORD) == [], f"in the midst of step {step_count + 1}"


def ended(root: Path, point: int, mode: str) -> bool:
    """Whether a process came as far as that write."""
    child = os.fork()
    if not child:
        status = 1
        try:
            note = os.open(root / TOLD, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            Points(point, mode).install()
            asyncio.run(live(root, lambda number: os.write(note, bytes([number]))))
            status = 0
        finally:
            if status:
                traceback.print_exc()
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, -signal.SIGKILL), "it failed before it was killed"
    return status == -signal.SIGKILL


async def _prepare(root: Path) -> None:
    store = FileStore(root, fsync=False)
    await claimed(store, S)
    await claimed(store, T)
    await store.close()


def main(folder: Path, step: int) -> int:
    """At how many points a process was killed."""
    asyncio.run(_prepare(folder / "base"))
    points, point, is_reached = 0, 1, True
    while is_reached:
        mode = MODES[(point // step) % len(MODES)] if step > 1 else None
        for each in (mode,) if mode is not None else MODES:
            root = folder / "root"
            shutil.copytree(folder / "base", root)
            is_reached = ended(root, point, each)
            check(root)
            shutil.rmtree(root)
            points += is_reached
        point += step
    return points


if __name__ == "__main__":
    print(main(Path(sys.argv[1]), int(sys.argv[2])))  # noqa: T201 - its answer
