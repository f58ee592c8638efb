"""Streams that break off, and what is told inside of them."""

import pytest

from tests.conversations import prose
from tests.session.turns.sessions import (
    BELIEVED,
    MODELS,
    act,
    chat,
    create,
    found,
    notices,
    of,
    texts,
    words_in,
)
from trimtab.engine.log.event import CallOutcome, Usage
from trimtab.errors import ProviderError, ProviderFailureDetails
from trimtab.providers.base import STREAM_CUT_SHORT, TRANSIENT_KINDS
from trimtab.providers.retries import with_retries
from trimtab.session.events import (
    COMPACTED_NOTICE,
    AssistantReplied,
    ModelCallRetried,
    TextDelta,
)
from trimtab.session.model_call_recovery import MAX_BROKEN_STREAM_RETRIES
from trimtab.testing import BrokenReply, ScriptedProvider, ScriptedReply

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("dialect", MODELS)
@pytest.mark.parametrize("kind", sorted(TRANSIENT_KINDS))
async def test_a_stream_that_breaks_off_is_asked_for_again(memory, dialect, kind):
    session = await create(memory, dialect)
    failure = ProviderFailureDetails(kind=kind, message="connection lost")
    broken = BrokenReply(
        reply=ScriptedReply(text=prose(300, "void")), failure=failure, events_before_failure=6
    )
    told = await act(session, ScriptedProvider(dialect, [broken, "Whole."]))
    at = told.index(ModelCallRetried(kind=kind, reason="connection lost"))
    assert of(TextDelta, told[:at])
    assert "".join(piece.text for piece in of(TextDelta, told[at:])) == "Whole."
    assert len(of(AssistantReplied, told)) == 1
    assert await texts(memory, "assistant") == ["Whole."]
    assert await texts(memory, "user") == ["Go."]
    assert [each.status for each in await found(memory, CallOutcome)] == ["error", "ok"]


@pytest.mark.parametrize("dialect", MODELS)
async def test_a_stream_that_simply_ends_is_asked_for_again(memory, dialect):
    class Ends(ScriptedProvider):
        async def send(self, request):
            late = len(self.requests) > 0
            count = 0
            async for event in super().send(request):
                count += 1
                if late or count < 4:
                    yield event

    session = await create(memory, dialect)
    told = await act(session, Ends(dialect, [prose(300, "void"), "Whole."]))
    assert len(of(ModelCallRetried, told)) == 1
    assert await texts(memory, "assistant") == ["Whole."]


@pytest.mark.parametrize("waits", [True, False])
async def test_a_server_that_refuses_streams_without_a_word_is_asked_for_the_whole_reply(
    memory, waits
):
    """As llama-cpp-python does with a request that is too long: an empty stream, HTTP 200."""

    streamed = []

    class Mute(ScriptedProvider):
        async def send(self, request):
            streamed.append(request.get("stream", False))
            if streamed[-1]:
                raise ProviderError(STREAM_CUT_SHORT)
            async for event in super().send(request):
                yield event

    async def sleep(seconds):
        pass

    session = await create(memory, "openai_chat")
    mute = Mute("openai_chat", ["Whole."])
    told = await act(session, with_retries(mute, max_attempts=3, sleep=sleep) if waits else mute)
    assert streamed == [*([True] * (3 if waits else 1)), False]
    assert await texts(memory, "assistant") == ["Whole."]
    assert (told[-1].reason, told[-1].calls) == ("done", 1)


@pytest.mark.parametrize("kind", sorted(TRANSIENT_KINDS))
async def test_a_stream_that_always_breaks_off_is_not_asked_for_for_ever(memory, kind):
    session = await create(memory)
    failure = ProviderFailureDetails(kind=kind, message="not now")
    broken = BrokenReply(
        reply=ScriptedReply(text=prose(300, "void")), failure=failure, events_before_failure=6
    )
    provider = ScriptedProvider("anthropic", [broken] * 99)
    with pytest.raises(ProviderError, match="not now"):
        await act(session, provider)
    assert len(provider.requests) == 1 + MAX_BROKEN_STREAM_RETRIES
    assert session.recorder.epoch is None
    told = await act(session, ScriptedProvider("anthropic", ["Now."]), says=None)
    assert (told[-1].reason, told[-1].calls) == ("done", 1)


@pytest.mark.parametrize("kind", sorted(TRANSIENT_KINDS))
async def test_what_may_pass_is_retried_by_the_one_layer_that_waits_and_by_no_other(memory, kind):
    session = await create(memory)
    bare = ScriptedProvider(
        "anthropic", [ProviderFailureDetails(kind=kind, message="not now")] * 99
    )
    waits: list[float] = []

    async def sleep(seconds):
        waits.append(seconds)

    with pytest.raises(ProviderError, match="not now"):
        await act(session, with_retries(bare, max_attempts=4, sleep=sleep))
    assert (len(bare.requests), len(waits)) == (4, 3)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_full_window_told_as_a_stop_reason_is_an_overflow(memory, stream):
    session = await create(memory, **BELIEVED)
    await chat(session, 40, 2_000)
    cut = ScriptedReply(text="And so", stop="model_context_window_exceeded")
    provider = ScriptedProvider("anthropic", [cut, "Fine."])
    told = await act(session, provider, stream=stream)
    assert notices(told) == [COMPACTED_NOTICE]
    assert len(words_in(provider.requests[1])) < len(words_in(provider.requests[0]))
    assert "And so" not in await texts(memory, "assistant")
    assert (await texts(memory, "assistant"))[-1] == "Fine."


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("read", "learned"), [(19_500, 20_000), (99_500, None)])
async def test_a_full_window_below_the_one_believed_in_is_learned(memory, stream, read, learned):
    session = await create(memory, **BELIEVED)
    await chat(session, 40, 2_000)
    full = ScriptedReply(
        text="And so",
        stop="model_context_window_exceeded",
        usage=Usage(input=read, output=500),
    )
    provider = ScriptedProvider("anthropic", [full, "Fine."])
    told = await act(session, provider, stream=stream)
    assert session.window.accounting.learned_limit == learned
    # It was billed, although nothing of it is kept.
    assert session.report().total_usage.output >= 500
    # Less output would end the same reply sooner: it is the context that shrinks.
    assert notices(told) == [COMPACTED_NOTICE]
    first, second = provider.requests
    assert len(words_in(second)) < len(words_in(first))
    assert second["max_tokens"] > 500
    assert (await texts(memory, "assistant"))[-1] == "Fine."
    assert "And so" not in await texts(memory, "assistant")


EVENTS = {
    "anthropic": {"type": "error", "error": {"type": "x", "message": "prompt is too long"}},
    "openai_chat": {"error": {"message": "no", "code": "context_length_exceeded"}},
    "openai_responses": {
        "type": "response.failed",
        "response": {"error": {"code": "context_length_exceeded", "message": "too long"}},
    },
}


@pytest.mark.parametrize("dialect", EVENTS)
@pytest.mark.parametrize("early", [0, 4])
async def test_an_overflow_inside_a_stream_is_one(memory, dialect, early):
    class Fails(ScriptedProvider):
        async def send(self, request):
            first, count = not self.requests, 0
            async for event in super().send(request):
                if first and count == early:
                    yield EVENTS[dialect]
                    return
                count += 1
                yield event

    session = await create(memory, dialect, **BELIEVED)
    await chat(session, 40, 2_000)
    provider = Fails(dialect, [prose(300), "Fine."])
    told = await act(session, provider)
    assert notices(told) == [COMPACTED_NOTICE]
    assert len(words_in(provider.requests[1])) < len(words_in(provider.requests[0]))
    assert (await texts(memory, "assistant"))[-1] == "Fine."
