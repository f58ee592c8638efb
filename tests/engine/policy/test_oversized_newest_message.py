"""What was said or found last and is larger than the room: it is cut, and nothing goes for it."""

from dataclasses import replace
from typing import Any

import pytest

from tests.conversations import calls, chat, contents, prose, result, said, talk, user
from trimtab import Context
from trimtab.engine.policy.guard import cut_oversized_newest_texts
from trimtab.engine.policy.planning.plan import Plan
from trimtab.engine.policy.presets import POLICY_NAMES
from trimtab.errors import CannotFit
from trimtab.types import PolicyName

SMALL: dict[str, Any] = {"context_window": 20_000, "max_output_tokens": 1_000}
NEWEST = "Ω"


def quarters(text: str) -> int:
    return len(text) // 4


@pytest.mark.parametrize("policy", POLICY_NAMES)
def test_a_jump_in_price_does_not_cut_what_the_model_takes(policy):
    context = Context("gemini-2.5-pro", dialect="openai_chat", policy=policy, tokenizer=quarters)
    budget = context.budget()
    assert budget.soft_limit < 250_000 < budget.limit
    context.add(user(prose(1_000_000)))
    assert contents(context.request()) == [prose(1_000_000)]


def test_what_is_larger_than_the_model_takes_is_cut_to_that_and_not_to_the_price():
    context = Context("gemini-2.5-pro", dialect="openai_chat", policy="full", tokenizer=quarters)
    context.add(user(prose(8_000_000)))
    [shown] = contents(context.request())
    assert 0.8 * context.budget().limit < len(shown) // 4 < context.budget().limit


@pytest.mark.parametrize("policy", sorted({*POLICY_NAMES} - {"thresholds"}))
def test_a_message_larger_than_the_room_pushes_nothing_out(policy):
    context = chat(policy, **SMALL)
    talk(context, 6, size=200)
    context.add(user(prose(100_000)))
    context.request()
    assert context.window.visible_messages == 13
    assert context.window.summary is None


@pytest.mark.parametrize("policy", ["full", "layered", "rolling", "compact"])
def test_a_giant_result_behind_a_giant_question_pushes_little_out(policy):
    context = chat(policy, limits={"max_tool_result_tokens": 100_000}, **SMALL)
    talk(context, 6, size=1_200)
    context.add(user(prose(100_000)))
    context.request()
    assert context.window.visible_messages == 13
    context.add(calls("c"))
    context.add(result("c", prose(100_000)))
    first = context.request()
    assert context.window.visible_messages > 8
    assert contents(first)[-1].startswith("[shortened: ~")
    assert context.request() == first
    context.add(said("Read."))


@pytest.mark.parametrize("policy", ["auto", "thresholds", "layered", "full", "compact"])
def test_nothing_goes_to_get_below_a_price_that_is_paid_anyway(policy):
    context = Context("gemini-2.5-pro", dialect="openai_chat", policy=policy, tokenizer=quarters)
    context.add(user("Never touch production."))
    context.request()
    context.add(said("No."))
    context.add(user(prose(1_000_000)))
    for number in range(5):
        request = context.request()
        assert len(request["messages"]) == 3 + 2 * number
        context.add(calls(f"c{number}"))
        context.add(result(f"c{number}", prose(400)))


def spoken_while_a_call_waits(policy: PolicyName, size: int) -> Context:
    """Four long messages of users, the newest in a letter of its own, and a result behind them."""
    context = chat(policy, tokenizer=quarters, **SMALL)
    context.add(user("Look at the log."))
    context.request()
    context.add(calls("c"))
    for letter in ("w", "x", "y", NEWEST):
        context.add(user(letter * size))
    context.add(result("c", prose(size)))
    return context


def newest_tokens(request: dict[str, Any]) -> int:
    return sum(text.count(NEWEST) for text in contents(request) if text) // 4


@pytest.mark.parametrize("policy", POLICY_NAMES)
def test_what_else_was_said_while_a_call_waits_takes_nothing_of_the_newest_ones_quarter(policy):
    context = spoken_while_a_call_waits(policy, 100_000)
    room = context.budget().room
    assert newest_tokens(context.request()) >= room // 4


@pytest.mark.parametrize("policy", POLICY_NAMES)
def test_nor_does_it_after_refusals(policy):
    context = spoken_while_a_call_waits(policy, 14_000)
    assert newest_tokens(context.request()) == 14_000 // 4
    for _ in range(6):
        try:
            context.fail("overflow")
            request = context.request()
        except CannotFit:
            return
        assert newest_tokens(request) >= min(14_000, context.budget().room) // 4


def test_a_short_message_is_not_cut_to_nothing_if_there_is_no_room_by_estimate():
    context = chat("full")
    context.add(user("Rename paE4LhTu6iRZb+f8s0hjzh9Q8zWc0V3oRlakQpOF to Tu6iRZb+f8s0hjzh9Q8zWc."))
    plan = Plan(context.window, replace(context.budget(), soft_limit=0))
    assert plan.budget.room == 0
    cut_oversized_newest_texts(plan, plan.budget.room)
    assert plan.to_decision().edits == ()


@pytest.mark.parametrize("policy", POLICY_NAMES)
def test_a_frameworks_text_beside_the_newest_calls_is_cut_and_can_be_read_back(policy):
    context = chat(policy, recall=True, **SMALL)
    history = prose(100_000)
    context.add({**calls("c"), "content": history})
    context.add(result("c", "Done."))
    reply, answer = context.request()["messages"]
    assert 200 < len(reply["content"]) < len(history)
    assert reply["content"][:100] == history[:100]
    assert reply["content"][-100:] == history[-100:]
    assert answer["content"] == "Done."
    assert context.recall("m2.0") == history
