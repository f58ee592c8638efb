"""Ends a process at each of its writes while a message, a session or a user is erased, for real.

Run as a program: `python -m tests.serve.forgetting.erasure_crash VERB FOLDER STEP`. It prints at
how many points a process was ended: each, or each so many. The word that is to go stands wherever
something of a session is kept.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from tests.serve.queue.queues import S, inbound, reply
from tests.stores.crash import Scenario, ended
from tests.stores.folders import holding
from trimtab.engine.log.event import MessageAdded
from trimtab.engine.log.message import Message, ToolCall, ToolResult, make_text_message
from trimtab.engine.log.message import Text as Words
from trimtab.session import Session
from trimtab.stores.files import FileStore
from trimtab_serve.forgetting import stored_sessions
from trimtab_serve.queue.messages import OutboundMessage
from trimtab_serve.queue.sqlite.queue import SqliteMessageQueue
from trimtab_serve.schedules.schedule import Schedule
from trimtab_serve.schedules.store import ScheduleStore
from trimtab_serve.schedules.tools import derive_schedule_number
from trimtab_serve.schedules.triggers import parse_one_time_trigger
from trimtab_serve.service.erasure_records import FileErasureRecords
from trimtab_serve.service.sender import with_sender

WORD = "zq4711needle"
KEPT = "kept-of-bob"
USER, GROUP = "telegram:4711", "default/helper/telegram:-5"
NAMED = "m2-m9"
CALL = "call"


async def furnish(root: Path) -> None:
    """A session, its queue and its schedules, all of which hold the word."""
    store = FileStore(root, fsync=False)
    queue = await SqliteMessageQueue.open(store, fsync=False)
    session = await Session.create(store, S, model="gpt-4o")
    epoch = await session.recorder.claim()
    await session.add(make_text_message("user", f"{WORD} " * 10_000), key="a")
    handle = await session.add(
        Message(role="assistant", parts=(ToolCall(id=CALL, name="t", arguments=f'"{WORD}"'),))
    )
    key = f"{S}/{epoch}/{handle}.0/{CALL}"
    await session.recorder.record_tool_start(key)
    await session.add(
        Message(role="tool", parts=(ToolResult(call_id=CALL, content=(Words(text=WORD),)),))
    )
    last = await session.add(make_text_message("assistant", f"So it is {WORD}."))
    await session.recorder.checkpoint()
    await queue.post(inbound("a", f"{WORD} as it came"))
    answer = replace(reply(f"{S}/r1", seq=int(last[1:])), text=f"So it is {WORD}.")
    await queue.finish_turn(S, epoch, [], [answer])
    await queue.post(inbound("b", "of another", session="default/helper/two"))
    schedules = ScheduleStore(queue.transactions)
    schedule = Schedule(
        id=f"{S}/{derive_schedule_number(key)}",
        session=S,
        message=f"Ask {WORD} again.",
        trigger=parse_one_time_trigger("2099-01-01 08:00", "UTC"),
        origin="tool",
        created_at=1.0,
        next_run_at=4e9,
    )
    await schedules.add(schedule, limit=20)
    for store_or_queue in (queue, store):
        await store_or_queue.close()


async def furnish_user(root: Path) -> None:
    """A chat that is the user's own, and a group in which others speak as well."""
    store = FileStore(root, fsync=False)
    queue = await SqliteMessageQueue.open(store, fsync=False)
    own_session = f"default/helper/{USER}"
    session = await Session.create(store, own_session, model="gpt-4o")
    for message in (make_text_message("user", f"{WORD} " * 10_000), _of(USER, WORD)):
        await session.add(message)
        await session.add(make_text_message("assistant", f"So it is {WORD}."))
    await session.recorder.checkpoint()
    await (await session.fork("default/helper/a-copy")).close()
    group = await Session.create(store, GROUP, model="gpt-4o")
    for message in (_of("bob", KEPT), _of(USER, f"{WORD} " * 10_000), _of("bob", KEPT)):
        await group.add(message)
        answer = WORD if WORD in message.text else KEPT
        last = await group.add(make_text_message("assistant", f"So it is {answer}."))
        await queue.finish_turn(GROUP, 99, [], [_reply_at(last, answer)])
    await group.recorder.checkpoint()
    for session_id, key, message in (
        (own_session, "a", _of(USER, WORD)),
        (GROUP, "c", _of(USER, WORD)),
        (GROUP, "d", _of("bob", KEPT)),
    ):
        await queue.post(replace(inbound(key, session=session_id), message=message))
        # Nobody will take it: what waits for a turn would be waited for.
        newest = (await queue.pending(session_id))[-1]
        await queue.dead_letter_session(newest, None, f"Broken: {WORD}")
    await queue.post(inbound("b", "of another", session="default/helper/two"))
    for store_or_queue in (queue, store):
        await store_or_queue.close()


def _of(user: str, text: str) -> Message:
    return with_sender(make_text_message("user", text), user)


def _reply_at(handle: str, text: str) -> OutboundMessage:
    outbound = reply(f"{GROUP}/{handle}", session=GROUP, seq=int(handle[1:]))
    return replace(outbound, text=f"So it is {text}.")


async def _start(root: Path) -> None:
    """What a server does when it takes up a folder."""
    store = FileStore(root)
    queue = await SqliteMessageQueue.open(store)
    await store.recover()
    assert [one.key for one in await queue.pending("default/helper/two")] == ["b"]
    for store_or_queue in (queue, store):
        await store_or_queue.close()


async def _erase(store: FileStore) -> None:
    await stored_sessions.erase_stored_message(str(store.root), store, S, NAMED, why="asked")


async def _delete(store: FileStore) -> None:
    await stored_sessions.delete_stored_session(str(store.root), store, S)


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


async def _erase_user(store: FileStore) -> None:
    await stored_sessions.erase_stored_data(str(store.root), store, "default", USER, lambda _: None)


def _check_user(root: Path) -> None:
    """Whatever was left, the same call again finds it, and nothing of others is gone."""
    asyncio.run(_start(root))
    asyncio.run(_again(root, _erase_user))
    assert holding(root, WORD) == []
    assert holding(root, USER) == []
    asyncio.run(_look_at_group(root))


async def _look_at_group(root: Path) -> None:
    store = FileStore(root)
    queue = await SqliteMessageQueue.open(store)
    texts = [
        event.body.message.text
        async for event in store.events(GROUP)
        if isinstance(event.body, MessageAdded)
    ]
    assert texts == [KEPT, f"So it is {KEPT}.", "[erased]", "[erased]", KEPT, f"So it is {KEPT}."]
    assert [one.message.text for one in await queue.pending(GROUP)] == ["[erased]", KEPT]
    records = FileErasureRecords(root)
    newest, *_ = await records.newest("default")
    assert newest.outcome == "done"
    assert [job.state for job in await records.list_jobs() if job.finished_at is None] == []
    for store_or_queue in (queue, store):
        await store_or_queue.close()


def _prepare_user(root: Path) -> None:
    asyncio.run(furnish_user(root))
    assert {"server.db", "events.jsonl"} < {*holding(root, WORD)}


def _prepare(root: Path) -> None:
    asyncio.run(furnish(root))
    file_names = {*holding(root, WORD)}
    assert {"server.db", "events.jsonl"} < file_names, file_names


VERBS = {
    name: Scenario(prepare=_prepare, act=act, check=_checked(act))
    for name, act in (("erase", _erase), ("delete", _delete))
} | {"user": Scenario(prepare=_prepare_user, act=_erase_user, check=_check_user)}


def main(verb: str, folder: Path, step: int) -> int:
    scenario, points = VERBS[verb], 0
    scenario.prepare(folder / "base")
    for first, before in ((1, True), (1 + step // 2, False)):
        point, is_reached = first, True
        while is_reached:
            root = folder / "root"
            shutil.copytree(folder / "base", root)
            is_reached = ended(root, scenario, point, before=before)
            scenario.check(root)
            shutil.rmtree(root)
            points, point = points + is_reached, point + step
    return points


if __name__ == "__main__":
    print(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))  # noqa: T201 - its answer
