"""Who watches in one process hears what happens in another."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest
from psycopg import AsyncConnection

from tests.serve.queue.postgres.workers import PATIENCE, until
from trimtab.engine.log.message import make_text_message
from trimtab.session.events import AssistantReplied, TextDelta, TurnFinished
from trimtab_serve.service.events import postgres_notify
from trimtab_serve.service.events.bus import EventsMissed
from trimtab_serve.service.events.postgres_notify import NOTIFY_CHANNEL, PostgresEventBus

pytestmark = pytest.mark.anyio

ONE, OTHER = "default/helper/one", "default/helper/other"
END = TurnFinished(reason="done", calls=1)


@asynccontextmanager
async def live(conninfo, **own):
    """One process's part, at work."""
    made = PostgresEventBus(conninfo, flush_interval_s=0.01, **own)
    task = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        task.cancel()
        await asyncio.wait([task])


async def heard(queue, last=END):
    """What a watcher hears until the end, without the word that something may be missing."""
    found = []
    async with asyncio.timeout(PATIENCE):
        while not found or found[-1] != last:
            one = await queue.get()
            if one != EventsMissed():
                found.append(one)
    return found


async def reaches(teller, queue):
    """Until what one tells is heard by the other: it must first be known that somebody watches."""

    def told():
        teller.publish(ONE, TextDelta(kind="thinking", text="?"))
        return any(isinstance(queue.get_nowait(), TextDelta) for _ in range(queue.qsize()))

    await until(told)
    teller.publish(ONE, TurnFinished(reason="stopped", calls=0))
    await heard(queue, TurnFinished(reason="stopped", calls=0))


async def test_pieces_and_the_end_come_over_and_what_is_in_the_log_is_only_pointed_at(conninfo):
    async with live(conninfo) as here, live(conninfo) as there:
        with here.subscribe(ONE) as queue:
            await reaches(there, queue)
            for text in ("Good ", "day"):
                there.publish(ONE, TextDelta(kind="text", text=text))
            there.publish(
                ONE,
                AssistantReplied(message=make_text_message("assistant", "Good day"), usage=None),
            )
            there.publish(ONE, END)
            async with asyncio.timeout(PATIENCE):
                found = [await queue.get() for _ in range(3)]
            assert found == [TextDelta(kind="text", text="Good day"), EventsMissed(), END]


async def test_a_long_piece_arrives_whole(conninfo):
    text = "ü\u0000\U0001f600" * 9_000
    async with live(conninfo) as here, live(conninfo) as there:
        with here.subscribe(ONE) as queue:
            await reaches(there, queue)
            there.publish(ONE, TextDelta(kind="text", text=text))
            there.publish(ONE, END)
            *pieces, _ = await heard(queue)
            assert len(pieces) > 1
            assert "".join(piece.text for piece in pieces) == text


async def test_what_nobody_watches_is_not_sent(conninfo):
    async with (
        live(conninfo) as here,
        live(conninfo) as there,
        await AsyncConnection.connect(conninfo, autocommit=True) as spy,
    ):
        with here.subscribe(ONE) as queue:
            await reaches(there, queue)
            await spy.execute(f"LISTEN {NOTIFY_CHANNEL}".encode())
            there.publish(OTHER, TextDelta(kind="text", text="unheard"))
            there.publish(ONE, END)
            assert await heard(queue) == [END]
        async for note in spy.notifies(timeout=PATIENCE):
            assert "unheard" not in note.payload
            if '"turn.finished"' in note.payload:
                break


async def test_own_watchers_hear_at_once_and_once(conninfo):
    async with live(conninfo) as here, live(conninfo) as there:
        with here.subscribe(ONE) as own, there.subscribe(ONE) as far:
            await reaches(here, far)
            while not own.empty():
                own.get_nowait()
            here.publish(ONE, END)
            assert own.get_nowait() == END
            await heard(far)
            assert own.empty()


async def test_a_watcher_whose_connection_was_lost_is_told_to_read_the_log_and_hears_again(
    conninfo,
):
    async with live(conninfo) as here, live(conninfo) as there:
        with here.subscribe(ONE) as queue:
            await reaches(there, queue)
            await cut(conninfo)
            async with asyncio.timeout(PATIENCE):
                while await queue.get() != EventsMissed():
                    pass
            await reaches(there, queue)


async def cut(conninfo):
    """The server drops all who listen."""
    query = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    async with await AsyncConnection.connect(conninfo) as connection:
        await connection.execute(query.encode())


async def test_a_turn_of_another_process_is_asked_to_stop(conninfo):
    stopped: list[str] = []
    async with live(conninfo) as here, live(conninfo) as there:
        with here.subscribe(ONE) as queue:
            await reaches(there, queue)
            there.on_stop_requested = stopped.append
            here.request_stop(ONE)
            await until(lambda: stopped)
            assert stopped == [ONE]


async def test_of_what_waits_for_the_database_only_the_newest_is_kept(conninfo, monkeypatch):
    monkeypatch.setattr(postgres_notify, "MAX_PENDING_PAYLOADS", 10)
    stopped: list[str] = []
    away = PostgresEventBus(conninfo, flush_interval_s=0.01)
    for number in range(100):
        away.request_stop(f"{ONE}{number}")
    async with live(conninfo) as there:
        there.on_stop_requested = stopped.append
        with there.subscribe(ONE) as queue:
            async with live(conninfo) as other:
                await reaches(other, queue)  # by now it listens
            task = asyncio.create_task(away.run())
            await until(lambda: stopped)
            await until(lambda: stopped[-1] == f"{ONE}99")
            task.cancel()
            await asyncio.wait([task])
    assert len(stopped) <= 10


async def test_a_note_that_cannot_be_read_is_passed_over(conninfo):
    async with live(conninfo) as here, live(conninfo) as there:
        with here.subscribe(ONE) as queue:
            await reaches(there, queue)
            async with await AsyncConnection.connect(conninfo, autocommit=True) as other:
                for note in ("{", "[]", '{"from": "x", "events": [{"type": "later release"}]}'):
                    await other.execute("SELECT pg_notify(%s, %s)", [NOTIFY_CHANNEL, note])
            there.publish(ONE, END)
            assert (await heard(queue))[-1] == END
