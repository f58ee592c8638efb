"""Positions are taken once, and a turn has one owner."""

import asyncio

import pytest

from tests.conversations import user
from tests.session.failing_stores import Wrapped
from tests.session.session_user import Worker, bodies, options, text
from trimtab.engine.log.event import (
    CallOutcome,
    MessageAdded,
    TurnProgressRecord,
    dump_canonical_json,
)
from trimtab.errors import DuplicateIdempotencyKey, StaleOwner
from trimtab.session import Session

pytestmark = pytest.mark.anyio

WRITERS, EACH = 10, 8


async def opened(place) -> list[Session]:
    """Ten sessions that are one: of a store object each, but on files, where one process writes
    and holds the session's lock."""
    store = await place.open()
    await Session.create(store, "s", **options(context_window=100_000))
    own = place.name != "files"
    stores = [await place.open() if own else store for _ in range(WRITERS)]
    return [await Session.open(each, "s") for each in stores]


async def close(sessions: list[Session]) -> None:
    for store in {id(session.store): session.store for session in sessions}.values():
        await store.close()


async def test_ten_writers_lose_nothing_and_all_read_one_order(place):
    sessions = await opened(place)

    async def write(writer: int) -> list[str]:
        session = sessions[writer]
        words = [f"{writer} says {number}" for number in range(EACH)]
        return [await session.add(user(each), key=each) for each in words]

    handles = await asyncio.gather(*map(write, range(WRITERS)))
    given = {handle for each in handles for handle in each}
    assert len(given) == WRITERS * EACH
    log = [event async for event in sessions[0].store.events("s")]
    assert [event.seq for event in log] == list(range(1, len(log) + 1))
    said = [event.body.message.text for event in log if isinstance(event.body, MessageAdded)]
    for writer in range(WRITERS):
        own = [words for words in said if words.startswith(f"{writer} ")]
        assert own == [f"{writer} says {n}" for n in range(EACH)]
    assert len(said) == WRITERS * EACH
    for session in sessions:
        await session.refresh()
        assert [entry.message.text for entry in session.window.entries.values()] == said
    await close(sessions)


async def test_ten_who_ask_at_once_each_send_what_the_log_says_they_sent(place):
    sessions = await opened(place)
    await sessions[0].add(user("Go."))

    async def ask(number: int) -> tuple[int, str]:
        await sessions[number].add(user(f"{number}"))
        request = await sessions[number].request(volatile=f"by {number}")
        call = sessions[number].window.last_call
        assert call is not None
        return call.seq, dump_canonical_json(request)

    sent = dict(await asyncio.gather(*map(ask, range(WRITERS))))
    assert len(sent) == WRITERS
    for seq, request in sent.items():
        assert dump_canonical_json(await sessions[0].rebuild_request(seq)) == request
    await close(sessions)


async def test_a_decision_from_an_older_window_is_made_again(store):
    first = Worker(await Session.create(store, "s", **options()))
    second = Worker(await Session.open(store, "s"))
    await first.say("Hello.")
    await first.ask()
    await second.say("Wait, there is more.")
    request = dump_canonical_json(await first.ask())
    assert "Wait, there is more." in request
    await second.say("And more.")
    await first.say("Go on.")
    request = dump_canonical_json(await first.ask())
    assert request.index("And more.") < request.index("Go on.")
    assert await store.position("s") == first.session.window.seq


async def test_settings_of_another_writer_hold_for_the_next_decision(store):
    first = Worker(await Session.create(store, "s", **options(policy="full")))
    second = await Session.open(store, "s")
    await first.say("Hello.")
    await second.configure(model="claude-opus-4-5", system="Be brief.")
    request = await first.ask()
    assert request["model"] == "claude-opus-4-5"
    assert "Be brief." in dump_canonical_json(request)


async def test_a_key_that_another_writer_has_used_is_in_the_next_request(store):
    first = Worker(await Session.create(store, "s", **options()))
    second = await Session.open(store, "s")
    await first.say("Hello.")
    await first.ask()
    handle = await second.add(user("Pay the bill."), key="k")
    assert await first.session.add(user("Pay the bill."), key="k") == handle
    assert "Pay the bill." in dump_canonical_json(await first.ask())
    said = [body for body in await bodies(store, "s") if isinstance(body, MessageAdded)]
    assert [body.key for body in said] == [None, "k"]


class KeysFirst(Wrapped):
    """A store that looks for keys before it looks at positions, as it may."""

    async def append(self, session, events, *, epoch=None):
        for event in events:
            if isinstance(event.body, MessageAdded) and event.body.key is not None:
                taken = await self.inner.find_key(session, event.body.key)
                if taken is not None:
                    raise DuplicateIdempotencyKey(session, event.body.key, taken)
        await super().append(session, events, epoch=epoch)


async def test_a_key_that_is_found_before_the_position_leaves_nobody_behind(store):
    first = await Session.create(KeysFirst(store), "s", **options())
    second = await Session.open(store, "s")
    handle = await second.add(user("Pay the bill."), key="k")
    assert await first.add(user("Pay the bill."), key="k") == handle
    assert int(handle[1:]) in first.window.entries


async def test_a_stale_owner_writes_nothing_but_what_its_call_cost_and_stops(store):
    stale = Worker(await Session.create(store, "s", **options()))
    await stale.say("Hello.")
    assert await stale.session.recorder.claim() == 1
    await stale.ask()
    owner = Worker(await Session.open(store, "s"))
    assert await owner.session.recorder.claim() == 2
    log = [event async for event in store.events("s")]
    with pytest.raises(StaleOwner, match="epoch 1 of session 's' was taken over by epoch 2"):
        await stale.answer(text("Too late."))
    *before, outcome = [event async for event in store.events("s")]
    assert before == log
    assert isinstance(outcome.body, CallOutcome)
    assert outcome.body.usage is not None
    log.append(outcome)
    with pytest.raises(StaleOwner):
        await stale.say("Too late.")
    with pytest.raises(StaleOwner):
        await stale.session.request()
    with pytest.raises(StaleOwner):
        await stale.session.request(volatile="too late")
    with pytest.raises(StaleOwner):
        await stale.session.recorder.record_tool_start("t1")
    with pytest.raises(StaleOwner):
        await stale.session.configure(system="Too late.")
    with pytest.raises(StaleOwner):
        await stale.session.recorder.end_turn()
    with pytest.raises(StaleOwner):
        await stale.session.refresh()
    assert [event async for event in store.events("s")] == log
    await owner.session.recorder.record_tool_start("t1")
    await owner.answer(text("In time."))
    await owner.session.recorder.end_turn()
    turns = [body for body in await bodies(store, "s") if isinstance(body, TurnProgressRecord)]
    assert [(turn.state, turn.epoch, turn.key) for turn in turns] == [
        ("claimed", 1, None),
        ("claimed", 2, None),
        ("tool_started", 2, "t1"),
        ("ended", 2, None),
    ]


async def test_whoever_lost_a_turn_may_claim_another(store):
    first = await Session.create(store, "s", **options())
    second = await Session.open(store, "s")
    assert [
        await first.recorder.claim(),
        await second.recorder.claim(),
        await first.recorder.claim(),
    ] == [
        1,
        2,
        3,
    ]
    await first.add(user("Mine again."))
    with pytest.raises(StaleOwner):
        await second.add(user("Not mine any more."))


async def test_whoever_owns_no_turn_may_still_say_something(store):
    owner = await Session.create(store, "s", **options())
    await owner.recorder.claim()
    gateway = await Session.open(store, "s")
    await gateway.add(user("A word from the user."))
    await owner.add(user("And the owner goes on."))
    said = [
        body.message.text for body in await bodies(store, "s") if isinstance(body, MessageAdded)
    ]
    assert said == ["A word from the user.", "And the owner goes on."]


async def test_claims_at_once_have_epochs_of_their_own_and_one_owner_is_left(place):
    sessions = await opened(place)
    epochs = await asyncio.gather(*(session.recorder.claim() for session in sessions))
    assert sorted(epochs) == list(range(1, WRITERS + 1))
    turns = [
        body
        for body in await bodies(sessions[0].store, "s")
        if isinstance(body, TurnProgressRecord)
    ]
    assert [turn.epoch for turn in turns] == list(range(1, WRITERS + 1))
    written = 0
    for session, epoch in zip(sessions, epochs, strict=True):
        try:
            await session.add(user("Mine."))
        except StaleOwner:
            assert epoch < WRITERS
        else:
            written += 1
            assert epoch == WRITERS
    assert written == 1
    await close(sessions)
