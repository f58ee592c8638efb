"""A larger window shows what a smaller one had cut from the user's words."""

from __future__ import annotations

from typing import Any

import pytest

from trimtab import Context
from trimtab.engine.log.event import Edit
from trimtab.engine.policy.presets import POLICY_NAMES
from trimtab.types import PolicyName

LONG = "BEGIN " + "Each file has an owner and a date. " * 900 + "END"


def said_by_users(request: dict[str, Any]) -> str:
    return "\n".join(each["content"] for each in request["messages"] if each["role"] == "user")


@pytest.mark.parametrize("policy", POLICY_NAMES)
def test_a_message_that_a_small_window_cut_is_whole_in_a_larger_one(policy: PolicyName):
    context = Context("gpt-4o", policy=policy, context_window=6_000)
    context.add({"role": "user", "content": LONG})
    assert LONG not in said_by_users(context.request())
    context.configure(context_window=100_000)
    grown = context.request()
    assert LONG in said_by_users(grown)
    call = len(context.events)
    assert Context.load(context.dump()).rebuild_request(call) == grown
    context.add({"role": "assistant", "content": "Read."})
    context.add({"role": "user", "content": "And now?"})
    assert LONG in said_by_users(context.request())


def test_an_older_message_that_was_cut_when_it_was_the_newest_is_whole_with_a_larger_model():
    context = Context("gpt-4")
    context.add({"role": "user", "content": LONG})
    context.request()
    context.add({"role": "assistant", "content": "Read."})
    context.configure(model="gpt-5.2")
    context.add({"role": "user", "content": "And now?"})
    assert LONG in said_by_users(context.request())


def test_rules_that_a_small_window_left_out_are_listed_with_a_larger_model():
    context, rules = Context("gpt-4o", context_window=3_000), list[str]()
    for number in range(60):
        rules.append(f"Rule {number}: name file {number} after its owner, and keep it forever.")
        context.add({"role": "user", "content": rules[-1]})
        context.request()
        context.add({"role": "assistant", "content": "I shall do so from now on. " * 12})
    context.add({"role": "user", "content": "Which rules hold?"})
    assert not all(rule in said_by_users(context.request()) for rule in rules)
    context.configure(context_window=200_000)
    assert [rule for rule in rules if rule not in said_by_users(context.request())] == []
    assert "not shown" not in said_by_users(context.request())


def test_a_cut_stays_as_it_is_if_another_window_has_no_room_for_the_whole_either():
    context = Context("gpt-4o", policy="full", context_window=6_000)
    context.add({"role": "user", "content": LONG})
    cut = said_by_users(context.request())
    context.configure(context_window=7_000)
    assert said_by_users(context.request()) == cut
    assert not [e for e in context.events if isinstance(e.body, Edit) and e.body.op == "reveal"]
