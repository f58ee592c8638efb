"""What goes after a refusal for length, seen without the turn around it."""

import pytest

from tests.conversations import calls, chat, prose, result, said, talk, user
from trimtab.engine.policy.overflow import drop_oldest_half
from trimtab.engine.policy.planning.plan import Plan
from trimtab.errors import CannotFit


def test_a_half_that_would_end_inside_of_a_round_ends_before_it():
    context = chat("full")
    talk(context, 1, 2_000)
    for message in (user("Read."), calls("a", "b"), result("a", prose(900)), result("b", "done")):
        context.add(message)
    context.add(said("I see."))
    context.add(user("And?"))
    plan = Plan(context.window, context.budget())
    assert plan.visible_messages == 8
    drop_oldest_half(plan)
    assert plan.visible_messages == 5, (
        "the middle is behind the call, the first message of the round"
    )


@pytest.mark.parametrize(("messages", "left"), [(3, 1), (40, 20), (41, 20)])
def test_where_each_message_stands_for_itself_the_greater_half_goes(messages, left):
    context = chat("full")
    for number in range(messages):
        context.add((user, said)[number % 2](prose(500, f"message {number}")))
    plan = Plan(context.window, context.budget())
    drop_oldest_half(plan)
    assert plan.visible_messages == left


def shrinking(context, tries, **named):
    """The sizes of requests that are refused again and again, and what output they ask for."""
    sizes = []
    for _ in range(tries):
        size = len(str(context.request()["messages"]))
        sizes.append((size, context.window.last_call.body.max_output))
        context.fail("overflow", **named)
    return sizes


def test_what_is_refused_although_less_output_was_asked_for_already_is_cut():
    context = chat("full", context_window=8_192)
    talk(context, 10, size=900)
    context.add(user("now"))
    sizes = shrinking(context, 4, input=6_500)
    assert sizes[1] < sizes[0], "less output comes first"
    assert sizes[1][0] == sizes[0][0]
    assert sizes[2][0] < sizes[1][0]
    assert len(set(sizes)) == len(sizes)


def test_what_cannot_be_cut_is_not_tried_for_ever():
    context = chat("layered", context_window=8_192, system=prose(27_000))
    context.add(user("hi"))
    with pytest.raises(CannotFit, match="the provider refused the request for its length"):
        shrinking(context, 9)
