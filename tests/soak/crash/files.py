"""Kills of a process that writes to files: at each of its writes, and at random moments."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import progress
from tests.soak.crash.ledger import Ledgers
from tests.soak.crash.look import Open, copy_of, looked, prepared
from tests.soak.crash.points import Points, modes_of
from tests.soak.crash.writer import LARGE, Process, Tell, create, lead, told
from trimtab.engine.log.event import Event, MessageAdded, Size
from trimtab.engine.log.message import make_text_message
from trimtab.session import Session
from trimtab.stores.base import Store
from trimtab.stores.files import FileStore

NAME = "led"
TURNS = 6
LIVES = 25
"""Kills at random moments of one session, until it is long enough."""


def files(root: Path, *, fsync: bool) -> Open:
    async def opened() -> Store:
        return FileStore(root, fsync=fsync)

    return opened


async def past(store: Store) -> None:
    """What is there before: some turns, with large texts, snapshots, an erasure and keys."""
    session = await create(store, NAME)
    for number in range(1, TURNS):
        await lead(session, number)
    await session.close()


async def turn(store: Store) -> None:
    await lead(await Session.open(store, NAME), TURNS)


async def batch(store: Store) -> None:
    """Events of one append, with a large text and a key among them."""
    first = await store.position(NAME) + 1
    texts = ("one", "x y " * (LARGE // 4), "three", "four", "five")
    await store.append(NAME, [_said(first + index, text) for index, text in enumerate(texts)])


def _said(seq: int, text: str) -> Event:
    size = Size(bytes=len(text), tokens=len(text) // 4)
    message = make_text_message("user", f"{seq} {text}")
    return Event(seq=seq, at=1.0, body=MessageAdded(message=message, sizes=(size,), key=f"k{seq}"))


async def checkpoint(store: Store) -> None:
    await (await Session.open(store, NAME)).recorder.checkpoint()


async def erase(store: Store) -> None:
    await (await Session.open(store, NAME)).erase("m2", reason="asked")


async def fork(store: Store) -> None:
    await (await Session.open(store, NAME)).fork("forked")


async def begin(store: Store) -> None:
    await lead(await create(store, "begun"), 1)


async def delete(store: Store) -> None:
    await store.delete(NAME)


async def repair(store: Store) -> None:
    """The first write to a log with a torn tail cuts that off; see `tear`."""
    await (await Session.open(store, NAME)).add({"role": "user", "content": "On."})


def tear(root: Path) -> None:
    folder = root / NAME
    seq = (folder / "events.jsonl").read_bytes().count(b"\n") + 1
    with (folder / "events.jsonl").open("ab") as log:
        log.write(b'{"version":1,"seq":%d} \n {"version":1,"se' % seq)
    (folder / "events.end").unlink()


ACTS: dict[str, Callable[[Store], Awaitable[None]]] = {
    act.__name__: act for act in (begin, turn, batch, checkpoint, erase, fork, delete, repair)
}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a session stands ready, to be copied for each kill."""

    folder: Path
    fsync: bool
    ledgers: Ledgers

    @property
    def root(self) -> Path:
        return self.folder / "now"

    def store(self) -> Open:
        return files(self.root, fsync=self.fsync)

    def fresh(self, act: str = "") -> Ledgers:
        """What was before, again."""
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(self.folder / "past", self.root)
        if act == "repair":
            tear(self.root)
        return copy_of(self.ledgers)


def ready(folder: Path, *, fsync: bool) -> Place:
    folder.mkdir()
    return Place(folder, fsync, prepared(files(folder / "past", fsync=fsync), past))


def kill_points(place: Place) -> Iterator[tuple[str, int, str]]:
    """Every act, every write of it, every way to end there."""
    for act, perform in ACTS.items():
        place.fresh(act)
        names: list[str] = []

        async def run(tell: Tell, perform: Callable[[Store], Awaitable[None]] = perform) -> None:
            points = Points()
            points.install()
            store = await place.store()()
            await perform(store)
            tell({"names": points.seen})

        process = Process(run)
        for said in process.hear():
            names = said["names"]
        process.end()
        for point, name in enumerate(names, 1):
            for mode in modes_of(name):
                yield act, point, mode


def at_point(place: Place, act: str, point: int, mode: str) -> Counter[str]:
    """Kill a process there, and look at what it leaves."""
    ledgers = place.fresh(act)

    async def run(tell: Tell) -> None:
        Points(point, mode).install()
        await ACTS[act](told(await place.store()(), tell))

    process = Process(run)
    for said in process.hear():
        ledgers.hear(said)
    out = Counter(kills=int(process.end() != 0), missed=0)
    out["missed"] = 1 - out["kills"]
    return +out + looked(place.store(), ledgers, point)


def at_random(place: Place, kills: int, pick: random.Random) -> Counter[str]:
    """Kill a process that leads a session on, again and again in the same one."""
    out, ledgers = Counter[str](), Ledgers()
    for number in range(kills):
        progress(f"files, fsync {place.fsync}: kill {number + 1} of {kills} at random moments")
        if number % LIVES == 0:
            ledgers = place.fresh()
        out += killed(place.store(), ledgers, number, pick.expovariate(1 / 0.06))
    return out


def killed(
    open_store: Open,
    ledgers: Ledgers,
    number: int,
    after: float,
    settled: Callable[[], None] = lambda: None,
) -> Counter[str]:
    """Kill a process so many seconds after its first acknowledged write, and look."""

    async def run(tell: Tell) -> None:
        store = told(await open_store(), tell)
        session = await Session.open(store, NAME)
        for index in range(1_000):
            await lead(session, 1_000 * (number + 1) + index)

    process = Process(run)
    for said in process.hear():
        ledgers.hear(said)
        if "ack" in said:
            break
    for said in process.hear(after):
        ledgers.hear(said)
    process.kill()
    for said in process.hear():
        ledgers.hear(said)
    process.end()
    settled()
    return Counter(kills=1) + looked(open_store, ledgers, number)
