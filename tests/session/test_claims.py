"""Requests for one session follow each other, and a turn does not outlive its process."""

import asyncio
import subprocess
import sys

import pytest
from psycopg import AsyncConnection

from tests.conversations import user
from tests.session.session_user import MODEL, bodies, options, reply, text
from trimtab.engine.log.event import MessageAdded, TurnProgressRecord
from trimtab.errors import SessionBusy
from trimtab.session import Session
from trimtab.session.turn import run_turn
from trimtab.testing import ScriptedProvider

pytestmark = pytest.mark.anyio

REQUESTS = 5
LONG_S = 60
"""Longer than anything here takes."""

HOLDER = """
import asyncio, sys
from trimtab import Session
from trimtab.stores import open_store

async def main():
    session = await Session.open(await open_store(sys.argv[1]), "s")
    async with session.claim_turn(wait=5):
        await session.add({"role": "user", "content": "From a process that is killed."})
        print("held", flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


async def open_often(place, count: int) -> list[Session]:
    """The session, opened by stores of their own."""
    store = await place.open()
    session = await Session.create(store, "s", **options(context_window=100_000))
    await session.close()
    return [await Session.open(await place.open(), "s") for _ in range(count)]


async def answer(session: Session, number: int) -> None:
    async with session.claim_turn(wait=LONG_S):
        await session.add(user(f"{number}"))
        await session.request()
        await asyncio.sleep(0.01)  # where others would come in
        await session.add(reply(number, text(f"{number}")))


async def list_turns(session: Session) -> list[str]:
    """The texts of the log, without those of the calls."""
    log = await bodies(session.store, "s")
    return [body.message.text for body in log if isinstance(body, MessageAdded)]


@pytest.mark.parametrize("objects", [REQUESTS, 1])
async def test_requests_that_claim_the_turn_follow_each_other(place, objects):
    sessions = await open_often(place, objects)
    await asyncio.gather(*(answer(sessions[n % objects], n) for n in range(REQUESTS)))
    said = await list_turns(sessions[0])
    assert said[::2] == said[1::2]  # each question has its own answer next
    assert sorted(said[::2]) == [str(number) for number in range(REQUESTS)]
    states = [
        b.state for b in await bodies(sessions[0].store, "s") if type(b) is TurnProgressRecord
    ]
    assert states == ["claimed", "ended"] * REQUESTS
    for session in sessions:
        await session.refresh()
        assert session.report().calls == REQUESTS
        await session.store.close()


async def test_tasks_with_one_object_have_their_turns_in_the_order_in_which_they_came(store):
    session = await Session.create(store, "s", **options(context_window=100_000))
    await asyncio.gather(*(answer(session, number) for number in range(REQUESTS)))
    assert (await list_turns(session))[::2] == [str(number) for number in range(REQUESTS)]


async def test_whoever_waits_in_vain_is_told_what_to_do(place):
    first, second = await open_often(place, 2)
    async with first.claim_turn():
        with pytest.raises(SessionBusy, match=r"turn of session 's'.* within 0\.1 seconds.*409"):
            async with second.claim_turn(wait=0.1):
                pytest.fail("two requests have the turn")
        with pytest.raises(SessionBusy):
            async with asyncio.timeout(LONG_S), second.claim_turn(wait=0):
                pytest.fail("two requests have the turn")
        await first.add(user("Still mine."))
    async with second.claim_turn(wait=0):
        await second.add(user("Now mine."))
    assert await list_turns(second) == ["Still mine.", "Now mine."]
    for session in (first, second):
        await session.store.close()


async def test_a_turn_that_fails_or_is_cancelled_is_free_again(place):
    first, second = await open_often(place, 2)
    with pytest.raises(ZeroDivisionError):
        async with first.claim_turn():
            raise ZeroDivisionError
    begun = asyncio.Event()

    async def wait_for_ever() -> None:
        async with first.claim_turn():
            begun.set()
            await asyncio.sleep(LONG_S)

    async def wait_in_line() -> None:
        async with second.claim_turn(wait=LONG_S):
            pytest.fail("it was cancelled")

    holding = asyncio.create_task(wait_for_ever())
    await begun.wait()
    waiting = asyncio.create_task(wait_in_line())
    await asyncio.sleep(0.1)
    waiting.cancel()
    holding.cancel()
    await asyncio.wait([waiting, holding])
    async with second.claim_turn(wait=LONG_S):
        await second.add(user("Mine."))
    for session in (first, second):
        await session.store.close()


async def test_a_loop_within_a_claim_does_not_wait_for_itself(store):
    session = await Session.create(store, "s", model=MODEL)
    async with session.claim_turn(wait=0):
        await session.add(user("Hello."))
        finished = await run_turn(session, ScriptedProvider("anthropic", ["Hi."]), wait=0)
        await session.add(user("And more."))
    assert (finished.reason, finished.calls) == ("done", 1)
    async with session.claim_turn(wait=0):
        pass


async def test_loops_for_one_session_answer_each_message_once(place):
    sessions = await open_often(place, 2)
    provider = ScriptedProvider("anthropic", ["One.", "Two."])
    runs = (run_turn(each, provider, [], message=user("Hello?")) for each in sessions)
    ends = await asyncio.gather(*runs)
    assert [end.reason for end in ends] == ["done", "done"]
    log = [b.message.role for b in await bodies(sessions[0].store, "s") if type(b) is MessageAdded]
    assert sorted(log)[-2:] == ["user", "user"]
    assert not (await Session.open(sessions[0].store, "s")).window.is_reply_due
    for session in sessions:
        await session.store.close()


@pytest.mark.process
@pytest.mark.parametrize("place", ["files", "postgres"], indirect=True)
async def test_a_turn_ends_with_its_killed_process(place):
    address = str(place.root) if place.name == "files" else place.conninfo
    [session] = await open_often(place, 1)
    command = [sys.executable, "-c", HOLDER, address]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:  # noqa: ASYNC220 - killed below
        assert holder.stdout is not None
        assert await asyncio.to_thread(holder.stdout.readline) == b"held\n"
        with pytest.raises(SessionBusy):
            async with session.claim_turn(wait=0.2):
                pytest.fail("two processes have the turn")
        provider = ScriptedProvider("anthropic", ["Hi."])
        waiting = asyncio.create_task(run_turn(session, provider, [], wait=LONG_S))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        holder.kill()
        assert (await waiting).reason == "done"
    assert await list_turns(session) == ["From a process that is killed.", "Hi."]
    await session.store.close()


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
async def test_a_turn_can_be_claimed_after_the_database_has_cut_its_connections(place):
    [session] = await open_often(place, 1)
    for _ in range(2):
        async with session.claim_turn(wait=0):
            async with await AsyncConnection.connect(place.conninfo) as connection:
                await connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND application_name = 'trimtab turns'"
                )
            await session.add(user("Still mine."))
    assert await list_turns(session) == ["Still mine.", "Still mine."]
    await session.store.close()
