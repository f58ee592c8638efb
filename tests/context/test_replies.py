"""What `add`, `watch` and `fail` take, and what they teach."""

import asyncio
from dataclasses import replace
from enum import Enum
from itertools import pairwise
from typing import cast

import pytest

from tests.context.contexts import READ, USAGE, kinds, messages, start
from tests.conversations import (
    chat,
    claude,
    contents,
    said,
    talk,
    texts,
    user,
)
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
from trimtab import Context, check
from trimtab.engine.log.event import MessageAdded, Usage
from trimtab.engine.log.message import Message, Text
from trimtab.errors import CannotFit
from trimtab.types import DialectName


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_sdks_reply_is_added_with_its_usage(dialect):
    context = start(dialect)
    context.add(user("hi"))
    context.request()
    handle = context.add(REPLY[dialect]("Hello."))
    assert context.recall(handle).endswith("Hello.")
    assert context.window.accounting.last_usage == replace(
        USAGE, cache_write=30 if dialect == "anthropic" else 0
    )
    assert kinds(context)[-2:] == ["CallOutcome", "MessageAdded"]
    context.add(user("more"))
    assert check(context.request(), dialect_name=dialect) == []


@pytest.mark.parametrize(
    "item", [Message(role="assistant", parts=(Text(text="Yes."),)), said("Yes.")]
)
def test_a_reply_that_does_not_carry_its_usage_is_added_with_it(item):
    context = chat()
    context.add(user("hi"))
    context.request()
    handle = context.add(item, usage=USAGE)
    assert context.recall(handle) == f"[{handle} assistant]\nYes."
    assert context.report().last_usage == USAGE
    assert context.report().total_usage == USAGE
    assert not context.window.accounting.open_call_seq


def test_a_usage_is_only_for_a_reply_and_does_not_replace_the_replys_own():
    context = start("anthropic")
    with pytest.raises(ValueError, match="usage belongs to a model's reply"):
        context.add(user("hi"), usage=USAGE)
    context.add(user("hi"))
    context.request()
    with pytest.raises(TypeError, match="a Usage"):
        context.add(said("Yes."), usage=cast("Usage", {"input": 1}))
    context.add(REPLY["anthropic"]("Yes."), usage=Usage(input=1))
    assert context.report().last_usage == replace(USAGE, cache_write=30)


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
    assert context.window.accounting.call_count == 4


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
    assert kinds(context) == ["Settings", "MessageAdded", "ModelCall"]


def test_a_message_with_a_known_key_is_not_added_twice():
    context = chat()
    first = context.add(user("hi"), key="update-1")
    assert context.add(user("hi"), key="update-1") == first
    context.add(user("hi"), key="update-2")
    assert contents(context.request()) == ["hi", "hi"]
    again = Context.load(context.dump())
    assert again.add(user("hi"), key="update-1") == first


def test_a_reply_with_a_known_key_is_not_added_twice_after_another_call():
    context = chat()
    context.add(user("hi"))
    context.request()
    handle = context.add(chat_reply("Hello."), key="k")
    context.add(user("next"))
    context.request()
    assert context.add(chat_reply("Hello."), key="k") == handle
    assert context.window.conversation.total_messages == 3


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
    assert context.window.accounting.last_call_ratio == 1.0
    assert context.window.accounting.usage_anchor is None
    assert context.report().total_usage == Usage(input=0)
    context.add(claude_reply())
    assert context.report().total_usage.input == 100


@pytest.mark.parametrize("kind", ["rate_limit", "timeout", "auth", "refused"])
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
    with pytest.raises(ValueError, match="no call is open"):
        chat().fail("timeout")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_watched_stream_is_passed_on_and_added_when_it_ends(dialect):
    context = start(dialect)
    context.add(user("hi"))
    context.request(stream=True)
    events = list(stream(dialect, "Hello there."))
    passed: list[object] = []
    watched = context.watch(events)
    for event in watched:
        assert kinds(context)[-1] == "ModelCall"
        with pytest.raises(ValueError, match="read the stream to its end"):
            _ = watched.message
        passed.append(event)
    assert passed == events
    assert watched.message.text == "Hello there."
    assert kinds(context)[-2:] == ["CallOutcome", "MessageAdded"]
    assert context.report().total_usage.input == 100
    assert "Hello there." in context.recall(f"m{context.window.seq}")
    assert context.add(watched.message) == f"m{context.window.seq}", "it is not added twice"
    assert kinds(context).count("MessageAdded") == 2


def test_a_streamed_reply_that_was_taken_back_can_be_added_again():
    context = start("anthropic")
    context.add(user("hi"))
    context.request(stream=True)
    before = context.window.seq
    watched = context.watch(stream("anthropic", "Hello there."))
    list(watched)
    first = context.add(watched.message)
    context.rewind(before)
    again = context.add(watched.message)
    assert again != first
    assert context.recall(again).endswith("Hello there.")


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
    watched = context.watch(events)
    assert list(watched) == events
    with pytest.raises(ValueError, match="the reply is incomplete"):
        _ = watched.message
    assert kinds(context)[-1] == "ModelCall"
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
        logs.append(
            [event.body for event in context.events if not isinstance(event.body, MessageAdded)]
        )
        logs.append(context.recall(f"m{context.window.seq}"))
    assert logs[:2] == logs[2:]


def test_replies_of_one_provider_are_sent_on_to_another():
    context = start("anthropic", tools=[READ])
    context.add(user("go"))
    context.request()
    context.add(claude_reply("Let me see.", calls=("toolu_1",)))
    context.add(result("anthropic", "toolu_1", "it is so"))
    for dialect, reply in (("openai_chat", chat_reply), ("openai_responses", response)):
        context.configure(model=MODELS[dialect], dialect=cast("DialectName", dialect))
        request = context.request()
        assert check(request, dialect_name=dialect) == []
        assert "it is so" in str(messages(request))
        context.add(reply(f"by {dialect}", name=dialect))
        context.add(user("go on"))
    context.configure(model="claude-sonnet-4-5")
    request = context.request()
    assert check(request) == []
    assert "by openai_responses" in texts(request)


@pytest.mark.parametrize("changed", [{"id": 7}, {"id": None}, {"finish_reason": 7}])
def test_what_a_server_reports_oddly_can_be_loaded_again(changed):
    context = chat()
    context.add(user("hi"))
    context.request()
    reply = chat_reply().model_dump()
    (choice,) = reply["choices"]
    target = choice if "finish_reason" in changed else reply
    target.update(changed)
    context.add(reply)
    context.add(user("And?"))
    assert Context.load(context.dump()).request() == context.request()


class Role(str, Enum):  # noqa: UP042 - as callers have them
    USER = "user"


@pytest.mark.parametrize("made", [chat, claude])
def test_a_role_may_be_a_word_of_an_enumeration(made):
    context = made()
    context.add({"role": Role.USER, "content": "hi"})
    assert context.request()["messages"][0]["role"] == "user"


@pytest.mark.parametrize("named", [{}, {"input": 9_000, "requested": 500}, {"limit": 190_000}])
def test_after_an_overflow_the_next_request_is_smaller_whatever_it_names(named):
    context = chat("full", context_window=200_000, max_output_tokens=500)
    talk(context, 20, size=2_000)
    context.add(user("now"))
    made = [context.request()]

    def until_nothing_is_left():
        for _ in range(20):
            context.fail("overflow", **named)
            made.append(context.request())

    told = (
        "the provider refused the request for its length. .* including output. The known limit is"
    )
    with pytest.raises(CannotFit, match=told):
        until_nothing_is_left()
    assert len(made) > 3
    said_in = [len(str(request["messages"])) for request in made]
    asked_for = [request["max_completion_tokens"] for request in made]
    # It asks for less output before it says less, and never for the same again.
    for sizes in (said_in, asked_for):
        assert sizes == sorted(sizes, reverse=True)
    assert len({*zip(said_in, asked_for, strict=True)}) == len(made)
    assert sum(one == other for one, other in pairwise(said_in)) == (0 if named else 1)
    assert contents(context.request())[-1] == "now"


def test_a_thought_without_what_it_led_to_is_refused():
    """It could never be sent, and what it led to would be sent without it."""
    context = Context("gpt-5", dialect="openai_responses")
    context.add(user("hi"))
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
    call = {"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{}"}
    with pytest.raises(ValueError, match="add the whole response"):
        context.add(thought)
    context.sync([user("hi"), thought, call])
    assert context.request()["input"][1:3] == [thought, call]
