"""What left memory is still there: it is recalled, found, revealed, pinned and gone back to."""

import pytest

from tests.conversations import prose, user
from tests.session.session_user import Worker, bodies, edits, options, text, tool_use
from trimtab.engine.log.event import Edit, MessageAdded, Pin, Rewind, dump_canonical_json
from trimtab.engine.log.message import ToolCall
from trimtab.engine.policy.budget import Budget
from trimtab.engine.policy.planning.plan import Decision
from trimtab.engine.recall.tools import search_window
from trimtab.engine.window.window import Window
from trimtab.errors import SessionExists, UnusableSummary
from trimtab.session import Session
from trimtab.session.session import fork_stored_session

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("often")]

NEEDLE = "The vault opens at dawn with the word xylophone."


async def long_ago(store, **own) -> tuple[Worker, str]:
    """A session in which something was said that has left memory since; its handle."""
    given = options(policy="layered", limits={"max_history_tokens": 400}, **own)
    worker = Worker(await Session.create(store, "s", **given))
    await worker.turn()
    handle = await worker.say(NEEDLE)
    await worker.ask()
    await worker.answer(text("Noted."))
    for _ in range(10):
        await worker.turn(rounds=2)
    window = worker.session.window
    assert int(handle[1:]) <= window.base.last_evicted_seq
    assert int(handle[1:]) not in window.entries
    return worker, handle


async def test_what_left_memory_is_recalled_as_it_was_said(store):
    worker, handle = await long_ago(store)
    assert await worker.session.recall(f"{handle}.0") == NEEDLE
    assert await worker.session.recall(handle) == f"[{handle} user]\n{NEEDLE}"
    newest = max(worker.session.window.entries)
    whole = await worker.session.recall(f"m1-m{newest}")
    assert NEEDLE in whole
    assert whole.endswith(await worker.session.recall(f"m{newest}.0"))
    with pytest.raises(LookupError, match=r"there is no m1\.0: position 1 is not a message"):
        await worker.session.recall("m1.0")


async def test_a_range_too_long_for_one_answer_says_where_to_go_on(store, monkeypatch):
    from trimtab.session import store_recall

    monkeypatch.setattr(store_recall, "MAX_RECALL_POSITIONS", 20)
    worker, _ = await long_ago(store)
    assert (await worker.session.recall("m2-m90")).endswith("[69 more positions; ask for m22-m90]")


async def test_a_search_finds_what_left_memory_with_its_handle(store):
    worker, handle = await long_ago(store)
    assert await worker.session.search("XYLO vault") == f"{handle}.0: {NEEDLE}"
    assert await worker.session.search("zzz") == "(nothing found)"


async def test_a_search_shows_what_is_hidden_before_what_the_model_sees_anyway(store):
    worker, handle = await long_ago(store)
    newest = await worker.say("The xylophone vault, the xylophone vault: where was it?")
    told = await worker.session.search("xylophone vault where")
    assert [line.partition(".")[0] for line in told.split("\n\n")] == [handle, newest]


async def test_a_search_shows_first_what_contains_the_query_as_it_is_written(store):
    """The months of all these days, and all their days of a month, contain the same numbers."""
    session = await Session.create(store, "s", **options())
    handle = await session.add(user("\n".join(f"2024-03-{day:02d} paid" for day in range(1, 29))))
    for month in range(4, 12):
        days = (f"2024-{month:02d}-{day:02d} paid" for day in range(1, 29))
        await session.add(user("\n".join(days)))
    answers = [await session.search("2024-03-05"), search_window(session.window, "2024-03-05")]
    for answer in answers:
        assert answer.startswith(f"{handle}.0: ")
        assert "2024-03-05 paid" in answer.split("\n\n")[0]


async def test_the_recall_tools_answer_from_the_store_and_the_answer_is_marked(store):
    worker, handle = await long_ago(store)
    await worker.answer(
        tool_use("r1", "recall", handle=f"{handle}.0"),
        tool_use("r2", "search_history", query="xylophone"),
        tool_use("r3", "recall", handle="m9999"),
    )
    session = worker.session
    told = [
        await session.answer(
            ToolCall(id="r1", name="recall", arguments=f'{{"handle":"{handle}.0"}}')
        ),
        await session.answer(tool_use("r2", "search_history", query="xylophone")),
        await session.answer(tool_use("r3", "recall", handle="m9999")),
    ]
    assert told[0] == NEEDLE
    assert told[1] == f"{handle}.0: {NEEDLE}"
    assert told[2].startswith("[there is no m9999; positions go up to m")
    said = [body for body in await bodies(store, "s") if isinstance(body, MessageAdded)]
    assert [body.recalled for body in said[-4:]] == [False, True, True, True]
    request = dump_canonical_json(await worker.ask())
    assert request.count(NEEDLE) == 2
    # What the answers repeat is found where it was said, and there alone.
    assert await session.search("xylophone") == f"{handle}.0: {NEEDLE}"


async def test_what_was_undone_is_neither_recalled_nor_found(store):
    worker, handle = await long_ago(store)
    session = worker.session
    await session.rewind(int(handle[1:]) - 1)
    assert await session.search("xylophone") == "(nothing found)"
    with pytest.raises(LookupError, match="there is no"):
        await session.recall(handle)
    for _ in range(6):
        await worker.turn(rounds=2)
    assert session.window.base.last_evicted_seq > int(handle[1:])
    with pytest.raises(LookupError, match="there is no"):
        await session.recall(f"{handle}.0")
    again = await Session.open(store, "s")
    assert await again.search("xylophone") == "(nothing found)"
    with pytest.raises(LookupError, match="there is no"):
        await again.recall(handle)


async def test_a_search_looks_past_all_that_was_undone(store):
    session = await Session.create(store, "s", **options())
    kept = await session.add(user("The heron stands still."))
    for number in range(50):
        await session.add(user(f"The heron moves {number} steps, the heron."))
    await session.rewind(kept)
    await session.add(user("Go on."))
    assert await session.search("heron") == f"{kept}.0: The heron stands still."


async def test_many_rewinds_cost_no_more_than_their_number(store):
    session = await Session.create(store, "s", **options())
    start = await session.add(user("Once upon a time."))
    for number in range(60):  # each of them folded again for each one before took for ever
        await session.add(user(f"attempt {number}"))
        await session.rewind(session.window.seq - 1)
    await session.rewind(start)
    assert [entry.message.text for entry in session.window.entries.values()] == [
        "Once upon a time."
    ]


@pytest.mark.parametrize("far", [False, True])
async def test_what_was_hidden_is_revealed_near_and_far_back(store, far):
    worker, handle = await long_ago(store)
    session = worker.session
    if not far:
        handle = next(
            f"m{edit.first}"
            for edit in reversed(await edits(store, "s"))
            if edit.op == "drop" and edit.first > session.window.base.last_evicted_seq
        )
    before = session.window.conversation.dropped_groups.message_count
    await session.reveal(handle)
    revealed = session.window.entries[int(handle[1:])]
    assert revealed.round.group.hidden is None
    assert session.window.conversation.dropped_groups.message_count < before
    assert ((await bodies(store, "s"))[-1]) == Edit(
        op="reveal", first=revealed.seq, last=revealed.seq, why="asked"
    )
    again = await Session.open(store, "s")
    assert again.window.entries[revealed.seq].round.group.hidden is None
    assert (
        again.window.conversation.dropped_groups.message_count
        == session.window.conversation.dropped_groups.message_count
    )


async def test_a_pin_far_back_holds_what_is_revealed_with_it(store):
    worker, handle = await long_ago(store)
    await worker.session.pin(handle)
    await worker.session.reveal(handle)
    for _ in range(6):
        await worker.turn(rounds=2)
    await worker.say("Go on.")
    assert NEEDLE in dump_canonical_json(await worker.ask())
    again = Worker(await Session.open(store, "s"))
    again.count = worker.count
    assert again.session.window.entries[int(handle[1:])].pinned
    await again.session.pin(handle, pinned=False)
    for _ in range(6):
        await again.turn(rounds=2)
    await again.say("Go on.")
    assert NEEDLE not in dump_canonical_json(await again.ask())
    pins = [body for body in await bodies(store, "s") if isinstance(body, Pin)]
    assert [pin.pinned for pin in pins] == [True, False]


async def test_a_rewind_behind_checkpoints_gives_the_window_of_that_time(store):
    given = options(policy="layered", limits={"max_history_tokens": 400})
    worker = Worker(await Session.create(store, "s", **given))
    for _ in range(5):
        await worker.turn(rounds=2)
    await worker.say("Where are we?")
    back, messages = worker.session.window.seq, contents(worker)
    for _ in range(10):
        await worker.turn(rounds=2)
    assert worker.session.window.base.snapshot.seq > back
    await worker.session.rewind(back)
    assert contents(worker) == messages
    again = await Session.open(store, "s")
    assert contents(Worker(again)) == messages
    assert [b.to for b in await bodies(store, "s") if isinstance(b, Rewind)] == [back]
    with pytest.raises(ValueError, match="cannot rewind to 9999"):
        await again.rewind(9_999)


def contents(worker: Worker) -> list[str]:
    window = worker.session.window
    shown = [group for group in window.conversation.groups if group.hidden is None]
    return [str(entry.message) for group in shown for entry in group.entries()]


async def test_a_fork_shares_the_past_and_nothing_after(store):
    worker, handle = await long_ago(store)
    at = worker.session.window.seq
    await worker.turn()
    twin = await worker.session.fork("t", at=at)
    assert twin.id == "t"
    assert await twin.recall(f"{handle}.0") == NEEDLE
    before = await store.position("s")
    await twin.add(user("Only here."))
    assert await store.position("s") == before
    assert await worker.session.search("only here") == "(nothing found)"
    assert await store.forks("s") == ["t"]
    events = [event async for event in store.events("t", [(1, at)])]
    assert events == [event async for event in store.events("s", [(1, at)])]
    for wrong in (0, before + 1):
        with pytest.raises(ValueError, match=f"cannot fork at {wrong}; positions go from 1 to"):
            await worker.session.fork("u", at=wrong)
    assert await store.position("u") == 0
    with pytest.raises(SessionExists, match="session 't' already exists"):
        await worker.session.fork("t")


async def test_a_session_is_forked_without_the_policy_of_whoever_made_it(store):
    def policy(_window: Window, _budget: Budget) -> Decision:
        return Decision()

    worker = Worker(await Session.create(store, "s", **options(policy=policy)))
    await worker.turn()
    log = await fork_stored_session(store, "s", "t")
    assert log == [event async for event in store.events("t")]
    assert len(log) == worker.session.window.seq + 1
    assert await store.forks("s") == ["t"]


async def test_a_fork_of_the_past_has_the_policy_of_that_time(store):
    worker = Worker(await Session.create(store, "s", **options(policy="layered")))
    await worker.turn()
    at = worker.session.window.seq
    await worker.session.configure(policy="full")
    twin = await worker.session.fork("t", at=at)
    assert twin.options.policy == "layered"
    assert worker.session.options.policy == "full"


async def test_what_is_said_while_a_summary_is_made_stays(store):
    worker = await asked_for_a_summary(store)
    wanted = await worker.session.pending_summary()
    assert wanted is not None
    other = Worker(await Session.open(store, "s"))
    await other.say("Meanwhile, something new.")
    await worker.session.add_summary("They talked.", span=wanted.span)
    request = dump_canonical_json(await worker.ask())
    assert "They talked." in request
    assert "Meanwhile, something new." in request
    assert not any(message.text in request for message in wanted.messages if message.text)


@pytest.mark.parametrize("what", ["rewind", "erase"])
async def test_a_summary_of_what_was_undone_or_erased_meanwhile_is_refused(store, what):
    worker = await asked_for_a_summary(store)
    wanted = await worker.session.pending_summary()
    assert wanted is not None
    other = await Session.open(store, "s")
    if what == "rewind":
        await other.rewind(wanted.span.last - 1)
    else:
        await other.erase(f"m{wanted.span.first}")
    position = await store.position("s")
    with pytest.raises(UnusableSummary, match="undone or erased since"):
        await worker.session.add_summary("They talked.", span=wanted.span)
    assert await store.position("s") == position


async def asked_for_a_summary(store) -> Worker:
    given = options(policy="rolling", summaries="manual", context_window=100_000)
    worker = Worker(await Session.create(store, "s", **given))
    for number in range(40):
        await worker.say(prose(200, f"question {number}"))
        await worker.ask()
        await worker.answer(text(prose(200, f"answer {number}")))
        if await worker.session.pending_summary() is not None:
            return worker
    raise AssertionError("no summary was ever asked for")


async def test_a_rewind_far_back_by_another_writer_brings_the_policy_it_set_after(store):
    worker, handle = await long_ago(store)
    other = await Session.open(store, "s")
    await other.rewind(handle)
    await other.configure(policy="full")
    await worker.session.refresh()
    assert worker.session.window.seq == other.window.seq
    assert worker.session.options.policy == "full"
    assert dump_canonical_json(await worker.ask()) == dump_canonical_json(await other.request())
