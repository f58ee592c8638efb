"""The scripted provider: no network, the wire's own events, and no patience with bad requests."""

import asyncio

import pytest

from trimtab import Context
from trimtab.dialects import DIALECT_NAMES, get_dialect
from trimtab.engine.log.event import Usage
from trimtab.errors import ProviderError, ProviderFailureDetails
from trimtab.providers.base import Provider
from trimtab.testing import (
    BrokenReply,
    InvalidRequestSent,
    ScriptedCall,
    ScriptedProvider,
    ScriptedReply,
    ScriptExhausted,
)

MODELS = {
    "anthropic": "claude-sonnet-4-6",
    "openai_chat": "gpt-4o",
    "openai_responses": "gpt-5.1",
}
TOOL = {"name": "read", "input_schema": {"type": "object", "properties": {}}}


def context_of(name, **more):
    return Context(MODELS[name], dialect=name, tools=[TOOL], **more)


def sent(provider: Provider, request):
    async def go():
        return [event async for event in provider.send(request)]

    return asyncio.run(go())


def asked(name, *, stream=False):
    context = context_of(name)
    context.add({"role": "user", "content": "hello"})
    return context, context.request(stream=stream)


def received(name, events, *, stream):
    if not stream:
        return get_dialect(name).parse_reply(events[0])
    gathering = get_dialect(name).create_reply_accumulator()
    for event in events:
        gathering.feed(event)
    whole = gathering.reply_body()
    assert whole is not None
    return get_dialect(name).parse_reply(whole)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", DIALECT_NAMES)
def test_an_answer_arrives_as_the_dialect_reads_it(name, stream):
    usage = Usage(input=100, output=20, cache_read=50, cache_write=10)
    calls = (
        ScriptedCall(name="read", arguments={"path": "a"}),
        ScriptedCall(name="read", id="mine"),
    )
    provider = ScriptedProvider(
        name, [ScriptedReply(text="Let me look.", calls=calls, usage=usage)]
    )
    _, request = asked(name, stream=stream)
    events = sent(provider, request)
    assert (len(events) > 1) is stream
    reply = received(name, events, stream=stream)
    assert reply.message.text == "Let me look."
    assert [call.name for call in reply.message.calls] == ["read", "read"]
    assert reply.message.calls[1].id == "mine"
    assert reply.usage == usage
    assert provider.requests == [request]


@pytest.mark.parametrize("name", DIALECT_NAMES)
def test_a_failure_is_raised(name):
    failure = ProviderFailureDetails(kind="overflow", message="too long", limit=1_000)
    provider = ScriptedProvider(name, [failure, "Fine."])
    _, request = asked(name)
    with pytest.raises(ProviderError) as caught:
        sent(provider, request)
    assert caught.value.failure is failure
    assert received(name, sent(provider, request), stream=False).message.text == "Fine."


def test_a_stream_breaks_off_where_it_is_told_to():
    failure = ProviderFailureDetails(kind="network", message="gone")
    provider = ScriptedProvider(
        "anthropic",
        [BrokenReply(reply=ScriptedReply(text="Hello"), failure=failure, events_before_failure=2)],
    )
    _, request = asked("anthropic", stream=True)

    async def go():
        events = provider.send(request)
        seen = [await anext(events), await anext(events)]
        with pytest.raises(ProviderError):
            await anext(events)
        return [event["type"] for event in seen]

    assert asyncio.run(go()) == ["message_start", "content_block_start"]


def test_a_function_answers_by_the_request():
    provider = ScriptedProvider("openai_chat", [lambda request: request["messages"][-1]["content"]])
    _, request = asked("openai_chat")
    assert sent(provider, request)[0]["choices"][0]["message"]["content"] == "hello"


def test_a_request_that_the_api_would_refuse_fails_the_test():
    provider = ScriptedProvider("openai_chat", ["never"])
    orphan = {"role": "tool", "tool_call_id": "a", "content": "b"}
    with pytest.raises(InvalidRequestSent, match="must be a response to a preceding message"):
        sent(provider, {"model": "gpt-4o", "messages": [orphan]})
    with pytest.raises(AssertionError):
        sent(provider, {"model": "gpt-4o", "messages": []})


def test_a_request_too_many_fails_the_test():
    provider = ScriptedProvider("openai_chat", ["once"])
    _, request = asked("openai_chat")
    sent(provider, request)
    assert provider.replies_left == 0
    with pytest.raises(ScriptExhausted, match="request 2 arrived, but the script has only 1 "):
        sent(provider, request)
    provider.add_replies("never", "again")
    assert len(provider.requests) == 2


@pytest.mark.parametrize("name", DIALECT_NAMES)
def test_usage_that_is_not_scripted_teaches_a_context_nothing(name):
    context, request = asked(name)
    provider = ScriptedProvider(name, ["Hello."])
    (reply,) = sent(provider, request)
    context.add(reply)
    usage = get_dialect(name).parse_reply(reply).usage
    assert usage is not None
    assert 0 < usage.input <= context.report().to_dict()["bound"]


def test_closing_is_seen():
    provider = ScriptedProvider("anthropic")
    asyncio.run(provider.close())
    assert provider.closed
