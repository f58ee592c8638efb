"""Turns that ran when an earlier process of the folder vanished."""

from __future__ import annotations

import pytest

from tests.serve.queue.queues import Files
from tests.serve.service.served_agents import SESSION, Gated, inbound, served, until
from trimtab_serve.queue.protocol import MAX_INTERRUPTIONS
from trimtab_serve.queue.sqlite.interrupted_turns import InterruptedTurns

pytestmark = pytest.mark.anyio

TWO = "default/helper/two"


async def vanish(folder, *sessions, ended=()):
    """A process in which these turns run, and some of them end, and which is gone then."""
    _, queue = await Files(folder).open()
    turns = await InterruptedTurns.open(queue, folder)
    for session in sessions:
        turns.begin(session)
    for session in ended:
        turns.end(session)
    turns.close()
    await queue.close()
    return turns


async def post(folder, *sessions):
    _, queue = await Files(folder).open()
    for session in sessions:
        await queue.post(inbound("Hello.", key="k", session=session))
    await queue.close()


async def test_only_turns_that_ran_when_the_process_vanished_are_counted(tmp_path):
    await post(tmp_path, SESSION, TWO, "default/helper/waits")
    await vanish(tmp_path, TWO, SESSION, ended=[TWO])
    turns = await vanish(tmp_path)
    assert turns.times == {SESSION: 1}
    assert (await vanish(tmp_path)).times == {SESSION: 1}  # an incident counts once


async def test_a_turn_that_ran_at_three_ends_in_a_row_is_exhausted(tmp_path):
    await post(tmp_path, SESSION)
    for _ in range(MAX_INTERRUPTIONS):
        turns = await vanish(tmp_path, SESSION)
        assert turns.exhausted == []
    assert (await vanish(tmp_path)).exhausted == [SESSION]
    # It was not running this time, so it is not abandoned again if somebody revives it.
    assert (await vanish(tmp_path)).exhausted == []


@pytest.mark.parametrize("how", ["answered", "revived", "forgotten"])
async def test_a_count_ends_with_its_reason(tmp_path, how):
    await post(tmp_path, SESSION)
    await vanish(tmp_path, SESSION)
    assert (await vanish(tmp_path)).times == {SESSION: 1}
    store, queue = await Files(tmp_path).open()
    match how:
        case "answered":
            [waiting] = await queue.pending(SESSION)
            await queue.finish_turn(SESSION, 0, [waiting.number], [])
        case "revived":
            await queue.revive(SESSION)
        case _:
            await queue.forget_session(SESSION)
    await queue.close()
    await store.close()
    assert (await vanish(tmp_path)).times == {}


async def test_interrupted_turns_run_one_at_a_time_beside_all_others(tmp_path):
    sessions = [f"evil/helper/s{number}" for number in range(4)] + ["acme/helper/s"]
    await post(tmp_path, *sessions)
    await vanish(tmp_path, *sessions)
    store, queue = await Files(tmp_path).open()
    interrupted = await InterruptedTurns.open(queue, tmp_path)
    provider = Gated(*["Hi."] * 9)
    begin, begun = interrupted.begin, []

    def noted(session):
        if session in interrupted.times:
            begun.append(session)
        begin(session)

    interrupted.begin = noted
    house = served(provider=provider, queue=queue, store=store, runs={"interrupted": interrupted})
    await house.turns.resume_waiting()
    await house.say("New.", key="new", session="default/helper/new")
    await until(lambda: len(provider.begun) == 2)
    assert sorted(provider.waiting) == ["Hello.", "New."]
    assert house.turns.running_count == 2
    provider.open.set()
    await house.turns.wait_until_idle()
    assert sorted(begun) == sorted(sessions)
    assert begun.index("acme/helper/s") == 2  # tenants take turns
    house.turns.close()
    await queue.close()
    await store.close()
    assert (await vanish(tmp_path)).times == {}


async def test_the_file_of_running_turns_names_no_session_and_does_not_grow(tmp_path):
    await post(tmp_path, SESSION)
    _, queue = await Files(tmp_path).open()
    turns = await InterruptedTurns.open(queue, tmp_path)
    for number in range(100):
        turns.begin(SESSION)
        turns.begin(f"default/helper/{number}")
        turns.end(SESSION)
        turns.end(f"default/helper/{number}")
    content = (tmp_path / ".server" / "running").read_bytes()
    assert content == bytes(len(content))
    assert len(content) == 32
    turns.begin(SESSION)
    assert b"helper" not in (tmp_path / ".server" / "running").read_bytes()
    turns.close()
    await queue.close()
