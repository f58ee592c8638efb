"""`sync`: a caller who resends the whole history."""

import json

import pytest

from tests.context.contexts import blocks, messages
from tests.conversations import calls, chat, claude, contents, prose, result, said, system, user
from tests.pictures import PNG_TEXT, png, text
from tests.replies import (
    chat_reply,
    claude_reply,
)
from trimtab import fit
from trimtab.engine.log.event import Rewind
from trimtab.engine.log.message import Message, Text, ToolResult


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
    context = chat(limits={"max_history_tokens": 50})
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


@pytest.mark.parametrize("policy", ["layered", "compact", "rolling", "auto"])
def test_a_whole_history_is_seen_as_if_it_had_arrived_call_by_call(policy):
    history = [user("Read all.")]
    for number in range(20):
        history += [calls(f"c{number}"), result(f"c{number}", prose(5_000, f"file {number}"))]
    context = chat(policy)
    context.sync(history)
    fitted = fit(history, model="gpt-4o", policy=policy, context_window=1_000_000)
    assert messages(context.request()) == fitted.messages
    count = len(context.events)
    context.sync(history)
    assert len(context.events) == count


def test_arguments_that_were_written_anew_are_the_same():
    context = chat()
    context.sync([user("go"), calls("c", arguments='{"a":1}'), result("c", "done")])
    context.sync([user("go"), calls("c", arguments='{ "a": 1 }'), result("c", "done"), user("on")])
    assert not any(isinstance(event.body, Rewind) for event in context.events)
    assert messages(context.request())[1] == calls("c", arguments='{"a":1}')


def test_an_answer_that_comes_again_as_the_users_is_not_said_twice():
    context = claude(recall=True)
    context.add(user("hi"))
    context.request()
    asked = {"type": "tool_use", "id": "r", "name": "recall", "input": {"handle": "m2"}}
    context.add({"role": "assistant", "content": [asked]})
    answer = {"type": "tool_result", "tool_use_id": "r", "content": context.answer(asked)}
    history = [user("hi"), {"role": "assistant", "content": [asked]}]
    context.sync([*history, {"role": "user", "content": [answer]}])
    assert not any(isinstance(event.body, Rewind) for event in context.events)


def test_a_past_call_that_would_not_fit_does_not_keep_the_history_out():
    arguments = json.dumps({"text": prose(160_000)})
    history = [user("Write."), calls("c", arguments=arguments), result("c", "done"), said("Done.")]
    history += [user("And now?"), said("Nothing."), user("Fine.")]
    context = chat(context_window=16_000, max_output_tokens=500)
    context.sync(history)
    assert messages(context.request())[-1] == user("Fine.")
    fitted = fit(history, model="gpt-4o", context_window=16_000, max_output_tokens=500)
    assert fitted.messages[-1] == user("Fine.")


def test_a_reply_is_not_taken_for_that_of_a_call_of_which_nothing_is_known():
    context = chat()
    context.sync([user("hi"), said("Hello."), user(prose(8_000))])
    context.add(chat_reply("ok", tokens=9_000))
    assert context.budget().ratio == 1.0


def test_what_was_erased_stays_so_though_the_caller_still_tells_it():
    context = chat()
    call = calls("c1", arguments='{"path": "/secret"}')
    history = [user("secret"), call, result("c1", "secret"), said("a secret, too"), user("go on")]
    context.sync(history)
    context.erase("m2-m7")
    count = len(context.events)
    context.sync([*history, said("Done."), user("And?")])
    assert not [event for event in context.events[count:] if isinstance(event.body, Rewind)]
    assert "secret" not in "\n".join(context.dump())
    assert contents(context.request())[-2:] == ["Done.", "And?"]


def test_of_a_message_with_an_erased_part_the_others_are_still_compared():
    def told(*said):
        return {"role": "user", "content": [{"type": "text", "text": text} for text in said]}

    context = claude()
    context.sync([told("secret", "one"), {"role": "assistant", "content": "Yes?"}])
    context.erase("m2.0")
    count = len(context.events)
    context.sync([told("secret", "one"), {"role": "assistant", "content": "Yes?"}])
    assert len(context.events) == count
    context.sync([told("secret", "two"), {"role": "assistant", "content": "Yes?"}])
    assert any(isinstance(event.body, Rewind) for event in context.events[count:])


def block(text):
    return {"type": "text", "text": text}


def by_user(*blocks):
    return {"role": "user", "content": [*blocks]}


def by_claude(*blocks):
    return {"role": "assistant", "content": [*blocks]}


def rewinds(context):
    return [event for event in context.events if isinstance(event.body, Rewind)]


def last_of(context, role):
    return max(seq for seq, e in context.window.entries.items() if e.message.role == role)


THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "s"}


@pytest.mark.parametrize("resent", [[], [THOUGHT]])
def test_what_was_erased_beside_a_thought_stays_so_when_the_thought_is_left_out(resent):
    context = claude()
    context.sync([user("hi"), by_claude(THOUGHT, block("the password is 4711"), block("Bye."))])
    context.erase(f"m{last_of(context, 'assistant')}.1")
    told = by_claude(*resent, block("the password is 4711"), block("Bye."))
    context.sync([user("hi"), told, user("And now?")])
    assert not rewinds(context)
    assert "4711" not in "\n".join(context.dump())
    assert "Bye." in str(context.request())


def test_another_text_beside_an_erased_one_is_still_a_difference_without_the_thought():
    context = claude()
    context.sync([user("hi"), by_claude(THOUGHT, block("secret"), block("Bye."))])
    context.erase(f"m{last_of(context, 'assistant')}.1")
    context.sync([user("hi"), by_claude(block("secret"), block("Wait."))])
    assert len(rewinds(context)) == 1


def test_a_new_question_is_not_taken_for_an_erased_one_that_was_answered():
    context = chat()
    context.sync([user("my card is 4711"), said("ok")])
    context.erase("m2")
    context.sync([user("What is the capital of France?")])
    assert contents(context.request()) == ["What is the capital of France?"]
    assert "4711" not in "\n".join(context.dump())


def test_a_new_question_after_a_repair_takes_its_place_too():
    context = chat()
    context.sync([user("go"), calls("c1")])
    context.request()
    context.sync([user("go"), calls("c1"), user("my card is 4711"), said("ok")])
    context.erase(f"m{last_of(context, 'user')}")
    context.sync([user("go"), calls("c1"), user("Stop.")])
    shown = contents(context.request())
    assert (shown[0], shown[-1]) == ("go", "Stop.")
    assert "[erased]" not in shown


def test_an_erased_message_that_was_not_answered_stays_erased_when_it_is_told_again():
    context = chat()
    context.sync([user("my card is 4711")])
    context.erase("m2")
    count = len(context.events)
    context.sync([user("my card is 4711")])
    assert len(context.events) == count


def test_an_erased_result_is_known_by_its_call_though_it_is_the_last_one_told():
    context = chat()
    history = [user("go"), calls("c1"), result("c1", "secret")]
    context.sync([*history, said("Done.")])
    context.erase(f"m{last_of(context, 'tool')}")
    context.sync(history)
    assert "secret" not in "\n".join(context.dump())
    assert contents(context.request()) == ["go", None, "[erased]"]


def picture(data):
    source = {"type": "base64", "media_type": "image/png", "data": data}
    return {"type": "image", "source": source}


def found(*blocks, **more):
    return by_user({"type": "tool_result", "tool_use_id": "c", "content": [*blocks], **more})


def looked(path):
    return {"type": "search_result", "source": path, "title": "t", "content": [block("x")]}


USE = by_claude({"type": "tool_use", "id": "c", "name": "look", "input": {}})
MARK = {"cache_control": {"type": "ephemeral"}}
STORED = {"type": "image", "source": {"type": "file", "file_id": "f1"}}
OTHER = {"type": "image", "source": {"type": "file", "file_id": "f2"}}
DIFFERENT = {
    "another picture": (
        found(block("x"), picture(PNG_TEXT)),
        found(block("x"), picture(text(png(2, 2)))),
    ),
    "no picture": (found(block("x"), picture(PNG_TEXT)), found(block("x"))),
    "another file": (found(STORED), found(OTHER)),
    "failed": (found(block("x")), found(block("x"), is_error=True)),
    "another source": (found(looked("/a")), found(looked("/b"))),
    "another document": (by_user(looked("/a"), block("q")), by_user(looked("/b"), block("q"))),
    "no document": (by_user(looked("/a"), block("q")), by_user(block("q"))),
}


@pytest.mark.parametrize("why", DIFFERENT)
def test_what_the_model_would_see_otherwise_is_a_difference(why):
    one, other = DIFFERENT[why]
    context = claude()
    context.sync([user("go"), USE, one, by_claude(block("Seen."))])
    context.sync([user("go"), USE, other, by_claude(block("Seen."))])
    assert len(rewinds(context)) == 1
    assert ("user", other["content"][0]) in blocks(context.request())


@pytest.mark.parametrize(
    "one", [found(looked("/a")), by_user(looked("/a"), block("q")), found(STORED)]
)
def test_a_cache_mark_that_moves_is_no_difference(one):
    marked = json.loads(json.dumps(one))
    inner = marked["content"][0]
    for each in (inner, *inner.get("content", [])):
        if each["type"] in ("search_result", "image", "tool_result"):
            each.update(MARK)
    context = claude()
    context.sync([user("go"), USE, one])
    context.sync([user("go"), USE, marked, by_claude(block("Seen."))])
    assert not rewinds(context)


def test_what_a_history_lost_on_its_way_through_chat_is_no_difference():
    """A result there is a text, and nothing says that the tool failed."""
    context = claude()
    context.sync([user("go"), USE, found(block("broken"), picture(PNG_TEXT), is_error=True)])
    call = calls("c", tool="look")
    context.sync([user("go"), call, result("c", "broken"), said("Seen.")])
    assert not rewinds(context)


def test_a_result_made_by_hand_that_failed_is_the_same_in_a_dialect_that_cannot_say_so():
    context = chat()
    context.add(user("go"))
    context.add(calls("c"))
    text = Text(text="broken")
    failed = ToolResult(call_id="c", content=(text,), is_error=True)
    context.add(Message(role="tool", parts=(failed,)))
    context.sync([user("go"), calls("c"), result("c", "broken"), said("Seen.")])
    assert not rewinds(context)


def test_a_result_that_comes_after_all_takes_the_place_of_the_repair():
    context = chat()
    context.sync([user("q"), calls("c1")])
    context.request()
    context.add(said("It was interrupted."))
    whole = [user("q"), calls("c1"), result("c1", "found"), said("Done."), user("next")]
    context.sync(whole)
    assert messages(context.request()) == whole
