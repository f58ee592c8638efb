"""Why something is not in the context, since when, by which edit, and what it was."""

import re

import pytest

from tests.agents import Clock
from tests.conversations import prose
from tests.session.session_user import Worker, edits, options, text
from trimtab.engine.log.event import Edit, Rewind
from trimtab.engine.policy.planning.plan import MessageSpan
from trimtab.engine.recall.visibility import VisibilityReason
from trimtab.errors import SessionNotFound
from trimtab.session import Session
from trimtab.session.history import explain_visibility

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("often")]


async def begun(store, **own) -> Worker:
    clock = Clock()
    own = {"policy": "layered", **own}
    session = await Session.create(store, "s", **options(clock=clock, **own))
    return Worker(session, clock)


async def decided(store, op: str) -> tuple[int, float, Edit]:
    """The first edit of a kind: its position, its time, itself."""
    async for event in store.events("s"):
        if isinstance(event.body, Edit) and event.body.op == op:
            return event.seq, event.at, event.body
    raise AssertionError(f"nothing was hidden by {op}")


async def test_what_is_seen_is_shown(store):
    worker = await begun(store)
    handle = await worker.say("Hello.")
    assert await worker.session.why(f"{handle}.0") == VisibilityReason(
        handle=f"{handle}.0", state="shown", text="Hello."
    )
    assert (await worker.session.why(handle)).text == f"[{handle} user]\nHello."


async def test_what_was_truncated_names_its_cap(store):
    worker = await begun(store, limits={"max_tool_result_tokens": 50})
    await worker.say("Read it.")
    await worker.ask()
    long = prose(3_000, "a file")
    handle = await worker.use(long)
    seq, at, edit = await decided(store, "truncate")
    found = await worker.session.why(handle)
    assert found == VisibilityReason(
        handle=handle,
        state="truncated",
        since=at,
        event=seq,
        reason="read: over 50 bytes/4",
        replacement=edit.text,
        text=f"[{handle} user]\n{long}",
    )
    assert "[truncated: kept first ~50 of ~750 tokens (head)" in found.replacement
    assert await worker.session.why(f"{handle}.0") == VisibilityReason(
        handle=f"{handle}.0",
        state="truncated",
        since=at,
        event=seq,
        reason=found.reason,
        replacement=edit.text,
        text=long,
    )


async def test_what_was_masked_names_the_rule(store):
    knobs = {"tool_result_keep_first": 0, "tool_result_keep_last": 1}
    worker = await begun(store, limits=knobs)
    await worker.say("Read them.")
    await worker.ask()
    handle = await worker.use(prose(400, "first"))
    await worker.use(prose(400, "second"))
    await worker.use(prose(400, "third"))
    seq, at, edit = await decided(store, "mask")
    found = await worker.session.why(f"{handle}.0")
    assert (found.state, found.since, found.event) == ("masked", at, seq)
    assert (found.reason, found.replacement) == (edit.why, edit.text)
    assert "middle of" in found.reason
    assert found.text == prose(400, "first")
    await worker.session.reveal(f"{handle}.0")
    assert (await worker.session.why(f"{handle}.0")).state == "shown"


async def test_what_was_dropped_shows_the_notice_even_long_after(store):
    worker = await begun(store, limits={"max_history_tokens": 200})
    handle = await worker.say(prose(300, "the first words"))
    await worker.ask()
    await worker.answer(text("Noted."))
    for _ in range(12):
        await worker.turn(rounds=2)
    assert int(handle[1:]) not in worker.session.window.entries
    seq, at, edit = await decided(store, "drop")
    found = await worker.session.why(f"{handle}.0")
    assert (found.state, found.since, found.event, found.reason) == ("dropped", at, seq, edit.why)
    assert found.reason == "history over 200 tokens"
    assert found.replacement == worker.session.window.conversation.dropped_notice()
    assert found.text == prose(300, "the first words")
    again = await Session.open(store, "s")
    assert await again.why(f"{handle}.0") == found


async def test_what_was_summarised_shows_the_summary(store):
    worker = await begun(store, context_window=100_000)
    handle = await worker.say(prose(300, "the first words"))
    await worker.ask()
    await worker.answer(text("Noted."))
    await worker.turn()
    first = int(handle[1:])
    await worker.session.add_summary("They spoke.", span=MessageSpan(first=first, last=first + 8))
    seq, at, edit = await decided(store, "summarise")
    found = await worker.session.why(handle)
    assert (found.state, found.since, found.event) == ("summarised", at, seq)
    assert (found.reason, found.replacement) == (edit.why, "They spoke.")


async def test_what_a_user_said_in_what_was_summarised_is_listed(store):
    worker = await begun(store, policy="auto", context_window=100_000)
    handle = await worker.say(prose(300, "the first words"))
    await worker.ask()
    await worker.answer(text("Noted."))
    await worker.turn()
    first = int(handle[1:])
    await worker.session.add_summary("They spoke.", span=MessageSpan(first=first, last=first + 8))
    seq, at, _ = await decided(store, "summarise")
    found = await worker.session.why(handle)
    assert (found.state, found.since, found.event) == ("listed", at, seq)
    assert found.replacement == prose(300, "the first words")


async def test_what_was_undone_names_the_rewind_and_is_still_shown(store):
    worker = await begun(store)
    start = await worker.say("Keep this.")
    handle = await worker.say("Undo this.")
    worker.clock.now = 5_000.0
    await worker.session.rewind(start)
    await worker.say("Go on.")
    by = [e.seq async for e in store.events("s") if isinstance(e.body, Rewind)]
    assert await worker.session.why(f"{handle}.0") == VisibilityReason(
        handle=f"{handle}.0",
        state="undone",
        since=5_000.0,
        event=by[0],
        reason=f"rewound to {start[1:]}",
        text="Undo this.",
    )
    assert (await worker.session.why(start)).state == "shown"
    await worker.session.rewind(handle)  # undoes the rewind itself
    assert (await worker.session.why(handle)).state == "shown"
    assert not await edits(store, "s")


async def test_what_was_erased_names_the_erasure_and_shows_nothing(store):
    worker = await begun(store)
    handle = await worker.say("My secret.")
    worker.clock.now = 7_000.0
    await worker.session.erase(handle, reason="asked by the user")
    assert await worker.session.why(f"{handle}.0") == VisibilityReason(
        handle=f"{handle}.0",
        state="erased",
        since=7_000.0,
        event=worker.session.window.seq,
        reason="asked by the user",
    )


ANOTHER = "is not a message (it is settings, a call or an edit) or was undone; the nearest is m2"


@pytest.mark.parametrize(
    ("handle", "why"),
    [
        ("m0", "; positions go up to m3"),
        ("m1", f": position 1 {ANOTHER}"),
        ("m2.1", "; the last part is m2.0"),
        ("m3", f": position 3 {ANOTHER}"),
        ("m99", "; positions go up to m3"),
    ],
)
async def test_what_is_no_message_is_not_found(store, handle, why):
    worker = await begun(store)
    await worker.say("Hello.")
    await worker.ask()
    with pytest.raises(LookupError, match=f"^there is no {handle}{re.escape(why)}$"):
        await worker.session.why(handle)


async def test_what_is_no_handle_and_no_session_is_said(store):
    worker = await begun(store)
    with pytest.raises(ValueError, match="is not a handle"):
        await worker.session.why("the first one")
    with pytest.raises(SessionNotFound):
        await explain_visibility(store, "t", "m1")
