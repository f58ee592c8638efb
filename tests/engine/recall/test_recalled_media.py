"""A hidden picture comes back as a picture, never as base64 text."""

import base64
import json

import pytest

from tests.pictures import PDF_TEXT, png, text
from tests.recording import append
from trimtab import Context, Media, ToolCall, ToolResult
from trimtab.testing.media_check import find_media_error

DATA = text(png(120, 80, weight=3_000))
SIZE = len(base64.b64decode(DATA))
TOLD = f"image/png, {SIZE:,} bytes, 120 × 80 pixels"
URL = f"data:image/png;base64,{DATA}"
PICTURE = {
    "anthropic": {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": DATA},
    },
    "openai_responses": {"type": "input_image", "image_url": URL},
    "openai_chat": {"type": "image_url", "image_url": {"url": URL}},
}
TEXT_TYPE = {"anthropic": "text", "openai_responses": "input_text", "openai_chat": "text"}
MODEL = {
    "anthropic": "claude-sonnet-4-5",
    "openai_responses": "gpt-5.2",
    "openai_chat": "gpt-4o",
}


def call_message(dialect, call_id, name, arguments):
    told = json.dumps(arguments)
    match dialect:
        case "anthropic":
            block = {"type": "tool_use", "id": call_id, "name": name, "input": arguments}
            return {"role": "assistant", "content": [block]}
        case "openai_chat":
            call = {
                "id": call_id,
                "type": "function",
                "function": {"name": name, "arguments": told},
            }
            return {"role": "assistant", "content": None, "tool_calls": [call]}
        case _:
            return {
                "type": "function_call",
                "call_id": call_id,
                "name": name,
                "arguments": told,
            }


def hidden_in_user_message(dialect):
    """A context in which a picture that a user sent is hidden, and its handle."""
    context = Context(model=MODEL[dialect], dialect=dialect, recall=True, policy="full")
    caption = {"type": TEXT_TYPE[dialect], "text": "A floor plan."}
    handle = context.add({"role": "user", "content": [caption, PICTURE[dialect]]})
    context.request()
    context.add({"role": "assistant", "content": "I see."})
    context.add({"role": "user", "content": "Look at it again."})
    mask(context, f"{handle}.1")
    return context, f"{handle}.1"


def mask(context, handle):
    from trimtab.engine.log.event import Edit

    first, _, part = handle[1:].partition(".")
    words = f"[image hidden · recall {handle}]"
    append(
        context,
        Edit(op="mask", first=int(first), last=int(first), part=int(part), text=words, why="test"),
    )
    assert DATA not in json.dumps(context.request())


def hidden_in_result(dialect):
    context = Context(model=MODEL[dialect], dialect=dialect, recall=True, policy="full")
    context.add({"role": "user", "content": "Take a screenshot."})
    context.request()
    context.add(call_message(dialect, "call_1", "screenshot", {}))
    caption = {"type": TEXT_TYPE[dialect], "text": "screenshot 1"}
    content = [caption, PICTURE[dialect]]
    match dialect:
        case "anthropic":
            block = {"type": "tool_result", "tool_use_id": "call_1", "content": content}
            handle = context.add({"role": "user", "content": [block]})
        case "openai_chat":
            handle = context.add({"role": "tool", "tool_call_id": "call_1", "content": content})
        case _:
            item = {"type": "function_call_output", "call_id": "call_1", "output": content}
            handle = context.add(item)
    context.request()
    context.add({"role": "assistant", "content": "I see."})
    context.add({"role": "user", "content": "Look at it again."})
    mask(context, f"{handle}.0")
    return context, f"{handle}.0"


def recall(context, handle, **more):
    """Let the model recall; the text of the answer and the next request."""
    dialect = context.window.settings.dialect
    context.add(call_message(dialect, "call_9", "recall", {"handle": handle, **more}))
    asked = ToolCall(id="call_9", name="recall", arguments=json.dumps({"handle": handle, **more}))
    told = context.answer(asked)
    request = context.request()
    assert find_media_error(request, dialect) is None
    return told, request


@pytest.mark.parametrize("dialect", ["anthropic", "openai_responses"])
@pytest.mark.parametrize("hide", [hidden_in_user_message, hidden_in_result])
def test_the_answer_to_a_recall_holds_the_picture(dialect, hide):
    context, handle = hide(dialect)
    told, request = recall(context, handle)
    assert TOLD in told
    assert DATA[:40] not in told
    last = (request.get("messages") or request["input"])[-1]
    if dialect == "anthropic":
        [result] = last["content"]
        blocks = result["content"]
        assert [block["type"] for block in blocks] == ["text", "image"]
        assert blocks[1]["source"]["data"] == DATA
    else:
        blocks = last["output"]
        assert [block["type"] for block in blocks] == ["input_text", "input_image"]
        assert blocks[1]["image_url"] == URL
    assert json.dumps(request).count(DATA) == 1, "it is not shown in its place as well"


@pytest.mark.parametrize("hide", [hidden_in_user_message, hidden_in_result])
def test_in_chat_completions_it_is_shown_again_in_its_place(hide):
    context, handle = hide("openai_chat")
    told, request = recall(context, handle)
    assert TOLD in told
    assert "shown again in its place, until you have replied" in told
    assert request["messages"][-1]["role"] == "tool"
    assert isinstance(request["messages"][-1]["content"], str)
    assert json.dumps(request).count(DATA) == 1


def test_a_result_that_chat_completions_never_showed_is_not_promised():
    context, handle = hidden_in_result("anthropic")
    context.configure(model="gpt-4o", dialect="openai_chat")
    told, request = recall(context, handle)
    assert "this provider takes no image in a tool result" in told
    assert DATA not in json.dumps(request)


def test_a_whole_message_comes_with_its_text_and_its_picture():
    context, handle = hidden_in_user_message("anthropic")
    told, request = recall(context, handle.partition(".")[0])
    assert "A floor plan." in told
    [result] = request["messages"][-1]["content"]
    assert result["content"][-1]["source"]["data"] == DATA


def test_a_range_names_the_pictures_in_it_by_their_handles():
    context, handle = hidden_in_user_message("anthropic")
    newest = max(context.window.entries)
    told, request = recall(context, f"m1-m{newest}")
    assert f"[{TOLD} · recall {handle}]" in told
    assert DATA not in json.dumps(request)


def test_lines_of_a_result_are_text_alone():
    context, handle = hidden_in_result("anthropic")
    told, request = recall(context, handle, lines="1")
    assert told == "screenshot 1"
    assert DATA not in json.dumps(request)


def test_a_document_comes_back_as_a_document():
    context = Context(model=MODEL["anthropic"], recall=True)
    source = {"type": "base64", "media_type": "application/pdf", "data": PDF_TEXT}
    handle = context.add({"role": "user", "content": [{"type": "document", "source": source}]})
    context.request()
    _, request = recall_after_reply(context, f"{handle}.0")
    [result] = request["messages"][-1]["content"]
    assert result["content"][-1] == {"type": "document", "source": source}


def recall_after_reply(context, handle):
    context.add({"role": "assistant", "content": "I see."})
    context.add({"role": "user", "content": "Again."})
    context.request()
    return recall(context, handle)


def test_what_the_model_cannot_take_is_told_instead_of_sent():
    context = Context(model="gpt-5.2", dialect="openai_responses", recall=True)
    wide = text(png(9_000, 10))
    picture = {"type": "input_image", "image_url": f"data:image/png;base64,{wide}"}
    handle = context.add({"role": "user", "content": [picture]})
    context.request()
    context.configure(model="claude-sonnet-4-5", dialect="anthropic")
    told, request = recall_after_reply(context, f"{handle}.0")
    assert "9,000 × 10 pixels large; at most 8,000 a side are allowed" in told
    assert wide not in json.dumps(request)


@pytest.mark.parametrize("dialect", MODEL)
@pytest.mark.parametrize("hide", [hidden_in_user_message, hidden_in_result])
def test_a_program_gets_words_from_recall_and_the_bytes_from_recall_part(dialect, hide):
    context, handle = hide(dialect)
    told = context.recall(handle)
    assert f"[{TOLD}; recall_part({handle!r}) returns it]" in told
    assert DATA[:40] not in told + context.recall(handle.partition(".")[0])
    assert DATA[:40] not in context.why(handle).text
    part = context.recall_part(handle)
    held = part.content if isinstance(part, ToolResult) else (part,)
    assert [inner.data for inner in held if isinstance(inner, Media)] == [DATA]


def test_recall_part_wants_one_part():
    context, handle = hidden_in_result("anthropic")
    with pytest.raises(
        ValueError, match=r"m\d+ names whole messages; name one part, such as m\d+\.0"
    ):
        context.recall_part(handle.partition(".")[0])
    with pytest.raises(LookupError, match="the last part is"):
        context.recall_part(handle.replace(".0", ".7"))


def test_an_erased_picture_is_neither_recalled_nor_returned():
    context, handle = hidden_in_result("anthropic")
    context.erase(handle)
    with pytest.raises(LookupError, match="erased"):
        context.recall_part(handle)
    told, request = recall(context, handle)
    assert "erased" in told
    assert DATA not in json.dumps(request)
