"""`configure` with values that are set already changes nothing and costs almost nothing."""

import json
from time import process_time

import pytest

from tests.conversations import chat, claude, user
from trimtab import Context

SYSTEM = "You are a careful engineer. " * 1_000
TOOLS = [
    {
        "name": f"tool_{number}",
        "description": "Does one thing. " * 20,
        "input_schema": {
            "type": "object",
            "properties": {f"p{at}": {"type": "string", "description": "A word."} for at in "abcd"},
        },
    }
    for number in range(60)
]


def test_the_same_values_are_compared_and_not_read_again():
    """A program that sets everything before each call pays for a comparison."""
    context = claude(system=SYSTEM, tools=TOOLS, clock=lambda: 1.0)
    context.add(user("hi"))
    before = context.dump()
    copies = json.loads(json.dumps([[SYSTEM, TOOLS]] * 20))

    def configure_each(pairs, end):
        started = process_time()
        for system, tools in pairs:
            context.configure(model="claude-sonnet-4-5", system=system + end, tools=tools)
        return (process_time() - started) / len(pairs)

    same = min(configure_each(copies, "") for _ in range(3))
    assert context.dump() == before
    other = min(configure_each(copies[:1], end) for end in ("a", "b"))
    assert same < other / 20


def test_one_changed_word_is_recorded():
    context = chat(system="Be brief.", tools=TOOLS[:2], clock=lambda: 1.0)
    context.add(user("hi"))
    for changes in ({"system": "Be long."}, {"tools": TOOLS[:1]}, {"params": {"temperature": 0}}):
        count = len(context.events)
        context.configure(**changes)
        context.configure(**changes)
        assert len(context.events) == count + 1
    request = context.request()
    assert request["messages"][0]["content"] == "Be long."
    assert len(request["tools"]) == 1
    assert request["temperature"] == 0


def test_a_list_that_its_owner_changed_is_seen():
    """The values are compared with a copy, not with the caller's own object."""
    tools, params = [dict(TOOLS[0])], {"temperature": 0}
    context = chat(tools=tools, params=params, clock=lambda: 1.0)
    context.add(user("hi"))
    tools[0]["description"] = "Another."
    params["temperature"] = 1
    context.configure(tools=tools, params=params)
    request = context.request()
    assert request["tools"][0]["function"]["description"] == "Another."
    assert request["temperature"] == 1


def test_values_are_recorded_again_after_somebody_else_has_changed_them():
    context = chat(system="One.", clock=lambda: 1.0)
    context.add(user("hi"))
    position = context.window.seq
    context.configure(system="Two.")
    context.rewind(position)
    context.configure(system="One.")
    assert context.request()["messages"][0]["content"] == "One."


def test_a_wrong_value_is_an_error_although_it_equals_the_right_one():
    context = chat(recall=True)
    with pytest.raises(TypeError, match="recall"):
        context.configure(recall=1)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="no option"):
        context.configure(unknown=None)  # pyright: ignore[reportCallIssue]


def test_the_same_model_keeps_its_dialect_and_what_is_known_of_it():
    context = Context(
        "gpt-5.4", dialect="openai_responses", model_info={"context_window": 50_000}, tokenizer=len
    )
    context.add(user("hi"))
    count = len(context.events)
    context.configure(model="gpt-5.4")
    context.configure(model="gpt-5.4", system="Be brief.")
    assert len(context.events) == count + 1
    assert "input" in context.request()
    assert context.budget().limit == 50_000
    context.configure(model="gpt-4o")
    assert "messages" in context.request()
    assert context.budget().limit == 128_000
