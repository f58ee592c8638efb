"""Which pictures and files a model can be given, and what is said of those that it cannot."""

import base64
import json

import pytest

from tests.pictures import (
    BROKEN_INSIDE,
    GIF,
    PDF,
    PDF_TEXT,
    PNG_TEXT,
    WAV_TEXT,
    WEBP,
    jpeg,
    png,
    text,
)
from trimtab import Context
from trimtab.dialects.media import (
    find_accepted_media,
    normalize_message_media,
    replace_unsupported_media,
    validate_and_convert_media,
)
from trimtab.engine.log.message import Media, Message, Text, ToolResult
from trimtab.errors import UnsupportedMedia

CLAUDE = find_accepted_media("anthropic", "claude-sonnet-5-5")
GPT = find_accepted_media("openai_chat", "gpt-4o")
GEMINI = find_accepted_media("openai_chat", "gemini-3-flash")
OWN = find_accepted_media("openai_chat", "qwen3-vl")
NOTES = base64.b64encode(b"plain words").decode()
HEIC = b"\x00\x00\x00\x18ftypheic\x00\x00\x00\x00"


def image(data: bytes, mime: str | None = "image/png") -> Media:
    return Media(kind="image", mime=mime, data=text(data))


def refusal(part: Media, takes=CLAUDE) -> str:
    with pytest.raises(UnsupportedMedia) as caught:
        validate_and_convert_media(part, takes)
    return caught.value.reason


@pytest.mark.parametrize(
    ("data", "mime"),
    [(png(), "image/png"), (jpeg(), "image/jpeg"), (GIF, "image/gif"), (WEBP, "image/webp")],
)
def test_what_every_provider_takes_is_passed_on_as_it_is(data, mime):
    part = image(data, mime)
    for takes in (CLAUDE, GPT, OWN):
        assert validate_and_convert_media(part, takes) is part


@pytest.mark.parametrize("told", ["image/png", "image/jpg", "image/tiff", "IMAGE/JPEG", None])
def test_a_type_that_the_bytes_contradict_is_put_right(told):
    made = validate_and_convert_media(image(jpeg(), told), CLAUDE)
    assert made == image(jpeg(), "image/jpeg")


def test_white_space_in_base64_is_taken_out():
    spaced = Media(kind="image", mime="image/png", data=f"{PNG_TEXT[:8]}\r\n {PNG_TEXT[8:]}\n")
    assert validate_and_convert_media(spaced, CLAUDE) == Media(
        kind="image", mime="image/png", data=PNG_TEXT
    )


TYPES = "image/png, image/jpeg, image/gif, image/webp"
REFUSED = {
    f"its type is image/tiff; as image this model accepts {TYPES}": image(b"AB", "image/tiff"),
    f"its bytes are image/svg+xml; as image this model accepts {TYPES}": image(
        b"<svg/>", "image/svg+xml"
    ),
    f"its bytes are application/zip; as image this model accepts {TYPES}": image(b"PK\x03\x04"),
    f"its bytes are application/pdf; as image this model accepts {TYPES}": image(PDF),
    "its type is application/zip; as file this model accepts application/pdf, text/plain": Media(
        kind="file", mime="application/zip", data="QUI="
    ),
    "its bytes are not image/png: they begin with 41 42": image(b"AB"),
    "it cannot be decoded: it is cut off after 10 bytes": image(png()[:10]),
    "it cannot be decoded: it is 0 × 1 pixels large": image(png(0, 1)),
    "its data is not base64: only base64 data is allowed": Media(
        kind="image", mime="image/png", data="not base64!"
    ),
    "its data is not base64: incorrect padding": Media(
        kind="image", mime="image/png", data="iVBORw0KGgo"
    ),
    "its data is empty": Media(kind="image", mime="image/png", data=""),
    "it is 8,001 × 2 pixels large; at most 8,000 a side are allowed": image(png(8_001, 2)),
    "it has 5,242,881 bytes; at most 5,242,880 are allowed": image(
        png(weight=5_242_881 - len(png()) - 12)
    ),
    f"this model does not accept audio; it accepts {TYPES}, application/pdf, text/plain": Media(
        kind="audio", mime="audio/wav", data=WAV_TEXT
    ),
    "a data: URL must contain base64": Media(kind="image", url="data:image/svg+xml,<svg/>"),
    "it is not UTF-8 text: byte 0 is invalid": Media(
        kind="document", mime="text/plain", data=text(b"\xff")
    ),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_the_provider_would_refuse_is_refused_in_words(why):
    assert refusal(REFUSED[why]) == why


def test_as_many_bytes_and_pixels_as_may_be_are_taken():
    for data in (png(weight=5_242_880 - len(png()) - 12), png(8_000, 2)):
        assert validate_and_convert_media(image(data), CLAUDE) == image(data)


def test_makers_differ_in_what_they_take():
    assert validate_and_convert_media(image(HEIC, "image/heic"), GEMINI) == image(
        HEIC, "image/heic"
    )
    assert "image/heic" in refusal(image(HEIC, "image/heic"), GPT)
    assert "image/gif" in refusal(image(GIF, "image/gif"), GEMINI)
    assert validate_and_convert_media(image(b"BM\x00", "image/bmp"), OWN)
    voice = Media(kind="audio", mime="audio/x-wav", data=WAV_TEXT)
    assert validate_and_convert_media(voice, GPT) is voice
    assert "not accept audio" in refusal(voice, find_accepted_media("openai_responses", "gpt-5.6"))
    wide = image(png(9_000, 1))
    assert validate_and_convert_media(wide, GPT) is wide
    assert "8,000" in refusal(wide, find_accepted_media("openai_chat", "anthropic/claude-opus-5"))


@pytest.mark.parametrize(
    "part",
    [
        Media(kind="image", mime="image/tiff", url="https://example.org/a.tiff"),
        Media(kind="image", extra={"source": {"type": "file", "file_id": "f"}}),
        Media(kind="document", url="https://example.org/a"),
    ],
)
def test_what_the_provider_fetches_itself_is_left_alone(part):
    assert validate_and_convert_media(part, CLAUDE) is part


def test_a_plain_text_is_text():
    notes = Media(kind="document", mime="text/plain", data=text("Grüße".encode()))
    assert validate_and_convert_media(notes, CLAUDE) == Text(text="[document, text/plain]\n Grüße")


def test_in_the_models_own_format_other_kinds_are_left_to_its_sdk():
    sheet = Media(kind="file", mime="application/vnd.ms-excel", data="AAAA")
    said = Message(role="user", parts=(sheet,), origin="openai_responses")
    takes = find_accepted_media("openai_responses", "gpt-5.6")
    assert normalize_message_media(said, takes, request_dialect="openai_responses") is said
    with pytest.raises(UnsupportedMedia, match=r"application/vnd\.ms-excel"):
        normalize_message_media(said, takes, request_dialect="openai_chat")
    torn = Media(kind="document", mime="application/pdf", data="AAAA")
    said = Message(role="user", parts=(torn,), origin="openai_responses")
    with pytest.raises(UnsupportedMedia, match="its bytes are not application/pdf"):
        normalize_message_media(said, takes, request_dialect="openai_responses")


def message(*content):
    result = ToolResult(call_id="c", content=content)
    return Message(role="tool", parts=(result,))


def test_the_place_of_what_is_wrong_is_named():
    good, bad = image(png()), image(b"AB")
    with pytest.raises(UnsupportedMedia) as caught:
        normalize_message_media(Message(role="user", parts=(good, bad)), CLAUDE)
    assert str(caught.value) == (
        "content[1] of the user message: the image (image/png) cannot be sent: its bytes are not "
        "image/png: they begin with 41 42"
    )
    with pytest.raises(UnsupportedMedia, match=r"^content\[0\].content\[1\] of the tool message"):
        normalize_message_media(message(Text(text="x"), bad), CLAUDE)


def test_what_a_model_said_is_left_alone():
    said = Message(role="assistant", parts=(image(b"AB"),), origin="openai_responses")
    assert normalize_message_media(said, CLAUDE) is said


def test_a_sentence_may_stand_for_what_cannot_be_sent():
    good = image(png())
    made = replace_unsupported_media(message(good, image(b"AB")), CLAUDE)
    assert made.results[0].content == (
        good,
        Text(
            text="[image (image/png) left out: its bytes are not image/png: they begin with 41 42]"
        ),
    )
    whole = message(good, Media(kind="document", mime="application/pdf", data=PDF_TEXT))
    assert replace_unsupported_media(whole, CLAUDE) is whole


def test_a_picture_whose_pixels_are_broken_is_left_to_the_provider():
    """Only headers are read; whoever refuses such a message is dealt with when it happens."""
    assert validate_and_convert_media(image(BROKEN_INSIDE), CLAUDE) == image(BROKEN_INSIDE)


@pytest.mark.parametrize(
    ("model", "block"),
    [
        (
            "claude-sonnet-5-5",
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "text/plain", "data": NOTES},
            },
        ),
        ("gpt-4o", {"type": "file", "file": {"file_data": f"data:text/plain;base64,{NOTES}"}}),
    ],
)
def test_a_plain_text_file_in_the_models_own_dialect_becomes_text(model, block):
    context = Context(model)
    context.add({"role": "user", "content": [block]})
    request = json.dumps(context.request()["messages"])
    assert "plain words" in request
    assert "base64" not in request
