"""What every store promises."""

import asyncio
import pickle
from dataclasses import replace

import pytest

from tests.conversations import user
from tests.golden.events import EVENTS
from tests.stores.events import (
    append_next,
    called,
    claimed,
    forked,
    held,
    repaired,
    returned,
    said,
    sent,
)
from trimtab.context import Context
from trimtab.engine.log.event import Event, MessageAdded, TurnProgressRecord, dump_event_line
from trimtab.engine.window.checkpoint import Snapshot
from trimtab.errors import (
    DuplicateIdempotencyKey,
    PositionTaken,
    SessionClosed,
    SessionNotFound,
    StaleOwner,
)
from trimtab.session import Session
from trimtab.session.turn import run_turn
from trimtab.stores.base import NEWER_THAN_ALL, SessionListEntry
from trimtab.stores.files import FileStore
from trimtab.stores.files.lock import find_lock_holder
from trimtab.stores.subjects import session_subject
from trimtab.testing import ScriptedProvider

pytestmark = pytest.mark.anyio

IDS = [
    "a",
    "telegram:12",
    "../x",
    ".",
    "..",
    ".hidden",
    "a/b",
    "a b%2F",
    "Ünïcode 漢字 🙂",
    "~",
    "A\n",
]
LARGE = "large é\ud800\x00\n🙂" * 20_000


async def test_what_is_appended_is_read_back_byte_for_byte(store, place):
    await store.append("s", [replace(event, at=1.5) for event in EVENTS])
    end = len(EVENTS)
    more = [said(end + 1, LARGE), said(end + 2, "half \udc00"), said(end + 3, LARGE + LARGE)]
    await store.append("s", more[:1])
    await store.append("s", more[1:])
    written = [
        *(dump_event_line(replace(event, at=1.5)) for event in EVENTS),
        *map(dump_event_line, more),
    ]
    assert await held(store, "s") == written
    await store.close()
    again = await place.open()
    assert await held(again, "s") == written
    await again.close()


async def test_spans_name_what_is_read_and_may_go_beyond_the_end(store):
    await store.append("s", [said(seq) for seq in range(1, 10)])

    async def positions(*spans):
        return [event.seq async for event in store.events("s", spans)]

    assert await positions((1, None)) == list(range(1, 10))
    assert await positions((2, 3), (5, 5), (8, None)) == [2, 3, 5, 8, 9]
    assert await positions((8, 100)) == [8, 9]
    assert await positions((10, None)) == []
    assert await positions() == []


async def test_a_session_that_does_not_exist_has_nothing(store):
    assert await store.position("s") == 0
    assert await store.snapshot("s") is None
    assert await store.find_key("s", "k") is None
    assert await store.search("s", "word", limit=5) == []
    assert await store.forks("s") == []
    assert await store.sessions() == []
    await store.append("s", [])
    assert await store.position("s") == 0
    await store.release("s")


async def test_what_needs_a_session_says_that_there_is_none(store):
    with pytest.raises(SessionNotFound, match="no session 's'"):
        await held(store, "s")
    with pytest.raises(SessionNotFound):
        await store.checkpoint("s", Snapshot(seq=1))
    with pytest.raises(SessionNotFound):
        await store.rewrite("s", [], lambda event: event)
    with pytest.raises(SessionNotFound):
        await store.delete("s")
    assert await store.sessions() == []


@pytest.mark.parametrize("wanted", [1, 2, 4])
async def test_an_event_that_does_not_stand_right_behind_the_last_is_refused(store, wanted):
    await store.append("s", [said(1), said(2)])
    with pytest.raises(PositionTaken) as caught:
        await store.append("s", [said(wanted), said(wanted + 1)])
    assert (caught.value.requested, caught.value.position) == (wanted, 2)
    assert await held(store, "s") == [dump_event_line(said(1)), dump_event_line(said(2))]


async def test_a_session_begins_at_position_1(store):
    with pytest.raises(PositionTaken) as caught:
        await store.append("s", [said(2)])
    assert caught.value.position == 0
    assert await store.sessions() == []


async def test_a_batch_with_a_gap_is_refused_whole(store):
    await store.append("s", [said(1)])
    with pytest.raises(ValueError, match="event 4"):
        await store.append("s", [said(2), said(4)])
    assert await store.position("s") == 1


async def test_a_key_that_the_session_knows_is_refused_and_so_is_its_batch(store):
    await store.append("s", [said(1), said(2, key="k")])
    with pytest.raises(DuplicateIdempotencyKey) as caught:
        await store.append("s", [said(3, "new"), said(4, key="k")])
    assert (caught.value.key, caught.value.position) == ("k", 2)
    assert await store.position("s") == 2
    await store.append("other", [said(1, key="k")])


async def test_a_key_may_stand_once_in_a_batch(store):
    with pytest.raises(DuplicateIdempotencyKey) as caught:
        await store.append("s", [said(1, key="k"), said(2, key="k")])
    assert caught.value.position == 1
    assert await store.position("s") == 0


async def test_a_tools_key_is_no_messages_key(store):
    tool = replace(claimed(2, 1), body=TurnProgressRecord(state="tool_started", epoch=1, key="k"))
    await store.append("s", [said(1), tool, said(3, key="k")])
    assert await store.find_key("s", "k") == 3


@pytest.mark.parametrize("key", ["k", "", "ключ \ud800\x00", "x" * 5_000, "a\nb"])
async def test_a_key_of_any_age_is_found(store, place, key):
    await store.append("s", [said(1), said(2, key=key), said(3, key="other")])
    for seq in (4, 5):
        assert await store.find_key("s", key) == 2
        assert await store.find_key("s", key + "?") is None
        await store.checkpoint("s", Snapshot(seq=seq - 1))
        await store.append("s", [said(seq, key=f"later {seq}")])
    await store.close()
    again = await place.open()
    found = [await again.find_key("s", name) for name in (key, "other", "later 4", "later 5", "no")]
    assert found == [2, 3, 4, 5, None]
    with pytest.raises(DuplicateIdempotencyKey):
        await again.append("s", [said(6, key=key)])
    await again.close()


async def test_an_older_epoch_than_the_newest_claimed_turns_is_refused(store, place):
    await store.append("s", [said(1), claimed(2, 5)], epoch=5)
    with pytest.raises(StaleOwner) as caught:
        await store.append("s", [said(3)], epoch=4)
    assert (caught.value.epoch, caught.value.newest) == (4, 5)
    await store.append("s", [said(3)], epoch=5)
    await store.append("s", [said(4)])
    await store.append("s", [said(5)], epoch=6)
    ended = replace(claimed(6, 9), body=TurnProgressRecord(state="ended", epoch=9))
    await store.append("s", [ended], epoch=5)
    await store.checkpoint("s", Snapshot(seq=6))
    await store.append("s", [said(7)], epoch=5)
    await store.close()
    again = await place.open()
    with pytest.raises(StaleOwner):
        await again.append("s", [said(8)], epoch=4)
    assert await again.position("s") == 7
    await again.close()


async def test_a_stale_owner_learns_that_before_anything_else(store):
    await store.append("s", [claimed(1, 2), said(2, key="k")])
    with pytest.raises(StaleOwner):
        await store.append("s", [said(1, key="k")], epoch=1)


async def test_snapshots_are_found_by_position(store, place):
    await store.append("s", [said(seq) for seq in range(1, 101)])
    kept = {
        seq: Snapshot(seq=seq, spans=((1, seq),), state={"epoch": 1, "of": [seq, "ü: 1"], "b": {}})
        for seq in range(10, 100, 3)
    }
    for seq, snapshot in kept.items():
        await store.checkpoint("s", snapshot)
        assert await store.snapshot("s") == snapshot
        assert await store.snapshot("s", upto=9) is None
        assert await store.snapshot("s", upto=seq) == snapshot
    await store.close()
    again = await place.open()
    for upto in range(1, 101):
        newest = max((seq for seq in kept if seq <= upto), default=None)
        found = await again.snapshot("s", upto=upto)
        assert found == (None if newest is None else kept[newest])
    assert await again.snapshot("s") == kept[97]
    await again.close()


async def test_a_snapshot_replaces_the_one_at_its_position_and_none_else(store):
    await store.append("s", [said(seq) for seq in range(1, 10)])
    for seq, state in [(8, "old"), (8, "new"), (4, "old"), (6, "old"), (4, "new")]:
        await store.checkpoint("s", Snapshot(seq=seq, state={"is": state}))
    assert await store.snapshot("s") == Snapshot(seq=8, state={"is": "new"})
    assert await store.snapshot("s", upto=7) == Snapshot(seq=6, state={"is": "old"})
    assert await store.snapshot("s", upto=5) == Snapshot(seq=4, state={"is": "new"})


async def test_a_search_finds_messages_by_the_beginnings_of_their_words(store):
    await store.append(
        "s",
        [
            said(1, "The Harbour opens at nine"),
            called(2, "read", '{"path": "src/harbour_opens.py"}'),
            returned(3, "harbour\nHARBOURMASTER"),
            said(4, "nothing of the kind", role="assistant"),
            repaired(5, "the harbour call never ended"),
            called(6, "search_history", '{"query": "harbour"}'),
            returned(7, "harbour again", recalled=True),
            said(8, "東京の港は九時に開く"),
            said(9, "\u212aelvin and İstanbul " + "padding " * 20_000 + " faraway"),
        ],
    )
    for _ in range(2):
        assert await store.search("s", "harbour", limit=9) == [5, 3, 1, 2]
        assert await store.search("s", "harb OPEN", limit=9) == [1, 5, 3, 2]
        assert await store.search("s", "harb OPEN", limit=2) == [1, 5]
        assert await store.search("s", "harbour\nharbour", limit=9) == [3, 5, 1, 2]
        assert await store.search("s", '"harbour_op"', limit=9) == [2]
        assert await store.search("s", "the harbour opens", limit=1) == [1]
        assert await store.search("s", "九時", limit=9) == [8]
        assert await store.search("s", "kelvin", limit=9) == [9]
        assert await store.search("s", "faraw", limit=9) == [9]
        assert await store.search("s", "?!", limit=9) == []
        assert await store.search("s", "", limit=9) == []
        await store.checkpoint("s", Snapshot(seq=9))


def without(word):
    def change(event):
        if isinstance(event.body, MessageAdded) and word in event.body.message.text:
            return replace(event, body=replace(said(1, "[gone]").body, key=event.body.key))
        return event

    return change


async def test_a_rewrite_changes_events_and_appends_others_at_once(store, place):
    before = [said(1, "a"), said(2, "secret", key="k"), said(3, LARGE), claimed(4, 7)]
    await store.append("s", before)
    await store.checkpoint("s", Snapshot(seq=2))
    await store.append("s", [said(5, "the secret: " + LARGE)])
    await store.rewrite("s", [said(6, "secret too", key="n"), said(7)], without("secret"))
    gone = replace(said(1, "[gone]"), seq=2, at=2.0)
    after = [
        said(1, "a"),
        replace(gone, body=replace(gone.body, key="k")),
        said(3, LARGE),
        claimed(4, 7),
        replace(gone, seq=5, at=5.0),
        said(6, "secret too", key="n"),
        said(7),
    ]
    for _ in range(2):
        assert await held(store, "s") == [dump_event_line(event) for event in after]
        assert await store.search("s", "secret", limit=9) == [6]
        assert [await store.find_key("s", key) for key in "kn"] == [2, 6]
        with pytest.raises(StaleOwner):
            await store.append("s", [said(8)], epoch=6)
        await store.close()
        store = await place.open()
    await store.append("s", [said(8)])
    assert await store.position("s") == 8
    await store.close()


async def test_a_key_that_a_rewrite_takes_is_free_again(store):
    await store.append("s", [said(1, key="a"), said(2, key="b")])
    await store.checkpoint("s", Snapshot(seq=2))
    await store.append("s", [said(3, key="c"), said(4, key="d")])

    def change(event):
        keep = event.body.key in ("b", "d")
        return event if keep else replace(event, body=replace(event.body, key=None))

    await store.rewrite("s", [], change)
    assert [await store.find_key("s", key) for key in "abcd"] == [None, 2, None, 4]
    await store.append("s", [said(5, key="a")])
    await store.checkpoint("s", Snapshot(seq=5))
    assert [await store.find_key("s", key) for key in "abcd"] == [5, 2, None, 4]


async def test_a_rewrite_that_fails_changes_nothing(store):
    await store.append("s", [said(1, "secret"), said(2, key="k")])
    before = await held(store, "s")

    def fails(event):
        if event.seq == 2:
            raise RuntimeError("no")
        return replace(event, body=said(1, "x").body)

    with pytest.raises(RuntimeError):
        await store.rewrite("s", [said(3)], fails)
    with pytest.raises(PositionTaken):
        await store.rewrite("s", [said(2)], without("secret"))
    with pytest.raises(DuplicateIdempotencyKey):
        await store.rewrite("s", [said(3, key="k")], without("secret"))
    with pytest.raises(ValueError, match="event 1 was changed into one at 2"):
        await store.rewrite("s", [], lambda event: replace(event, seq=event.seq + 1))
    assert await held(store, "s") == before
    await store.append("s", [said(3)])
    assert await held(store, "s") == [*before, dump_event_line(said(3))]


async def test_a_deleted_session_leaves_nothing_to_the_next_of_its_name(store):
    await store.append("s", [claimed(1, 9), said(2, key="k"), said(3, LARGE + "needle")])
    await store.checkpoint("s", Snapshot(seq=3))
    await store.append("t", [said(1, "stays")])
    await store.delete("s")
    assert [kept.session for kept in await store.sessions()] == ["t"]
    with pytest.raises(SessionNotFound):
        await held(store, "s")
    with pytest.raises(SessionNotFound):
        await store.delete("s")
    await store.append("s", [said(1, key="k")], epoch=1)
    assert await held(store, "s") == [dump_event_line(said(1, key="k"))]
    assert await store.snapshot("s") is None
    assert await store.search("s", "needle", limit=5) == []


async def test_sessions_are_listed_in_the_order_of_their_ids(store):
    for index, name in enumerate(IDS):
        await store.append(name, [said(1), claimed(2, 1), said(3), repaired(4, "x")])
        await store.append(name, [said(5, at=100.0 + index)])
    listed = await store.sessions()
    assert [replace(one, active=0.0) for one in listed] == [
        SessionListEntry(
            session=name, position=5, messages=3, updated=100.0 + IDS.index(name), active=0.0
        )
        for name in sorted(IDS)
    ]
    assert await store.sessions(after=sorted(IDS)[2], limit=3) == listed[3:6]
    assert await store.sessions(after=max(IDS)) == []
    for name in IDS:
        assert await store.position(name) == 5


async def test_a_fork_names_its_parent_and_the_parent_its_forks(store, place):
    await store.append("p:1", [said(1)])
    await store.append("f/2", [said(1), forked(2, "p:1")])
    await store.append("f1", [said(1)])
    await store.append("f1", [said(2), forked(3, "p:1"), said(4)])
    await store.append("grandchild", [said(1), forked(2, "p:1"), said(3), forked(4, "f1")])
    await store.append("orphan", [said(1), forked(2, "nobody")])
    await store.append("nameless", [said(1), forked(2, "")])
    await store.close()
    store = await place.open()
    assert await store.forks("p:1") == ["f/2", "f1"]
    assert await store.forks("f1") == ["grandchild"]
    assert await store.forks("grandchild") == []
    assert {kept.session: kept.parent for kept in await store.sessions()} == {
        "p:1": None,
        "f/2": "p:1",
        "f1": "p:1",
        "grandchild": "f1",
        "orphan": "nobody",
        "nameless": None,
    }
    await store.delete("f1")
    assert await store.forks("p:1") == ["f/2"]
    await store.close()


async def test_a_released_session_can_be_written_by_another(store, place):
    await store.append("s", [said(1)])
    await store.release("s")
    other = await place.open()
    await other.append("s", [said(2)])
    await other.release("s")
    await store.append("s", [said(3)])
    assert await held(other, "s") == [dump_event_line(said(seq)) for seq in (1, 2, 3)]
    await other.close()


async def test_ten_writers_lose_nothing_and_all_readers_see_one_order(store, place):
    async def writes(name):
        return [await append_next(store, "s", f"{name} {turn}") for turn in range(10)]

    taken = await asyncio.gather(*(writes(name) for name in range(10)))
    assert sorted(seq for own in taken for seq in own) == list(range(1, 101))
    reads = await asyncio.gather(*(held(store, "s") for _ in range(10)))
    expected = [""] * 100
    for name, own in enumerate(taken):
        assert own == sorted(own)
        for turn, seq in enumerate(own):
            expected[seq - 1] = dump_event_line(said(seq, f"{name} {turn}"))
    assert all(read == expected for read in reads)
    await store.close()
    again = await place.open()
    assert await held(again, "s") == expected
    await again.close()


async def test_a_stale_owner_never_writes_however_many_try(store):
    await store.append("s", [claimed(1, 1)])

    async def owns(epoch):
        done = []
        try:
            while len(done) < 20:
                done.append(await append_next(store, "s", f"epoch {epoch}", epoch=epoch))
        except StaleOwner:
            pass
        return done

    async def claims(epoch):
        while True:
            seq = await store.position("s") + 1
            try:
                await store.append("s", [claimed(seq, epoch)])
            except PositionTaken:
                continue
            return seq

    owners = [asyncio.create_task(owns(1)) for _ in range(10)]
    taken_over = await claims(2)
    written = [seq for owner in owners for seq in await owner]
    assert all(seq < taken_over for seq in written)
    with pytest.raises(StaleOwner):
        await append_next(store, "s", "late", epoch=1)
    said_by_1 = [
        event.seq
        async for event in store.events("s", [(taken_over, None)])
        if isinstance(event.body, MessageAdded)
    ]
    assert said_by_1 == []


async def test_a_writer_that_is_cancelled_has_written_all_or_nothing(store):
    await store.append("s", [said(1)])
    tasks = [asyncio.create_task(append_next(store, "s", f"t{name}")) for name in range(10)]
    await store.position("s")
    for task in tasks[::2]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    last = await append_next(store, "s", "last")
    lines = await held(store, "s")
    assert len(lines) == last
    assert sum(f'"t{name}"' in line for name in range(1, 10, 2) for line in lines) == 5


async def test_a_session_is_found_by_each_sender_however_the_message_was_appended(store):
    large, many = LARGE, 12
    await store.append("acme/a/first", [sent(1, "anna"), said(2)])
    for name in ("one", "few", "many", "large", "claim"):
        await store.append(f"acme/a/{name}", [said(1)])
    await store.append("acme/a/one", [sent(2, "anna")])
    await store.append("acme/a/few", [said(2), sent(3, "anna")])
    await store.append("acme/a/many", [*map(said, range(2, many)), sent(many, "anna")])
    await store.append("acme/a/large", [sent(2, "anna", large)])
    await store.append("acme/a/claim", [claimed(2, 1), sent(3, "anna")])
    await store.append("acme/b/other", [sent(1, "bob"), said(2, "anna, anna")])
    await store.append("zeta/a/first", [sent(1, "anna")])
    found = await store.sessions_about("acme/", ["anna"])
    names = ("claim", "few", "first", "large", "many", "one")
    assert found == [f"acme/a/{name}" for name in names]
    assert await store.sessions_about("acme/", ["bob"]) == ["acme/b/other"]
    assert await store.sessions_about("zeta/", ["anna"]) == ["zeta/a/first"]
    assert await store.sessions_about("acme/", ["carl"]) == []
    assert await store.sessions_about("none/", ["anna", "bob"]) == []


@pytest.mark.parametrize("user", ["a" * 10_000, "\x00\ud800 é🙂", 'a"b\\', "", "\u2028"])
async def test_a_sender_may_have_any_length_and_any_characters(store, user):
    await store.append("acme/a/x", [sent(1, user)])
    assert await store.sessions_about("acme/", [user]) == ["acme/a/x"]


async def test_a_sender_that_a_rewrite_removes_is_no_longer_found(store):
    await store.append("acme/a/x", [sent(1, "anna"), sent(2, "bob")])
    await store.rewrite("acme/a/x", [said(3)], lambda event: said(1) if event.seq == 1 else event)
    assert await store.sessions_about("acme/", ["anna"]) == []
    await store.append("acme/a/x", [sent(4, "anna")])
    assert await store.sessions_about("acme/", ["anna"]) == ["acme/a/x"]
    await store.delete("acme/a/x")
    assert await store.sessions_about("acme/", ["anna", "bob"]) == []
    await store.append("acme/a/x", [sent(1, "carl")])
    assert await store.sessions_about("acme/", ["anna", "bob"]) == []


async def test_a_fork_is_found_by_all_that_it_was_copied_from_even_if_they_are_gone(store):
    await store.append("acme/a/telegram:12:3", [said(1)])
    await store.append("acme/a/middle", [said(1), forked(2, "acme/a/telegram:12:3")])
    copied = [said(1), forked(2, "acme/a/telegram:12:3"), forked(3, "acme/a/middle")]
    await store.append("acme/a/copy", copied)
    await store.append("zeta/a/taken", copied)
    await store.delete("acme/a/middle")
    await store.delete("acme/a/telegram:12:3")
    for name in ("telegram:12:3", "middle"):
        subject = session_subject(f"acme/a/{name}")
        assert await store.sessions_about("acme/", [subject]) == ["acme/a/copy"]
    assert await store.sessions_about("acme/", ["telegram:12"]) == ["acme/a/copy"]
    assert await store.sessions_about("acme/", ["telegram:1"]) == []


async def test_sessions_are_listed_by_recency_page_by_page(store, place):
    names = [f"acme/a/{letter}" for letter in "cabd"]
    for turn, name in enumerate(names):
        await store.append(name, [said(1, at=float(turn + 1)), claimed(2, 1)])
        await asyncio.sleep(0.01 if place.name == "files" else 0)
    await store.append("acme/a/c", [Event(seq=3, at=60.0, body=claimed(3, 2).body)])
    await store.append("acme/b/x", [said(1)])
    await store.append("acme/a/x/y", [said(1)])
    entries = await store.recent_sessions("acme/a/")
    expected = ["acme/a/c", "acme/a/d", "acme/a/b", "acme/a/a"]
    if place.name != "files":
        # A session's place is the time of its claim, which is the same for all but one.
        assert [one.active for one in entries] == [60.0, 2.0, 2.0, 2.0]
    assert [one.session for one in entries] == expected
    pages, before = [], NEWER_THAN_ALL
    while page := await store.recent_sessions("acme/a/", before=before, limit=1):
        pages += page
        before = (page[-1].active, page[-1].session)
    assert pages == entries
    assert await store.recent_sessions("acme/c/") == []


async def test_an_erasure_does_not_make_a_session_recent(store, place):
    for name in ("old", "new"):
        await store.append(f"acme/a/{name}", [said(1), said(2)])
        await asyncio.sleep(0.01 if place.name == "files" else 0)
    before = await store.recent_sessions("acme/a/")
    await store.rewrite("acme/a/old", [], lambda event: said(event.seq, "gone"))
    assert await store.recent_sessions("acme/a/") == before


async def test_nothing_is_added_to_a_session_after_it_was_closed(store):
    session = await Session.create(store, "s", model="gpt-4o")
    await session.add(user("in time"))
    await session.close()
    with pytest.raises(SessionClosed, match="session 's' is closed; open it again to use it"):
        await session.add(user("late"))
    with pytest.raises(SessionClosed):
        await session.request()
    with pytest.raises(SessionClosed):
        async with session.claim_turn():
            pass
    assert [message.message.text async for message in session.messages()] == ["in time"]
    async with await Session.open(store, "s") as again:
        await again.add(user("later"))
    if isinstance(store, FileStore):
        assert find_lock_holder(store.root / "s") is None


async def test_an_idempotency_key_that_is_not_a_text_is_refused(store):
    session = await Session.create(store, "s", model="gpt-4o")
    right = "key is 5; it must be a text such as 'update-871'"
    with pytest.raises(TypeError, match=right):
        await session.add(user("hello"), key=5)
    with pytest.raises(TypeError, match=right):
        Context(model="gpt-4o").add(user("hello"), key=5)
    with pytest.raises(TypeError, match="key is 5"):
        await run_turn(session, ScriptedProvider("openai_chat", []), message=user("a"), key=5)
    assert await store.position("s") == session.window.seq


async def test_a_session_and_its_store_refuse_to_be_pickled_and_say_what_to_pass(store):
    session = await Session.create(store, "s", model="gpt-4o")
    with pytest.raises(TypeError, match="a Session cannot be pickled; pass the location"):
        pickle.dumps(session)
    kind = type(store).__name__
    with pytest.raises(TypeError, match=f"a {kind} cannot be pickled; pass its location"):
        pickle.dumps(store)
