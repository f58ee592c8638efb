"""Streams of the SDKs' own helpers, watched over a socket."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.lazy import anthropic, openai
from tests.testing.requests import CLAUDE, GPT, TOOLS, user
from trimtab import Context, Message, Text, ToolResult
from trimtab.engine.log.event import CallOutcome
from trimtab.types import DialectName

MODELS: dict[DialectName, str] = {"anthropic": CLAUDE, "openai_chat": GPT, "openai_responses": GPT}
EXPECTED = {
    "anthropic": "expected events of the Messages API",
    "openai_chat": "expected chunks of the Chat Completions API",
    "openai_responses": "expected events of the Responses API",
}
USAGE = {"stream_options": {"include_usage": True}}


def asking(name: DialectName) -> Context:
    context = Context(MODELS[name], dialect=name, tools=TOOLS[name])
    context.add(user("go"))
    return context


def helper(client: Any, name: str, request: dict[str, Any]) -> Any:
    """The stream that an SDK manages itself, with events of its own among the server's."""
    match name:
        case "anthropic":
            return client.messages.stream(**request)
        case "openai_chat":
            return client.chat.completions.stream(**request, **USAGE)
        case _:
            return client.responses.stream(**request)


def make_tool_result(call_id: str, text: str) -> Message:
    result = ToolResult(call_id=call_id, content=(Text(text=text),))
    return Message(role="tool", parts=(result,))


def visible_messages(context: Context) -> list[Message]:
    return [entry.message for entry in context.window.entries.values()]


def kept(context: Context) -> tuple[str, str, bool]:
    """What was added: its text, the arguments of its call, and whether usage came along."""
    message = context.window.entries[max(context.window.entries)].message
    (outcome,) = (e.body for e in context.events if isinstance(e.body, CallOutcome))
    used = outcome.usage is not None and outcome.usage.input > 0 and outcome.usage.output > 0
    return message.text, message.calls[0].arguments, used


@pytest.fixture
def scripted(simulator):
    call = {"name": "read", "arguments": {"path": "a.txt"}}
    simulator.script.set_replies([{"text": "Let me see.", "calls": [call]}])


@pytest.mark.usefixtures("scripted")
@pytest.mark.parametrize("name", MODELS)
def test_the_reply_of_a_helpers_stream_is_added(claude, gpt, name):
    context = asking(name)
    client = claude if name == "anthropic" else gpt
    with helper(client, name, context.request()) as stream:
        watched = context.watch(stream)
        passed = list(watched)
    assert len(passed) > 3
    assert [call.name for call in watched.message.calls] == ["read"]
    assert kept(context) == ("Let me see.", '{"path":"a.txt"}', True)


@pytest.mark.usefixtures("scripted")
@pytest.mark.parametrize("name", MODELS)
def test_the_reply_of_a_helpers_asynchronous_stream_is_added(served, name):
    context = asking(name)

    async def follow() -> tuple[Any, list[Any]]:
        made: Any = anthropic.AsyncAnthropic(base_url=served.url, api_key="k")
        if name != "anthropic":
            made = openai.AsyncOpenAI(base_url=served.openai_url, api_key="k")
        async with made as client, helper(client, name, context.request()) as stream:
            watched = context.watch(stream)
            passed = [event async for event in watched]
            return watched.message.calls, passed

    calls, passed = asyncio.run(follow())
    assert len(passed) > 3
    assert [call.name for call in calls] == ["read"]
    assert kept(context) == ("Let me see.", '{"path":"a.txt"}', True)


@pytest.mark.parametrize("name", MODELS)
def test_a_tool_loop_over_streams_needs_nothing_but_the_watched_message(
    claude, gpt, simulator, name
):
    call = {"name": "read", "arguments": {"path": "a.txt"}}
    simulator.script.set_replies([{"calls": [call, call]}, {"text": "It says hello."}])
    send = {
        "anthropic": claude.messages.create,
        "openai_chat": gpt.chat.completions.create,
        "openai_responses": gpt.responses.create,
    }[name]
    context = asking(name)
    while True:
        watched = context.watch(send(**context.request(stream=True)))
        for _ in watched:
            pass
        if not watched.message.calls:
            break
        for asked in watched.message.calls:
            context.add(make_tool_result(asked.id, f"{asked.name}: {asked.arguments}"))
    assert watched.message.text == "It says hello."
    assert [message.role for message in visible_messages(context)] == [
        *("user", "assistant", "tool", "tool", "assistant")
    ]


@pytest.mark.usefixtures("scripted")
@pytest.mark.parametrize("asked", MODELS)
@pytest.mark.parametrize("watched", MODELS)
def test_the_stream_of_another_api_is_refused_with_what_was_expected(claude, gpt, asked, watched):
    if asked == watched:
        return
    context, request = asking(watched), asking(asked).request()
    before = len(context.events)
    made = helper(claude if asked == "anthropic" else gpt, asked, request)
    with made as stream, pytest.raises(ValueError, match=EXPECTED[watched]):
        list(context.watch(stream))
    assert len(context.events) == before
