"""Every request that was ever sent is shown again, byte for byte."""

import json
from contextlib import suppress

import pytest

from tests.agents import Clock
from tests.conversations import prose
from tests.golden.record import DIALECTS, log_file, requests_file
from tests.session.failing_stores import Failing
from tests.session.session_user import (
    TOOLS,
    Worker,
    call_positions,
    edits,
    options,
    text,
    tool_use,
)
from trimtab.engine.log.event import (
    Pin,
    Rewind,
    Settings,
    ToolResultRepair,
    dump_canonical_json,
    load_event_line,
)
from trimtab.engine.policy.planning.plan import MessageSpan
from trimtab.errors import RequestChangedError, UnusableSummary
from trimtab.session import Session

pytestmark = pytest.mark.anyio

OTHER = [{"name": "look", "description": "Look.", "input_schema": {"type": "object"}}]


async def eventful(worker: Worker, turn: int) -> None:
    """What happens beside the turns: each of it once, and some of it again and again."""
    session = worker.session
    match turn:
        case 40:
            await session.pin(f"m{max(session.window.entries)}")
        case 80:
            await session.configure(tools=OTHER)
        case 120:
            await session.configure(model="claude-opus-4-5", tools=TOOLS)
        case 150:
            await session.rewind(session.window.seq - 25)
        case 170:  # a call that never got its result
            await worker.answer(tool_use("lost"))
            await worker.say("Never mind that.")
            await worker.ask(volatile="It is noon.")
            await worker.answer(text("Fine."))
        case 200:
            await session.configure(model="gpt-4o", policy="auto")
        case 230:
            await session.configure(policy="rolling", limits={})
        case 260:
            await session.rewind(session.window.seq // 2)
        case _ if turn % 50 == 30:
            await reveal_newest(worker)
        case _ if turn % 60 == 20:
            first = min(group.first for group in session.window.visible_groups.values())
            span = MessageSpan(first=first, last=session.window.seq - 12)
            with suppress(UnusableSummary):  # it may be no smaller than what it replaces
                await session.add_summary(f"All before turn {turn}.", span=span)
        case _:
            pass


async def reveal_newest(worker: Worker) -> None:
    """See once more what was hidden last."""
    hidden = (await edits(worker.session.store, worker.session.id))[-1:]
    for edit in hidden:
        await worker.session.reveal(edit.handle)
        await worker.say("Look at it again.")
        await worker.ask()
        await worker.answer(text("I have seen it."))


async def many_turns(store, step: int) -> Worker:
    given = options(
        policy="layered",
        limits={
            "max_history_tokens": 900,
            "max_tool_result_tokens": 60,
            "tool_result_keep_first": 0,
            "tool_result_keep_last": 1,
        },
    )
    worker = Worker(await Session.create(store, "s", **given))
    for turn in range(0, 300, step):
        await worker.say(prose(80, f"question {turn}"))
        await worker.ask(stream=turn % 2 == 0)
        if turn % 3 == 0:
            for index in range(3):
                await worker.use(prose(150 + 60 * index, f"value_{turn}_{index}"), path="a.py")
        await worker.answer(text(f"answer {turn}"))
        await eventful(worker, turn)
    return worker


@pytest.mark.slow
@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.parametrize("place", ["files"], indirect=True)
async def test_every_call_of_a_long_session_is_shown_as_it_was_sent(place, step):
    store = await place.open()
    worker = await many_turns(store, step)
    kinds = {edit.op for edit in await edits(store, "s")}
    assert kinds == {"truncate", "mask", "summarise", "drop", "reveal"}
    happened = {type(event.body) async for event in store.events("s")}
    assert {Pin, ToolResultRepair, Rewind, Settings} <= happened
    at = sorted(worker.sent)[200 // step]
    twin = Worker(await worker.session.fork("t", at=at))
    twin.sent = {seq: sent for seq, sent in worker.sent.items() if seq <= at}
    await twin.say("What if?")
    await twin.ask()
    await worker.session.close()
    await twin.session.close()
    await store.close()

    again = await place.open()
    for name, sent in (("s", worker.sent), ("t", twin.sent)):
        session = await Session.open(again, name)
        assert await call_positions(again, name) == sorted(sent)
        for seq, request in sent.items():
            assert dump_canonical_json(await session.rebuild_request(seq)) == request
    assert len(worker.sent) > 600 // step
    await again.close()


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_golden_log_gives_its_requests_from_every_store(store, dialect):
    lines = log_file(dialect).read_text(encoding="ascii").splitlines()
    await store.append("s", [load_event_line(line) for line in lines])
    requests = json.loads(requests_file(dialect).read_text(encoding="ascii"))
    session = await Session.open(store, "s", clock=Clock())
    seqs = await call_positions(store, "s")
    rebuilt = [dump_canonical_json(await session.rebuild_request(seq)) for seq in seqs]
    assert rebuilt == [dump_canonical_json(request) for request in requests]
    await session.recorder.checkpoint()
    assert [dump_canonical_json(await session.rebuild_request(seq)) for seq in seqs] == rebuilt


async def test_what_is_no_call_cannot_be_shown_as_one(store):
    worker = Worker(await Session.create(store, "s", **options()))
    await worker.say("Hi.")
    for seq in (0, 1, 2, 99):
        with pytest.raises(LookupError, match=f"event {seq} is not a call"):
            await worker.session.rebuild_request(seq)


async def test_a_call_whose_message_was_erased_is_not_shown_as_if_it_had_been_so(store):
    worker = Worker(await Session.create(store, "s", **options()))
    handle = await worker.say("My secret.")
    await worker.ask()
    call = worker.session.window.seq
    await worker.answer(text("Thank you."))
    await worker.session.erase(handle)
    with pytest.raises(RequestChangedError, match="Content was erased"):
        await worker.session.rebuild_request(call)
    await worker.say("Go on.")
    await worker.ask()
    assert dump_canonical_json(await worker.session.rebuild_request(worker.session.window.seq))


@pytest.mark.usefixtures("often")
async def test_a_rewind_behind_the_newest_snapshot_is_folded_from_an_older_one(store):
    failing = Failing(store)
    worker = Worker(await Session.create(failing, "s", **options(policy="layered")))
    for _ in range(4):
        await worker.turn(rounds=2)
    back = worker.session.window.seq
    for _ in range(6):
        await worker.turn(rounds=2)
    failing.fail("checkpoint", "before")
    await worker.session.rewind(back)
    await worker.say("And from here?")
    await worker.ask()
    newest = await store.snapshot("s")
    assert newest is not None
    assert back < newest.seq < await store.position("s") - 2
    again = await Session.open(store, "s", clock=Clock())
    sent = worker.sent[max(worker.sent)]
    assert dump_canonical_json(await again.request()) == sent
    assert dump_canonical_json(await again.rebuild_request(max(worker.sent))) == sent
