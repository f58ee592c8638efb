"""The providers' count endpoints, asked through their SDKs with what a context would send."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

from tests.lazy import anthropic, openai
from tests.testing.requests import CLAUDE, GPT, TOOLS, user
from trimtab import Context
from trimtab.dialects.outgoing import COUNT_PARAMETERS

FILLER = "lorem ipsum dolor sit amet "
SPARED = {"extra_body", "conversation", "previous_response_id"}
"""What a request of ours never has, or what is meant for another endpoint."""


def asking(dialect: Any, **options: Any) -> Context:
    model = CLAUDE if dialect == "anthropic" else GPT
    context = Context(
        model, dialect=dialect, tools=TOOLS[dialect], system="Be brief.", recall=True, **options
    )
    context.add(user("Read it."))
    return context


def count(claude: Any, gpt: Any, context: Context) -> int:
    """The count of a server that refuses every parameter that it does not know."""
    request = context.count_request()
    if context.window.settings.dialect == "anthropic":
        return claude.messages.count_tokens(**request).input_tokens
    return gpt.responses.input_tokens.count(**request).input_tokens


def ask(claude: Any, gpt: Any, context: Context) -> int:
    """The tokens that the server reports for the request itself."""
    if context.window.settings.dialect == "anthropic":
        context.add(claude.messages.create(**context.request()))
    else:
        context.add(gpt.responses.create(**context.request()))
    usage = context.window.accounting.last_usage
    assert usage is not None
    return usage.input


@pytest.mark.slow
@pytest.mark.parametrize("dialect", COUNT_PARAMETERS)
def test_the_count_is_that_of_the_request_which_follows(claude, gpt, dialect):
    context = asking(dialect, context_window=16_000, max_output_tokens=1_000)
    for number in range(12):
        before = context.dump()
        counted = count(claude, gpt, context)
        assert context.dump() == before
        assert ask(claude, gpt, context) == counted
        context.add(user(f"{number} {FILLER * 300}"))
    assert context.report().hidden


@pytest.mark.parametrize(
    ("dialect", "params"),
    [
        (
            "anthropic",
            {
                "metadata": {"user_id": "u"},
                "stop_sequences": ["END"],
                "service_tier": "auto",
                "tool_choice": {"type": "auto"},
                "thinking": {"type": "adaptive"},
            },
        ),
        (
            "openai_responses",
            {
                "metadata": {"user": "u"},
                "max_tool_calls": 3,
                "service_tier": "auto",
                "tool_choice": "auto",
                "parallel_tool_calls": False,
                "include": [],
                "text": {"verbosity": "low"},
            },
        ),
    ],
)
def test_parameters_that_the_endpoint_refuses_are_left_out(claude, gpt, dialect, params):
    context = asking(dialect, params=params, max_output_tokens=2_000)
    assert count(claude, gpt, context) > 10
    request = context.count_request()
    kept = {"tool_choice", "thinking", "parallel_tool_calls", "text"} & set(params)
    assert kept <= set(request)
    assert not {"metadata", "max_tokens", "max_output_tokens", "stream", "store"} & set(request)


def test_the_server_refuses_what_the_endpoints_do_not_take(claude, gpt):
    with pytest.raises(anthropic.BadRequestError, match="metadata: Extra inputs"):
        claude.messages.count_tokens(
            model=CLAUDE, messages=[user("hi")], extra_body={"metadata": {"user_id": "u"}}
        )
    with pytest.raises(openai.BadRequestError, match="Unknown parameter: 'store'"):
        gpt.responses.input_tokens.count(model=GPT, input="hi", extra_body={"store": False})


def test_an_asynchronous_client_counts_the_same(served, claude, gpt):
    context = asking("openai_responses")

    async def ask_count() -> int:
        async with openai.AsyncOpenAI(base_url=served.openai_url, api_key="k") as client:
            counted = await client.responses.input_tokens.count(**context.count_request())
            return counted.input_tokens

    assert asyncio.run(ask_count()) == count(claude, gpt, context)


def test_chat_completions_has_no_such_endpoint():
    with pytest.raises(ValueError, match="openai_chat has no count endpoint"):
        asking("openai_chat").count_request()


def test_what_is_passed_on_is_what_the_sdks_take(claude, gpt):
    taken = {
        "anthropic": _names(claude.messages.count_tokens)
        | _names(claude.beta.messages.count_tokens),
        "openai_responses": _names(gpt.responses.input_tokens.count),
    }
    assert {name: set(known) for name, known in COUNT_PARAMETERS.items()} == taken


def _names(function: Any) -> set[str]:
    return set(inspect.signature(function).parameters) - SPARED


def test_a_deferred_tool_counts_only_after_something_has_loaded_it(claude):
    read = TOOLS["anthropic"][0]
    deferred = [{**read, "name": f"tool_{n}", "defer_loading": True} for n in range(100)]
    found = [{"type": "tool_reference", "tool_name": "tool_3"}]
    ask = {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {}}
    done = {"type": "tool_result", "tool_use_id": "toolu_1"}

    def tokens(tools, content):
        said = [user("Go."), {"role": "assistant", "content": [ask]}]
        messages: Any = [*said, user([{**done, "content": content}])]
        return claude.messages.count_tokens(
            model=CLAUDE, messages=messages, tools=[read, *tools]
        ).input_tokens

    without = tokens([], "none")
    assert tokens(deferred, "none") == without
    assert tokens(deferred, found) - without > 40
    with pytest.raises(anthropic.BadRequestError, match="'tool_3' not found"):
        tokens(deferred[:3], found)
