"""A message that the provider does not take is left out of all that follows it, and not lost."""

import pytest

from tests.conversations import calls, chat, claude, prose, said, texts, user
from tests.pictures import PNG_TEXT, png, text
from tests.recording import checkpoint
from trimtab import Context, check
from trimtab.engine.log.event import Edit, MessageAdded
from trimtab.engine.log.message import Media, Message, Text, ToolResult
from trimtab.engine.policy.rejections import REJECTED_REASON, find_first_entry_of_user_undo

IMAGE = "Could not process image"
POLICY = "Output blocked by content filtering policy"
LEFT = {
    "image": "[image left out: the provider did not take it]",
    "message": "[message left out: the provider did not take it]",
    "result": "[result left out: the provider did not take it]",
}


def picture(data=PNG_TEXT):
    source = {"type": "base64", "media_type": "image/png", "data": data}
    return {"type": "image", "source": source}


def shows(words, *pictures):
    return {"role": "user", "content": [{"type": "text", "text": words}, *pictures]}


def asked(context):
    """What the next request says, block by block; a picture is `image`."""
    request = context.request()
    assert check(request) == []
    blocks = [block for message in request["messages"] for block in message["content"]]
    return [block.get("text", block["type"]) for block in blocks]


def edits(context):
    return [event.body for event in context.events if isinstance(event.body, Edit)]


def talked(**options):
    """A context in which a question was answered."""
    context = claude("auto", **options)
    context.add(user("Hello."))
    context.request()
    context.add(said("Hello to you."))
    return context


BEFORE = ["Hello.", "Hello to you."]
SHOT = Media(kind="image", mime="image/png", data=PNG_TEXT)
USE = {"type": "tool_use", "id": "c1", "name": "look", "input": {}}


def test_the_next_message_goes_without_the_picture_and_with_what_was_said_beside_it():
    context = talked()
    handle = context.add(shows("What is it?", picture()))
    assert asked(context) == [*BEFORE, "What is it?", "image"]
    assert context.fail("rejected", message=IMAGE) is False
    context.add(user("Never mind. And now?"))
    assert asked(context) == [*BEFORE, "What is it?", LEFT["image"], "Never mind. And now?"]
    [edit] = edits(context)
    assert (edit.op, edit.handle, edit.why) == (
        "mask",
        f"{handle}.1",
        f"{REJECTED_REASON}: {IMAGE}",
    )
    kept = [event.body.message for event in context.events if isinstance(event.body, MessageAdded)]
    assert PNG_TEXT in str(kept)
    context.reveal(f"{handle}.1")
    assert asked(context)[3] == "image"


def test_a_text_that_is_rejected_is_left_out_whole_and_can_be_recalled():
    context = talked()
    handle = context.add(shows("Tell me of herons.", picture()))
    context.request()
    context.fail("rejected", message=POLICY)
    context.add(user("Of swans, then."))
    assert asked(context) == [*BEFORE, LEFT["message"], LEFT["image"], "Of swans, then."]
    assert context.recall(f"{handle}.0") == "Tell me of herons."


def test_until_something_else_is_said_it_can_be_sent_again():
    context = talked()
    context.add(shows("What is it?", picture()))
    first = asked(context)
    context.fail("rejected", message=IMAGE)
    assert asked(context) == first
    context.add({"role": "assistant", "content": "A dot."})
    context.add(user("Thanks."))
    assert asked(context) == [*first, "A dot.", "Thanks."]
    assert edits(context) == []


@pytest.mark.parametrize(
    "kind", ["auth", "refused", "rate_limit", "overloaded", "server", "network", "timeout"]
)
def test_what_has_nothing_to_do_with_what_was_said_hides_nothing(kind):
    context = talked()
    context.add(shows("What is it?", picture()))
    context.request()
    assert context.fail(kind, message="Your credit balance is too low") is False
    context.add(user("Hello?"))
    assert asked(context) == [*BEFORE, "What is it?", "image", "Hello?"]
    assert "credit" not in "".join(context.dump())


def test_each_of_several_that_are_rejected_is_left_out():
    context = talked()
    for number in range(3):
        context.add(user(f"Forbidden {number}."))
        context.request()
        context.fail("rejected", message=POLICY)
    context.add(user("Something else."))
    assert asked(context) == [*BEFORE, *[LEFT["message"]] * 3, "Something else."]


def test_what_is_left_of_a_rejected_message_goes_when_the_next_one_is_rejected_as_well():
    context = talked()
    context.add(shows("The words are at fault.", picture()))
    context.request()
    context.fail("rejected", message=IMAGE)
    context.add(user("And now?"))
    assert asked(context) == [*BEFORE, "The words are at fault.", LEFT["image"], "And now?"]
    assert context.fail("rejected", message=IMAGE) is True
    assert asked(context) == [*BEFORE, LEFT["message"], LEFT["image"], "And now?"]


def looked(context, *content):
    """A question whose tool has given this, all of it sent."""
    context.add(user("Look."))
    context.request()
    context.add({"role": "assistant", "content": [USE]})
    result = ToolResult(call_id="c1", content=content)
    context.add(Message(role="tool", parts=(result,)))
    return context.request()


def results(request):
    return [
        block["content"]
        for message in request["messages"]
        for block in message["content"]
        if block["type"] == "tool_result"
    ]


def test_a_result_with_a_picture_is_replaced_at_once_and_its_pair_stays_whole():
    context = talked()
    looked(context, Text(text="Saved as a.png."), SHOT)
    assert context.fail("rejected", message=IMAGE) is True
    request = context.request()
    assert check(request) == []
    assert results(request) == [
        "Saved as a.png.\n[left out: the provider did not take what else was here]"
    ]


def test_a_result_of_text_is_replaced_as_well():
    context = talked()
    looked(context, Text(text="a page about herons"))
    assert context.fail("rejected", message=POLICY) is True
    assert results(context.request()) == [LEFT["result"]]
    assert context.fail("rejected", message=POLICY) is False


def test_an_older_picture_that_the_provider_names_is_left_out_at_once():
    other = text(png(2, 2))
    context = claude("auto")
    context.add(shows("One.", picture()))
    context.request()
    context.add(said("A dot."))
    context.add(shows("Two.", picture(other)))
    context.request()
    context.add(said("A larger one."))
    context.add(user("And?"))
    sent = context.request()
    assert sent["messages"][2]["content"][1]["source"]["data"] == other
    words = (
        "messages.2.content.1.image.source.base64.data: At least one of the image dimensions "
        "exceed max allowed size for many-image requests: 2000 pixels"
    )
    assert context.fail("rejected", message=words) is True
    assert asked(context) == [
        "One.",
        "image",
        "A dot.",
        "Two.",
        LEFT["image"],
        "A larger one.",
        "And?",
    ]


def test_the_question_stays_though_it_is_named_and_its_picture_does_not():
    context = claude("auto")
    context.add(shows("What is it?", picture()))
    context.request()
    context.add({"role": "assistant", "content": [USE]})
    context.add(Message(role="tool", parts=(ToolResult(call_id="c1", content=(SHOT,)),)))
    context.request()
    assert context.fail("rejected", message="messages.0.content.0: too long") is False
    context.request()
    assert context.fail("rejected", message="messages.0.content.1.image: too wide") is True
    sent = context.request()["messages"][0]["content"]
    assert [block["text"] for block in sent] == ["What is it?", LEFT["image"]]


def test_of_a_message_with_several_pictures_the_one_that_is_named_is_left_out():
    context = talked()
    context.add(shows("Which?", picture(), picture(text(png(3, 3)))))
    context.request()
    assert context.fail("rejected", message="messages.2.content.2.image.source: no") is False
    context.add(user("And now?"))
    assert asked(context) == [*BEFORE, "Which?", "image", LEFT["image"], "And now?"]


def test_a_place_in_openais_words_is_understood_too():
    url = f"data:image/png;base64,{PNG_TEXT}"
    context = chat("auto")
    part = {"type": "image_url", "image_url": {"url": url}}
    context.add({"role": "user", "content": [{"type": "text", "text": "One."}, part]})
    context.request()
    context.add(said("A dot."))
    context.add(user("And?"))
    context.request()
    words = "Invalid image. (messages[0].content[1].image_url)"
    assert context.fail("rejected", message=words) is True
    first = context.request()["messages"][0]["content"]
    assert [each["text"] for each in first] == ["One.", LEFT["image"]]


def test_older_pictures_go_where_one_is_at_fault_and_the_new_word_has_none():
    """As after a change to a model that cannot see."""
    context = talked()
    context.add(shows("One.", picture()))
    context.request()
    context.add(said("A dot."))
    context.add(user("And?"))
    context.request()
    assert context.fail("rejected", message="image_url is only supported by certain models") is True
    assert asked(context) == [*BEFORE, "One.", LEFT["image"], "A dot.", "And?"]
    assert context.fail("rejected", message=POLICY) is False


def test_what_was_undone_and_what_is_undone_again_is_no_matter():
    context = talked()
    rejected = context.add(user("Forbidden."))
    context.request()
    context.fail("rejected", message=POLICY)
    other = context.add(user("Something else."))
    context.rewind(int(other[1:]) - 1)
    assert asked(context)[-1] == "Forbidden."
    context.add(user("A third."))
    assert asked(context) == [*BEFORE, LEFT["message"], "A third."]
    context.rewind(int(rejected[1:]) - 1)
    context.add(user("A fourth."))
    assert asked(context) == [*BEFORE, "A fourth."]


def test_who_undoes_the_next_message_undoes_what_was_rejected_before_it():
    """Else it would be in the next call again."""
    context = talked()
    rejected = [context.add(user(f"Forbidden {number}.")) for number in range(2)]
    context.request()
    context.fail("rejected", message=POLICY)
    context.add(user("Something else."))
    context.request()
    context.add(said("As you wish."))
    first = find_first_entry_of_user_undo(context.window)
    assert first is not None
    assert f"m{first.seq}" == rejected[0]
    context.rewind(first.seq - 1)
    before = find_first_entry_of_user_undo(context.window)
    assert before is not None
    assert before.message.text == "Hello."
    assert find_first_entry_of_user_undo(claude().window) is None


def test_it_is_known_after_a_checkpoint_and_in_another_process():
    context = talked()
    context.add(user("Forbidden."))
    context.request()
    context.fail("rejected", message=POLICY)
    whole = list(context.events)
    snapshot = checkpoint(context)
    again = Context.load(whole, snapshot=snapshot)
    for each in (context, again, Context.load(whole)):
        each.add(user("Something else."))
        assert asked(each) == [*BEFORE, LEFT["message"], "Something else."]


def test_the_request_that_was_rejected_can_still_be_shown():
    context = talked()
    context.add(shows("What is it?", picture()))
    sent = context.request()
    call = context.events[-1].seq
    context.fail("rejected", message=IMAGE)
    context.add(user("And now?"))
    context.request()
    assert context.rebuild_request(call) == sent


def test_a_pin_does_not_keep_what_no_provider_takes():
    context = talked()
    context.pin(context.add(user("Forbidden.")))
    context.request()
    context.fail("rejected", message=POLICY)
    context.add(user("Something else."))
    assert asked(context)[-2:] == [LEFT["message"], "Something else."]


def test_a_summary_does_not_tell_what_was_rejected():
    context = claude("rolling")
    context.add(user("The heron is called Herbert_9."))
    context.request()
    context.fail("rejected", message=POLICY)
    for number in range(12):
        context.add(user(prose(300, f"question {number}")))
        context.request()
        context.add(said(prose(300, f"answer {number}")))
    context.add(user("And now?"))
    request = context.request()
    assert context.window.summary is not None
    assert context.window.summary.first == 2
    assert "Herbert_9" not in texts(request)
    wanted = claude("rolling", summaries="manual")
    wanted.add(user("The heron is called Herbert_9."))
    wanted.request()
    wanted.fail("rejected", message=POLICY)
    for number in range(12):
        wanted.add(user(f"question {number}"))
        wanted.request()
        wanted.add(said(f"answer {number}"))
    assert "Herbert_9" not in str(wanted.pending_summary())


def test_the_providers_words_are_redacted_before_they_are_kept():
    context = talked(redact=lambda given: given.replace("4711", "[redacted]"))
    context.add(user("My number is 4711."))
    context.request()
    context.fail("rejected", message="the text 'My number is 4711.' is not allowed")
    context.add(user("Hello?"))
    log = "".join(context.dump())
    assert "4711" not in log
    assert "My number is [redacted].' is not allowed" in log


def test_with_recall_the_placeholder_names_its_handle():
    context = talked(recall=True)
    handle = context.add(user("Forbidden."))
    context.request()
    context.fail("rejected", message=POLICY)
    context.add(user("Something else."))
    told = f"[message left out: the provider did not take it · recall {handle}.0]"
    assert asked(context)[2] == told


def test_a_call_of_tools_that_is_open_stays_paired():
    context = talked()
    context.add(user("Go."))
    context.request()
    context.add(calls("c1", "c2"))
    for each in ("c1", "c2"):
        context.add(Message(role="tool", parts=(ToolResult(call_id=each, content=(SHOT,)),)))
    context.add(user("Faster."))
    context.request()
    assert context.fail("rejected", message=IMAGE) is True
    request = context.request()
    assert check(request) == []
    assert len(results(request)) == 2
    assert PNG_TEXT not in str(request)
    assert "Faster." in texts(request)


def test_the_message_must_be_a_text():
    context = talked()
    context.add(user("Go."))
    context.request()
    with pytest.raises(TypeError, match="what the provider said"):
        context.fail("rejected", message=ValueError("no"))  # pyright: ignore[reportArgumentType]
