"""Half of a surrogate pair, which JSON can name and no wire can carry, wherever it comes in."""

import json

import pytest

from tests.context.contexts import start
from tests.conversations import system, user
from tests.replies import DIALECTS
from trimtab import Context

HALF = "half \ud83d"
TOOL = {
    "name": "read",
    "description": HALF,
    "input_schema": {"type": "object", "properties": {HALF: {"description": HALF}}},
}
CALL = {"type": "tool_use", "id": "c1", "name": "read", "input": {HALF: [{HALF: HALF}]}}


def sent(request) -> str:
    return json.dumps(request, ensure_ascii=False).encode().decode()


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    "given",
    [
        {"system": HALF},
        {"system": [{"type": "text", "text": HALF}]},
        {"tools": [TOOL]},
        {"params": {"metadata": {HALF: [HALF]}}},
    ],
)
def test_a_half_in_what_is_set_is_replaced_before_it_is_recorded(dialect, given):
    context = start(dialect, **given)
    context.add(user("hi"))
    assert "half \ufffd" in sent(context.request())
    count = len(context.events)
    context.configure(**given)
    assert len(context.events) == count
    assert Context.load(context.dump())._render_request() == context._render_request()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_half_in_the_tail_is_replaced_and_the_call_is_the_same_when_asked_again(dialect):
    context = start(dialect)
    context.add(user("hi"))
    assert "half \ufffd" in sent(context.request(volatile=HALF))
    count = len(context.events)
    context.request(volatile=HALF)
    assert len(context.events) == count


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_half_in_the_keys_of_arguments_is_replaced(dialect):
    context = start(dialect)
    context.add(user("hi"))
    context.add({"role": "assistant", "content": [CALL]})
    sent(context.request())


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_half_in_the_system_prompt_of_a_history_is_replaced_once(dialect):
    context = start(dialect)
    history = [system(HALF), user("hi")]
    context.sync(history)
    assert "half \ufffd" in sent(context.request())
    count = len(context.events)
    context.sync(history)
    assert len(context.events) == count
