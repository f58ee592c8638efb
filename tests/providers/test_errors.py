"""What providers say, and what is read from it."""

import json

import pytest

from tests.durations import measure_cpu_s
from tests.providers.other_error_texts import MALFORMED, OTHERS
from tests.providers.overflow_texts import CHAT, CLAUDE, OVERFLOWS, anthropic
from trimtab.errors import ProviderError, ProviderFailureDetails
from trimtab.providers.error_parser import (
    parse_error_event,
    parse_error_response,
    parse_stop_failure,
)


@pytest.mark.parametrize("name", OVERFLOWS)
def test_an_overflow_is_read_with_the_numbers_it_names(name):
    status, body, limit, given, requested = OVERFLOWS[name]
    failure = parse_error_response(status, body, headers={})
    assert failure.kind == "overflow"
    assert (failure.limit, failure.input, failure.requested) == (limit, given, requested)
    assert failure.status == status


@pytest.mark.parametrize("name", OVERFLOWS)
def test_an_overflow_is_read_from_the_body_as_text_too(name):
    status, body, *_ = OVERFLOWS[name]
    if isinstance(body, dict | list):
        assert parse_error_response(status, json.dumps(body)) == parse_error_response(status, body)


@pytest.mark.parametrize("name", OVERFLOWS)
def test_no_overflow_is_read_from_a_429(name):
    failure = parse_error_response(429, OVERFLOWS[name][1])
    assert (failure.kind, failure.limit) == ("rate_limit", None)


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_not_an_overflow_is_not_read_as_one(name):
    kind, status, body = OTHERS[name]
    failure = parse_error_response(status, body)
    assert failure.kind == kind
    assert (failure.limit, failure.input, failure.requested) == (None, None, None)


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_history_is_read_as_such(name):
    status, body = MALFORMED[name]
    assert parse_error_response(status, body).kind == "malformed"


def test_the_message_is_the_text_that_told_the_kind():
    body = OVERFLOWS["OpenRouter: nested"][1]
    assert parse_error_response(400, body).message == CLAUDE


def test_a_page_of_html_is_shortened_in_the_message():
    message = parse_error_response(502, "<html>" + "word \n" * 10_000).message
    assert len(message) == 1_001
    assert "\n" not in message


def test_an_error_without_a_body_says_its_status():
    assert parse_error_response(500, None).message == "HTTP 500 without a body"
    assert parse_error_response(None, {}).message == "an error without a message"


def test_an_overflow_that_names_a_limit_it_does_not_exceed_teaches_none():
    body = "This model's maximum context length is 900000 tokens. However, you requested 10 tokens"
    assert parse_error_response(400, body).limit is None


def test_the_input_is_what_the_total_leaves_of_the_output():
    body = "maximum context length is 4,096 tokens, you requested 5,000 tokens (900 in the output)"
    assert parse_error_response(400, body).input == 4_100


def test_a_body_nested_without_end_is_read_to_a_depth():
    body = CHAT
    for _ in range(60):
        body = {"error": body}
    assert parse_error_response(400, body).kind == "rejected"


def test_where_the_fault_is_stands_in_the_message():
    body = {"error": {"message": "Invalid image.", "param": "messages[3].content[1]"}}
    assert parse_error_response(400, body).message == "Invalid image. (messages[3].content[1])"


@pytest.mark.parametrize(
    ("reply", "given"),
    [
        ({"type": "message", "stop_reason": "model_context_window_exceeded"}, None),
        (
            {
                "stop_reason": "model_context_window_exceeded",
                "usage": {
                    "input_tokens": 5,
                    "cache_read_input_tokens": 90,
                    "cache_creation_input_tokens": 5,
                },
            },
            100,
        ),
        (
            {
                "choices": [{"finish_reason": "model_context_window_exceeded"}],
                "usage": {"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 90}},
            },
            100,
        ),
        ({"choices": [{"finish_reason": "model_length"}]}, None),
        (
            {
                "status": "incomplete",
                "incomplete_details": {"reason": "context_length_exceeded"},
                "usage": {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 90}},
            },
            100,
        ),
    ],
)
def test_a_stop_because_the_window_is_full_is_an_overflow(reply, given):
    failure = parse_stop_failure(reply)
    assert failure is not None
    assert (failure.kind, failure.input, failure.limit) == ("overflow", given, None)


@pytest.mark.parametrize(
    ("reply", "window"),
    [
        (
            {
                "stop_reason": "model_context_window_exceeded",
                "usage": {
                    "input_tokens": 5,
                    "cache_read_input_tokens": 7_000,
                    "cache_creation_input_tokens": 95,
                    "output_tokens": 900,
                },
            },
            8_000,
        ),
        (
            {
                "choices": [{"finish_reason": "model_context_window_exceeded"}],
                "usage": {"prompt_tokens": 3_000, "completion_tokens": 1_096},
            },
            4_096,
        ),
        (
            {
                "incomplete_details": {"reason": "context_length_exceeded"},
                "usage": {"input_tokens": 3_000, "output_tokens": 1_096},
            },
            4_096,
        ),
        # Nobody serves such a window.
        (
            {
                "stop_reason": "model_context_window_exceeded",
                "usage": {"input_tokens": 5, "output_tokens": 9},
            },
            None,
        ),
    ],
)
def test_a_full_window_is_as_large_as_what_was_read_and_written(reply, window):
    failure = parse_stop_failure(reply)
    assert failure is not None
    assert failure.limit == window


@pytest.mark.parametrize(
    "reply",
    [
        {"stop_reason": "end_turn"},
        {"stop_reason": "max_tokens"},
        {"stop_reason": None},
        {"choices": [{"finish_reason": "length"}]},
        {"choices": [{"finish_reason": "stop"}, {"finish_reason": None}]},
        {"status": "completed", "error": None, "incomplete_details": None},
        {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
        {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}},
    ],
)
def test_any_other_stop_is_no_failure(reply):
    assert parse_stop_failure(reply) is None


OVER = {"code": "context_length_exceeded", "message": "Your input exceeds the context window"}


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (anthropic(CLAUDE), "overflow"),
        (anthropic("Overloaded", "overloaded_error"), "overloaded"),
        ({"type": "response.failed", "response": {"status": "failed", "error": OVER}}, "overflow"),
        ({"type": "response.failed", "response": {"error": None}}, "server"),
        ({"type": "error", "sequence_number": 2, "param": None, **OVER}, "overflow"),
        ({"type": "error", "code": "rate_limit_exceeded", "message": "Wait."}, "rate_limit"),
        ({"object": "error", "message": CHAT, "type": "BadRequestError", "code": 400}, "overflow"),
        ({"error": {"message": CHAT, "code": 400}}, "overflow"),
        (
            {"choices": [{"finish_reason": "error", "error": {"code": 502, "message": "x"}}]},
            "server",
        ),
        ({"choices": [{"finish_reason": "error", "delta": {}}]}, "server"),
        ({"object": "response", "status": "failed", "error": OVER}, "overflow"),
    ],
)
def test_an_event_that_is_an_error_is_a_failure_without_a_status(event, kind):
    failure = parse_error_event(event)
    assert failure is not None
    assert (failure.kind, failure.status) == (kind, None)
    assert parse_stop_failure(event) == failure


@pytest.mark.parametrize(
    "event",
    [
        {"type": "message_start", "message": {"content": []}},
        {"type": "response.created", "response": {"status": "in_progress", "error": None}},
        {"type": "response.incomplete", "response": {"status": "incomplete", "error": None}},
        {"object": "chat.completion.chunk", "choices": [{"finish_reason": "stop", "delta": {}}]},
        {"object": "chat.completion.chunk", "choices": [], "error": None},
    ],
)
def test_any_other_event_is_none(event):
    assert parse_error_event(event) is None


def test_a_failure_says_its_kind_and_status_as_an_error():
    failure = ProviderFailureDetails(kind="overflow", message="too long", status=400)
    assert str(ProviderError(failure)) == "overflow (HTTP 400): too long"


@pytest.mark.parametrize(
    "filling", ["7", " ", "requested 1 ", "image ", "{", "input token count ("]
)
def test_a_long_text_of_anything_is_read_in_no_time(filling):
    text = filling * 200_000
    assert measure_cpu_s(lambda: parse_error_response(400, text), enough_s=1) <= 1


def test_a_status_that_is_no_number_is_refused():
    with pytest.raises(TypeError, match="status is '400'; it must be a number such as 429, or"):
        parse_error_response("400", None)
