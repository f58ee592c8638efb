"""A sender may deliver a message twice: the model is asked once, unless nobody has replied yet."""

from __future__ import annotations

import pytest

from tests.context.contexts import start
from tests.conversations import user
from tests.replies import DIALECTS, REPLY, result
from trimtab import Context, check

PAY = user("Pay 10 to the harbour.")


def deliver(context: Context) -> int:
    """Do as the documents say, and return how many calls were made."""
    context.add(PAY, key="update-871")
    if not context.window.is_reply_due:
        return 0
    request = context.request()
    assert check(request) == []
    context.add(REPLY[context.window.settings.dialect]("Paid."))
    return 1


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_message_that_comes_again_after_its_reply_is_not_answered_again(dialect):
    context = start(dialect)
    assert [deliver(context) for _ in range(3)] == [1, 0, 0]
    assert [deliver(Context.load(context.dump())) for _ in range(2)] == [0, 0]
    assert context.report().calls == 1


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_message_that_comes_again_before_its_reply_is_answered(dialect):
    context = start(dialect)
    context.add(PAY, key="update-871")
    request = context.request()
    # The process dies here.
    again = Context.load(context.dump())
    again.add(PAY, key="update-871")
    assert again.window.is_reply_due
    assert again.request() == request
    assert deliver(again) == 1
    assert deliver(again) == 0


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_reply_is_due_until_the_last_result_was_answered(dialect):
    context = start(dialect)
    assert not context.window.is_reply_due
    context.add(PAY)
    context.request()
    context.add(REPLY[dialect]("Let me see.", calls=("c1",)))
    assert context.window.is_reply_due
    context.add(result(dialect, "c1", "It is free."))
    assert context.window.is_reply_due
    context.request()
    context.add(REPLY[dialect]("Paid."))
    assert not context.window.is_reply_due
