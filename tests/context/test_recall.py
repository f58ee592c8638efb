"""What is hidden is found again: handles, recall tools, search."""

import json

import pytest

from tests.context.contexts import READ, messages, start
from tests.conversations import (
    calls,
    chat,
    talk,
    user,
)
from tests.recording import append, checkpoint
from tests.replies import (
    DIALECTS,
    REPLY,
    result,
)
from trimtab import Context, check
from trimtab.engine.log.event import Edit, Pin
from trimtab.engine.log.message import Message, ToolCall
from trimtab.errors import ErasedError


def test_recall_tools_are_there_from_the_first_call_or_never():
    with_recall, without = chat(recall=True, tools=[READ]), chat(tools=[READ])
    for context in (with_recall, without):
        context.add(user("hi"))
    names = [tool["function"]["name"] for tool in with_recall.request()["tools"]]
    assert names == ["read", "recall", "search_history"]
    assert [tool["function"]["name"] for tool in without.request()["tools"]] == ["read"]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_recall_is_answered_and_the_answer_added(dialect):
    context = start(dialect, recall=True, tools=[READ], limits={"max_tool_result_tokens": 50})
    context.add(user("go"))
    context.request()
    context.add(REPLY[dialect]("", calls=("c1",)))
    hidden = "\n".join(f"line {number}" for number in range(1, 400))
    handle = context.add(result(dialect, "c1", hidden))
    assert f"· recall {handle}.0]" in str(messages(context.request()))
    call = ToolCall(
        id="r1", name="recall", arguments=json.dumps({"handle": f"{handle}.0", "lines": "399-400"})
    )
    context.add(Message(role="assistant", parts=(call,)))
    assert context.answer(call) == "line 399"
    request = context.request()
    assert check(request, dialect_name=dialect) == []
    assert "line 399" in str(messages(request))


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ({"handle": "m2.0"}, "alpha\nbeta\ngamma delta"),
        ({"handle": "m2.0", "lines": "2"}, "beta"),
        ({"handle": "m2.0", "lines": "2-3"}, "beta\ngamma delta"),
        ({"handle": "m2.0", "lines": "2-"}, "beta\ngamma delta"),
        ({"handle": "m2.0", "lines": "-2"}, "alpha\nbeta"),
        ({"handle": "m2.0", "lines": "2:3"}, "beta\ngamma delta"),
        ({"handle": "m2.0", "lines": "2 to 3"}, "beta\ngamma delta"),
        ({"handle": "m2.0", "lines": " 2 – 9 "}, "beta\ngamma delta"),
        ({"handle": "m2.0", "lines": 2}, "beta"),
        ({"handle": "m2.0", "lines": None}, "alpha\nbeta\ngamma delta"),
        ({"handle": "m2.0", "lines": "9-"}, "(no such lines; the text has 3)"),
        ({"handle": "m2.0", "lines": [2, 3]}, "(no such lines; the text has 3; write 10-40)"),
        ({"handle": "m2.0", "lines": "3-2"}, "(no such lines; the text has 3; write 10-40)"),
        ({"handle": "m2.0", "lines": "the last"}, "(no such lines; the text has 3; write 10-40)"),
        ({"handle": "m2.0", "grep": "A$"}, "alpha\nbeta\ngamma delta"),
        ({"handle": "m2.0", "grep": "delta"}, "gamma delta"),
        ({"handle": "m2.0", "grep": "("}, "(no line matches)"),
        ({"handle": "m99"}, "[there is no m99; positions go up to m3]"),
        (
            {"handle": "m3-m2"},
            "[there is no m3-m2: a range goes from the lower to the higher, m2-m3]",
        ),
        ({"handle": "it"}, "['it' is not a handle; handles look like m12.0, m12 or m3-m50]"),
    ],
)
def test_a_recall_gives_lines_or_says_what_is_wrong(asked, answer):
    context = chat(recall=True)
    context.add(user("alpha\nbeta\ngamma delta"))
    call = ToolCall(id="r1", name="recall", arguments=json.dumps(asked))
    context.add(Message(role="assistant", parts=(call,)))
    assert context.answer(call) == answer


def test_a_search_finds_hidden_messages():
    context = chat(recall=True, limits={"max_history_tokens": 20})
    context.add(user("The password hint is a blue whale."))
    talk(context, 5, size=400)
    call = calls("s1", tool="search_history", arguments='{"query":"blue whale"}')
    context.add(call)
    assert context.answer(call["tool_calls"][0]) == "m2.0: The password hint is a blue whale."


def test_only_recall_tools_are_answered():
    with pytest.raises(ValueError, match="read is not a recall tool; those are recall and search"):
        chat(recall=True).answer(ToolCall(id="c", name="read", arguments="{}"))


@pytest.mark.parametrize("verb", ["pin", "reveal"])
@pytest.mark.parametrize("handle", ["m0", "m0.0", "m0-m2"])
def test_nothing_is_called_m0(verb, handle):
    context = chat()
    talk(context, 1)
    count = len(context.events)
    with pytest.raises(LookupError, match="positions go up to m4"):
        getattr(context, verb)(handle)
    assert len(context.events) == count


@pytest.mark.parametrize("verb", ["recall", "pin", "reveal"])
@pytest.mark.parametrize("gone", [False, True])
def test_a_range_that_is_turned_round_names_nothing(verb, gone):
    context = chat("full")
    talk(context, 2)
    if gone:
        append(context, Edit(op="drop", first=2, last=4))
        checkpoint(context)
    count = len(context.events)
    with pytest.raises(LookupError, match="from the lower to the higher, m2-m4"):
        getattr(context, verb)("m4-m2")
    assert len(context.events) == count


def test_a_log_that_names_m0_is_read_all_the_same():
    context = chat()
    talk(context, 1)
    append(context, Pin(first=0, last=0))
    append(context, Edit(op="reveal", first=0, last=0))
    again = Context.load(context.dump())
    assert again.preview() == context.preview()


def test_of_a_message_with_an_erased_part_the_others_are_recalled():
    context = start("anthropic")
    blocks = [{"type": "text", "text": text} for text in ("one", "two", "three")]
    handle = context.add({"role": "user", "content": blocks})
    context.erase(f"{handle}.1")
    event = context.window.seq
    assert context.recall(handle) == f"[{handle} user]\none\n[erased by event {event}]\nthree"
    context.erase(handle)
    with pytest.raises(ErasedError, match=f"{handle} was erased by event"):
        context.recall(handle)
