"""Pictures and files that callers give: checked where they come in, in whatever form."""

import json

import pytest

from tests.pictures import JPEG_TEXT, PDF_TEXT, PNG_TEXT, png, text
from trimtab import Context, fit
from trimtab.engine.log.event import MessageAdded
from trimtab.engine.log.message import Media, Message

CUT = text(png()[:20])


def claude():
    return Context("claude-sonnet-5-5")


def block(data, mime="image/png"):
    return {"type": "image", "source": {"type": "base64", "media_type": mime, "data": data}}


def url_part(data, mime="image/png"):
    return {"type": "image_url", "image_url": {"url": f"data:{mime};base64,{data}"}}


def said(*content):
    return {"role": "user", "content": [{"type": "text", "text": "Look."}, *content]}


FORMS = {
    "anthropic": (lambda: Context("claude-sonnet-5-5"), lambda data: said(block(data))),
    "openai_chat": (lambda: Context("gpt-4o"), lambda data: said(url_part(data))),
    "openai_responses": (
        lambda: Context("gpt-5.6", dialect="openai_responses"),
        lambda data: {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "Look."},
                {"type": "input_image", "image_url": f"data:image/png;base64,{data}"},
            ],
        },
    ),
    "another dialect": (lambda: Context("claude-sonnet-5-5"), lambda data: said(url_part(data))),
    "by hand": (
        lambda: Context("gpt-4o"),
        lambda data: Message(
            role="user",
            parts=(
                Media(kind="image", mime="image/png", data=PNG_TEXT),
                Media(kind="image", mime="image/png", data=data),
            ),
        ),
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_picture_that_is_cut_off_is_refused_at_add_in_every_form(form):
    make, given = FORMS[form]
    context = make()
    context.add(given(PNG_TEXT))
    before = list(context.events)
    with pytest.raises(ValueError, match=r"content\[1\] of the user message: the image") as caught:
        context.add(given(CUT))
    assert "it cannot be decoded: it is cut off after 20 bytes" in str(caught.value)
    assert context.events == before


def test_a_tool_result_in_the_wires_form_is_checked_as_well():
    context = claude()
    context.add(said())
    use = {"type": "tool_use", "id": "c", "name": "look", "input": {}}
    context.add({"role": "assistant", "content": [use]})
    result = {"type": "tool_result", "tool_use_id": "c", "content": [block(CUT)]}
    with pytest.raises(ValueError, match=r"content\[0\].content\[0\] of the user message"):
        context.add({"role": "user", "content": [result]})


def test_a_wrong_type_is_put_right_in_the_request():
    context = claude()
    context.add(said(block(JPEG_TEXT, "image/png")))
    sent = context.request()["messages"][0]["content"][1]
    assert (sent["source"]["media_type"], sent["source"]["data"]) == ("image/jpeg", JPEG_TEXT)


def test_a_history_with_a_wrong_type_is_the_same_history_when_it_comes_again():
    context = claude()
    history = [said(block(JPEG_TEXT, "image/png"))]
    context.sync(history)
    context.request()
    context.sync([*history, {"role": "assistant", "content": "I see."}, said()])
    assert len([event for event in context.events if isinstance(event.body, MessageAdded)]) == 3


def test_pictures_that_the_provider_fetches_are_left_alone():
    context = claude()
    picture = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.tiff"}}
    context.add(said(picture))
    sent = context.request()["messages"][0]["content"][1]
    assert sent["source"] == picture["source"]


def test_a_list_with_a_broken_picture_is_refused_before_anything_is_recorded():
    with pytest.raises(ValueError, match="cannot be sent"):
        fit([said(block(CUT))], model="claude-sonnet-5-5")
    context = claude()
    before = list(context.events)
    with pytest.raises(ValueError, match="cannot be sent"):
        context.sync([said(), {"role": "assistant", "content": "Yes?"}, said(block(CUT))])
    assert context.events == before


def test_a_picture_that_another_model_was_given_stays_when_the_model_changes():
    heic = text(b"\x00\x00\x00\x18ftypheic\x00\x00\x00\x00")
    context = Context("gemini-3-flash", dialect="openai_chat")
    history = [said(url_part(heic, "image/heic"))]
    context.sync(history)
    context.request()
    context.configure(model="gpt-4o")
    context.sync([*history, {"role": "assistant", "content": "I see."}, said()])
    with pytest.raises(ValueError, match="its bytes are image/heic"):
        context.add(said(url_part(heic, "image/heic")))


def test_documents_are_checked_too():
    context = claude()

    def document(data):
        source = {"type": "base64", "media_type": "application/pdf", "data": data}
        return said({"type": "document", "source": source})

    context.add(document(PDF_TEXT))
    with pytest.raises(ValueError, match="its bytes are not application/pdf"):
        context.add(document("AAAA"))


def test_a_picture_in_a_result_that_is_cut_is_still_a_picture():
    context = Context("claude-sonnet-4-5", policy="layered", limits={"max_tool_result_tokens": 50})
    context.add({"role": "user", "content": "Look."})
    call = {"type": "tool_use", "id": "t", "name": "screen", "input": {}}
    context.add({"role": "assistant", "content": [call]})
    source = {"type": "base64", "media_type": "image/png", "data": text(png(1024, 768))}
    content = [{"type": "text", "text": "a line\n" * 500}, {"type": "image", "source": source}]
    result = {"type": "tool_result", "tool_use_id": "t", "content": content}
    context.add({"role": "user", "content": [result]})
    assert '"type": "image"' in json.dumps(context.request())
    last = context.window.last_call
    assert last is not None
    assert last.body.media >= 1_000
