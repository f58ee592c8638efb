"""Whose cache marks a request has: ours, none, or exactly those of the caller."""

import json
from copy import deepcopy

import pytest

from tests.conversations import prose
from trimtab import Context, check
from trimtab.log import Edit

MARK = {"cache_control": {"type": "ephemeral"}}
HOUR = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
TOOL = {"name": "read", "description": "Read.", "input_schema": {"type": "object"}}


def text(words, **mark):
    return {"type": "text", "text": words, **mark}


def turns(count, size=200):
    """Questions, each with a call and its result, and answers."""
    messages = []
    for number in range(count):
        call = {"type": "tool_use", "id": f"c{number}", "name": "read", "input": {}}
        result = {
            "type": "tool_result",
            "tool_use_id": f"c{number}",
            "content": [text(prose(size, f"result {number}"))],
        }
        messages += [
            {"role": "user", "content": [text(f"question {number}")]},
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [result]},
            {"role": "assistant", "content": [text(f"answer {number}")]},
        ]
    return [*messages, {"role": "user", "content": [text("And now?")]}]


def with_mark(messages, at, mark=None):
    """A fresh copy of the list with one mark, as a client sends it."""
    copy = deepcopy(messages)
    copy[at]["content"][-1].update(mark or MARK)
    return copy


def marked(value, path=()):
    """The path of each mark, with the mark."""
    found = []
    if isinstance(value, dict):
        if "cache_control" in value:
            found.append((path, value["cache_control"]))
        for key, inner in value.items():
            found += marked(inner, (*path, key))
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            found += marked(inner, (*path, index))
    return found


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_mark_that_the_caller_moves_is_sent_only_where_it_is_now(count):
    context = Context("claude-sonnet-4-5", cache="caller", tools=[TOOL], system="Be brief.")
    for turn in range(1, 8):
        messages = turns(turn)
        passed = with_mark(messages, -min(count, len(messages)))
        context.sync(passed)
        request = context.request()
        assert marked(request) == [(("messages", *path), mark) for path, mark in marked(passed)]
        assert check(request) == []


def test_marks_of_the_head_and_inside_a_result_are_sent_as_they_were_passed():
    tools, system = [{**TOOL, **HOUR}], [text("Be brief.", **HOUR)]
    context = Context("claude-sonnet-4-5", cache="caller", tools=tools, system=system)
    messages = turns(3)
    messages[2]["content"][0]["content"][0].update(MARK)
    messages[-1]["content"][0].update(MARK)
    context.sync(messages)
    request = context.request()
    assert marked(request["messages"]) == marked(messages)
    assert request["tools"] == tools
    assert request["system"] == system


def test_a_list_without_marks_is_sent_without_marks():
    context = Context("claude-sonnet-4-5", cache="caller", tools=[TOOL], system="Be brief.")
    context.sync(with_mark(turns(1), -1))
    context.request()
    context.sync(turns(2))
    assert marked(context.request()) == []


def test_a_mark_that_moves_alone_is_a_new_request():
    context = Context("claude-sonnet-4-5", cache="caller")
    messages = turns(2)
    for at in (-1, 0, 4):
        passed = with_mark(messages, at)
        context.sync(passed)
        assert marked(context.request()["messages"]) == marked(passed)
        count = len(context.events)
        assert marked(context.request()["messages"]) == marked(passed)
        assert len(context.events) == count


@pytest.mark.parametrize("cache", ["off", "caller", None])
def test_past_requests_are_rebuilt_with_their_marks(cache):
    """Also from the lines of the log."""
    context = Context("claude-sonnet-4-5", cache=cache, context_window=6_000)
    sent = {}
    for turn in range(1, 16):
        messages = turns(turn, size=1_500)
        context.sync(with_mark(messages, -1 - turn % 2))
        request = context.request()
        assert context.window.last_call is not None
        sent[context.window.last_call.seq] = json.dumps(request)
    assert any(isinstance(event.body, Edit) for event in context.events)
    loaded = Context.load(context.dump())
    for seq, request in sent.items():
        assert json.dumps(context.rebuild_request(seq)) == request
        assert json.dumps(loaded.rebuild_request(seq)) == request
    assert json.dumps(loaded.request()) == request


def test_marks_stay_on_what_is_cut_and_go_with_what_is_hidden():
    limits = {"max_tool_result_tokens": 50}
    context = Context("claude-sonnet-4-5", policy="layered", cache="caller", limits=limits)
    messages = turns(1, size=4_000)[:3]
    messages[2]["content"][0].update(MARK)
    context.sync(messages)
    request = context.request()
    assert "tokens" in str(request["messages"][2])
    assert len(str(request["messages"][2])) < 2_000
    assert marked(request["messages"]) == [((2, "content", 0), MARK["cache_control"])]
    context = Context("claude-sonnet-4-5", cache="caller", context_window=6_000)
    context.sync(with_mark(turns(60, size=1_500), 0))
    request = context.request()
    assert len(request["messages"]) < 241
    assert marked(request) == []


def test_off_sends_no_mark_whoever_has_set_it():
    tools, system = [{**TOOL, **MARK}], [text("Be brief.", **MARK)]
    context = Context("claude-sonnet-4-5", cache="off", tools=tools, system=system)
    messages = with_mark(turns(2), -1)
    messages[2]["content"][0]["content"][0].update(MARK)
    context.sync(messages)
    assert marked(context.request()) == []
    context.configure(cache="5m")
    assert marked(context.request())


def test_added_messages_keep_their_marks_and_claude_gets_four_at_most():
    context = Context("claude-sonnet-4-5", cache="caller")
    for number in range(6):
        context.add({"role": "user", "content": [text(f"question {number}", **MARK)]})
        request = context.request()
        assert len(marked(request)) == min(4, number + 1)
        assert marked(request["messages"][-1])
        context.add({"role": "assistant", "content": "Yes."})
    loaded = Context.load(context.dump())
    for each in (context, loaded):
        each.add({"role": "user", "content": "And now?"})
    assert loaded.request() == context.request()


@pytest.mark.parametrize("dialect", ["openai_chat", "openai_responses"])
def test_breakpoints_for_openai_follow_the_list_as_well(dialect):
    """Also if a summary is joined to the marked message."""
    point = {"prompt_cache_breakpoint": {"mode": "explicit"}}
    kind = "text" if dialect == "openai_chat" else "input_text"
    context = Context("gpt-5.6", dialect=dialect, cache="caller", context_window=4_000)
    history = []
    for number in range(14):
        history.append({"role": "user", "content": prose(900, f"question {number}")})
        words = {"type": kind, "text": history[-1]["content"], **point}
        context.sync([*history[:-1], {"role": "user", "content": [words]}])
        request = context.request()
        sent = request["messages"] if dialect == "openai_chat" else request["input"]
        assert str(sent).count("prompt_cache_breakpoint") == 1
        assert "prompt_cache_breakpoint" in str(sent[-1])
        history.append({"role": "assistant", "content": "Yes."})
    assert len(sent) < len(history)


def test_an_erasure_leaves_no_marked_text_behind():
    context = Context("claude-sonnet-4-5", cache="caller")
    context.sync(with_mark([{"role": "user", "content": [text("A secret.")]}], 0))
    context.request()
    context.erase("m2")
    assert "A secret." not in str(vars(context))
    assert marked(context.request()) == []


def test_an_unknown_setting_names_the_choices():
    with pytest.raises(ValueError, match="unknown cache 'mine'; choose one of off, 5m, 1h, caller"):
        Context("claude-sonnet-4-5", cache="mine")  # pyright: ignore[reportArgumentType]
