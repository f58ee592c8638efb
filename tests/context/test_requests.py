"""What `request` returns, in every dialect where it differs."""

import copy

import pytest

from tests.context.contexts import READ, kinds, messages, start
from tests.conversations import (
    chat,
    prose,
    talk,
    texts,
    user,
)
from tests.replies import (
    DIALECTS,
    REPLY,
    chat_reply,
    claude_reply,
)
from tests.snapshots import snapshot
from trimtab import check


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
    context = start("openai_responses", model="gpt-5", max_output_tokens=100)
    context.add(user("hi"))
    assert context.request() == snapshot(
        {
            "store": False,
            "model": "gpt-5",
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
    assert kinds(context) == ["Settings", "MessageAdded", "ModelCall"]


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
    assert kinds(context).count("ModelCall") == 3


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
    assert kinds(context)[-2:] == ["ToolResultRepair", "ModelCall"]


def test_params_are_passed_on():
    context = chat(params={"temperature": 0.5, "seed": 7})
    context.add(user("hi"))
    request = context.request()
    assert (request["temperature"], request["seed"]) == (0.5, 7)


def test_a_retry_without_a_tail_is_the_same_request():
    """The tail of the last call that reported is in its usage, whatever was asked for since."""
    context = chat("full", context_window=3_000, max_output_tokens=300)
    talk(context, 4, size=200)
    context.add(user("y" * 40))
    context.request(volatile=prose(900))
    made = context.window.last_call
    assert made is not None
    context.add(chat_reply("ok", tokens=made.body.tokens))
    for size in range(4_000, 8_000, 200):
        fork = context.fork()
        fork.add(user(prose(size)))
        first = fork.request()
        fork.fail("rate_limit")
        assert fork.request() == first
