"""Who is asked for the reasoning that a stateless call must bring back."""

import pytest

from tests.dialects.rounds import prompt
from trimtab.dialects import get_dialect
from trimtab.dialects.openai_responses.request_errors import detect_reasoning_support

responses = get_dialect("openai_responses")
ENCRYPTED = "reasoning.encrypted_content"
OWN = "file_search_call.results"


def included(model, **params):
    return responses.build_request_kwargs(prompt(responses, [], model=model, params=params)).get(
        "include"
    )


@pytest.mark.parametrize(
    ("model", "known"),
    [
        ("o1", True),
        ("o3-mini", True),
        ("azure/o4-mini", True),
        ("gpt-5", True),
        ("openai/gpt-5.1-codex", True),
        ("GPT-5.6", True),
        ("gpt-10", True),
        ("codex-mini-latest", True),
        ("gpt-35-turbo", False),
        ("gpt-4", False),
        ("gpt-4o-mini-2024-07-18", False),
        ("ft:gpt-4.1:acme::1", False),
        ("chatgpt-4o-latest", False),
        ("gpt-5-chat-latest", False),
        ("gpt-5.2-chat-latest", None),
        ("gpt-oss-120b", None),
        ("grok-4", None),
        ("house-model", None),
    ],
)
def test_a_name_tells_whether_a_model_reasons(model, known):
    assert detect_reasoning_support(model) is known


def test_a_model_that_does_not_reason_is_not_asked_for_reasoning():
    assert included("gpt-4o") is None
    assert included("gpt-4o", include=[OWN]) == [OWN]


def test_a_model_that_reasons_is_asked_beside_what_the_caller_wants():
    assert included("gpt-5") == [ENCRYPTED]
    assert included("gpt-5", include=[OWN]) == [OWN, ENCRYPTED]
    assert included("gpt-5", include=[ENCRYPTED, OWN]) == [ENCRYPTED, OWN]
    assert included("gpt-5", store=True) is None


def test_a_model_that_is_not_known_is_asked_unless_the_caller_says_what_he_wants():
    assert included("house-model") == [ENCRYPTED]
    assert included("house-model", include=[]) == []
    assert included("house-model", include=[OWN]) == [OWN]
