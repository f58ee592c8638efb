"""`check`: by whose rules a request is judged."""

from typing import Any

import pytest

from trimtab import check, fit

HI = {"role": "user", "content": "hi"}
CALL = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
CALLING = {"role": "assistant", "content": [CALL]}
SYSTEM = {"role": "system", "content": "Be brief."}
MISSING = "max_tokens: Field required, at least 1"

RULES: dict[str, tuple[dict[str, Any], str]] = {
    "a model of OpenAI's": ({"model": "gpt-4o", "thinking": {}}, "Unknown parameter: 'thinking'."),
    "a model of Anthropic's": ({"model": "claude-sonnet-4-5"}, MISSING),
    "a model of Anthropic's, whatever the parameters": (
        {"model": "claude-sonnet-4-5", "max_tokens": 9, "max_completion_tokens": 9},
        "max_completion_tokens: Extra inputs are not permitted",
    ),
    "input": ({"input": []}, "input: at least one item is required"),
    "blocks of Anthropic's": ({"model": "gpt-4o", "messages": [HI, CALLING]}, MISSING),
    "a system prompt beside": ({"model": "llama3", "system": "Be brief."}, MISSING),
    "a tool of Anthropic's form": ({"tools": [{"name": "f", "input_schema": {}}]}, MISSING),
}
CHAT: dict[str, dict[str, Any]] = {
    "a model of OpenAI's": {"model": "gpt-4o"},
    "a model that is known for another of OpenAI's": {"model": "gpt-5.1-codex"},
    "an unknown model": {"model": "llama3", "max_tokens": 9},
    "no model": {},
    "a system prompt before the others": {
        "model": "anthropic/claude-sonnet-4.5",
        "messages": [SYSTEM, HI],
    },
}


@pytest.mark.parametrize("case", RULES)
def test_a_request_is_judged_by_the_rules_of_its_provider(case):
    request, words = RULES[case]
    given = request if "input" in request else {"messages": [HI], **request}
    assert words in check(given)


@pytest.mark.parametrize("case", CHAT)
def test_a_chat_request_is_not_asked_for_what_another_provider_wants(case):
    assert check({"messages": [HI], **CHAT[case]}) == []


@pytest.mark.parametrize("given", ["x", None, [HI]])
def test_what_is_no_request_is_refused_by_what_it_is(given):
    with pytest.raises(TypeError, match=r"the request is .*; it must be the keyword arguments"):
        check(given)


def test_a_text_of_another_type_is_told_and_breaks_nothing():
    messages = [{"role": "user", "content": [{"type": "text", "text": 5}]}]
    told = check({"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": messages})
    assert told == ["messages.0.content.0.text: Input should be a valid string"]


def test_whose_rules_they_are_may_be_said():
    request = {"model": "gpt-4o", "messages": [HI]}
    assert check(request, dialect_name="anthropic") == [MISSING]


@pytest.mark.parametrize("dialect", ["openai_chat", "openai_responses", "anthropic"])
def test_a_request_of_our_own_for_an_unknown_model_passes(dialect):
    fitted = fit([HI], model="llama3", dialect=dialect, system="Be brief.")
    assert check(fitted.request) == []
