"""Servers that cut a request without a word."""

import pytest

from tests.conversations import prose
from tests.session.turns.narrow_provider import Narrow
from tests.session.turns.sessions import BELIEVED, act, chat, create, notices, of, reopened, texts
from trimtab.engine.log.event import Usage
from trimtab.session.events import COMPACTED_NOTICE, ModelCallRetried
from trimtab.testing import ScriptedProvider, ScriptedReply

pytestmark = pytest.mark.anyio

LOCAL = {**BELIEVED, "model": "llama3.1:8b"}
"""A model that people serve themselves, where requests are cut and not refused."""


@pytest.mark.parametrize("stream", [True, False])
async def test_a_server_that_cuts_in_silence_is_seen(memory, stream):
    session = await create(memory, "openai_chat", **LOCAL)
    await chat(session, 30, 1_500)
    cut = ScriptedReply(text="About what?", usage=Usage(input=2_048, output=5))
    provider = ScriptedProvider("openai_chat", [cut, "Fine."])
    told = await act(session, provider, stream=stream)
    assert session.window.accounting.learned_limit == 2_048
    assert notices(told) == [COMPACTED_NOTICE]
    assert "were sent, but the server read only 2,048" in of(ModelCallRetried, told)[0].reason
    assert (await texts(memory, "assistant"))[-1] == "Fine."
    assert "About what?" not in await texts(memory, "assistant")
    assert session.window.last_call is not None
    assert session.window.last_call.body.bound <= 2_048


async def test_a_server_whose_usage_stops_growing_is_seen(memory):
    """The limit is the highest count, not the half window to which the request was cut."""
    session = await create(memory, "openai_chat", **LOCAL)
    for turn in range(1, 6):
        reply = ScriptedReply(text="Fine.", usage=Usage(input=800 * turn, output=5))
        await act(session, ScriptedProvider("openai_chat", [reply]), says=prose(800))
    cut = ScriptedReply(text="About what?", usage=Usage(input=2_048, output=5))
    told = await act(session, ScriptedProvider("openai_chat", [cut, "Fine."]), says=prose(800))
    assert session.window.accounting.learned_limit == 4_000
    assert "read only 2,048" in of(ModelCallRetried, told)[0].reason
    assert (await texts(memory, "assistant"))[-1] == "Fine."


@pytest.mark.parametrize("counts", [0.2, 0.5])
async def test_a_server_that_counts_less_than_we_do_is_taken_for_one_that_cuts_only_once(
    memory, counts
):
    """A cut to what was read once is read whole: what looks like another one is our estimate."""
    session = await create(memory, "openai_chat", **LOCAL)
    await chat(session, 30, 1_500)
    learned: list[int | None] = []
    provider = Narrow("openai_chat", ["Fine."] * 99, window=1_000_000, heavier=counts)
    for turn in range(12):
        told = await act(session, provider, says=f"{turn} {prose(400)}")
        assert (told[-1].reason, told[-1].calls) == ("done", 1)
        learned.append(session.window.accounting.learned_limit)
    assert len(set(learned)) == 1
    assert learned[0] is not None
    assert learned[0] >= 1_000
    assert len(provider.requests) == 13


async def test_a_server_that_cuts_more_than_before_is_seen_again(memory):
    session = await create(memory, "openai_chat", **LOCAL)
    await chat(session, 30, 1_500)
    cut = ScriptedReply(text="What?", usage=Usage(input=4_096, output=5))
    worse = ScriptedReply(text="What?", usage=Usage(input=1_024, output=5))
    provider = ScriptedProvider("openai_chat", [cut, "Fine.", worse, "Good."])
    await act(session, provider)
    assert session.window.accounting.learned_limit == 4_096
    told = await act(session, provider, says=prose(2_000))
    learned_limit = session.window.accounting.learned_limit
    assert learned_limit is not None
    assert 1_024 <= learned_limit < 2_048
    assert "read only 1,024" in of(ModelCallRetried, told)[0].reason


@pytest.mark.parametrize(
    ("changes", "kept"),
    [
        ({"model": "gpt-4.1"}, False),
        ({"model": "llama3.1:8b"}, True),
        ({"context_window": 32_768}, False),
        ({"context_window": 100_000}, True),
        ({"max_input_tokens": 50_000}, True),
        ({"system": "Another."}, True),
    ],
)
async def test_what_was_learned_of_another_model_or_window_is_forgotten(memory, changes, kept):
    session = await create(memory, "openai_chat", **LOCAL)
    await chat(session, 30, 1_500)
    cut = ScriptedReply(text="What?", usage=Usage(input=2_048, output=5))
    await act(session, ScriptedProvider("openai_chat", [cut, "Fine."]))
    await session.configure(**changes)
    assert session.window.accounting.learned_limit == (2_048 if kept else None)
    limit, source = (2_048, "learned") if kept else (changes.get("context_window"), "")
    assert session.budget().limit == (limit or 100_000)
    assert (session.budget().source == "learned") == (source == "learned")
    twin = await reopened(memory)
    assert twin.window.accounting.learned_limit == session.window.accounting.learned_limit


async def test_usage_that_an_estimate_can_explain_is_no_cut(memory):
    session = await create(memory, "openai_chat", **LOCAL)
    await chat(session, 30, 1_500)
    size = session.window.tokens
    answer = ScriptedReply(text="Fine.", usage=Usage(input=int(size * 0.8), output=5))
    told = await act(session, ScriptedProvider("openai_chat", [answer]))
    assert (told[-1].reason, told[-1].calls) == ("done", 1)
    assert not of(ModelCallRetried, told)
