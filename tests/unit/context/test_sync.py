"""`sync`: a caller who resends the whole history."""

from tests.conversations import (
    calls,
    chat,
    claude,
    prose,
    said,
    system,
    user,
)
from tests.replies import (
    claude_reply,
)
from tests.unit.context.start import messages
from trimtab.core.event import Rewind


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
