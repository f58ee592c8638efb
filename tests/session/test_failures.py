"""The store is cut off, or holds what it should not: nothing is lost, doubled or made up."""

import asyncio
import logging
import time

import pytest

from tests.agents import Clock
from tests.conversations import user
from tests.laws.picture import outlook
from tests.session.failing_stores import Failing, Forgetful, Wrapped
from tests.session.session_user import MODEL, Worker, bodies, options, text
from trimtab.engine.log.event import (
    MessageAdded,
    ModelCall,
    PayloadErasure,
    TurnProgressRecord,
    dump_canonical_json,
)
from trimtab.engine.policy.presets import POLICY_NAMES
from trimtab.engine.window.checkpoint import (
    SNAPSHOT_VERSION,
    Snapshot,
    snapshot_from_json,
    snapshot_to_json,
)
from trimtab.errors import (
    LogDamaged,
    NewerSnapshotError,
    PositionTaken,
    SessionNotFound,
    StoreUnavailable,
)
from trimtab.session import Session
from trimtab.stores.files import FileStore

pytestmark = pytest.mark.anyio

WHEN = ["before", "after"]


async def started(store) -> tuple[Worker, Failing]:
    failing = Failing(store)
    worker = Worker(await Session.create(failing, "s", **options()))
    await worker.say("Hello.")
    return worker, failing


async def said(store) -> list[str]:
    return [
        body.message.text for body in await bodies(store, "s") if isinstance(body, MessageAdded)
    ]


@pytest.mark.parametrize("when", WHEN)
async def test_a_message_with_a_key_is_there_once_however_it_was_cut_off(store, when):
    worker, failing = await started(store)
    failing.fail("append", when)
    with pytest.raises(StoreUnavailable):
        await worker.session.add(user("Pay the bill."), key="k")
    assert await store.position("s") == (3 if when == "after" else 2)
    assert worker.session.window.seq == 2
    tried = failing.tried
    assert await worker.session.add(user("Pay the bill."), key="k") == "m3"
    # It looks first: what has landed is not even tried again.
    assert failing.tried - tried == (0 if when == "after" else 1)
    assert await said(store) == ["Hello.", "Pay the bill."]
    assert worker.session.window.seq == 3


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("which", [0, 1, 2])
async def test_a_request_that_was_cut_off_at_any_step_is_asked_for_again(store, which, when):
    worker, failing = await started(store)
    await worker.ask()
    await worker.answer({"type": "tool_use", "id": "lost", "name": "read", "input": {}})
    count = 0
    put = failing.append

    async def cut_off_at(session, events, *, epoch=None):
        nonlocal count
        if count == which:
            failing.fail("append", when)
        count += 1
        await put(session, events, epoch=epoch)

    failing.append = cut_off_at
    for _ in range(3):
        try:
            request = await worker.ask()
        except StoreUnavailable:
            continue
        break
    else:
        raise AssertionError("it was never answered")
    steady = await Session.open(store, "s", clock=Clock())
    assert dump_canonical_json(await steady.request()) == dump_canonical_json(request)
    log = [event async for event in store.events("s")]
    assert [event.seq for event in log] == list(range(1, len(log) + 1))
    asked = [event for event in log if isinstance(event.body, ModelCall)]
    assert dump_canonical_json(await steady.rebuild_request(asked[-1].seq)) == dump_canonical_json(
        request
    )


@pytest.mark.parametrize("when", WHEN)
async def test_a_claim_that_was_cut_off_can_be_made_again(store, when):
    worker, failing = await started(store)
    assert await worker.session.recorder.claim() == 1
    failing.fail("append", when)
    with pytest.raises(StoreUnavailable):
        await worker.session.recorder.claim()
    epoch = await worker.session.recorder.claim()
    assert epoch == (3 if when == "after" else 2)
    await worker.say("Still here.")
    turns = [
        body.epoch for body in await bodies(store, "s") if isinstance(body, TurnProgressRecord)
    ]
    assert turns == list(range(1, epoch + 1))


@pytest.mark.parametrize("when", WHEN)
async def test_an_erasure_that_was_cut_off_can_be_made_again(store, when):
    worker, failing = await started(store)
    failing.fail("rewrite", when)
    with pytest.raises(StoreUnavailable):
        await worker.session.erase("m2")
    await worker.session.erase("m2")
    await worker.say("Go on.")
    assert await said(store) == ["[erased]", "Go on."]
    erased = [body for body in await bodies(store, "s") if isinstance(body, PayloadErasure)]
    # Where the first one reached the store, nothing is left to be erased.
    assert len(erased) == 1


async def test_whoever_is_cancelled_in_the_middle_of_a_write_looks_before_the_next(store):
    landed, waiting = asyncio.Event(), asyncio.Event()

    class Slow(Wrapped):
        async def append(self, session, events, *, epoch=None):
            await super().append(session, events, epoch=epoch)
            if not landed.is_set() and any(isinstance(e.body, MessageAdded) for e in events):
                landed.set()
                await waiting.wait()

    session = await Session.create(Slow(store), "s", **options())
    adding = asyncio.create_task(session.add(user("Pay the bill."), key="k"))
    await landed.wait()
    adding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await adding
    assert await session.add(user("Pay the bill."), key="k") == "m2"
    assert await said(store) == ["Pay the bill."]
    assert session.window.seq == await store.position("s")


@pytest.mark.usefixtures("often")
async def test_a_checkpoint_that_fails_is_a_warning_and_costs_only_reading(store, caplog):
    worker, failing = await started(store)
    for _ in range(8):
        failing.fail("checkpoint", "before")
        await worker.turn(rounds=2)
    failing.at.clear()
    warned = [record for record in caplog.records if record.name == "trimtab.session"]
    assert warned
    assert {record.levelno for record in warned} == {logging.WARNING}
    assert "session s: storing the snapshot at" in warned[0].getMessage()
    await worker.say("And now?")
    again = await Session.open(store, "s", clock=Clock())
    assert dump_canonical_json(await again.request()) == dump_canonical_json(await worker.ask())


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("policy", POLICY_NAMES)
async def test_without_its_snapshots_a_session_has_the_same_window(store, policy):
    worker = Worker(await Session.create(store, "s", **options(policy=policy)))
    for _ in range(12):
        await worker.turn(rounds=2)
    assert await store.snapshot("s") is not None
    with_them = await Session.open(store, "s", clock=Clock())
    without = await Session.open(Forgetful(store), "s", clock=Clock())
    assert outlook(without.recorder.state) == outlook(with_them.recorder.state)


class Changed(Wrapped):
    """A store whose snapshots another release has written."""

    def __init__(self, store, version):
        super().__init__(store)
        self._version = version

    async def snapshot(self, session, *, upto=None) -> Snapshot | None:
        found = await self.inner.snapshot(session, upto=upto)
        assert found is not None
        return snapshot_from_json({**snapshot_to_json(found), "version": self._version})


async def snapshotted(store) -> Worker:
    worker = Worker(await Session.create(store, "s", **options(policy="layered")))
    for _ in range(6):
        await worker.turn(rounds=2)
    await worker.session.recorder.checkpoint()
    return worker


async def test_a_snapshot_of_a_later_release_is_refused_with_what_to_do(store):
    await snapshotted(store)
    position = await store.position("s")
    with pytest.raises(NewerSnapshotError, match="format version 2; this release reads up to 1"):
        await Session.open(Changed(store, 2), "s")
    assert await store.position("s") == position


@pytest.mark.parametrize("version", [0, None, "1"])
async def test_a_snapshot_of_an_earlier_or_unknown_shape_is_left_unused(store, version):
    worker = await snapshotted(store)
    again = await Session.open(Changed(store, version), "s", clock=Clock())
    assert again.window.base.snapshot.seq == 0
    await worker.say("And now?")
    await again.refresh()
    assert dump_canonical_json(await again.request()) == dump_canonical_json(await worker.ask())


async def test_a_newer_snapshot_on_files_is_refused_and_stays(tmp_path):
    store = FileStore(tmp_path, fsync=False)
    await snapshotted(store)
    await store.close()
    state = tmp_path / "s" / "state.yaml"
    newer = state.read_text().replace(f"version: {SNAPSHOT_VERSION}\n", "version: 2\n")
    state.write_text(newer)
    with pytest.raises(NewerSnapshotError):
        await Session.open(FileStore(tmp_path), "s")
    assert state.read_text() == newer


async def test_a_window_is_never_ahead_of_the_store(store):
    worker, failing = await started(store)
    failing.fail("append", "before")
    with pytest.raises(StoreUnavailable):
        await worker.say("Not stored.")
    assert "Not stored." not in str(worker.session.window.entries)
    await worker.ask()
    await worker.answer(text("Hi."))
    assert await said(store) == ["Hello.", "Hi."]
    assert not any("Not stored." in str(body) for body in await bodies(store, "s"))


@pytest.mark.parametrize("length", [1, 2, 6])
async def test_whoever_writes_to_a_log_that_was_deleted_and_begun_anew_is_told(store, length):
    session = await Session.create(store, "s", **options(clock=time.time))
    for number in range(3):
        await session.add(user(f"Old {number}."))
    await store.delete("s")
    other = await Session.create(store, "s", **options(clock=time.time))
    for number in range(length - 1):
        await other.add(user(f"New {number}."))
    for verb in (session.recorder.claim, session.refresh, session.request):
        with pytest.raises(SessionNotFound):
            async with asyncio.timeout(20):
                await verb()
    assert await said(store) == [f"New {number}." for number in range(length - 1)]


class AlwaysTaken(Wrapped):
    """Says of every position that somebody else has taken it, though nobody writes."""

    refusals = 0

    async def append(self, session, events, *, epoch=None) -> None:
        await asyncio.sleep(0)
        self.refusals += 1
        raise PositionTaken(session, events[0].seq, events[0].seq - 1)

    async def rewrite(self, session, events, change):
        await self.append(session, events)


@pytest.mark.parametrize(
    "verb",
    [
        lambda session: session.add(user("And now?")),
        lambda session: session.request(),
        lambda session: session.erase("m2"),
    ],
    ids=["add", "request", "erase"],
)
async def test_a_store_that_refuses_for_ever_ends_in_an_error(store, verb):
    await started(store)
    refusing = AlwaysTaken(store)
    session = await Session.open(refusing, "s")
    with pytest.raises(LogDamaged, match="position 3 is taken, but its log ends at 2") as raised:
        await asyncio.wait_for(verb(session), 5)
    assert "session 's'" in str(raised.value)
    assert 1 < refusing.refusals < 10
    assert await said(store) == ["Hello."]


class TakenTwice(AlwaysTaken):
    async def append(self, session, events, *, epoch=None) -> None:
        if self.refusals == 2:
            self.refusals = 0
            await self.inner.append(session, events, epoch=epoch)
        else:
            await super().append(session, events)


async def test_refusals_that_pass_are_not_counted_for_ever(store):
    await started(store)
    session = await Session.open(TakenTwice(store), "s")
    for turn in range(4):
        await session.add(user(f"{turn}"))
    assert await said(store) == ["Hello.", "0", "1", "2", "3"]


class FarAhead(Wrapped):
    """Says that its log is longer than it is."""

    async def position(self, session):
        await asyncio.sleep(0)
        return 99


async def test_a_log_that_is_said_to_be_longer_than_it_is_ends_in_an_error(store):
    await started(store)
    session = await Session.open(FarAhead(store), "s")
    await session.request()
    with pytest.raises(LogDamaged):
        await asyncio.wait_for(session.request(), 5)


@pytest.mark.parametrize("begin", [Session.create, Session.open_or_create])
async def test_a_place_is_no_store_and_an_empty_text_is_no_id(store, begin, tmp_path):
    for place in ("postgresql://u:hunter2@db/x", tmp_path):
        with pytest.raises(TypeError, match=r"open it first: `store = await open_store") as caught:
            await begin(place, "s", model=MODEL)
        assert "hunter2" not in str(caught.value)
        with pytest.raises(TypeError, match="open_store"):
            await Session.open(place, "s")
    with pytest.raises(ValueError, match="the session id is empty"):
        await begin(store, "", model=MODEL)
    with pytest.raises(ValueError, match="the session id is empty"):
        await Session.open(store, "")
    session = await begin(store, "s", model=MODEL)
    with pytest.raises(ValueError, match="the session id is empty"):
        await session.fork("")
    assert [entry.session for entry in await store.sessions()] == ["s"]
