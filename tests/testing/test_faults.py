"""Errors that a script asks for, as the SDKs see them."""

from __future__ import annotations

import json

import httpx
import httpx2
import pytest

from tests.lazy import anthropic, openai
from tests.testing.requests import CLAUDE, GPT, told, user
from trimtab.testing.server import OVERFLOW_FAULTS, PROVIDER_FAULTS

HELLO = {"messages": [user("hello")]}
TOLD = {"limit": 8_192, "input": 8_000, "requested": 800}


def errors_of_a_cut() -> tuple[type[Exception], ...]:
    """What the SDKs raise if a connection breaks, the old ones that of httpx."""
    return openai.APIConnectionError, httpx.RemoteProtocolError, httpx2.RemoteProtocolError


@pytest.mark.parametrize("name", PROVIDER_FAULTS)
def test_chat_raises_a_fault_with_its_status_and_words(gpt, simulator, name):
    simulator.script.set_replies([{"fault": name, **TOLD}])
    fault = PROVIDER_FAULTS[name]
    with pytest.raises(openai.APIStatusError) as caught:
        gpt.chat.completions.create(model=GPT, **HELLO)
    assert caught.value.status_code == fault.status
    text = caught.value.response.text
    assert "{" not in text.replace('{"', "").replace(r"{\"", "")
    for number in ("limit", "input"):
        if f"{{{number}}}" in f"{fault.message}{json.dumps(fault.body)}":
            assert str(TOLD[number]) in text
    stats = simulator.stats()
    assert (stats["fault"], stats["refused"]) == (1, 0)


@pytest.mark.parametrize("name", ["anthropic", "anthropic_sum", "overloaded", "rate_limit"])
def test_the_messages_api_wraps_a_fault_in_its_own_body(claude, simulator, name):
    simulator.script.set_replies([{"fault": name, **TOLD}])
    with pytest.raises(anthropic.APIStatusError) as caught:
        claude.messages.create(model=CLAUDE, max_tokens=10, **HELLO)
    assert told(caught)["type"] == "error"
    kinds = {400: "invalid_request_error", 429: "rate_limit_error", 529: "overloaded_error"}
    assert told(caught)["error"]["type"] == kinds[PROVIDER_FAULTS[name].status]


def test_llama_cpp_tells_its_numbers_as_numbers(gpt, simulator):
    simulator.script.set_replies([{"fault": "llama_cpp", **TOLD}])
    with pytest.raises(openai.BadRequestError) as caught:
        gpt.chat.completions.create(model=GPT, **HELLO)
    assert (told(caught)["n_ctx"], told(caught)["n_prompt_tokens"]) == (8_192, 8_000)


def test_a_fault_without_numbers_tells_the_true_ones(gpt, simulator):
    simulator.script.set_replies([{"fault": "vllm"}])
    simulator.configure(window=5_000)
    with pytest.raises(openai.BadRequestError, match="length is 5000 tokens") as caught:
        gpt.chat.completions.create(model=GPT, max_tokens=100, **HELLO)
    size = simulator.records.requests[-1].tokens
    assert f"({size} in the messages, 100 in the completion)" in told(caught)["message"]


def test_retry_after_is_told(gpt, simulator):
    simulator.script.set_replies([{"fault": "rate_limit", "retry_after": 7}])
    with pytest.raises(openai.RateLimitError) as caught:
        gpt.chat.completions.create(model=GPT, **HELLO)
    assert caught.value.response.headers["retry-after"] == "7"


def test_an_error_inside_a_stream_of_messages_is_raised(claude, simulator):
    simulator.script.set_replies([{"fault": "overloaded", "in_stream": 4, "text": 50}])
    stream = claude.messages.create(model=CLAUDE, max_tokens=100, stream=True, **HELLO)
    seen: list[str] = []
    with pytest.raises(anthropic.APIStatusError, match="overloaded_error"):
        seen.extend(event.type for event in stream)
    assert seen[:2] == ["message_start", "content_block_start"]


def test_an_error_inside_a_chat_stream_is_raised(gpt, simulator):
    simulator.script.set_replies([{"fault": "server_error", "in_stream": 2, "text": 50}])
    stream = gpt.chat.completions.create(model=GPT, stream=True, **HELLO)
    with pytest.raises(openai.APIError, match="Internal server error"):
        list(stream)


def test_a_response_fails_inside_its_stream(gpt, simulator):
    simulator.script.set_replies([{"fault": "openai_responses"}])
    events = list(gpt.responses.create(model=GPT, input="hello", stream=True))
    assert events[-1].type == "response.failed"
    assert events[-1].response.error.code == "context_length_exceeded"


def test_a_stream_is_cut_in_the_middle(claude, gpt, simulator):
    simulator.script.set_replies([{"text": 50, "cut": 3}] * 3)
    stream = claude.messages.create(model=CLAUDE, max_tokens=100, stream=True, **HELLO)
    with pytest.raises(errors_of_a_cut()):
        list(stream)
    chunks = gpt.chat.completions.create(model=GPT, stream=True, **HELLO)
    with pytest.raises(errors_of_a_cut()):
        list(chunks)
    events = gpt.responses.create(model=GPT, input="hello", stream=True)
    with pytest.raises(errors_of_a_cut()):
        list(events)


def test_a_whole_body_is_cut_in_the_middle(gpt, simulator):
    simulator.script.set_replies([{"cut": 20}])
    with pytest.raises(errors_of_a_cut()):
        gpt.chat.completions.create(model=GPT, **HELLO)


def test_a_delay_is_longer_than_an_impatient_client_waits(gpt, simulator):
    simulator.script.set_replies([{"delay": 30}])
    with pytest.raises(openai.APITimeoutError):
        gpt.chat.completions.create(model=GPT, timeout=0.05, **HELLO)


@pytest.mark.parametrize("stop", ["model_context_window_exceeded", "refusal", "pause_turn"])
def test_a_stop_reason_is_what_the_script_says(claude, simulator, stop):
    simulator.script.set_replies([{"text": "Well", "stop": stop}])
    assert claude.messages.create(model=CLAUDE, max_tokens=9, **HELLO).stop_reason == stop


def test_usage_may_be_less_than_was_sent(gpt, simulator):
    simulator.script.set_replies([{"truncate": 5}])
    usage = gpt.chat.completions.create(model=GPT, **HELLO).usage
    assert usage.prompt_tokens == 5 < simulator.records.requests[-1].tokens


def test_every_overflow_is_of_that_kind_and_no_other_fault_is():
    assert {fault.kind for fault in OVERFLOW_FAULTS.values()} == {"overflow"}
    others = {name: fault for name, fault in PROVIDER_FAULTS.items() if name not in OVERFLOW_FAULTS}
    assert "overflow" not in {fault.kind for fault in others.values()}
