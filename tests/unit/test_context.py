"""The front door: each promise of `Context`, in every dialect where it differs."""

import asyncio
import copy
import json
import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from inline_snapshot import snapshot

from tests.conversations import (
    calls,
    chat,
    claude,
    contents,
    prose,
    said,
    system,
    talk,
    texts,
    ticking,
    user,
)
from tests.conversations import result as chat_result
from tests.replies import (
    DIALECTS,
    MODELS,
    REPLY,
    chat_reply,
    claude_reply,
    response,
    result,
    stream,
)
from trimtab import CannotFit, Context, Erased, RequestChanged, check
from trimtab.core.event import Call, Edit, Outcome, Rewind, Said, Settings, Usage
from trimtab.core.message import Message, Text, ToolCall
from trimtab.core.plan import Decision

READ = {"name": "read", "description": "Read.", "input_schema": {"type": "object"}}
USAGE = Usage(input=100, output=7, cache_read=50)


def start(dialect, **options):
    given: dict[str, Any] = {"clock": ticking(), **options}
    return Context(MODELS[dialect], dialect=dialect, **given)


def kinds(context):
    return [type(event.body).__name__ for event in context.events]


def messages(request) -> list[dict[str, Any]]:
    return request["messages"] if "messages" in request else request["input"]


def blocks(request):
    """What is sent, block by block, without cache marks."""
    out = []
    for message in messages(request):
        content = message.get("content")
        for block in content if isinstance(content, list) else [message]:
            bare = {key: value for key, value in block.items() if key != "cache_control"}
            out.append((message.get("role", ""), bare))
    return out


# Making one


@pytest.mark.parametrize(
    ("model", "dialect"),
    [
        ("claude-sonnet-4-5", "anthropic"),
        ("anthropic/claude-opus-4.5", "anthropic"),
        ("gpt-4o", "openai_chat"),
        ("gpt-5", "openai_chat"),
    ],
)
def test_the_dialect_follows_from_the_model(model, dialect):
    assert Context(model).window.settings.dialect == dialect


def test_an_unknown_model_without_a_dialect_is_refused_with_the_choices():
    with pytest.raises(
        ValueError,
        match="the dialect of model 'my-model' is not known; pass dialect= one of "
        "anthropic, openai_chat, openai_responses",
    ):
        Context("my-model")


def test_an_unknown_dialect_is_refused_with_the_choices():
    with pytest.raises(ValueError, match="no dialect is called 'smoke'; choose one of anthropic"):
        Context("gpt-4o", dialect="smoke")


def test_all_that_shapes_a_request_is_in_the_first_event():
    context = Context(
        "my-model",
        dialect="openai_chat",
        system="Be brief.",
        tools=[READ],
        policy="compact",
        goal="cost",
        context={"max_history_tokens": 10},
        context_window=50_000,
        max_input_tokens=40_000,
        max_output_tokens=1_000,
        params={"temperature": 0},
        clock=lambda: 12.5,
    )
    [event] = context.events
    assert isinstance(event.body, Settings)
    assert (event.seq, event.at) == (1, 12.5)
    assert replace(event.body, entry={}, head=Settings(model="", dialect="").head) == snapshot(
        Settings(
            model="my-model",
            dialect="openai_chat",
            system=(
                Message(
                    role="system",
                    parts=(Text(text="Be brief."),),
                    origin="openai_chat",
                ),
            ),
            tools=(
                {
                    "type": "function",
                    "function": {
                        "name": "read",
                        "description": "Read.",
                        "parameters": {"type": "object"},
                    },
                },
            ),
            params={"temperature": 0},
            policy="compact",
            policy_params={
                "goal": "cost",
                "context": {"max_history_tokens": 10},
                "summaries": "extractive",
            },
            limits={
                "context_window": 50_000,
                "max_input_tokens": 40_000,
                "max_output_tokens": 1_000,
            },
            counter="piecewise/max/1",
            renderer=2,
        )
    )


def test_the_clock_is_asked_for_every_event():
    context = chat(clock=ticking(100.0))
    context.add(user("hi"))
    context.request()
    at = [event.at for event in context.events]
    assert at[:2] == [101.0, 102.0]
    assert at[2] > 102.0


# Requests


@pytest.mark.parametrize(
    ("dialect", "name"),
    [
        ("anthropic", "max_tokens"),
        ("openai_chat", "max_completion_tokens"),
        ("openai_responses", "max_output_tokens"),
    ],
)
def test_the_output_limit_is_in_the_request(dialect, name):
    context = start(dialect, max_output_tokens=1_234)
    context.add(user("hi"))
    assert context.request()[name] == 1_234


def test_a_request_for_claude_is():
    context = start("anthropic", system="Be brief.", max_output_tokens=100)
    context.add(user("hi"))
    assert context.request() == snapshot(
        {
            "model": "claude-sonnet-4-5",
            "max_tokens": 100,
            "system": [
                {
                    "type": "text",
                    "text": "Be brief.",
                    "cache_control": {"type": "ephemeral"},
                }
            ],
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}
                    ],
                }
            ],
        }
    )


def test_a_streamed_chat_request_asks_for_its_usage():
    context = start("openai_chat", max_output_tokens=100)
    context.add(user("hi"))
    assert context.request(stream=True) == snapshot(
        {
            "model": "gpt-4o",
            "max_completion_tokens": 100,
            "messages": [{"role": "user", "content": "hi"}],
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    )


def test_a_response_is_not_stored_and_brings_its_reasoning_back():
    context = start("openai_responses", max_output_tokens=100)
    context.add(user("hi"))
    assert context.request() == snapshot(
        {
            "store": False,
            "model": "gpt-4o",
            "max_output_tokens": 100,
            "include": ["reasoning.encrypted_content"],
            "input": [{"role": "user", "content": "hi"}],
        }
    )


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_request_is_valid_and_appends_one_call(dialect):
    context = start(dialect)
    context.add(user("hi"))
    assert check(context.request(), dialect_name=dialect) == []
    assert kinds(context) == ["Settings", "Said", "Call"]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_asking_again_returns_the_same_and_appends_nothing(dialect):
    context = start(dialect)
    context.add(user("hi"))
    first = context.request(stream=True, volatile="noon")
    count = len(context.events)
    assert context.request(stream=True, volatile="noon") == first
    assert len(context.events) == count


def test_asking_with_other_arguments_is_another_call():
    context = chat()
    context.add(user("hi"))
    context.request()
    context.request(stream=True)
    context.request(stream=True, volatile="noon")
    assert kinds(context).count("Call") == 3


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_message_list_is_fresh(dialect):
    context = start(dialect)
    context.add(user("hi"))
    first = context.request()
    kept = copy.deepcopy(first)
    messages(first).append({"role": "user", "content": "mine"})
    assert context.request() == kept


def test_the_volatile_tail_rides_behind_the_last_mark_and_does_not_stay():
    context = start("anthropic")
    context.add(user("hi"))
    [message] = context.request(volatile="It is noon.")["messages"]
    assert message["content"] == snapshot(
        [
            {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}},
            {"type": "text", "text": "It is noon."},
        ]
    )
    context.add(claude_reply())
    context.add(user("and now?"))
    assert "noon" not in texts(context.request())


@pytest.mark.parametrize("dialect", DIALECTS)
def test_open_calls_are_repaired(dialect):
    context = start(dialect, tools=[READ])
    context.add(user("go"))
    context.request()
    context.add(REPLY[dialect](calls=("call_1",)))
    request = context.request()
    assert check(request, dialect_name=dialect) == []
    assert "[no result: the call was interrupted]" in str(messages(request))
    assert kinds(context)[-2:] == ["Repair", "Call"]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_between_edits_a_request_only_grows_at_its_end(dialect):
    context = start(dialect)
    before: list[tuple[str, object]] = []
    for number in range(6):
        context.add(user(f"question {number}"))
        rendered = blocks(context.request())
        assert rendered[: len(before)] == before
        assert len(rendered) > len(before)
        before = rendered
        context.add(REPLY[dialect](f"answer {number}", name=f"r{number}"))


def test_params_are_passed_on():
    context = chat(params={"temperature": 0.5, "seed": 7})
    context.add(user("hi"))
    request = context.request()
    assert (request["temperature"], request["seed"]) == (0.5, 7)


# Replies


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_sdks_reply_is_added_with_its_usage(dialect):
    context = start(dialect)
    context.add(user("hi"))
    context.request()
    handle = context.add(REPLY[dialect]("Hello."))
    assert context.recall(handle).endswith("Hello.")
    assert context.window.last_usage == replace(
        USAGE, cache_write=30 if dialect == "anthropic" else 0
    )
    assert kinds(context)[-2:] == ["Outcome", "Said"]
    context.add(user("more"))
    assert check(context.request(), dialect_name=dialect) == []


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_tool_loop_with_sdk_replies_is_valid_all_the_way(dialect):
    context = start(dialect, tools=[READ])
    context.add(user("go"))
    for number in range(3):
        assert check(context.request(), dialect_name=dialect) == []
        ids = (f"a{number}", f"b{number}")
        context.add(REPLY[dialect]("", name=f"r{number}", calls=ids))
        for each in ids:
            context.add(result(dialect, each, f"result of {each}"))
    request = context.request()
    assert check(request, dialect_name=dialect) == []
    assert "result of b2" in str(messages(request))
    assert context.window.calls == 4


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_same_reply_added_twice_is_ignored(dialect):
    context = start(dialect)
    context.add(user("hi"))
    context.request()
    first = context.add(REPLY[dialect]())
    count = len(context.events)
    assert context.add(REPLY[dialect]()) == first
    assert len(context.events) == count


def test_a_reply_that_was_undone_may_come_again():
    context = claude()
    position = context.add(user("hi"))
    context.request()
    context.add(claude_reply("Hello."))
    context.rewind(position)
    context.add(claude_reply("Hello."))
    assert texts(context.request()).count("Hello.") == 1


def test_several_choices_are_refused():
    context = chat()
    context.add(user("hi"))
    context.request()
    with pytest.raises(ValueError, match="the reply has 2 choices"):
        context.add(chat_reply(choices=2))
    assert kinds(context) == ["Settings", "Said", "Call"]


def test_a_message_with_a_known_key_is_not_added_twice():
    context = chat()
    first = context.add(user("hi"), key="update-1")
    assert context.add(user("hi"), key="update-1") == first
    context.add(user("hi"), key="update-2")
    assert contents(context.request()) == ["hi", "hi"]
    again = Context.load(context.dump())
    assert again.add(user("hi"), key="update-1") == first


def test_a_retry_does_not_say_the_users_message_twice():
    context = chat()
    context.add(user("hi"))
    first = context.request()
    context.fail("timeout")
    assert context.request() == first


def test_a_call_without_an_outcome_teaches_nothing():
    context = claude()
    context.add(user("hi"))
    context.request()
    context.add(user("are you there?"))
    context.request()
    assert context.window.ratio == 1.0
    assert context.window.anchor is None
    assert context.report().total_usage == Usage(input=0)
    context.add(claude_reply())
    assert context.report().total_usage.input == 100


@pytest.mark.parametrize("kind", ["rate_limit", "timeout", "auth", "deadline"])
def test_an_error_that_is_no_overflow_changes_nothing_that_is_seen(kind):
    context = chat()
    talk(context, 3)
    context.add(user("now"))
    before = context.request()
    limit = context.budget().limit
    context.fail(kind, limit=10)
    assert context.budget().limit == limit
    assert context.request() == before


def test_an_overflow_teaches_the_limit_and_the_next_request_keeps_it():
    context = chat("full", context_window=200_000, max_output_tokens=500)
    talk(context, 20, size=2_000)
    context.add(user("now"))
    context.request()
    context.fail("overflow", limit=4_000, input=9_000, requested=500)
    context.request()
    call = context.window.last_call
    assert call is not None
    assert call.body.bound + call.body.max_output <= 4_000
    assert context.report().source == "learned"


def test_an_error_without_a_call_is_refused():
    with pytest.raises(ValueError, match="no call waits"):
        chat().fail("timeout")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_watched_stream_is_passed_on_and_added_when_it_ends(dialect):
    context = start(dialect)
    context.add(user("hi"))
    context.request(stream=True)
    events = list(stream(dialect, "Hello there."))
    passed: list[object] = []
    for event in context.watch(events):
        assert kinds(context)[-1] == "Call"
        passed.append(event)
    assert passed == events
    assert kinds(context)[-2:] == ["Outcome", "Said"]
    assert context.report().total_usage.input == 100
    assert "Hello there." in context.recall(f"m{context.window.seq}")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_asynchronous_stream_is_watched_the_same_way(dialect):
    context = start(dialect)
    context.add(user("hi"))
    context.request(stream=True)

    async def arriving():
        for event in stream(dialect, "Hello there."):
            yield event

    async def follow():
        return [event async for event in context.watch(arriving())]

    assert asyncio.run(follow()) == list(stream(dialect, "Hello there."))
    assert context.report().total_usage.input == 100
    assert "Hello there." in context.recall(f"m{context.window.seq}")


@pytest.mark.parametrize("dialect", ["anthropic", "openai_chat"])
def test_a_stream_that_breaks_off_leaves_nothing_behind(dialect):
    context = start(dialect)
    context.add(user("hi"))
    before = context.request(stream=True)
    events = list(stream(dialect))[:2]
    assert list(context.watch(events)) == events
    assert kinds(context)[-1] == "Call"
    assert context.request(stream=True) == before


def test_a_streamed_and_a_whole_reply_leave_the_same_log():
    logs = []
    for streamed in (False, True):
        context = start("anthropic")
        context.add(user("hi"))
        context.request(stream=True)
        if streamed:
            list(context.watch(stream("anthropic", "Hello.")))
        else:
            context.add(claude_reply("Hello."))
        logs.append([event.body for event in context.events if not isinstance(event.body, Said)])
        logs.append(context.recall(f"m{context.window.seq}"))
    assert logs[:2] == logs[2:]


def test_replies_of_one_provider_are_sent_on_to_another():
    context = start("anthropic", tools=[READ])
    context.add(user("go"))
    context.request()
    context.add(claude_reply("Let me see.", calls=("toolu_1",)))
    context.add(result("anthropic", "toolu_1", "it is so"))
    for dialect, reply in (("openai_chat", chat_reply), ("openai_responses", response)):
        context.configure(model=MODELS[dialect], dialect=dialect)
        request = context.request()
        assert check(request, dialect_name=dialect) == []
        assert "it is so" in str(messages(request))
        context.add(reply(f"by {dialect}", name=dialect))
        context.add(user("go on"))
    context.configure(model="claude-sonnet-4-5")
    request = context.request()
    assert check(request) == []
    assert "by openai_responses" in texts(request)


# Looking ahead, looking back


def test_a_preview_changes_nothing_and_tells_what_would_be_hidden():
    context = chat(context={"max_history_tokens": 50})
    talk(context, 3, size=400)
    context.add(user("now"))
    before = context.dump()
    preview = context.preview(stream=True)
    assert context.dump() == before
    assert [edit.op for edit in preview.edits] == ["drop"]
    assert preview.report.hidden["drop"][0] > 0
    assert context.request(stream=True) == preview.request


def test_a_preview_uses_the_callers_own_policy_and_tokenizer():
    asked: list[int] = []

    def policy(window, budget):
        asked.append(window.seq)
        return Decision()

    context = chat(policy, tokenizer=len)
    context.add(user("hi"))
    assert context.preview().report.used > 0
    assert asked == [2]


def test_a_past_request_is_rebuilt_exactly():
    context = chat(context={"max_history_tokens": 100})
    sent = {}
    for number in range(6):
        context.add(user(prose(200, f"{number}")))
        request = context.request(volatile=f"tick {number}")
        sent[context.window.seq] = request
        context.add(said("ok"))
    again = Context.load(context.dump())
    assert {seq: again.rebuild(seq) for seq in sent} == sent
    assert len({json.dumps(request) for request in sent.values()}) == 6


def test_a_past_request_with_an_erased_part_is_not_shown():
    context = chat()
    context.add(user("secret"))
    context.request()
    context.erase("m2")
    with pytest.raises(RequestChanged, match="cannot be shown as it was sent"):
        context.rebuild(3)


def test_what_is_no_call_cannot_be_rebuilt():
    context = chat()
    with pytest.raises(LookupError, match="event 1 is not a call"):
        context.rebuild(1)


def test_a_log_is_loaded_as_it_was_left():
    context = chat("compact", recall=True, goal="cost", tools=[READ], system="Be brief.")
    talk(context, 2)
    context.add(user("go"))
    for number in range(12):
        context.add(calls(f"c{number}"))
        context.add(chat_result(f"c{number}", prose(3_900)))
        context.request()
    again = Context.load(context.dump())
    assert again.dump() == context.dump()
    assert again.request() == context.request()
    assert again.report() == context.report()
    again.add(said("done"))
    context.add(said("done"))
    again.add(user("more"))
    context.add(user("more"))
    assert again.request() == context.request()


def test_a_log_without_settings_is_refused():
    with pytest.raises(ValueError, match="the log holds no settings event"):
        Context.load([])


# Recall


def test_recall_tools_are_there_from_the_first_call_or_never():
    with_recall, without = chat(recall=True, tools=[READ]), chat(tools=[READ])
    for context in (with_recall, without):
        context.add(user("hi"))
    names = [tool["function"]["name"] for tool in with_recall.request()["tools"]]
    assert names == ["read", "recall", "search_history"]
    assert [tool["function"]["name"] for tool in without.request()["tools"]] == ["read"]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_recall_is_answered_and_the_answer_added(dialect):
    context = start(dialect, recall=True, tools=[READ], context={"max_tool_result_tokens": 50})
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
        ({"handle": "m2.0", "grep": "A$"}, "alpha\nbeta\ngamma delta"),
        ({"handle": "m2.0", "grep": "delta"}, "gamma delta"),
        ({"handle": "m2.0", "grep": "("}, "(no such lines)"),
        ({"handle": "m99"}, "[nothing is called m99; positions go up to m3]"),
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
    context = chat(recall=True, context={"max_history_tokens": 20})
    context.add(user("The password hint is a blue whale."))
    talk(context, 5, size=400)
    call = calls("s1", tool="search_history", arguments='{"query":"blue whale"}')
    context.add(call)
    assert context.answer(call["tool_calls"][0]) == "m2.0: The password hint is a blue whale."


def test_only_recall_tools_are_answered():
    with pytest.raises(ValueError, match="read is not a recall tool; those are recall and search"):
        chat(recall=True).answer(ToolCall(id="c", name="read", arguments="{}"))


# A caller's own history


def test_sync_appends_what_is_new_and_nothing_else():
    context = chat()
    history = [system("Be brief."), user("hi"), said("Hello.")]
    context.sync(history)
    count = len(context.events)
    context.sync(history)
    assert len(context.events) == count
    context.sync([*history, user("more")])
    assert len(context.events) == count + 1
    assert messages(context.request()) == [*history, user("more")]


def test_sync_rewinds_where_the_history_diverges():
    context = chat()
    context.sync([user("hi"), said("Hello."), user("old")])
    context.sync([user("hi"), said("Hello."), user("edited")])
    assert isinstance(context.events[-2].body, Rewind)
    assert messages(context.request()) == [user("hi"), said("Hello."), user("edited")]


def test_sync_of_a_shorter_history_is_an_undo():
    context = chat()
    context.sync([user("hi"), said("Hello."), user("old")])
    context.sync([user("hi")])
    assert messages(context.request()) == [user("hi")]


def test_sync_keeps_what_was_hidden_hidden():
    context = chat(context={"max_history_tokens": 50})
    history = [m for n in range(4) for m in (user(prose(300, f"q{n}")), said(prose(300, f"a{n}")))]
    context.sync([*history, user("now")])
    first = context.request()
    context.sync([*history, user("now"), said("ok"), user("next")])
    request = context.request()
    assert messages(request)[: len(messages(first))] == messages(first)


def test_sync_takes_an_sdks_reply_for_the_message_it_is():
    context = claude()
    context.add(user("hi"))
    context.request()
    context.add(claude_reply("Hello."))
    count = len(context.events)
    context.sync([user("hi"), {"role": "assistant", "content": claude_reply("Hello.").content}])
    assert len(context.events) == count


def test_sync_after_a_repair_does_not_take_it_for_a_difference():
    context = chat()
    history = [user("go"), calls("c1")]
    context.sync(history)
    context.request()
    context.sync([*history, user("never mind")])
    assert not any(isinstance(event.body, Rewind) for event in context.events)


# Changing course


def test_a_rewind_by_handle_goes_back_to_behind_that_message():
    context = chat()
    handle = context.add(user("one"))
    context.add(user("two"))
    context.rewind(handle)
    assert contents(context.request()) == ["one"]


@pytest.mark.parametrize("to", [-1, 99])
def test_a_rewind_beyond_the_log_is_refused(to):
    with pytest.raises(ValueError, match=f"cannot rewind to {to}; positions go up to 1"):
        chat().rewind(to)


def test_a_fork_shares_the_past_and_nothing_after():
    context = chat()
    context.add(user("one"))
    fork = context.fork(name="parent")
    context.add(user("two"))
    fork.add(user("three"))
    assert contents(context.request()) == ["one", "two"]
    assert contents(fork.request()) == ["one", "three"]
    assert Context.load(fork.dump()).dump() == fork.dump()


def test_a_fork_at_a_position_leaves_the_rest_behind():
    context = chat()
    context.add(user("one"))
    position = context.window.seq
    context.add(user("two"))
    assert contents(context.fork(at=position).request()) == ["one"]


def test_a_change_of_model_takes_its_entry_and_dialect():
    context = chat(context_window=None)
    context.add(user("hi"))
    context.configure(model="claude-sonnet-4-5", dialect=None)
    settings = context.window.settings
    assert (settings.dialect, settings.entry["context_window"]) == ("anthropic", 200_000)
    assert context.budget().limit == 200_000
    assert check(context.request()) == []


def test_a_wrong_change_is_refused_and_changes_nothing():
    context = chat()
    before = context.dump()
    with pytest.raises(ValueError, match="unknown policy"):
        context.configure(policy="best")
    with pytest.raises(ValueError, match="not known; pass dialect"):
        context.configure(model="my-model")
    assert context.dump() == before


def test_revealing_pinning_and_erasing_go_by_handle():
    context = chat(context={"max_tool_result_tokens": 50})
    context.add(user("go"))
    context.add(calls("c1"))
    handle = context.add(chat_result("c1", prose(4_000)))
    context.request()
    context.reveal(f"{handle}.0")
    assert prose(4_000) in contents(context.request())
    context.pin(handle)
    context.erase(handle)
    assert "[erased]" in contents(context.request())
    with pytest.raises(Erased):
        context.recall(handle)


def test_a_policy_of_ones_own_is_a_function():
    def newest(window, budget):
        first = next(iter(window.groups))
        drop = Edit(op="drop", first=first.first, last=first.last, why="mine")
        return Decision(edits=(drop,), note={"seen": len(window.groups)})

    context = chat(newest)
    context.add(user("one " * 50))
    context.add(user("two"))
    assert contents(context.request()) == [
        "[conversation truncated — 1 older messages omitted]",
        "two",
    ]
    call = context.events[-1].body
    assert isinstance(call, Call)
    assert call.note == {"seen": 2}
    assert context.window.settings.policy.endswith("newest")


def test_the_settings_of_a_snapshot_come_back_with_their_own_policy():
    """Opened from a snapshot, under a function that was chosen only after it."""

    def nothing(window, budget):
        return Decision()

    context = chat("full")
    context.add(user("one"))
    events = list(context.events)
    base = context.checkpoint()
    context.configure(policy=nothing)
    twin = Context.load([*events, *context.events], snapshot=base, policy=nothing)
    assert twin.options.policy is nothing
    twin.apply([replace(events[0], seq=twin.window.seq + 1)])
    assert twin.options.policy == "full"


def test_a_tokenizer_of_ones_own_counts():
    context = chat(tokenizer=lambda text: len(text.split()))
    before = context.report().used
    context.add(user("one two three"))
    assert context.report().used - before == 3 + 4


def test_decide_and_apply_are_what_request_does():
    one, other = chat(context={"max_history_tokens": 50}), chat(context={"max_history_tokens": 50})
    for context in (one, other):
        for number in range(3):
            context.add(user(prose(400, f"{number}")))
    one.apply(one.repairs())
    count = len(one.events)
    decided = one.decide()
    assert len(one.events) == count
    one.apply(decided)
    one.apply([one.call()])
    assert one.render() == other.request()
    assert one.dump() == other.dump()


def test_a_step_lets_a_call_pass_that_was_made_elsewhere():
    context = chat()
    context.add(user("hi"))
    context.step()
    assert kinds(context) == ["Settings", "Said", "Call"]
    assert context.window.sent == 2


def test_nothing_can_be_rendered_before_a_call_is_recorded():
    with pytest.raises(ValueError, match="no call is recorded"):
        chat().render()


def test_what_cannot_fit_is_an_error_of_its_own():
    context = chat(context_window=1_000, max_output_tokens=900)
    context.add(user("hi"))
    context.configure(system=prose(10_000))
    with pytest.raises(CannotFit, match="the limit is 1,000"):
        context.request()


@pytest.mark.parametrize(
    ("item", "told"),
    [
        ("hi", "a text has no role"),
        ([{"role": "user", "content": "hi"}], "sync"),
        (7, "expected a mapping or an SDK object"),
    ],
)
def test_what_is_no_message_is_refused(item, told):
    with pytest.raises(TypeError, match=told):
        chat().add(item)


def test_a_request_before_anything_was_said_is_refused():
    with pytest.raises(ValueError, match="nothing was said yet"):
        chat().request()


def test_a_context_shows_itself_in_one_line():
    context = Context("gpt-4o")
    context.add({"role": "user", "content": "hello"})
    assert repr(context) == "<Context gpt-4o: 1 of 1 messages shown, 9 of 128,000 tokens>"


def test_an_outcome_names_its_call_and_why_the_model_stopped():
    context = claude()
    context.add(user("hi"))
    context.request()
    context.add(claude_reply())
    outcome = next(e.body for e in context.events if isinstance(e.body, Outcome))
    assert outcome == Outcome(
        call=3,
        usage=Usage(input=100, output=7, cache_read=50, cache_write=30),
        stop="end_turn",
    )


def test_importing_it_needs_no_sdk():
    script = "import sys, trimtab; trimtab.Context('gpt-4o'); print('openai' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env=dict(os.environ),
    )
    assert done.stdout == "False\n"


def test_a_fork_from_before_an_erasure_names_it_too():
    context = chat()
    handle = context.add(user("my secret"))
    context.add(said("noted"))
    before = context.window.seq
    context.erase(handle)
    twin = context.fork(at=before)
    assert "my secret" not in "".join(twin.dump())
    with pytest.raises(Erased, match=f"{handle} was erased"):
        twin.recall(handle)
