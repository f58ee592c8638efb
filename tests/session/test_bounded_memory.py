"""What a live session keeps in memory is bounded, whatever the length of its log."""

import json
from typing import Any

import pytest

from tests.agents import Clock
from tests.conversations import said, user
from tests.session.failing_stores import Counting, Wrapped
from tests.session.session_user import Worker, edits, options
from trimtab.engine.log.event import Rewind
from trimtab.engine.policy.budget import compute_max_messages_in_memory
from trimtab.engine.policy.presets import POLICY_NAMES
from trimtab.engine.window.checkpoint import snapshot_to_json
from trimtab.session import Session, loading
from trimtab.session.loading import MIN_CHECKPOINT_EVENTS
from trimtab.testing import MemoryStore

pytestmark = pytest.mark.anyio


def sizes(session: Session) -> tuple[int, int, int]:
    """Messages and events in memory, and bytes of the snapshot."""
    window = session.window
    stored = len(json.dumps(snapshot_to_json(window.base.snapshot)))
    return len(window.entries), len(window.base.events_since_snapshot), stored


async def chatter(session: Session, turns: int, more: str = "") -> tuple[int, int, int]:
    """Tiny messages, or longer ones, each turn sent; the most that was ever in memory."""
    most = (0, 0, 0)
    for number in range(turns):
        await session.add(user(f"q{number}{more}"))
        await session.request()
        await session.add(said(f"a{number}{more}"))
        now = sizes(session)
        most = (max(most[0], now[0]), max(most[1], now[1]), max(most[2], now[2]))
    return most


@pytest.mark.slow
@pytest.mark.soak_on("memory", "postgres")
@pytest.mark.parametrize("turns", [350, pytest.param(2_500, marks=pytest.mark.soak)])
async def test_thousands_of_tiny_messages_stay_within_the_message_limit(place, turns):
    store = await place.open()
    # 60,000 tokens hold them all: it is the number of messages that binds.
    given: dict[str, Any] = {"max_input_tokens": 60_000, "policy": "layered", "clock": Clock()}
    session = await Session.create(store, "s", model="gpt-4o", dialect="openai_chat", **given)
    limit = compute_max_messages_in_memory(60_000)
    assert limit == 600 < turns * 2
    entries, events, stored = await chatter(session, turns)
    # Tiny messages that save less than the notice of their drop takes stay until there are more.
    slack = 12
    assert entries <= limit + limit // 10 + slack
    assert events <= 2 * (MIN_CHECKPOINT_EVENTS + entries)
    assert stored <= 40 * limit + 40_000
    assert session.window.conversation.total_messages == 2 * turns
    await session.add(user("And now?"))
    await session.request()
    assert session.window.visible_messages <= limit + slack
    drops = await edits(store, "s")
    assert {(edit.op, edit.why) for edit in drops} == {("drop", f"over {limit} messages")}
    assert await session.recall("m2.0") == "q0"
    await store.close()


@pytest.mark.parametrize("size", [0, 100])
async def test_memory_is_bounded_while_messages_are_added_and_nothing_is_requested(size):
    store, limit = MemoryStore(), 100
    given: dict[str, Any] = {"max_input_tokens": 10_000, "policy": "layered", "clock": Clock()}
    session = await Session.create(store, "s", model="gpt-4o", dialect="openai_chat", **given)
    for number in range(300):
        await session.add(user(f"q{number}{'x' * size}"))
        await session.add(said(f"a{number}{'y' * size}"))
        assert len(session.window.entries) <= limit + limit // 5 + 1
    assert session.window.conversation.total_messages == 600
    assert len(await edits(store, "s")) <= 600 // (limit // 10)
    assert (await session.recall("m2.0")).startswith("q0")
    reopened = await Session.open(store, "s")
    assert await reopened.request() == await session.request()
    assert session.window.visible_messages <= limit


async def test_long_messages_leave_memory_soon_after_they_are_hidden(monkeypatch):
    monkeypatch.setattr(loading, "MIN_CHECKPOINT_BYTES", 60_000)
    store = Counting(MemoryStore())
    session = await Session.create(store, "s", **options(context_window=4_000))
    for number in range(12):
        await session.add(user(f"{number} {'heron ' * 3_000}"))
        await session.request()
        assert sum(entry.sizes[0].bytes for entry in session.window.entries.values()) < 100_000
        await session.add(said("ok"))
    store.read = 0
    reopened = await Session.open(store, "s")
    assert reopened.window.base.snapshot.seq
    assert store.read < session.window.seq
    assert (await reopened.recall("m2.0")).startswith("0 heron")


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["full", "thresholds"])
async def test_where_messages_are_not_counted_the_tokens_bound_what_is_in_memory(policy):
    store = MemoryStore()
    given: dict[str, Any] = {"policy": policy, "max_output_tokens": 500, "clock": Clock()}
    given |= {"model": "gpt-4o", "dialect": "openai_chat"}
    tiny = await Session.create(store, "tiny", max_input_tokens=20_000, **given)
    await chatter(tiny, 150)
    assert (
        len(tiny.window.entries)
        == tiny.window.visible_messages
        == 300
        > compute_max_messages_in_memory(20_000)
    )
    long = await Session.create(store, "long", max_input_tokens=20_000, **given)
    entries, _, stored = await chatter(long, 150, " and so on" * 100)
    assert long.window.conversation.total_messages == 300
    # A question takes 300 tokens and stays whole as long as it may; little is left of its reply.
    assert long.window.visible_messages < 2 * 20_000 // 300
    assert entries <= compute_max_messages_in_memory(20_000) + 20
    assert stored < 40_000


@pytest.mark.slow
@pytest.mark.soak_on("files", "postgres")
@pytest.mark.parametrize("policy", sorted({*POLICY_NAMES} - {"full"}))
async def test_under_every_policy_memory_holds_what_is_seen_and_little_more(store, policy):
    # Each of these hides by size, and what is hidden leaves memory.
    worker = Worker(await Session.create(store, "s", **options(policy=policy)))
    halves = [(0, 0, 0), (0, 0, 0)]
    for number in range(80):
        await worker.turn(rounds=1, size=400)
        now, most = sizes(worker.session), halves[number // 40]
        halves[number // 40] = (max(most[0], now[0]), max(most[1], now[1]), max(most[2], now[2]))
        window = worker.session.window
        assert len(window.entries) - window.visible_messages <= compute_max_messages_in_memory(
            8_000
        )
    for first, second in zip(*halves, strict=True):
        assert second <= 1.5 * first + 20
    assert worker.session.window.conversation.total_messages > halves[1][0]


@pytest.mark.parametrize(
    ("tokens", "messages"),
    [(None, 1_000), (1, 100), (10_000, 100), (60_000, 600), (200_000, 2_000), (10**7, 2_000)],
)
def test_the_message_limit_follows_from_the_token_limit_within_bounds(tokens, messages):
    assert compute_max_messages_in_memory(tokens) == messages


@pytest.mark.usefixtures("often")
async def test_opening_reads_the_snapshot_what_it_names_and_the_tail(store):
    counting = Counting(store)
    given = options(policy="layered", limits={"max_history_tokens": 400})
    worker = Worker(await Session.create(counting, "s", **given))
    reads: dict[int, int] = {}
    for number in range(1, 61):
        await worker.turn()
        if number % 20 == 0:
            counting.read = 0
            again = await Session.open(counting, "s")
            position = await store.position("s")
            snapshot = await store.snapshot("s")
            assert snapshot is not None
            named = sum(last - first + 1 for first, last in snapshot.spans)
            assert counting.read == named + position - snapshot.seq
            assert again.window.seq == position
            reads[number] = counting.read
    assert await store.position("s") > 400
    assert reads[60] < 120
    assert reads[60] <= 2 * reads[20]


@pytest.mark.usefixtures("often")
async def test_a_long_tail_without_snapshots_is_folded_piece_by_piece(store, monkeypatch):
    from trimtab.session import loading

    given = options(policy="layered", limits={"max_history_tokens": 400})
    worker = Worker(await Session.create(store, "s", **given))
    for _ in range(30):
        await worker.turn()
    events = [event async for event in store.events("s")]
    await store.append("t", events)
    monkeypatch.setattr(loading, "MAX_FOLD_CHUNK_EVENTS", 50)
    again = await Session.open(store, "t", clock=Clock())
    assert len(again.window.entries) < worker.session.window.conversation.total_messages / 2
    assert (await again.preview()).request == (await worker.session.preview()).request


class Overtaking(Wrapped):
    """Another process appends directly after each rewind."""

    async def append(self, session, events, *, epoch=None):
        await self.inner.append(session, events, epoch=epoch)
        if isinstance(events[-1].body, Rewind):
            other = await Session.open(self.inner, session, clock=lambda: 2e9)
            await other.add(user("from elsewhere"))


async def test_a_rewind_behind_a_checkpoint_continues_after_a_concurrent_append():
    session = await Session.create(Overtaking(MemoryStore()), "s", **options(clock=Clock()))
    await chatter(session, 12, " and so on" * 400)
    await session.compact()
    await session.recorder.checkpoint()
    assert 2 not in session.window.entries
    await session.rewind("m2")
    await session.refresh()
    await session.add(user("and here"))
    texts = [entry.message.text for entry in session.window.entries.values()]
    assert texts[-2:] == ["from elsewhere", "and here"]


async def test_a_session_logs_what_it_hides_without_a_hook(caplog):
    caplog.set_level("INFO", logger="trimtab")
    session = await Session.create(MemoryStore(), "s", **options(clock=Clock()))
    await chatter(session, 12, " and so on" * 400)
    await session.compact()
    assert "context edited" in caplog.text
