"""A caller that has the recall tools itself: handles in its words, answers that it adds itself."""

import json

import pytest

from tests.context.contexts import READ, start
from tests.conversations import calls, chat, prose, result, said, talk, user
from tests.pictures import png, text
from tests.recording import request_anyway
from tests.replies import DIALECTS
from trimtab import RECALL_TOOLS, Context, check
from trimtab.engine.log.event import MessageAdded
from trimtab.engine.log.message import Media, Message, Text, ToolCall

HINT = "read /hidden/{handle}.txt"
RECALL = {"name": "recall", "description": "Ours.", "input_schema": {"type": "object"}}


def recall_call(handle, call_id="r1"):
    return calls(call_id, tool="recall", arguments=json.dumps({"handle": handle}))


@pytest.mark.parametrize("policy", ["auto", "layered", "rolling", "thresholds", "compact"])
def test_all_handles_stand_in_the_callers_words_and_no_tool_is_added(policy):
    context = chat(policy, recall=HINT, tools=[RECALL], context_window=12_000)
    for number in range(40):
        context.add(user(prose(600, f"question {number}")))
        context.request()
        context.add(calls(f"c{number}"))
        context.add(result(f"c{number}", prose(6_000, f"result {number}")))
        context.request()
        context.add(said(prose(200, f"answer {number}")))
    context.add(user("And now?"))
    request = context.request()
    assert [tool["function"]["name"] for tool in request["tools"]] == ["recall"]
    text = json.dumps(request["messages"], ensure_ascii=False)
    assert "· read /hidden/m" in text
    assert "recall" not in text
    assert "search_history" not in text
    assert "{handle}" not in text


def test_the_words_are_in_the_log_so_a_reload_sends_the_same_bytes():
    context = chat("auto", recall=HINT, tools=[RECALL], context_window=8_000)
    talk(context, 20, size=2_000)
    context.add(user("And now?"))
    request = context.request()
    assert "read /hidden/m" in json.dumps(request)
    loaded = Context.load(context.dump(), clock=lambda: 1e6)
    assert loaded.options.recall == HINT
    assert len(loaded.options.tools) == 1
    assert json.dumps(loaded.request()) == json.dumps(request)
    call = context.window.last_call
    assert call is not None
    assert context.rebuild_request(call.seq) == request
    # The next settings keep the tool that the caller has defined.
    loaded.configure(system="Be brief.")
    assert [tool["function"]["name"] for tool in loaded.request()["tools"]] == ["recall"]


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        ("", ValueError, "with {handle} in it"),
        ("recall it", ValueError, "with {handle} in it"),
        ("see {handle}\nand more", ValueError, "on one line"),
        ("see [{handle}]", ValueError, "without ]"),
        ("{handle}" + "x" * 100, ValueError, "108 characters; use at most 100"),
        (1, TypeError, "True, False or a text"),
    ],
)
def test_words_that_no_placeholder_can_contain_are_refused(value, error, words):
    with pytest.raises(error, match=words):
        Context("gpt-4o", recall=value)


def test_only_tools_that_we_add_may_not_share_their_name():
    with pytest.raises(ValueError, match=r"two tools are called 'recall' \(recall=True adds one\)"):
        chat(recall=True, tools=[RECALL])
    chat(recall=HINT, tools=[RECALL])


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_public_definitions_are_tools_of_every_dialect(dialect):
    ours = start(dialect, recall=True, tools=[READ])
    callers = start(dialect, recall="recall {handle}", tools=[READ, *RECALL_TOOLS])
    for context in (ours, callers):
        context.add(user("hi"))
    assert callers.request() == ours.request()
    assert check(callers.request(), dialect_name=dialect) == []


def test_an_answer_is_given_without_being_added():
    context = chat(recall=HINT, tools=[RECALL])
    handle = context.add(user("alpha\nbeta"))
    call = recall_call(f"{handle}.0")
    context.add(call)
    before = context.dump()
    assert context.answer(call["tool_calls"][0], add=False) == "alpha\nbeta"
    assert context.dump() == before
    context.add(result("r1", "alpha\nbeta"))
    assert check(context.request()) == []


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_picture_that_the_caller_cannot_add_is_shown_again(dialect):
    context = start(dialect, recall=HINT, policy="layered", context_window=100_000)
    picture = Media(kind="image", mime="image/png", data=text(png(64, 64)))
    handle = context.add(Message(role="user", parts=(Text(text="Look."), picture)))
    context.request()
    context.add(Message(role="assistant", parts=(Text(text="Yes."),)))
    before = len(context.events)
    asked = ToolCall(id="r1", name="recall", arguments=json.dumps({"handle": f"{handle}.1"}))
    answer = context.answer(asked, add=False)
    assert "it is shown again in its place" in answer
    assert [event.body.op for event in context.events[before:]] == ["reveal"]


def test_what_the_callers_tool_recalled_counts_as_a_copy():
    """An erasure destroys it, and a search does not find it beside the original."""
    context = chat(recall=HINT, tools=[RECALL])
    history = [user("The secret is a blue whale."), said("Noted.")]
    context.sync(history)
    history += [user("What was it?"), recall_call("m2.0")]
    history.append(result("r1", "The secret is a blue whale."))
    context.sync(history)
    context.request()
    added = [event.body for event in context.events if isinstance(event.body, MessageAdded)]
    assert [body.recalled for body in added] == [False, False, False, False, True]
    assert context.search("blue whale").count("blue whale") == 1
    context.erase("m2")
    assert "blue whale" not in "\n".join(context.dump())


def test_without_recall_a_tool_of_that_name_is_like_any_other():
    context = chat(tools=[RECALL])
    context.sync([user("hi"), recall_call("m2"), result("r1", "Products of March.")])
    assert not any(getattr(event.body, "recalled", False) for event in context.events)


def test_the_answers_name_handles_in_the_callers_words():
    context = chat("rolling", recall=HINT)
    talk(context, 8, size=200)
    request_anyway(context)
    talk(context, 8, size=200, start=8)
    request_anyway(context)
    assert context.window.summary is not None
    call = recall_call(context.window.summary.handle)
    text = context.answer(call["tool_calls"][0], add=False)
    assert "[the summary before it · read /hidden/m2-" in text
    assert "recall" not in text


def test_a_search_gives_passages_with_their_handles():
    context = chat(limits={"max_history_tokens": 20})
    context.add(user("The password hint is a blue whale."))
    talk(context, 5, size=400)
    before = context.dump()
    assert context.search("blue whale") == "m2.0: The password hint is a blue whale."
    assert context.search("zebra") == "(nothing found)"
    assert context.dump() == before
