"""What a simulator refuses as malformed, `check` names before the request is sent.

Pictures and files are content. `Context.add` looks at them.
"""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import pytest

from tests.testing.requests import CLAUDE, GPT, MARKED, REASONER, TOOLS, results, user
from trimtab import check
from trimtab.testing.server.simulator import ProviderSimulator

HEADERS = {"authorization": "Bearer any", "anthropic-version": "2023-06-01"}
MUTATIONS = 500
"""Of each request. A mutation costs about a millisecond."""
WRONG_VALUES = (None, "", "txt", " ", 0, -1, 7, 2.5, 10**9, True, [], {}, ["a"], {"type": "txt"})

CLAUDE_CALL = {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "a"}}
CHAT_CALL = {"id": "t1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
VALID: dict[str, tuple[str, dict[str, Any]]] = {
    "claude": (
        "anthropic",
        {
            "model": CLAUDE,
            "max_tokens": 2_000,
            "system": [{"type": "text", "text": "Be brief."}],
            "messages": [
                user([{"type": "text", "text": "Look."}]),
                {"role": "assistant", "content": [{"type": "text", "text": "Yes."}, CLAUDE_CALL]},
                results("t1"),
            ],
            "tools": TOOLS["anthropic"],
            "tool_choice": {"type": "auto"},
            "stop_sequences": ["."],
        },
    ),
    "claude that thinks": (
        "anthropic",
        {
            "model": "claude-sonnet-4-5",
            "max_tokens": 2_000,
            "messages": [user("Look.")],
            "thinking": {"type": "enabled", "budget_tokens": 1_024},
        },
    ),
    "chat": (
        "openai_chat",
        {
            "model": GPT,
            "max_completion_tokens": 100,
            "messages": [
                {"role": "system", "content": "Be brief."},
                user([{"type": "text", "text": "Look."}]),
                {"role": "assistant", "content": None, "tool_calls": [CHAT_CALL]},
                {"role": "tool", "tool_call_id": "t1", "content": "found"},
            ],
            "tools": TOOLS["openai_chat"],
            "tool_choice": "auto",
            "response_format": {"type": "text"},
            "stream": True,
            "stream_options": {"include_usage": True},
        },
    ),
    "a reasoning model's chat": (
        "openai_chat",
        {"model": REASONER, "max_completion_tokens": 100, "messages": [user("Look.")]},
    ),
    "responses": (
        "openai_responses",
        {
            "model": MARKED,
            "max_output_tokens": 100,
            "instructions": "Be brief.",
            "input": [
                user([{"type": "input_text", "text": "Look."}]),
                {"type": "function_call", "call_id": "t1", "name": "read", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "t1", "output": "found"},
            ],
            "tools": TOOLS["openai_responses"],
            "tool_choice": "auto",
            "text": {"format": {"type": "text"}},
        },
    ),
}


def refusal(dialect: str, request: Any) -> str | None:
    """The words of a simulator that refuses a request; None if it accepts it."""
    simulator = ProviderSimulator()
    outcome = simulator.handle_request(dialect, HEADERS, json.dumps(request).encode())
    return None if outcome.status == 200 else simulator.records.requests[-1].message


def mutate(request: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """Change one place of a request, at any depth. Its parameters keep their names."""
    mutated = copy.deepcopy(request)
    places: list[tuple[Any, Any, int]] = []

    def collect(holder: Any, depth: int) -> None:
        keys = holder if isinstance(holder, dict) else range(len(holder))
        for key in keys:
            places.append((holder, key, depth))
            if isinstance(holder[key], dict | list):
                collect(holder[key], depth + 1)

    collect(mutated, 0)
    holder, key, depth = chance.choice(places)
    match chance.choice(("replace", "replace", "remove", "rename", "repeat", "swap")):
        case "remove" if key != "model":
            del holder[key]
        case "rename" if depth and isinstance(holder, dict):
            holder[f"{key}x"] = holder.pop(key)
        case "repeat" if isinstance(holder, list):
            holder.append(copy.deepcopy(holder[key]))
        case "swap" if isinstance(holder, list):
            holder.reverse()
        case _:
            holder[key] = copy.deepcopy(chance.choice(WRONG_VALUES))
    return mutated


@pytest.mark.parametrize("case", VALID)
def test_check_names_what_the_simulator_refuses(case):
    dialect, request = VALID[case]
    assert refusal(dialect, request) is None
    assert check(request, dialect_name=dialect) == []
    chance, refused = random.Random(case), 0  # noqa: S311 - a repeatable choice
    for _ in range(MUTATIONS):
        mutated = mutate(request, chance)
        words = refusal(dialect, mutated)
        refused += words is not None
        assert words is None or check(mutated, dialect_name=dialect), (words, mutated)
    assert refused > MUTATIONS // 5


WRONG: dict[str, tuple[str, dict[str, Any], str]] = {
    "a block of an unknown type": (
        "claude",
        {"messages": [user([{"type": "txt", "text": "Look."}])]},
        "Input tag 'txt' found using 'type'",
    ),
    "a message with a key of another API": (
        "claude",
        {"messages": [{**user("Look."), "name": "ann"}]},
        "messages.0.name: Extra inputs are not permitted",
    ),
    "a schema that is not an object, for Claude": (
        "claude",
        {"tools": [{"name": "read", "input_schema": {"type": "array"}}]},
        "input_schema.type: Input should be 'object'",
    ),
    "too few tokens to think": (
        "claude that thinks",
        {"thinking": {"type": "enabled", "budget_tokens": 5}},
        "greater than or equal to 1024",
    ),
    "more output than Claude writes": ("claude", {"max_tokens": 10**6}, "max_tokens: 1000000 >"),
    "a schema that is not an object, for chat": (
        "chat",
        {
            "tools": [
                {"type": "function", "function": {"name": "a", "parameters": {"type": "array"}}}
            ]
        },
        "schema must be a JSON Schema of 'type: \"object\"', got 'type: \"array\"'",
    ),
    "stream options without a stream": ("chat", {"stream": False}, "'stream_options' parameter"),
    "more output than GPT writes": ("chat", {"max_completion_tokens": 10**6}, "is too large"),
    "max_tokens for a reasoning model": (
        "a reasoning model's chat",
        {"max_tokens": 9},
        "Use 'max_completion_tokens' instead",
    ),
    "too little output": ("responses", {"max_output_tokens": 5}, "Expected a value >= 16"),
    "a model that is not a name": ("chat", {"model": 5}, "model is 5; it must be the model's name"),
}


@pytest.mark.parametrize("case", WRONG)
def test_check_finds(case):
    base, changes, words = WRONG[case]
    dialect, request = VALID[base]
    wrong = {**request, **changes}
    assert any(words in each for each in check(wrong, dialect_name=dialect))
    assert refusal(dialect, wrong) is not None
