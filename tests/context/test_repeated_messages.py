"""The same message added twice in two forms, as programs do that follow an SDK's tutorial."""

from typing import Any

import pytest

from tests.conversations import calls, result, said, user
from tests.replies import chat_reply, claude_reply
from trimtab import Context, Usage


def start(**options: Any) -> Context:
    context = Context("gpt-4o", dialect="openai_chat", **options)
    context.add(user("Read a."))
    context.request()
    return context


def roles(context: Context) -> list[str]:
    return [logged.message.role for logged in context.messages()]


@pytest.mark.parametrize("again", [said("Hi."), {"role": "assistant", "content": ""}])
def test_a_reply_with_a_text_is_added_once(again: dict[str, Any]):
    context = start()
    handle = context.add(said("Hi."))
    assert context.add(again) == handle
    assert roles(context) == ["user", "assistant"]


def test_a_reply_with_calls_is_added_once_and_no_call_is_interrupted():
    context = start()
    handle = context.add(calls("a", "b"))
    assert context.add(calls("a", "b")) == handle
    context.add(result("a", "A"))
    assert context.add(calls("a", "b")) == handle
    context.add(result("b", "B"))
    assert context.add(calls("a", "b")) == handle
    assert roles(context) == ["user", "assistant", "tool", "tool"]
    assert [m["role"] for m in context.request()["messages"]] == roles(context)


def test_an_equal_reply_to_another_request_is_a_new_one():
    context = start()
    context.add(calls("call_0"))
    context.add(result("call_0", "not ready"))
    context.request()
    context.add(calls("call_0"))
    context.add(result("call_0", "not ready"))
    context.request()
    context.add(said("ok"))
    context.add(user("Go on."))
    context.request()
    context.add(said("ok"))
    assert roles(context) == ["user", *["assistant", "tool"] * 2, "assistant", "user", "assistant"]


def test_the_same_result_is_added_once_even_after_the_next_request():
    context = start()
    context.add(calls("a"))
    handle = context.add(result("a", "A"))
    assert context.add(result("a", "A")) == handle
    context.request()
    assert context.add(result("a", "A")) == handle
    assert context.add(result("a", "another")) != handle


def test_a_user_may_say_the_same_twice():
    context = start()
    context.add(user("Read a."))
    assert roles(context) == ["user", "user"]


def test_usage_that_only_the_second_copy_brings_is_recorded():
    context = start()
    context.add(said("Hi."))
    context.add(said("Hi."), usage=Usage(input=50, output=2))
    assert context.report().total_usage == Usage(input=50, output=2)
    assert roles(context) == ["user", "assistant"]


def test_a_redacted_reply_is_known_again():
    context = start(redact=lambda text: text.replace("secret", "[gone]"))
    handle = context.add(said("a secret"))
    assert context.add(said("a secret")) == handle


def test_a_whole_reply_and_then_its_message_is_one_reply():
    chat = start()
    completion = chat_reply("Let me see.", calls=("a",))
    handle = chat.add(completion)
    message = completion.choices[0].message
    assert chat.add(message) == handle
    assert chat.add({"role": "assistant", "content": message.content}) == handle
    assert roles(chat) == ["user", "assistant"]
    claude = Context("claude-sonnet-4-5")
    claude.add(user("Read a."))
    claude.request()
    whole_reply = claude_reply("Let me see.", calls=("a",))
    handle = claude.add(whole_reply)
    assert claude.add({"role": "assistant", "content": whole_reply.content}) == handle
    assert roles(claude) == ["user", "assistant"]
