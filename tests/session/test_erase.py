"""What was erased or deleted is nowhere: not in the log, nor in anything made from it."""

import pytest

from tests.conversations import prose, user
from tests.laws.picture import outlook
from tests.session.find_text_in_store import places_of
from tests.session.session_user import Worker, bodies, options, reply, text, tool_result, tool_use
from trimtab.engine.log.event import Edit, PayloadErasure, dump_canonical_json
from trimtab.engine.policy.planning.plan import MessageSpan
from trimtab.errors import ErasedError, SessionNotFound, StaleOwner
from trimtab.session import Session, loading
from trimtab.verbs.state import record

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("often")]

NEEDLE = "xq7vault9needle"
LARGE = f"{NEEDLE} and its brother {NEEDLE}2 were seen by the herons.\n" + prose(70_000)


async def spread(store) -> tuple[Worker, str]:
    """A session in which a large text has been copied to wherever texts are copied to."""
    given = options(policy="layered", context_window=200_000, limits={"max_history_tokens": 700})
    worker = Worker(await Session.create(store, "s", **given))
    session = worker.session
    await worker.turn()
    first = session.window.seq + 1
    await worker.say("What do you see?")
    await worker.ask()
    handle = await worker.use(LARGE)
    part = int(handle[1:])
    mask = Edit(op="mask", first=part, last=part, part=0, text=f"[Previously viewed: {NEEDLE}]")
    await session.recorder.run(lambda _: record([mask]))
    await worker.answer(
        tool_use("r1", "recall", handle=f"{handle}.0", lines="1"),
        tool_use("r2", "search_history", query="herons brother"),
    )
    assert NEEDLE in await session.answer(tool_use("r1", "recall", handle=f"{handle}.0", lines="1"))
    assert NEEDLE in await session.answer(tool_use("r2", "search_history", query="herons brother"))
    await worker.ask()
    await worker.answer(text("I see."))
    await worker.turn()
    last = session.window.seq - 10
    await session.add_summary(f"They saw {NEEDLE}.", span=MessageSpan(first=first, last=last))
    await session.recorder.checkpoint()
    await worker.turn()
    after = session.window.seq - 6
    await session.add_summary(
        f"First {NEEDLE}; then more.", span=MessageSpan(first=last, last=after)
    )
    for _ in range(5):
        await worker.turn(rounds=2)
    await session.recorder.checkpoint()
    assert int(handle[1:]) not in session.window.entries
    return worker, handle


async def test_an_erased_text_is_nowhere(place):
    store = await place.open()
    worker, handle = await spread(store)
    before = await places_of(NEEDLE, place, store)
    match place.name:
        case "memory":
            assert before == ["s"]
        case "files":
            assert {"s/events.jsonl"} < set(before)
            assert any(path.startswith("s/blobs/") for path in before)
        case _:
            assert {name.rsplit("_", 1)[0] for name in before} >= {
                *("trimtab.events", "trimtab.blobs", "trimtab.words", "trimtab.sessions")
            }
    copies = [b for b in await bodies(store, "s") if NEEDLE in str(b)]
    assert len(copies) == 6  # said, masked, recalled, found, summarised twice

    assert await worker.session.recorder.erase(handle, reason="asked by the user") == []
    assert await places_of(NEEDLE, place, store) == []
    assert NEEDLE not in repr(worker.session.window.base.events_since_snapshot)
    assert NEEDLE not in str(worker.session.window.base.snapshot_events)
    await worker.say("Go on.")
    sent = dump_canonical_json(await worker.ask())
    assert NEEDLE not in sent
    erased = [b for b in await bodies(store, "s") if isinstance(b, PayloadErasure)]
    assert erased[0].message == int(handle[1:])
    assert [b.why for b in erased] == [
        "asked by the user",
        *[f"may repeat {handle}; asked by the user"] * 2,
    ]
    await worker.session.close()
    await store.close()

    again = await Session.open(await place.open(), "s")
    log = [event async for event in again.store.events("s")]
    by = next(event.seq for event in log if isinstance(event.body, PayloadErasure))
    for named in (handle, f"{handle}.0"):
        with pytest.raises(ErasedError, match=f"{handle} was erased by event {by} and cannot be"):
            await again.recall(named)
    assert await again.search("herons brother") == "(nothing found)"
    why = await again.why(handle)
    assert (why.state, why.event, why.reason, why.text) == ("erased", by, "asked by the user", "")
    assert dump_canonical_json(await again.request()) == sent
    assert await places_of(NEEDLE, place, again.store) == []
    await again.store.close()


async def test_a_providers_error_that_quotes_an_erased_text_is_erased_with_it(place, monkeypatch):
    monkeypatch.setattr(loading, "MIN_CHECKPOINT_EVENTS", 1)  # a snapshot after each step
    store = await place.open()
    session = await Session.create(store, "s", **options())
    handle = await session.add(user(f"The key is {NEEDLE}."), key="k")
    await session.request()
    await session.fail("rejected", message=f"flagged: 'The key is {NEEDLE}.'")
    await session.add(user("Never mind."))
    assert NEEDLE in str(await bodies(store, "s"))
    await session.recorder.erase(handle)
    assert await places_of(NEEDLE, place, store) == []
    assert NEEDLE not in repr(session.window.accounting)
    await session.close()
    await store.close()


async def test_the_forks_that_keep_a_copy_are_named_and_can_be_erased_in(place):
    store = await place.open()
    worker, handle = await spread(store)
    twin = await worker.session.fork("t")
    await twin.fork("u")
    assert await worker.session.recorder.erase(handle) == ["t"]
    assert await places_of(NEEDLE, place, store) != []
    assert await twin.recorder.erase(handle) == ["u"]
    third = await Session.open(store, "u")
    assert await third.recorder.erase(handle) == []
    assert await places_of(NEEDLE, place, store) == []
    await store.close()


async def test_a_fork_of_the_time_before_an_erasure_says_what_is_missing(store):
    worker = Worker(await Session.create(store, "s", **options()))
    handle = await worker.say("My secret.")
    at = worker.session.window.seq
    await worker.session.erase(handle)
    twin = await worker.session.fork("t", at=at)
    with pytest.raises(ErasedError):
        await twin.recall(handle)


async def test_one_part_is_erased_and_the_others_stay(store):
    session = await Session.create(store, "s", **options())
    content = [text("Keep this."), text("Destroy this.")]
    handle = await session.add({"role": "user", "content": content})
    await session.erase(f"{handle}.1")
    assert await session.recall(f"{handle}.0") == "Keep this."
    with pytest.raises(ErasedError):
        await session.recall(f"{handle}.1")
    assert "Destroy" not in str(await bodies(store, "s"))
    assert "Destroy" not in repr(session.window.base.events_since_snapshot)


async def test_what_was_undone_is_erased_too(place):
    store = await place.open()
    session = await Session.create(store, "s", **options())
    start = await session.add(user("Hello."))
    handle = await session.add(user(f"My {NEEDLE}."))
    await session.rewind(start)
    await session.erase(handle)
    assert await places_of(NEEDLE, place, store) == []
    await store.close()


@pytest.mark.parametrize("handle", ["m1", "m2.7", "m99"])
async def test_an_erasure_of_nothing_is_an_error_and_writes_nothing(store, handle):
    session = await Session.create(store, "s", **options())
    await session.add(user("Hello."))
    with pytest.raises(LookupError, match=f"nothing was erased: there is no {handle}"):
        await session.erase(handle)
    assert await store.position("s") == 2


async def test_an_erasure_meets_another_writer_and_is_made_again(store):
    first = await Session.create(store, "s", **options())
    handle = await first.add(user("My secret."))
    second = await Session.open(store, "s")
    await second.add(user("Meanwhile."))
    await first.erase(handle)
    await second.add(user("And on."))
    assert [entry.message.text for entry in second.window.entries.values()] == [
        *("[erased]", "Meanwhile.", "And on.")
    ]
    assert first.window.seq == 4


async def test_what_was_asked_before_tells_which_answers_are_copies(store):
    session = await Session.create(store, "s", **options(recall=True))
    await session.add(user("Look."))
    asked = (tool_use("a", "read"), tool_use("b", "search_history"), tool_use("c", "list"))
    await session.add({"role": "assistant", "content": list(asked)})
    handle = await session.add(answers(a=NEEDLE))
    await session.add(answers(b=f"[{handle}] {NEEDLE}", c="a file"))
    await session.erase(handle)
    kept = str([event async for event in store.events("s")])
    assert NEEDLE not in kept
    assert "a file" in kept


async def test_a_tool_of_the_users_own_that_is_called_recall_keeps_its_results(store):
    session = await Session.create(store, "s", **options(recall=False))
    handle = await session.add(user("My secret."))
    await session.add({"role": "assistant", "content": [tool_use("a", "recall")]})
    await session.add(answers(a="the brakes of 2024"))
    await session.erase(handle)
    assert "the brakes of 2024" in str(await session.request())


def answers(**told):
    content = [
        {"type": "tool_result", "tool_use_id": call, "content": text} for call, text in told.items()
    ]
    return {"role": "user", "content": content}


async def test_a_deleted_session_leaves_nothing(place):
    store = await place.open()
    worker, _ = await spread(store)
    await Session.create(store, "other", **options())
    await worker.session.close()
    await store.delete("s")
    assert await places_of(NEEDLE, place, store) == []
    assert await places_of("value_", place, store) == []
    with pytest.raises(SessionNotFound):
        await Session.open(store, "s")
    assert [found.session for found in await store.sessions()] == ["other"]
    await store.close()


async def test_erasing_the_same_again_records_nothing(store):
    session = await Session.create(store, "s", **options())
    handle = await session.add(user("My secret."))
    await session.erase(handle)
    position = await store.position("s")
    assert await session.recorder.erase(handle) == []
    assert await store.position("s") == position


async def test_an_erasure_that_is_to_be_alone_ends_a_turn_that_another_runs(store):
    """What that one has in memory, it can write no more."""
    working = await Session.create(store, "s", **options())
    handle = await working.add(user("My secret."))
    await working.recorder.claim()
    other = await Session.open(store, "s")
    await other.recorder.erase(handle, fence_open_turn=True)
    with pytest.raises(StaleOwner):
        await working.add(user("You said: My secret."))
    assert "secret" not in str(await bodies(store, "s"))
    with pytest.raises(StaleOwner):
        await working.refresh()
    assert "secret" not in repr(working.window.base.events_since_snapshot)


async def test_a_session_in_which_nothing_runs_is_not_claimed_for_an_erasure(store):
    session = await Session.create(store, "s", **options())
    handle = await session.add(user("My secret."))
    async with session.claim_turn(wait=None):
        pass
    await session.recorder.erase(handle, fence_open_turn=True)
    assert session.window.accounting.epoch == 1


async def test_what_is_to_go_is_told_before_it_does(store):
    session = await Session.create(store, "s", **options())
    handle = await session.add(user("My secret."), key="k")
    told = []

    async def first(found):
        kept = str(await bodies(store, "s"))
        told.append((found.user_texts, found.message_keys, "My secret." in kept))

    await session.recorder.erase(handle, before_rewrite=first)
    await session.recorder.erase(handle, before_rewrite=first)
    assert told == [(["My secret."], {"k"}, True), (["[erased]"], {"k"}, False)]


async def test_volatile_texts_are_erased_with_the_messages_that_their_requests_answered(place):
    store = await place.open()
    session = await Session.create(store, "s", **options(context_window=200_000))
    handles: list[str] = []
    for number, turn in enumerate(("Ann", "Bob")):
        handles.append(await session.add(user(f"I am {turn}.")))
        await session.request(volatile=f"Signed in: {turn}, first call {prose(70_000)}")
        await session.add(reply(2 * number, text("Let me see."), tool_use(f"c-{turn}", path="a")))
        await session.add(tool_result(f"c-{turn}", "a file"))
        await session.request(volatile=f"Signed in: {turn}, second call")
        await session.add(reply(2 * number + 1, text("Done.")))
    await session.erase(handles[0])
    await session.recorder.checkpoint()
    assert await places_of("Signed in: Ann", place, store) == []
    assert await places_of("Signed in: Bob", place, store) != []
    again = await Session.open(store, "s")
    assert outlook(again.recorder.state) == outlook(session.recorder.state)
    await session.erase(handles[1])
    assert "Signed in" not in str(session.window.last_call)
    assert await places_of("Signed in", place, store) == []
    assert "Signed in" not in str((await session.fork("t")).window.last_call)
    await store.close()
