"""The providers against the simulator: every fault it knows, in bodies, streams, stop reasons."""

import asyncio

import pytest

from tests.providers.scripts import APIS, SAID
from trimtab.context import Context
from trimtab.dialects import get_dialect
from trimtab.errors import ProviderError
from trimtab.providers.error_parser import parse_stop_failure
from trimtab.testing.server import PROVIDER_FAULTS

pytestmark = pytest.mark.anyio

MODELS = {
    "anthropic": "claude-sonnet-5",
    "openai_chat": "gpt-4o",
    "openai_responses": "gpt-4o",
}
TOLD = {"limit": 8_192, "input": 9_000, "requested": 500}


def request_of(name, *, stream=False):
    own = {"max_tokens": 500} if name == "anthropic" else {}
    said = {"input": SAID} if name == "openai_responses" else {"messages": SAID}
    return {"model": MODELS[name], **own, **said, **({"stream": True} if stream else {})}


@pytest.fixture
async def send(served):
    """Sends one request by a dialect's provider, for the simulator to do a step."""
    providers = {name: api.make(served.url) for name, api in APIS.items()}

    async def sent(name, step, *, stream=False):
        served.simulator.script.set_replies([step])
        async with asyncio.timeout(20):
            request = request_of(name, stream=stream)
            events = [event async for event in providers[name].send(request)]
        # An answer that was not fetched would be the next request's.
        assert served.simulator.script.steps_left() == 0
        return events

    yield sent
    for provider in providers.values():
        await provider.close()


async def failure(send, name, step, *, stream=False):
    with pytest.raises(ProviderError) as caught:
        await send(name, step, stream=stream)
    return caught.value.failure


@pytest.mark.parametrize("name", APIS)
async def test_each_fault_is_read_for_what_it_is(send, name):
    for told, fault in PROVIDER_FAULTS.items():
        read = await failure(send, name, {"fault": told, **TOLD})
        assert (read.kind, read.status) == (fault.kind, fault.status), told
        assert read.limit in (None, 8_192), told
        wait = fault.headers.get("retry-after")
        assert read.retry_after == (None if wait is None else float(wait)), told


@pytest.mark.slow
@pytest.mark.parametrize("name", APIS)
async def test_each_fault_that_has_words_is_read_within_a_stream(send, name):
    # That a model is not found, its status alone says.
    worded = {
        told: fault
        for told, fault in PROVIDER_FAULTS.items()
        if fault.message and fault.status != 404
    }
    for told, fault in worded.items():
        read = await failure(send, name, {"fault": told, "in_stream": 1, **TOLD}, stream=True)
        assert (read.kind, read.status) == (fault.kind, None), told


@pytest.mark.parametrize("name", APIS)
async def test_a_stream_that_is_cut_is_a_servers_failure(send, name):
    read = await failure(send, name, {"text": 50, "cut": 3}, stream=True)
    assert read.kind == "server"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", ["anthropic", "openai_chat"])
async def test_a_reply_that_filled_the_window_comes_whole_and_is_an_overflow(send, name, stream):
    step = {"text": "Half a", "stop": "model_context_window_exceeded"}
    events = await send(name, step, stream=stream)
    reply = events[0]
    if stream:
        gathering = get_dialect(name).create_reply_accumulator()
        for event in events:
            gathering.feed(event)
        reply = gathering.reply_body()
    assert reply is not None
    read = parse_stop_failure(reply)
    assert read is not None
    assert read.kind == "overflow"


@pytest.mark.parametrize("cut", [True, False])
async def test_a_request_that_was_cut_in_silence_is_seen_from_its_usage(served, cut):
    context = Context("llama3.1:8b", dialect="openai_chat")
    context.add({"role": "user", "content": "The quick brown fox jumps over the lazy dog. " * 500})
    served.simulator.script.set_replies([{"text": "Hm.", **({"truncate": 2_048} if cut else {})}])
    provider = APIS["openai_chat"].make(served.url)
    [reply] = [event async for event in provider.send(context.request())]
    await provider.close()
    context.add(reply)
    assert context.window.accounting.learned_limit == (2_048 if cut else None)
