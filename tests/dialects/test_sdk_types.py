"""What is rendered from elsewhere fits the parameter types that the SDKs ship."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dialects.rounds import prompt, rendered
from tests.dialects.sdk_types import messages_of
from tests.lazy import anthropic, openai, pydantic
from tests.strategies.wire import histories
from trimtab.dialects import DIALECT_NAMES, get_dialect


@functools.cache
def tool_of(target: str) -> pydantic.TypeAdapter[Any]:
    """The type of a tool that the SDK's call takes."""
    match target:
        case "anthropic":
            return pydantic.TypeAdapter(anthropic.types.ToolParam)
        case "openai_chat":
            return pydantic.TypeAdapter(openai.types.chat.ChatCompletionToolUnionParam)
        case _:
            return pydantic.TypeAdapter(openai.types.responses.FunctionToolParam)


def exhaust(value: Any) -> None:
    """Iterables are validated only as they are read."""
    if isinstance(value, dict):
        for inner in value.values():
            exhaust(inner)
    elif isinstance(value, Iterable) and not isinstance(value, str):
        for inner in value:
            exhaust(inner)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "target"), [(a, b) for a in DIALECT_NAMES for b in DIALECT_NAMES if a != b]
)
@given(data=st.data())
def test_a_history_from_elsewhere_fits_the_sdk_s_types(source, target, data):
    messages = get_dialect(source).parse_history(data.draw(histories[source]))
    spoken = get_dialect(target)
    blocks = rendered(spoken, messages)
    request = spoken.build_request_kwargs(
        prompt(spoken, blocks, model="gpt-5.6", marks=(-1, len(blocks) - 1))
    )
    sent = request["input" if target == "openai_responses" else "messages"]
    exhaust(messages_of(target).validate_python(sent))


@pytest.mark.parametrize("target", DIALECT_NAMES)
def test_a_tool_from_elsewhere_fits_the_sdk_s_types(target):
    given_tools = [
        {"name": "f", "input_schema": {"type": "object"}},
        {"type": "function", "function": {"name": "g"}},
        {"type": "function", "name": "h", "parameters": None, "strict": None},
    ]
    for tool in get_dialect(target).render_tools(given_tools):
        exhaust(tool_of(target).validate_python(tool))
