"""`sync` takes a list of `Message`s, and the usage that a reply in a list carries."""

from dataclasses import replace

import pytest

from tests.context.contexts import USAGE, start
from tests.conversations import chat, said, user
from tests.replies import DIALECTS, REPLY
from trimtab import Context, check
from trimtab.dialects import known_history
from trimtab.engine.log.event import Rewind
from trimtab.engine.log.message import Message, Text, ToolCall, ToolResult, make_text_message


def history(turns):
    messages = []
    for number in range(turns):
        call = ToolCall(id=f"c{number}", name="read", arguments="{}")
        result = ToolResult(call_id=f"c{number}", content=(Text(text=f"result {number}"),))
        messages += [
            make_text_message("user", f"question {number}"),
            Message(role="assistant", parts=(call,)),
            Message(role="tool", parts=(result,)),
            make_text_message("assistant", f"answer {number}"),
        ]
    return [*messages, make_text_message("user", "And now?")]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_list_of_messages_is_synced_as_if_they_were_added(dialect):
    synced, added = start(dialect), start(dialect)
    for turns in (1, 2, 5):
        synced.sync(history(turns))
        request = synced.request()
        assert check(request, dialect_name=dialect) == []
    for message in history(5):
        added.add(message)
    assert str(synced.request()) == str(added.request())
    assert not any(isinstance(event.body, Rewind) for event in synced.events[:8])


def test_the_same_messages_are_known_again_and_changed_ones_are_not():
    context = chat()
    messages = history(3)
    context.sync(messages)
    count = len(context.events)
    context.sync(messages)
    context.sync([replace(message) for message in messages])
    assert len(context.events) == count
    context.sync([*messages[:-1], make_text_message("user", "Something else.")])
    assert "Something else." in str(context.request())
    assert "And now?" not in str(context.request())


def test_known_messages_are_known_without_being_written_out(monkeypatch):
    written_out = []
    for name in ("message_to_json", "to_plain_dict"):
        monkeypatch.setattr(known_history, name, written_out.append)
    context = start("openai_chat")
    messages = history(30)
    for count in (100, 101, 102):
        context.sync(messages[:count])
    assert written_out == []


def test_messages_and_dicts_may_stand_in_one_list():
    context = chat()
    context.sync([user("hi"), make_text_message("assistant", "Hello."), user("more")])
    assert [m["content"] for m in context.request()["messages"]] == ["hi", "Hello.", "more"]


def test_a_system_message_at_the_start_is_the_system_prompt():
    context = chat()
    context.sync([make_text_message("system", "Be brief."), make_text_message("user", "hi")])
    assert context.request()["messages"][0] == {"role": "system", "content": "Be brief."}


def test_a_reply_of_anthropics_sdk_in_a_list_brings_its_usage():
    context = Context("claude-sonnet-4-5")
    messages = [user("hi")]
    context.sync(messages)
    context.request()
    context.sync([*messages, REPLY["anthropic"]("Hello."), user("more")])
    assert context.report().last_usage == replace(USAGE, cache_write=30)


def reasoned(text):
    """The items of a reply of the Responses API that begins with a reasoning item."""
    said_text = {"type": "output_text", "text": text, "annotations": []}
    return [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
        {"type": "message", "id": "msg_1", "role": "assistant", "content": [said_text]},
    ]


@pytest.mark.parametrize("after", [[], [user("more")]])
def test_a_call_answered_elsewhere_by_a_reply_that_begins_with_reasoning_is_synced(after):
    context = start("openai_responses", model="gpt-5.4")
    context.sync([user("hi")])
    context.request()  # it failed, and another worker got the answer
    items = [user("hi"), *reasoned("Hello."), *after]
    context.sync(items)
    context.sync([*items, user("and more")])
    assert context.request()["input"] == [*items, user("and more")]
    assert not any(isinstance(event.body, Rewind) for event in context.events)


def test_an_unreadable_item_among_messages_is_named():
    with pytest.raises(TypeError, match=r"messages\[1\]"):
        chat().sync([make_text_message("user", "hi"), 7])
    with pytest.raises(ValueError, match=r"messages\[2\]"):
        chat().sync([make_text_message("user", "hi"), said("Yes."), {"role": "user"}])
