"""Half of a surrogate pair, which JSON can name and no wire can carry, wherever it comes in."""

import json

import pytest

from tests.context.contexts import start
from tests.conversations import system, user
from tests.recording import render_request
from tests.replies import DIALECTS, stream
from trimtab import Context
from trimtab.engine.log.message import make_text_message

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
    assert render_request(Context.load(context.dump())) == render_request(context)


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


PAIR = "\ud83d" + "\ude00"
CUT = f"{PAIR} ok "


def add_text(context, text):
    return context.add(user(text))


def add_message(context, text):
    return context.add(make_text_message("user", text))


def add_result(context, text):
    context.add(user("hi"))
    context.add({"role": "assistant", "content": [CALL | {"input": {text[:2]: [text[:12]]}}]})
    result = {"type": "tool_result", "tool_use_id": "c1", "content": text}
    return context.add({"role": "user", "content": [result]})


def add_history(context, text):
    context.sync([user(text)])
    return "m2"


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("add", [add_text, add_message, add_result, add_history])
def test_two_halves_that_follow_each_other_are_one_character(dialect, add):
    context = start(dialect, context_window=4_000)
    handle = add(context, CUT * 6_000)
    request = context.request()
    assert context.recall(f"{handle}.0") == "😀 ok " * 6_000
    again = Context.load(context.dump())
    assert again.recall(f"{handle}.0") == "😀 ok " * 6_000
    assert again.rebuild_request(again.window.seq) == request
    assert PAIR not in str(context.events)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_reply_that_was_cut_between_two_halves_is_joined(dialect):
    context = start(dialect)
    context.add(user("hi"))
    context.request(stream=True)
    # In two pieces of the same length, where the API sends pieces.
    for _ in context.watch(stream(dialect, f"one{PAIR}two")):
        pass
    handle = f"m{context.window.seq}"
    assert "one😀two" in context.recall(handle)
    assert Context.load(context.dump()).recall(handle) == context.recall(handle)
