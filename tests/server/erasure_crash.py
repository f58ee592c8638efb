"""Ends a process at each of its writes while a message is erased, or a session deleted, for real.

Run as a program: `python -m tests.server.erasure_crash VERB FOLDER STEP`. It prints at how many
points a process was ended: each, or each so many. The word that is to go stands wherever
something of a session is kept.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from tests.server.queues import S, letter, reply
from tests.stores.crash import Scenario, ended
from tests.stores.folders import holding
from trimtab.log.message import Message, ToolCall, ToolResult, make_text_message
from trimtab.log.message import Text as Words
from trimtab.server import stored_session_erasure
from trimtab.server.queue.sqlite import SqliteMessageQueue
from trimtab.server.schedules.schedule import Schedule
from trimtab.server.schedules.sqlite import SqliteScheduleStore
from trimtab.server.schedules.tools import derive_schedule_number
from trimtab.server.schedules.triggers import parse_one_time_trigger
from trimtab.session import Session
from trimtab.stores.files import FileStore

WORD = "zq4711needle"
NAMED = "m2-m9"
CALL = "call"


async def furnish(root: Path) -> None:
    """A session, its mail and its schedules, all of which hold the word."""
    store = FileStore(root, fsync=False)
    mail = await SqliteMessageQueue.open(store, fsync=False)
    session = await Session.create(store, S, model="gpt-4o")
    epoch = await session.claim_turn()
    await session.add(make_text_message("user", f"{WORD} " * 10_000), key="a")
    handle = await session.add(
        Message(role="assistant", parts=(ToolCall(id=CALL, name="t", arguments=f'"{WORD}"'),))
    )
    key = f"{S}/{epoch}/{handle}.0/{CALL}"
    await session.record_tool_start(key)
    await session.add(
        Message(role="tool", parts=(ToolResult(call_id=CALL, content=(Words(text=WORD),)),))
    )
    last = await session.add(make_text_message("assistant", f"So it is {WORD}."))
    await session.checkpoint()
    await mail.post(letter("a", f"{WORD} as it came"))
    said = replace(reply(f"{S}/r1", seq=int(last[1:])), text=f"So it is {WORD}.")
    await mail.finish_turn(S, epoch, [], [said])
    await mail.post(letter("b", "of another", session="default/helper/two"))
    schedules = SqliteScheduleStore(mail)
    made = Schedule(
        id=f"{S}/{derive_schedule_number(key)}",
        session=S,
        message=f"Ask {WORD} again.",
        trigger=parse_one_time_trigger("2099-01-01 08:00", "UTC"),
        origin="tool",
        created_at=1.0,
        next_run_at=4e9,
    )
    await schedules.add(made, limit=20)
    for held in (mail, store):
        await held.close()


async def _start(root: Path) -> None:
    """What a server does when it takes up a folder."""
    store = FileStore(root)
    mail = await SqliteMessageQueue.open(store)
    await store.recover()
    assert [one.key for one in await mail.pending("default/helper/two")] == ["b"]
    for held in (mail, store):
        await held.close()


async def _erase(store: FileStore) -> None:
    await stored_session_erasure.erase_stored_message(str(store.root), store, S, NAMED, why="asked")


async def _delete(store: FileStore) -> None:
    await stored_session_erasure.delete_stored_session(str(store.root), store, S)


def _checked(act: Callable[[FileStore], Awaitable[None]]) -> Callable[[Path], None]:
    def check(root: Path) -> None:
        """The log is as it was, or the word is gone once somebody has taken up the folder."""
        log = root / S.replace("/", "%2F") / "events.jsonl"
        before = log.exists() and b"blobs" in log.read_bytes()
        asyncio.run(_start(root))
        if not before:
            assert holding(root, WORD) == []
        else:
            assert "events.jsonl" in holding(root, WORD)
        if log.exists():
            asyncio.run(_again(root, act))
        assert holding(root, WORD) == []

    return check


async def _again(root: Path, act: Callable[[FileStore], Awaitable[None]]) -> None:
    store = FileStore(root)
    await act(store)
    await store.close()


def _prepare(root: Path) -> None:
    asyncio.run(furnish(root))
    found = {*holding(root, WORD)}
    assert {"server.db", "events.jsonl"} < found, found


VERBS = {
    name: Scenario(prepare=_prepare, act=act, check=_checked(act))
    for name, act in (("erase", _erase), ("delete", _delete))
}


def main(verb: str, folder: Path, step: int) -> int:
    scenario, points = VERBS[verb], 0
    scenario.prepare(folder / "base")
    for first, before in ((1, True), (1 + step // 2, False)):
        point, reached = first, True
        while reached:
            root = folder / "root"
            shutil.copytree(folder / "base", root)
            reached = ended(root, scenario, point, before=before)
            scenario.check(root)
            shutil.rmtree(root)
            points, point = points + reached, point + step
    return points


if __name__ == "__main__":
    print(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))  # noqa: T201 - its answer
