"""A program as a user writes it, with both SDKs, for the type checkers alone; nobody runs it."""
# pyright: strict

from __future__ import annotations

from typing import Any, Literal, assert_type

import anthropic
import openai
from anthropic.types import Message, MessageParam, RawMessageStreamEvent
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent

from trimtab import Context, ContextReport, Session, fit, run_turn
from trimtab import Message as SaidMessage
from trimtab.policies import Budget, Decision, WindowView
from trimtab.providers import OpenAIResponsesProvider
from trimtab.stores import Store

claude = Context(
    "claude-sonnet-4-6",
    system="You are terse.",
    policy="layered",
    goal="cost",
    summaries="extractive",
    cache="1h",
    limits={
        "max_tool_result_tokens": 4_000,
        "tool_result_truncation": "both",
        "keep": ["README*"],
        "tools": {"read": {"exempt": True}},
        "summary": {"max_tokens": 500},
        "thresholds": {"trim": 0.8},
    },
    model_info={"context_window": 200_000, "cache_style": "marks"},
    max_output_tokens=1_000,
)
chat = Context("my-deployment", dialect="openai_chat", model_info="gpt-5.2")
responses = Context("gpt-5.2", dialect="openai_responses", params={"temperature": 0})


def keep_everything(window: WindowView, budget: Budget) -> Decision:
    return Decision()


own_policy = Context("gpt-4o", policy=keep_everything)


def ask_whole(claude_client: anthropic.Anthropic, openai_client: openai.OpenAI) -> None:
    reply = claude_client.messages.create(**claude.request())
    assert_type(reply, Message)
    claude.add(reply)
    completion = openai_client.chat.completions.create(**chat.request(volatile="It is noon."))
    assert_type(completion, ChatCompletion)
    assert_type(completion.choices[0].message.content, str | None)
    chat.add(completion)
    response = openai_client.responses.create(**responses.request())
    assert_type(response, Response)
    counted = claude_client.messages.count_tokens(**claude.count_request())
    assert_type(counted.input_tokens, int)
    tokens = openai_client.responses.input_tokens.count(**responses.count_request()).input_tokens
    assert_type(tokens, int)
    # What the user writes beside it is checked as ever.
    assert_type(openai_client.responses.create(**responses.request(), user="me"), Response)


def ask_streamed(claude_client: anthropic.Anthropic, openai_client: openai.OpenAI) -> None:
    events = claude_client.messages.create(**claude.request(stream=True))
    assert_type(events, anthropic.Stream[RawMessageStreamEvent])
    chunks = openai_client.chat.completions.create(**chat.request(stream=True))
    assert_type(chunks, openai.Stream[ChatCompletionChunk])
    items = openai_client.responses.create(**responses.request(stream=True))
    assert_type(items, openai.Stream[ResponseStreamEvent])
    watched = claude.watch(events)
    for event in watched:
        assert_type(event, RawMessageStreamEvent)
    assert_type(watched.message, SaidMessage)
    assert_type([call.arguments for call in watched.message.calls], list[str])
    # The catalog knows which dialect the model speaks, the type checker does not need to.
    assert_type(
        openai_client.chat.completions.create(**own_policy.request(stream=True)),
        openai.Stream[ChatCompletionChunk],
    )


async def ask_asynchronously(
    claude_client: anthropic.AsyncAnthropic, openai_client: openai.AsyncOpenAI
) -> None:
    assert_type(await claude_client.messages.create(**claude.request()), Message)
    assert_type(await openai_client.chat.completions.create(**chat.request()), ChatCompletion)
    assert_type(await openai_client.responses.create(**responses.request()), Response)
    assert_type(
        await claude_client.messages.create(**claude.request(stream=True)),
        anthropic.AsyncStream[RawMessageStreamEvent],
    )
    assert_type(
        await openai_client.chat.completions.create(**chat.request(stream=True)),
        openai.AsyncStream[ChatCompletionChunk],
    )
    assert_type(
        await openai_client.responses.create(**responses.request(stream=True)),
        openai.AsyncStream[ResponseStreamEvent],
    )


async def ask_in_sessions(
    store: Store, claude_client: anthropic.AsyncAnthropic, openai_client: openai.AsyncOpenAI
) -> None:
    session = await Session.open_or_create(store, "a", model="claude-sonnet-4-6")
    assert_type(await claude_client.messages.create(**await session.request()), Message)
    assert_type(
        await claude_client.messages.create(**await session.request(stream=True)),
        anthropic.AsyncStream[RawMessageStreamEvent],
    )
    known = await Session.open(store, "a")
    assert_type(
        await openai_client.chat.completions.create(**await known.request()), ChatCompletion
    )
    own = await Session.create(store, "b", model="gpt-5.2", dialect="openai_responses")
    assert_type(await openai_client.responses.create(**await own.request()), Response)
    fork = await own.fork("c")
    assert_type(
        await openai_client.responses.create(**await fork.request(stream=True)),
        openai.AsyncStream[ResponseStreamEvent],
    )
    async for logged in own.messages():
        assert_type(logged.message, SaidMessage)
    finished = await run_turn(own, OpenAIResponsesProvider())
    assert_type(finished.text, str)
    assert_type(finished.cost, float | None)


def use_the_helpers(claude_client: anthropic.Anthropic, openai_client: openai.OpenAI) -> None:
    with claude_client.messages.stream(**claude.request()) as stream:
        assert_type(stream.get_final_message().content[0].type == "text", bool)
    with openai_client.responses.stream(**responses.request()) as events:
        assert_type(next(iter(events)).type == "error", bool)


def fit_a_list(claude_client: anthropic.Anthropic, messages: list[dict[str, Any]]) -> None:
    fitted = fit(messages, model="claude-sonnet-4-6", policy="auto", limits={"keep": ["*.md"]})
    assert_type(claude_client.messages.create(**fitted.request), Message)
    assert_type(fitted.messages, list[dict[str, Any]])
    assert_type(fitted.report, ContextReport)


def fit_what_the_sdks_return(
    reply: Message, completion: ChatCompletion, said: SaidMessage, asked: MessageParam
) -> None:
    history = [asked, reply, completion.choices[0].message, said]
    assert_type(fit(history, model="gpt-4o").report, ContextReport)
    chat.sync(history)
    chat.sync([said, said])
    for block in reply.content:
        if block.type == "tool_use":
            claude.answer(block)


def look_into_a_request(context: Context) -> int:
    """Any context is a `Context`, whatever its dialect."""
    request = context.request()
    roles = {str(message["role"]) for message in request["messages"]}
    return len(roles) + len(request["messages"]) + int(request["max_tokens"])


look_into_a_request(responses)
loaded = Context.load(claude.dump(), policy="compact")
assert_type(look_into_a_request(loaded), int)


def go_on_with_a_stored_log(client: openai.OpenAI, lines: list[str]) -> None:
    context = Context[Literal["openai_responses"]].load(lines)
    events = client.responses.create(**context.request(stream=True))
    assert_type(events, openai.Stream[ResponseStreamEvent])


def configure(model: str) -> None:
    claude.configure(model=model, policy="auto", turn_tools=[{"name": "read"}], goal="quality")
    claude.add(SaidMessage(role="user", parts=()))
