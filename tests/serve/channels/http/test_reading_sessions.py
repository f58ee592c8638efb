"""What was said, what the model sees of it, and what a person does about it."""

from __future__ import annotations

import asyncio

import pytest

from tests.serve.channels.http.running_apps import Held, house, problem
from tests.serve.queue.queues import give_up
from trimtab.errors import StaleOwner
from trimtab.session import Session
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
    await other.claim_turn()
    return other


async def test_nothing_is_undone_under_a_turn_that_runs_in_another_process():
    async with house() as served:
        session, other = served.session(), await elsewhere(served)
        with pytest.raises(ApiError, match="a turn is running in session one") as refused:
            await session.undo()
        assert refused.value.status == 409
        await other.add({"role": "assistant", "content": "One."})
        await other.end_turn()
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
            assert opened.epoch is None
