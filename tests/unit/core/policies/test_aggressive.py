"""What goes after a refusal for length, seen without the turn around it."""

import pytest

from tests.conversations import calls, chat, prose, result, said, talk, user
from trimtab.core.plan import Plan
from trimtab.core.policies.aggressive import drop_half


def test_a_half_that_would_end_inside_of_a_round_ends_before_it():
    context = chat("full")
    talk(context, 1, 2_000)
    for message in (user("Read."), calls("a", "b"), result("a", prose(900)), result("b", "done")):
        context.add(message)
    context.add(said("I see."))
    context.add(user("And?"))
    plan = Plan(context.window, context.budget())
    assert plan.messages == 8
    drop_half(plan)
    assert plan.messages == 5, "the middle is behind the call, the first message of the round"


@pytest.mark.parametrize(("messages", "left"), [(3, 1), (40, 20), (41, 20)])
def test_where_each_message_stands_for_itself_the_greater_half_goes(messages, left):
    context = chat("full")
    for number in range(messages):
        context.add((user, said)[number % 2](prose(500, f"message {number}")))
    plan = Plan(context.window, context.budget())
    drop_half(plan)
    assert plan.messages == left
