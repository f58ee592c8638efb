"""A refusal for length is found in the exceptions of SDKs and frameworks."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import anthropic
import openai
import pytest

from trimtab import Usage
from trimtab.errors import ProviderError
from trimtab.integrations.refusal import find_full_window, find_refusal
from trimtab.providers import parse_error_response

CHAT = {
    "message": "This model's maximum context length is 8192 tokens. However, your messages resulted"
    " in 9000 tokens. Please reduce the length of the messages.",
    "code": "context_length_exceeded",
}
CLAUDE = {
    "type": "error",
    "error": {
        "type": "invalid_request_error",
        "message": "prompt is too long: 9000 tokens > 8192 maximum",
    },
}


def response(status: int, text: str = "") -> Any:
    """What the SDKs read of a response."""
    return SimpleNamespace(status_code=status, headers={}, request=None, text=text)


class ModelHTTPError(Exception):
    """As Pydantic AI raises it."""

    def __init__(self, status_code: int, body: object) -> None:
        self.status_code, self.model_name, self.body = status_code, "gpt-4o", body


class ContextOverflow(openai.BadRequestError):
    """As LangChain raises an SDK's error again, as a class of its own."""


class HttpStatusError(Exception):
    """As an HTTP library raises it."""

    def __init__(self, of: Any) -> None:
        self.response = of


class ClientError(Exception):
    """As Amazon's SDK raises it."""

    def __init__(self) -> None:
        said = {"Code": "ValidationException", "Message": "Input is too long for requested model."}
        self.response = {"Error": said, "ResponseMetadata": {"HTTPStatusCode": 400}}


def wrapped(error: BaseException) -> BaseException:
    """As `raise outer from error` does it."""
    outer = RuntimeError("the model call failed")
    outer.__cause__ = error
    return outer


REFUSED = openai.BadRequestError("no", response=response(400), body=CHAT)


@pytest.mark.parametrize(
    ("error", "limit"),
    [
        (REFUSED, 8192),
        (anthropic.BadRequestError("no", response=response(400), body=CLAUDE), 8192),
        (ContextOverflow("no", response=response(400), body=CHAT), 8192),
        (ModelHTTPError(400, CHAT), 8192),
        (openai.APIError("no", request=response(200), body=CHAT), 8192),  # in a stream
        (wrapped(REFUSED), 8192),
        (wrapped(wrapped(ModelHTTPError(400, {"error": CHAT}))), 8192),
        (ExceptionGroup("in parallel", [ValueError("no"), REFUSED]), 8192),
        (HttpStatusError(response(400, CHAT["message"])), 8192),
        (HttpStatusError(response(413)), None),
        (ClientError(), None),
        (ProviderError(parse_error_response(400, CHAT)), 8192),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_refusal_is_found_with_its_numbers(error: BaseException, limit: int | None):
    failure = find_refusal(error)
    assert failure is not None
    assert failure.limit == limit


@pytest.mark.parametrize(
    "error",
    [
        ValueError("prompt is too long: 9000 tokens > 8192 maximum"),  # a program's own
        ModelHTTPError(429, {"error": {"message": "Rate limit reached for tokens per min"}}),
        ModelHTTPError(401, {"error": {"message": "Incorrect API key provided"}}),
        ModelHTTPError(500, None),
        HttpStatusError(response(400, "unknown parameter: foo")),
        KeyboardInterrupt(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_any_other_error_is_none(error: BaseException):
    assert find_refusal(error) is None


def test_what_went_wrong_while_a_refusal_was_handled_is_another_error():
    error = KeyError("no such fallback")
    error.__context__ = REFUSED
    assert find_refusal(error) is None


def test_errors_that_wrap_each_other_have_an_end():
    one, other = RuntimeError(), RuntimeError()
    one.__cause__, other.__cause__ = other, one
    assert find_refusal(one) is None


def test_the_numbers_are_read_from_the_message_of_an_error_with_an_empty_body():
    text = f"litellm.BadRequestError: AnthropicError - {json.dumps(CLAUDE)}"
    failure = find_refusal(openai.BadRequestError(text, response=response(400), body=None))
    assert failure is not None
    assert (failure.input, failure.limit) == (9_000, 8_192)


@pytest.mark.parametrize(
    ("stop_reason", "output", "limit"),
    [("model_context_window_exceeded", 400, 16_000), ("model_length", 0, 15_600)],
)
def test_a_reply_that_a_full_window_cut_is_a_refusal(stop_reason, output, limit):
    error = find_full_window(stop_reason, Usage(input=15_600, output=output))
    assert error is not None
    found = find_refusal(error)
    assert found is not None
    assert (found.input, found.limit) == (15_600, limit)


@pytest.mark.parametrize("stop_reason", ["end_turn", "length", "max_tokens", None])
def test_a_reply_that_ended_in_another_way_is_not_a_refusal(stop_reason):
    assert find_full_window(stop_reason, Usage(input=15_600, output=400)) is None
