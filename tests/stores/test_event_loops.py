"""A store that a module has, in a program whose threads have an event loop for each request."""

import asyncio

import pytest

from tests.conversations import user
from tests.stores.test_shared_lock import run_in_thread
from trimtab.errors import SessionBusy, StoreClosed
from trimtab.session import Session
from trimtab.session.turn import run_turn
from trimtab.testing import ScriptedProvider

CLICKS = 4


def close(store):
    asyncio.run(store.close())


def test_every_one_of_several_clicks_is_answered_in_an_event_loop_of_its_own(place):
    store = asyncio.run(place.open())

    async def answer(number):
        async with await Session.open_or_create(store, "chat", model="gpt-4o") as session:
            provider = ScriptedProvider("openai_chat", [f"reply {number}"], seed=str(number))
            message = user(f"question {number}")
            finished = await run_turn(
                session, provider, message=message, key=f"click {number}", wait=20
            )
            assert finished.text == f"reply {number}"

    for join in [run_in_thread(lambda number=number: answer(number)) for number in range(CLICKS)]:
        join()

    async def read():
        session = await Session.open(store, "chat")
        return [logged.message.text async for logged in session.messages()]

    texts = asyncio.run(read())
    assert sorted(texts[::2]) == [f"question {number}" for number in range(CLICKS)]
    assert [text.replace("question", "reply") for text in texts[::2]] == texts[1::2]
    close(store)


def test_one_session_object_is_used_in_several_event_loops(place):
    store = asyncio.run(place.open())
    session = asyncio.run(Session.create(store, "chat", model="gpt-4o"))

    async def add(number):
        await session.add(user(f"{number}"))

    for join in [run_in_thread(lambda number=number: add(number)) for number in range(CLICKS)]:
        join()

    async def read():
        return sorted([logged.message.text async for logged in session.messages()])

    assert asyncio.run(read()) == [str(number) for number in range(CLICKS)]
    asyncio.run(session.close())
    close(store)


def test_a_turn_in_another_event_loop_is_refused_when_the_wait_is_over(place):
    store = asyncio.run(place.open())

    async def hold():
        async with store.hold_turn("chat", wait=0):
            await asyncio.to_thread(run_in_thread(refuse))

    async def refuse():
        with pytest.raises(SessionBusy):
            async with store.hold_turn("chat", wait=0.05):
                pass

    async def begin():
        await Session.create(store, "chat", model="gpt-4o")

    asyncio.run(begin())
    run_in_thread(hold)()
    asyncio.run(store.release("chat"))
    close(store)


def test_a_store_that_is_closed_takes_no_event(place):
    if place.name == "memory":
        pytest.skip("nothing of it is closed")
    store = asyncio.run(place.open())

    async def add():
        session = await Session.create(store, "chat", model="gpt-4o")
        await store.close()
        with pytest.raises(StoreClosed, match="the store is closed; open it again"):
            await session.add(user("late"))

    asyncio.run(add())


@pytest.mark.postgres
def test_a_shared_pool_of_another_event_loop_is_refused_with_the_remedy(migrated):
    psycopg_pool = pytest.importorskip("psycopg_pool")
    from trimtab.stores.postgres import PostgresStore

    async def use():
        async with psycopg_pool.AsyncConnectionPool(migrated, min_size=1, open=False) as pool:
            store = await PostgresStore.connect(pool)

            async def use_elsewhere():
                with pytest.raises(RuntimeError, match="open the store with the address"):
                    await store.position("chat")

            await asyncio.to_thread(run_in_thread(use_elsewhere))
            assert await store.position("chat") == 0

    asyncio.run(use())
