"""What was said, what the model sees of it, and what a person does about it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tests.serve.channels.http.running_apps import Held, House, house, problem
from tests.serve.queue.queues import give_up
from trimtab.engine.log.event import Event, MessageAdded
from trimtab.engine.log.message import Message, Text, ToolResult, make_text_message
from trimtab.errors import StaleOwner
from trimtab.session import Session
from trimtab_serve.channels.http.endpoints import inspection
from trimtab_serve.channels.http.projection import MAX_PAGE_CHARS, build_message_info
from trimtab_serve.client import ApiError

pytestmark = pytest.mark.anyio

SESSION = "default/helper/one"
ONE = "/v1/agents/helper/sessions/one"


async def test_history_is_read_in_pages_from_either_end():
    async with house(*(f"Answer {n}." for n in range(3))) as served, served.http() as http:
        session = served.session()
        for number in range(3):
            await session.ask(f"Question {number}.")
        texts = [m.text async for m in session.history(page_size=2)]
        assert texts == [f"{what} {n}." for n in range(3) for what in ("Question", "Answer")]
        backwards, before = list[str](), 10**6
        while before is not None:
            page = (await http.get(f"{ONE}/history?before={before}&limit=4")).json()
            backwards[:0] = [message["text"] for message in page["messages"]]
            before = page["next"]
        assert backwards == texts
        both = await http.get(f"{ONE}/history?after=1&before=2")
        problem(both, 422, "invalid-request")


async def fill(served: House, texts: Sequence[str]) -> None:
    async with served.service.open_session(SESSION) as session:
        for text in texts:
            await session.add(make_text_message("user", text))


@pytest.mark.parametrize("query", ["after=0", "before=100000"])
async def test_a_page_of_history_ends_early_when_its_messages_are_long(monkeypatch, query):
    monkeypatch.setattr(inspection, "MAX_PAGE_CHARS", 100)
    texts = ["a" * 40, "b" * 40, "c" * 40, "d" * 300, "e", *("f" * 9 for _ in range(40))]
    async with house() as served, served.http() as http:
        await fill(served, texts)
        found, pages = list[str](), 0
        direction, _, position = query.partition("=")
        while position is not None:
            answer = await http.get(f"{ONE}/history?limit=1000&{direction}={position}")
            page = [message["text"] for message in answer.json()["messages"]]
            assert len(page) == 1 or sum(map(len, page)) <= 100
            found = found + page if direction == "after" else page + found
            position, pages = answer.json()["next"], pages + 1
        assert found == texts
        assert pages > 5
        assert [message.text async for message in served.session().history()] == texts


async def test_a_message_longer_than_a_page_is_shown_in_part_with_how_to_read_the_rest():
    long = "x" * (MAX_PAGE_CHARS + 5)
    results = (ToolResult(call_id=name, content=(Text(text=long),)) for name in "ab")
    message = Message(role="tool", parts=tuple(results))
    info = build_message_info(Event(seq=12, at=1.0, body=MessageAdded(message=message, sizes=())))
    first, second = (result.text for result in info.tool_results)
    assert first == f"{long[:-5]}\n[5 more characters; recall m12 to read them]"
    assert second == "\n[2,000,005 more characters; recall m12 to read them]"


async def test_a_long_text_is_recalled_in_pages_that_give_the_whole(monkeypatch):
    texts = ["a" * 40, "b" * 40, "c" * 40, "d" * 300, "e", *("f" * 9 for _ in range(40))]
    async with house() as served, served.http() as http:
        await fill(served, texts)
        whole = await served.session().recall("m1-m999999")
        giant = [message.handle async for message in served.session().history()][3]
        assert all(text in whole for text in texts)
        monkeypatch.setattr(inspection, "MAX_PAGE_CHARS", 100)
        pages = list[str]()
        rest = "m1-m999999"
        while rest is not None:
            answer = (await http.get(f"{ONE}/recall/{rest}")).json()
            pages.append(answer["text"])
            rest = answer["next"]
        assert "".join(pages) == whole
        assert len(pages) > 8
        assert max(map(len, pages)) < 300
        assert await served.session().recall("m1-m999999") == whole
        assert (await served.session().recall(giant)).endswith(f"\n{texts[3]}")
        plain = await http.get(f"{ONE}/recall/{giant}", headers={"Accept": "text/plain"})
        assert plain.headers["link"] == f'<{ONE}/recall/{giant}?after=100>; rel="next"'


async def test_the_context_is_told_in_figures_and_as_a_picture():
    async with house("Hello.") as served, served.http() as http:
        await served.session().ask("Hi.")
        info = await served.session().context()
        assert info.ledger["used"] > 0
        assert "Context Usage" in info.text
        assert info.line.startswith("Context ")
        plain = await http.get(f"{ONE}/context", headers={"Accept": "text/plain"})
        assert plain.headers["content-type"] == "text/plain; charset=utf-8"
        assert plain.text == f"{info.text}\n"


async def test_what_compacting_hides_is_explained_recalled_and_found():
    words = "the quick brown fox jumps over the lazy dog " * 60
    async with house(*(f"Yes: {words}" for _ in range(12))) as served, served.http() as http:
        session = served.session()
        for number in range(12):
            await session.ask(f"Question {number}: what about the zebra{number}?")
        done = await session.compact()
        assert done.after < done.before
        assert done.hidden
        first, *_ = [m async for m in session.history()]
        why = await session.why(first.handle)
        assert why.state == "listed"
        assert why.reason
        assert await session.recall(f"{first.handle}.0") == first.text
        plain = await http.get(f"{ONE}/recall/m2.0", headers={"Accept": "text/plain"})
        assert plain.text == first.text
        assert first.handle in await session.search("zebra0")
        again = await session.compact()
        assert again.after == again.before


async def test_why_says_which_parts_of_a_message_are_hidden():
    async with house("Hello.") as served, served.http() as http:
        session = served.session()
        await session.ask([{"type": "text", "text": word} for word in ("one", "two")])
        assert (await session.why("m2")).parts == {}
        await session.erase("m2.1")
        why = await session.why("m2")
        assert (why.state, why.parts) == ("partial", {"m2.0": "shown", "m2.1": "erased"})
        told = (await http.get(f"{ONE}/why/m2")).json()
        assert told["parts"] == why.parts


@pytest.mark.parametrize(
    ("handle", "status", "kind"),
    [
        ("m999", 404, "not-found"),
        ("m2.7", 404, "not-found"),
        ("nonsense", 422, "invalid-request"),
        ("m9-m3", 422, "invalid-request"),
        ("m99999999999999999999", 422, "invalid-request"),
    ],
)
async def test_a_handle_of_nothing_is_refused(handle, status, kind):
    async with house("Hello.") as served, served.http() as http:
        await served.session().ask("Hi.")
        for verb in ("why", "recall"):
            problem(await http.get(f"{ONE}/{verb}/{handle}"), status, kind)


async def test_undo_takes_back_and_history_says_so():
    async with house("One.", "Two.") as served:
        session = served.session()
        await session.ask("First.")
        await session.ask("Second.")
        undone = await session.undo()
        assert (undone.messages, undone.text) == (2, "Second.")
        told = [(m.text, m.undone) async for m in session.history()]
        assert told == [("First.", False), ("One.", False), ("Second.", True), ("Two.", True)]
        assert (await session.state()).messages == 2
        assert (await session.undo("m2")).messages == 1
        assert (await session.undo()).messages == 1
        assert (await session.undo()).messages == 0
        with pytest.raises(ApiError, match="m999 does not exist"):
            await session.undo("m999")


async def test_a_fork_shares_the_past_and_nothing_after():
    async with house("One.", "Two.", "Other two.") as served, served.client() as client:
        session = served.session()
        await session.ask("First.")
        copy = await session.fork("copy")
        await session.ask("Second.")
        await copy.ask("Another second.")
        assert [m.text async for m in session.history()][2:] == ["Second.", "Two."]
        assert [m.text async for m in copy.history()][2:] == ["Another second.", "Other two."]
        parents = {each.name: each.parent async for each in client.list_sessions("helper")}
        assert parents == {"one": None, "copy": "one"}
        with pytest.raises(ApiError) as refused:
            await session.fork("copy")
        assert refused.value.status == 409
        with pytest.raises(ApiError, match="positions are 1 to"):
            await session.fork(at=10**6)


async def test_nothing_is_undone_under_a_turn_that_runs():
    provider = Held("One.", after=2)
    async with house(provider=provider) as served:
        session = served.session()
        answer = asyncio.create_task(session.ask("First."))
        await provider.reached.wait()
        with pytest.raises(ApiError, match="a turn is running in session one") as refused:
            await session.undo()
        assert refused.value.status == 409
        provider.go_on.set()
        assert await answer == "One."


async def elsewhere(served):
    """A turn that another process has begun, and its message."""
    served.leave_unanswered()
    session, store = served.session(), served.service.store
    await session.send("First.", key="k1")
    other = await Session.open(store, SESSION)
    await other.add({"role": "user", "content": "First."}, key="k1")
    await other.recorder.claim()
    return other


async def test_nothing_is_undone_under_a_turn_that_runs_in_another_process():
    async with house() as served:
        session, other = served.session(), await elsewhere(served)
        with pytest.raises(ApiError, match="a turn is running in session one") as refused:
            await session.undo()
        assert refused.value.status == 409
        await other.add({"role": "assistant", "content": "One."})
        await other.recorder.end_turn()
        assert (await session.undo()).messages == 2


@pytest.mark.parametrize("left", ["given up", "resumed"])
async def test_a_turn_that_nobody_goes_on_with_is_undone_and_can_write_no_more(left):
    async with house() as served:
        session, other = served.session(), await elsewhere(served)
        queue = served.service.queue
        if left == "given up":
            await give_up(queue, SESSION)
        else:
            await queue.finish_turn(
                SESSION, 1, [one.number for one in await queue.pending(SESSION)], []
            )
        assert (await session.undo()).text == "First."
        with pytest.raises(StaleOwner):
            await other.add({"role": "assistant", "content": "One."})
        assert [(m.text, m.undone) async for m in session.history()] == [("First.", True)]
        async with served.service.open_session(SESSION) as opened:
            assert opened.recorder.epoch is None
