"""A message that is delivered twice, perhaps to two processes, is answered and billed once."""

from __future__ import annotations

import pytest

from tests.conversations import said, user
from trimtab import Session, run_turn
from trimtab.errors import NoReplyDue
from trimtab.testing import ScriptedProvider

pytestmark = pytest.mark.anyio

PAY = user("Pay 10 to the harbour.")


async def test_a_process_that_was_behind_learns_that_the_message_was_answered(store):
    first = await Session.create(store, "s", model="gpt-4o")
    handle = await first.add(PAY, key="update-871")
    other = await Session.open(store, "s")
    await first.request()
    await first.add(said("Paid."))
    await first.close()
    assert other.window.is_reply_due
    assert await other.add(PAY, key="update-871") == handle
    assert not other.window.is_reply_due
    with pytest.raises(NoReplyDue):
        await other.request()
    assert other.report().calls == 1


async def test_a_request_of_a_process_that_was_behind_is_refused(store):
    first = await Session.create(store, "s", model="gpt-4o")
    await first.add(PAY)
    other = await Session.open(store, "s")
    await first.request()
    await first.add(said("Paid."))
    await first.close()
    with pytest.raises(NoReplyDue, match="its reply"):
        await other.request()


@pytest.mark.parametrize("dialect", ["anthropic", "openai_chat", "openai_responses"])
async def test_a_turn_answers_a_message_once(store, dialect):
    model = "claude-sonnet-5-5" if dialect == "anthropic" else "gpt-4o"
    provider = ScriptedProvider(dialect, ["one", "two"])
    session = await Session.create(store, "s", model=model, dialect=dialect)
    turns = [await run_turn(session, provider, message=PAY, key="update-871") for _ in range(3)]
    assert [turn.calls for turn in turns] == [1, 0, 0]
