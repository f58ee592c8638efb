"""Ends a process at each of its writes in turn, for real, and looks at what it leaves.

Run as a program: `python -m tests.stores.crash SCENARIO FOLDER`. It prints at how many points a
process was ended. A write is cut in half, or is the last thing that is done.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path

from tests.soak.crash.sqlite_calls import wrap_sqlite_writes
from tests.stores.events import said
from tests.stores.folders import SESSION, append, dumped, holding, lines
from trimtab.engine.log.event import Event, MessageAdded
from trimtab.engine.window.checkpoint import Snapshot
from trimtab.stores.files import FileStore

HIDDEN = "hidden-word"
LARGE = (HIDDEN + " ") * 10_000
PAST = [said(1, "one", key="k1"), said(2, LARGE), said(3, "three", key="k3"), said(4, "y" * 99_999)]
NEW = [said(5, "five", key="k5"), said(6, LARGE + "!"), said(7, "seven", key="k7")]
WRITES = ("pwrite", "fsync", "ftruncate", "replace", "rename", "unlink", "mkdir", "rmdir")


@dataclass(frozen=True, kw_only=True)
class Scenario:
    prepare: Callable[[Path], None]
    """What is there before."""
    act: Callable[[FileStore], Awaitable[object]]
    """In the midst of which the process ends."""
    check: Callable[[Path], None]
    """What must hold of what it leaves."""


def without(event: Event) -> Event:
    if isinstance(event.body, MessageAdded) and HIDDEN in event.body.message.text:
        return replace(event, body=said(1, "[gone]").body)
    return event


def run(root: Path, act: Callable[[FileStore], Awaitable[object]]) -> object:
    async def go():
        store = FileStore(root)
        try:
            return await act(store)
        finally:
            await store.close()

    return asyncio.run(go())


def past(root: Path) -> None:
    append(root, PAST[:2], PAST[2:])


def kept_once(root: Path) -> None:
    past(root)
    run(root, lambda store: store.checkpoint(SESSION, Snapshot(seq=2)))


def torn(root: Path) -> None:
    past(root)
    with (root / SESSION / "events.jsonl").open("ab") as log:
        log.write(b'{"version":1,"seq":5} \n {"version":1,"se')
    (root / SESSION / "events.end").unlink()


def goes_on(root: Path, before: list[str]) -> None:
    """A log that can be read can be written."""
    event = said(len(before) + 1, "on")
    append(root, [event])
    assert lines(root) == [*before, *dumped(event)]


def find_keys(root: Path) -> dict[str, object]:
    return {key: run(root, lambda store, key=key: store.find_key(SESSION, key)) for key in KEYED}


KEYED = {"k1": 1, "k3": 3, "k5": 5, "k7": 7}


def old_or_new(root: Path) -> None:
    log_lines = lines(root)
    assert log_lines in (dumped(*PAST), dumped(*PAST, *NEW))
    keys = {key: seq if seq <= len(log_lines) else None for key, seq in KEYED.items()}
    assert find_keys(root) == keys
    goes_on(root, log_lines)
    assert find_keys(root) == keys


def nothing_or_new(root: Path) -> None:
    log_lines = lines(root)
    assert log_lines in ([], dumped(*PAST))
    goes_on(root, log_lines)


def snapshot_old_or_new(root: Path) -> None:
    assert lines(root) == dumped(*PAST)
    snapshot = run(root, lambda store: store.snapshot(SESSION))
    assert snapshot in (Snapshot(seq=2), Snapshot(seq=4))
    assert run(root, lambda store: store.snapshot(SESSION, upto=3)) == Snapshot(seq=2)
    goes_on(root, dumped(*PAST))
    assert find_keys(root) == {"k1": 1, "k3": 3, "k5": None, "k7": None}


def rewritten_or_not(root: Path) -> None:
    log_lines = lines(root)
    new = dumped(*map(without, PAST), said(5, "added"))
    assert log_lines in (dumped(*PAST), new)
    goes_on(root, log_lines)
    # Writing has ended what was left to do.
    assert bool(holding(root, HIDDEN)) == (log_lines != new)
    assert not (root / SESSION / "sweep").exists()
    assert not list(root.rglob("*.new"))
    assert find_keys(root) == {"k1": 1, "k3": 3, "k5": None, "k7": None}


def there_or_gone(root: Path) -> None:
    log_lines = lines(root)
    assert log_lines in ([], dumped(*PAST))
    goes_on(root, log_lines)
    run(root, lambda store: store.delete(SESSION))
    assert holding(root, HIDDEN) == []


def repaired(root: Path) -> None:
    assert lines(root)[:4] == dumped(*PAST)
    log_lines = lines(root)
    assert log_lines in (dumped(*PAST), dumped(*PAST, said(5)))
    goes_on(root, log_lines)
    assert b'{"version":1,"se' in (root / SESSION / "events.torn").read_bytes()


SCENARIOS = {
    "append": Scenario(
        prepare=past, act=lambda store: store.append(SESSION, NEW), check=old_or_new
    ),
    "begin": Scenario(
        prepare=lambda root: root.mkdir(),
        act=lambda store: store.append(SESSION, PAST),
        check=nothing_or_new,
    ),
    "checkpoint": Scenario(
        prepare=kept_once,
        act=lambda store: store.checkpoint(SESSION, Snapshot(seq=4)),
        check=snapshot_old_or_new,
    ),
    "rewrite": Scenario(
        prepare=kept_once,
        act=lambda store: store.rewrite(SESSION, [said(5, "added")], without),
        check=rewritten_or_not,
    ),
    "delete": Scenario(
        prepare=kept_once, act=lambda store: store.delete(SESSION), check=there_or_gone
    ),
    "repair": Scenario(
        prepare=torn, act=lambda store: store.append(SESSION, [said(5)]), check=repaired
    ),
}


def end_at(point: int, *, before: bool) -> None:
    """Have this process end at a write: in its midst, or right behind it."""
    countdown = [point]

    def wrapped(name, real):
        def call(*args, **kwargs):
            countdown[0] -= 1
            if countdown[0]:
                return real(*args, **kwargs)
            if not before:
                real(*args, **kwargs)
            elif name == "pwrite":
                real(args[0], args[1][: len(args[1]) // 2], args[2])
            os._exit(9)

        return call

    def at(_name, act, half):
        countdown[0] -= 1
        if countdown[0]:
            return act()
        if not before:
            act()
        elif half is not None:
            half()
        os._exit(9)

    for name in WRITES:
        setattr(os, name, wrapped(name, getattr(os, name)))
    wrap_sqlite_writes(at)


def ended(root: Path, scenario: Scenario, point: int, *, before: bool) -> bool:
    """Whether the process came as far as that point."""
    child = os.fork()
    if not child:
        end_at(point, before=before)
        status = 1
        try:
            run(root, scenario.act)
            status = 0
        finally:
            if status:
                traceback.print_exc()
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, 9), "it failed before it was ended"
    return status == 9


def main(name: str, folder: Path) -> int:
    scenario, points = SCENARIOS[name], 0
    scenario.prepare(folder / "base")
    for before in (True, False):
        point, is_reached = 0, True
        while is_reached:
            point += 1
            root = folder / "root"
            shutil.copytree(folder / "base", root)
            is_reached = ended(root, scenario, point, before=before)
            scenario.check(root)
            shutil.rmtree(root)
        points += point - 1
    return points


if __name__ == "__main__":
    print(main(sys.argv[1], Path(sys.argv[2])))  # noqa: T201 - its answer
