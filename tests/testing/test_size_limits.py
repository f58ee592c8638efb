"""The simulator refuses bytes, pictures and pixels as the providers do, and the words are read."""

import json

import pytest

from tests.pictures import png, text
from trimtab.engine.log.size_refusals import SizeRefusal, parse_size_refusal
from trimtab.providers import parse_error_response
from trimtab.testing.server import ProviderSimulator, ProviderSimulatorOptions

HEADERS = {
    "anthropic": {"x-api-key": "k", "anthropic-version": "2023-06-01"},
    "openai_chat": {"authorization": "Bearer k"},
    "openai_responses": {"authorization": "Bearer k"},
}


def request(dialect, pictures, *, model="claude-sonnet-4-5", said="Look."):
    """A request with pictures, given as base64."""
    match dialect:
        case "anthropic":
            blocks = [
                {
                    "type": "image",
                    "source": {"type": "base64", "media_type": "image/png", "data": data},
                }
                for data in pictures
            ]
            content = [*blocks, {"type": "text", "text": said}]
            messages = [{"role": "user", "content": content}]
            return {"model": model, "max_tokens": 100, "messages": messages}
        case "openai_chat":
            parts = [
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
                for data in pictures
            ]
            content = [*parts, {"type": "text", "text": said}]
            return {"model": "gpt-4o", "messages": [{"role": "user", "content": content}]}
        case _:
            parts = [
                {"type": "input_image", "image_url": f"data:image/png;base64,{data}"}
                for data in pictures
            ]
            content = [*parts, {"type": "input_text", "text": said}]
            return {"model": "gpt-5.2", "input": [{"role": "user", "content": content}]}


def ask(dialect, body, **options):
    simulator = ProviderSimulator(ProviderSimulatorOptions(tokenizer="estimate", **options))
    raw = json.dumps(body).encode()
    return simulator.handle_request(dialect, HEADERS[dialect], raw)


def failure(answer):
    assert answer.status != 200
    return parse_error_response(answer.status, answer.body)


@pytest.mark.parametrize("dialect", HEADERS)
def test_a_body_with_too_many_bytes_is_refused_and_read_as_such(dialect):
    body = request(dialect, [text(png(weight=2_000))])
    most = len(json.dumps(body).encode())
    assert ask(dialect, body, max_body_bytes=most).status == 200
    answer = ask(dialect, body, max_body_bytes=most - 1)
    assert answer.status == 413
    told = failure(answer)
    assert told.kind == "overflow"
    assert parse_size_refusal(told.message) == SizeRefusal(cause="bytes")


def test_anthropic_takes_32_mb_by_itself():
    body = request("anthropic", [], said=" " * 32_000_000)
    assert ask("anthropic", body).status == 413


@pytest.mark.parametrize(
    ("model", "most"), [("claude-sonnet-4-5", 100), ("claude-sonnet-4-6", 600)]
)
def test_anthropic_takes_so_many_pictures(model, most):
    small = text(png())
    assert ask("anthropic", request("anthropic", [small] * most, model=model)).status == 200
    told = failure(ask("anthropic", request("anthropic", [small] * (most + 1), model=model)))
    assert told.kind == "rejected"
    assert parse_size_refusal(told.message) == SizeRefusal(cause="pictures", limit=most)


def test_among_more_than_20_pictures_none_may_be_over_2000_pixels():
    small, large = text(png()), text(png(2_001, 1))
    assert ask("anthropic", request("anthropic", [large, *[small] * 19])).status == 200
    told = failure(ask("anthropic", request("anthropic", [large, *[small] * 20])))
    assert told.kind == "rejected"
    assert parse_size_refusal(told.message) == SizeRefusal(cause="pixels", limit=2_000)


@pytest.mark.slow
@pytest.mark.soak_on("openai_chat")
@pytest.mark.parametrize("dialect", ["openai_chat", "openai_responses"])
def test_openai_takes_50_mb_of_pictures(dialect):
    heavy = text(png(weight=6_100_000))
    assert ask(dialect, request(dialect, [heavy] * 5)).status == 200
    told = failure(ask(dialect, request(dialect, [heavy] * 6)))
    assert told.kind == "rejected"
    assert told.message.startswith("Total image size is 50.")
    assert parse_size_refusal(told.message) == SizeRefusal(cause="bytes", limit=50_000_000)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("image exceeds 5 MB maximum: 6703120 bytes > 5242880 bytes", ("picture_bytes", 5_242_880)),
        ("Exceeded limit on max bytes per data-uri item : 20971520", ("picture_bytes", 20_971_520)),
        ("Image exceeds 8000 pixels", ("pixels", 8_000)),
        ("Too many images were provided", ("pictures", None)),
        ("Exceeded limit on max data-uri per request: 250", ("pictures", 250)),
        ("Request too large (max 32MB). Try with a smaller file.", ("bytes", 32_000_000)),
        ("HTTP 413 without a body", ("bytes", None)),
        ("request_too_large", ("bytes", None)),
        ("413 Request Entity Too Large", ("bytes", None)),
    ],
)
def test_words_of_providers_are_read(words, told):
    cause, limit = told
    assert parse_size_refusal(words) == SizeRefusal(cause=cause, limit=limit)


@pytest.mark.parametrize(
    "words",
    [
        "prompt is too long: 213413 tokens > 200000 maximum",
        "This model's maximum context length is 128000 tokens. However, you requested 129413.",
        "the request has 413 tokens too many",
        "Your input exceeds the context window of this model.",
        "Could not process image",
        "input length and `max_tokens` exceed context limit: 199000 + 8192 > 200000",
    ],
)
def test_words_about_tokens_and_other_faults_are_not_about_size(words):
    assert parse_size_refusal(words) is None
