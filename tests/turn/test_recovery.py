"""What is done about a call that failed, and what is left alone."""

from typing import Any

import pytest

from tests.conversations import prose
from tests.turn.acting import (
    MODELS,
    Hand,
    act,
    create,
    edits_in,
    found,
    history,
    log,
    of,
    reopened,
    say,
    texts,
    valid,
    words_in,
)
from tests.turn.narrow import Narrow
from tests.unit.providers.other_wordings import MALFORMED, OTHERS
from tests.unit.providers.wordings import OVERFLOWS
from trimtab.core.budget import LEAST_OUTPUT
from trimtab.core.event import Call as CallEvent
from trimtab.core.event import Outcome, Usage, canonical
from trimtab.core.guard import CannotFit
from trimtab.core.policies.aggressive import BYTES, CHARS
from trimtab.providers.errors import read_error
from trimtab.providers.provider import CUT_SHORT, TRANSIENT, Failure, ProviderError
from trimtab.providers.retrying import retrying
from trimtab.session.happenings import COMPACTED, Ended, Notice, Piece, Replied, Restarted
from trimtab.session.recover import BROKEN_STREAMS
from trimtab.testing import Answer, Broken, Call, ScriptedProvider

pytestmark = pytest.mark.anyio

TOO_LONG = Failure(kind="overflow", message="Input is too long for requested model.", status=400)
BELIEVED: dict[str, Any] = {"context_window": 100_000, "policy": "full"}
"""What the session takes its model's window for, wrongly; and no policy that would help."""


async def chat(session, messages, size):
    """Questions and answers of so many bytes each."""
    for number in range(messages):
        role = "assistant" if number % 2 else "user"
        await session.add({"role": role, "content": prose(size, f"message {number}")})


async def rounds(session, count, size):
    """A question and so many rounds of a tool, none of them sent yet."""
    await session.add(say("Read them all."))
    for number in range(count):
        asks = {"type": "tool_use", "id": f"c{number}", "name": "read", "input": {"path": "a"}}
        await session.add({"role": "assistant", "content": [asks]})
        told = prose(size, f"result {number}")
        block = {"type": "tool_result", "tool_use_id": f"c{number}", "content": told}
        await session.add({"role": "user", "content": [block]})


def notices(told):
    return [each.text for each in of(Notice, told)]


async def test_less_output_is_asked_for_where_that_is_enough(memory):
    session = await create(memory, **BELIEVED)
    await chat(session, 8, 2_000)
    provider = Narrow("anthropic", ["Fine."], window=6_000)
    told = await act(session, provider)
    first, second = (request["max_tokens"] for request in provider.requests)
    assert provider.refused == [0]
    assert first == 8_192
    assert LEAST_OUTPUT <= second < 3_000
    assert not edits_in(await log(memory))
    assert notices(told) == []
    assert [each.limit for each in of(Restarted, told)] == [6_000]
    assert session.window.learned_limit == 6_000


async def test_output_that_the_user_asked_for_shrinks_too_before_anything_is_hidden(memory):
    session = await create(memory, **BELIEVED, max_output_tokens=4_000)
    await chat(session, 8, 2_000)
    provider = Narrow("anthropic", ["Fine."], window=6_000)
    await act(session, provider)
    assert provider.requests[1]["max_tokens"] < 4_000
    assert not edits_in(await log(memory))


@pytest.mark.parametrize("says", [("limit", "input", "requested"), ("limit", "input"), ("limit",)])
@pytest.mark.parametrize("policy", ["full", "layered", "auto", "thresholds"])
async def test_a_limit_that_is_named_is_learned_and_kept_to(memory, policy, says):
    session = await create(memory, context_window=100_000, policy=policy)
    await rounds(session, 12, 3_000)
    provider = Narrow("anthropic", ["Fine.", "Good."], window=5_000, says=says)
    told = await act(session, provider, says="And now?")
    assert provider.refused == [0]
    assert session.window.learned_limit == 5_000
    assert session.budget().source == "learned"
    assert notices(told) == ["Context was compacted and truncated to fit token limits."]
    assert [each.limit for each in of(Restarted, told)] == [5_000]
    assert (await texts(memory, "user")).count("And now?") == 1
    assert words_in(provider.requests[1]).count("And now?") == 1
    assert await texts(memory, "assistant") == [*[""] * 12, "Fine."]
    assert valid(provider)
    twin = await reopened(memory)
    assert twin.window.learned_limit == 5_000
    await act(twin, provider, says="More?")
    assert provider.refused == [0]


async def test_all_but_three_results_become_lines_and_those_are_cut(memory):
    session = await create(memory, **BELIEVED)
    await rounds(session, 8, 6_000)
    provider = Narrow("anthropic", ["Fine."], window=5_000)
    await act(session, provider, says="And now?")
    edits = edits_in(await log(memory))
    assert [edit.op for edit in edits] == ["mask"] * 5 + ["truncate"] * 3
    assert all(edit.text.startswith("[Previously viewed: result") for edit in edits[:5])
    assert all(edit.head <= CHARS for edit in edits[5:])
    assert {edit.why for edit in edits} == {"the provider refused the request for its length"}


@pytest.mark.parametrize("policy", ["full", "compact"])
async def test_where_nothing_can_be_learned_30000_bytes_are_kept(memory, policy):
    session = await create(memory, context_window=100_000, policy=policy)
    await rounds(session, 20, 3_500)
    await session.add(say(prose(8_000)))
    before = session.window.bytes
    assert before > 70_000
    told = await act(session, ScriptedProvider("anthropic", [TOO_LONG, "Fine."]), says=None)
    assert BYTES == 30_000
    assert session.window.bytes <= BYTES
    assert session.window.learned_limit is None
    assert notices(told) == [COMPACTED]
    assert {edit.op for edit in edits_in(await log(memory))} == {"mask"}


async def test_compact_keeps_30000_bytes_though_the_limit_would_allow_more(memory):
    session = await create(memory, context_window=200_000, policy="compact", goal="quality")
    await chat(session, 40, 1_900)
    assert 70_000 < session.window.bytes < 80_000
    failure = Failure(kind="overflow", message="too long", limit=100_000)
    told = await act(session, ScriptedProvider("anthropic", [failure, "Fine."]))
    assert session.window.learned_limit == 100_000
    assert notices(told) == [COMPACTED]
    assert session.window.messages < 25


async def test_what_is_still_over_loses_its_oldest_half_with_a_notice(memory):
    session = await create(memory, **BELIEVED)
    await chat(session, 40, 2_000)
    provider = ScriptedProvider("anthropic", [TOO_LONG, "Fine."])
    await act(session, provider)
    (drop,) = edits_in(await log(memory))
    assert drop.op == "drop"
    assert "[conversation truncated — 21 older messages omitted]" in words_in(provider.requests[1])
    assert "message 20" not in words_in(provider.requests[1])
    assert "message 21" in words_in(provider.requests[1])
    assert valid(provider)


async def test_a_small_context_that_is_refused_without_numbers_is_halved_all_the_same(memory):
    """What is sent a second time must not be what was refused the first time."""
    session = await create(memory, **BELIEVED)
    await chat(session, 10, 500)
    provider = ScriptedProvider("anthropic", [TOO_LONG, "Fine."])
    await act(session, provider)
    first, second = (len(words_in(request)) for request in provider.requests)
    assert second < 0.7 * first
    assert [edit.op for edit in edits_in(await log(memory))] == ["drop"]


async def test_what_is_pinned_stays_whole(memory):
    session = await create(memory, **BELIEVED)
    await rounds(session, 10, 5_000)
    pinned = [entry.seq for entry in session.window.entries.values() if entry.message.results][-2]
    await session.pin(f"m{pinned}")
    await act(session, ScriptedProvider("anthropic", [TOO_LONG, "Fine."]), says="And now?")
    assert edits_in(await log(memory))
    assert pinned not in {edit.first for edit in edits_in(await log(memory))}


async def test_a_second_refusal_says_what_cannot_shrink(memory):
    session = await create(memory, **BELIEVED)
    await chat(session, 10, 500)
    provider = ScriptedProvider("anthropic", [TOO_LONG, TOO_LONG])
    with pytest.raises(CannotFit) as caught:
        await act(session, provider)
    assert session.window.last_call is not None
    needed = session.window.last_call.body.bound + session.window.last_call.body.max_output
    assert str(caught.value) == (
        "the provider refused the request for its length, and again when it was cut down to "
        f"{needed:,} tokens at most, output included. Its words: 'Input is too long for requested "
        "model.'; the limit that we know of is 100,000. What cannot shrink: system prompt and "
        "tools 12, requested output 8,192, user message m12 7. Set context_window to what the "
        "provider really takes; or use a model with a larger window, a shorter system prompt, "
        "fewer tools, or a smaller max_output_tokens"
    )
    assert caught.value.refusal == TOO_LONG.message
    assert "system prompt and tools" in caught.value.parts
    assert any(name.startswith("user message m") for name in caught.value.parts)
    assert "Input is too long for requested model" in str(caught.value.__cause__)
    assert (await texts(memory, "user")).count("Go.") == 1
    assert [each.status for each in await found(memory, Outcome)] == ["error", "error"]
    # It is no dead end: the session goes on.
    provider = ScriptedProvider("anthropic", ["Fine."])
    assert (await act(session, provider, says=None))[-1] == Ended(why="done", calls=1)


async def test_a_system_prompt_that_is_too_long_is_named(memory):
    session = await create(memory, **BELIEVED, system=prose(40_000))
    provider = Narrow("anthropic", ["Fine."], window=5_000)
    with pytest.raises(CannotFit) as caught:
        await act(session, provider)
    assert caught.value.limit == 5_000
    assert caught.value.parts["system prompt and tools"] > 5_000
    assert provider.refused == [0]
    assert await texts(memory, "user") == ["Go."]


@pytest.mark.parametrize("heavier", [1.3, 1.6])
@pytest.mark.parametrize("dialect", ["anthropic", "openai_chat"])
@pytest.mark.parametrize("policy", ["auto", "layered", "compact", "full"])
async def test_a_heavier_tokenizer_refuses_once_and_never_again(memory, policy, dialect, heavier):
    """60 turns, the first of which is already nearly too long by our own count."""
    session = await create(memory, dialect, context_window=6_000, policy=policy)
    await chat(session, 20, 900)
    numbers = iter(range(1_000))

    def replies(request):
        number = next(numbers)
        if number % 3 == 2:
            return f"{number} {prose(200)}"
        return [Call(name="read", arguments={"path": f"{number}"})] * (1 + number % 2)

    provider = Narrow(dialect, [replies] * 400, window=6_000, heavier=heavier)
    hand = Hand(gives=prose(900))
    for turn in range(60):
        await act(session, provider, [hand], says=f"{turn} {prose(120)}")
    assert len(provider.refused) <= 1
    assert provider.refused in ([], [0])
    assert provider.answered == 180
    assert valid(provider)


@pytest.mark.parametrize("name", MALFORMED)
async def test_a_malformed_history_is_repaired_once_and_not_compacted(memory, name):
    session = await create(memory, **BELIEVED)
    await chat(session, 10, 5_000)
    status, body = MALFORMED[name]
    failure = read_error(status, body)
    provider = ScriptedProvider("anthropic", [failure, "Fine."])
    told = await act(session, provider)
    assert [each.why for each in of(Restarted, told)] == [failure.message]
    assert notices(told) == []
    assert not edits_in(await log(memory))
    provider = ScriptedProvider("anthropic", [failure, failure])
    with pytest.raises(ProviderError, match="malformed"):
        await act(session, provider, says="Again.")
    assert len(provider.requests) == 2
    assert not edits_in(await log(memory))


async def test_what_is_broken_in_memory_is_folded_anew(memory):
    session = await create(memory)
    await rounds(session, 3, 100)

    class Strict(ScriptedProvider):
        def _check(self, request, number):
            try:
                super()._check(request, number)
            except AssertionError as error:
                failure = Failure(kind="malformed", message=str(error), status=400)
                raise ProviderError(failure) from error

    broken = session.window.rounds[2]
    broken.entries.pop()
    broken.rendered = None
    provider = Strict("anthropic", ["unused", "Fine."])
    told = await act(session, provider, says=None)
    assert len(of(Restarted, told)) == 1
    assert told[-1] == Ended(why="done", calls=1)
    assert not edits_in(await log(memory))


@pytest.mark.parametrize("name", OTHERS)
async def test_what_is_no_overflow_leaves_the_history_as_it_is(memory, name):
    session = await create(memory, context_window=100_000)
    await rounds(session, 10, 4_000)
    await session.request()
    kind, status, body = OTHERS[name]
    before, shown = history(await log(memory)), canonical(session.preview().request)
    provider = ScriptedProvider("anthropic", [read_error(status, body)] * 9)
    with pytest.raises(ProviderError) as caught:
        await act(session, provider, says=None)
    assert caught.value.failure.kind == kind
    assert history(await log(memory)) == before
    assert canonical(session.preview().request) == shown
    assert session.window.learned_limit is None
    assert len(provider.requests) == 1
    provider = ScriptedProvider("anthropic", ["Fine."])
    await act(session, provider, says=None)
    assert canonical({**provider.requests[0], "stream": False}) == canonical(
        {**session.preview().request, "messages": provider.requests[0]["messages"], "stream": False}
    )


@pytest.mark.parametrize("stream", [True, False])
async def test_a_server_that_cuts_in_silence_is_seen(memory, stream):
    session = await create(memory, "openai_chat", **BELIEVED)
    await chat(session, 30, 1_500)
    cut = Answer(text="About what?", usage=Usage(input=2_048, output=5))
    provider = ScriptedProvider("openai_chat", [cut, "Fine."])
    told = await act(session, provider, stream=stream)
    assert session.window.learned_limit == 2_048
    assert notices(told) == [COMPACTED]
    assert "were sent and 2,048 read" in of(Restarted, told)[0].why
    assert (await texts(memory, "assistant"))[-1] == "Fine."
    assert "About what?" not in await texts(memory, "assistant")
    assert session.window.last_call is not None
    assert session.window.last_call.body.bound <= 2_048


@pytest.mark.parametrize("counts", [0.2, 0.5, 0.65])
async def test_a_server_that_counts_less_than_we_do_is_taken_for_one_that_cuts_only_once(
    memory, counts
):
    """A cut to what was read once is read whole: what looks like another one is our estimate."""
    session = await create(memory, "openai_chat", **BELIEVED)
    await chat(session, 30, 1_500)
    learned: list[int | None] = []
    provider = Narrow("openai_chat", ["Fine."] * 99, window=1_000_000, heavier=counts)
    for turn in range(12):
        told = await act(session, provider, says=f"{turn} {prose(400)}")
        assert told[-1] == Ended(why="done", calls=1)
        learned.append(session.window.learned_limit)
    assert len(set(learned)) == 1
    assert learned[0] is not None
    assert learned[0] >= 1_000
    assert len(provider.requests) == 13


async def test_a_server_that_cuts_more_than_before_is_seen_again(memory):
    session = await create(memory, "openai_chat", **BELIEVED)
    await chat(session, 30, 1_500)
    cut = Answer(text="What?", usage=Usage(input=4_096, output=5))
    worse = Answer(text="What?", usage=Usage(input=1_024, output=5))
    provider = ScriptedProvider("openai_chat", [cut, "Fine.", worse, "Good."])
    await act(session, provider)
    assert session.window.learned_limit == 4_096
    told = await act(session, provider, says=prose(2_000))
    assert session.window.learned_limit == 1_024
    assert "and 1,024 read" in of(Restarted, told)[0].why


@pytest.mark.parametrize(
    ("changes", "kept"),
    [
        ({"model": "gpt-4.1"}, False),
        ({"model": "gpt-4o"}, True),
        ({"context_window": 32_768}, False),
        ({"context_window": 100_000}, True),
        ({"max_input_tokens": 50_000}, True),
        ({"system": "Another."}, True),
    ],
)
async def test_what_was_learned_of_another_model_or_window_is_forgotten(memory, changes, kept):
    session = await create(memory, "openai_chat", **BELIEVED)
    await chat(session, 30, 1_500)
    cut = Answer(text="What?", usage=Usage(input=2_048, output=5))
    await act(session, ScriptedProvider("openai_chat", [cut, "Fine."]))
    await session.configure(**changes)
    assert session.window.learned_limit == (2_048 if kept else None)
    limit, source = (2_048, "learned") if kept else (changes.get("context_window"), "")
    assert session.budget().limit == (limit or 100_000)
    assert (session.budget().source == "learned") == (source == "learned")
    twin = await reopened(memory)
    assert twin.window.learned_limit == session.window.learned_limit


async def test_usage_that_an_estimate_can_explain_is_no_cut(memory):
    session = await create(memory, "openai_chat", **BELIEVED)
    await chat(session, 30, 1_500)
    size = session.window.tokens
    answer = Answer(text="Fine.", usage=Usage(input=int(size * 0.8), output=5))
    told = await act(session, ScriptedProvider("openai_chat", [answer]))
    assert told[-1] == Ended(why="done", calls=1)
    assert not of(Restarted, told)


@pytest.mark.parametrize("dialect", MODELS)
@pytest.mark.parametrize("kind", sorted(TRANSIENT))
async def test_a_stream_that_breaks_off_is_asked_for_again(memory, dialect, kind):
    session = await create(memory, dialect)
    failure = Failure(kind=kind, message="connection lost")
    broken = Broken(answer=Answer(text=prose(300, "void")), failure=failure, events=6)
    told = await act(session, ScriptedProvider(dialect, [broken, "Whole."]))
    at = told.index(Restarted(why="connection lost"))
    assert of(Piece, told[:at])
    assert "".join(piece.text for piece in of(Piece, told[at:])) == "Whole."
    assert len(of(Replied, told)) == 1
    assert await texts(memory, "assistant") == ["Whole."]
    assert await texts(memory, "user") == ["Go."]
    assert [each.status for each in await found(memory, Outcome)] == ["error", "ok"]


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
    assert len(of(Restarted, told)) == 1
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
                raise ProviderError(CUT_SHORT)
            async for event in super().send(request):
                yield event

    async def sleep(seconds):
        pass

    session = await create(memory, "openai_chat")
    mute = Mute("openai_chat", ["Whole."])
    told = await act(session, retrying(mute, attempts=3, sleep=sleep) if waits else mute)
    assert streamed == [*([True] * (3 if waits else 1)), False]
    assert await texts(memory, "assistant") == ["Whole."]
    assert told[-1] == Ended(why="done", calls=1)


@pytest.mark.parametrize("kind", sorted(TRANSIENT))
async def test_a_stream_that_always_breaks_off_is_not_asked_for_for_ever(memory, kind):
    session = await create(memory)
    failure = Failure(kind=kind, message="not now")
    broken = Broken(answer=Answer(text=prose(300, "void")), failure=failure, events=6)
    provider = ScriptedProvider("anthropic", [broken] * 99)
    with pytest.raises(ProviderError, match="not now"):
        await act(session, provider)
    assert len(provider.requests) == 1 + BROKEN_STREAMS
    assert session.epoch is None
    told = await act(session, ScriptedProvider("anthropic", ["Now."]), says=None)
    assert told[-1] == Ended(why="done", calls=1)


@pytest.mark.parametrize("kind", sorted(TRANSIENT))
async def test_what_may_pass_is_retried_by_the_one_layer_that_waits_and_by_no_other(memory, kind):
    session = await create(memory)
    bare = ScriptedProvider("anthropic", [Failure(kind=kind, message="not now")] * 99)
    waits: list[float] = []

    async def sleep(seconds):
        waits.append(seconds)

    with pytest.raises(ProviderError, match="not now"):
        await act(session, retrying(bare, attempts=4, sleep=sleep))
    assert (len(bare.requests), len(waits)) == (4, 3)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_full_window_told_as_a_stop_reason_is_an_overflow(memory, stream):
    session = await create(memory, **BELIEVED)
    await chat(session, 40, 2_000)
    cut = Answer(text="And so", stop="model_context_window_exceeded")
    provider = ScriptedProvider("anthropic", [cut, "Fine."])
    told = await act(session, provider, stream=stream)
    assert notices(told) == [COMPACTED]
    assert len(words_in(provider.requests[1])) < len(words_in(provider.requests[0]))
    assert "And so" not in await texts(memory, "assistant")
    assert (await texts(memory, "assistant"))[-1] == "Fine."


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("read", "learned"), [(19_500, 20_000), (99_500, None)])
async def test_a_full_window_below_the_one_believed_in_is_learned(memory, stream, read, learned):
    session = await create(memory, **BELIEVED)
    await chat(session, 40, 2_000)
    full = Answer(
        text="And so",
        stop="model_context_window_exceeded",
        usage=Usage(input=read, output=500),
    )
    provider = ScriptedProvider("anthropic", [full, "Fine."])
    told = await act(session, provider, stream=stream)
    assert session.window.learned_limit == learned
    # Less output would end the same reply sooner: it is the context that shrinks.
    assert notices(told) == [COMPACTED]
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
    assert notices(told) == [COMPACTED]
    assert len(words_in(provider.requests[1])) < len(words_in(provider.requests[0]))
    assert (await texts(memory, "assistant"))[-1] == "Fine."


@pytest.mark.parametrize("name", OVERFLOWS)
async def test_every_wording_of_an_overflow_is_recovered_from(memory, name):
    session = await create(memory, context_window=4_000_000, policy="full")
    await chat(session, 40, 4_000)
    status, body, limit, _, _ = OVERFLOWS[name]
    provider = ScriptedProvider("anthropic", [read_error(status, body), "Fine."])
    told = await act(session, provider, says="Well?")
    assert told[-1] == Ended(why="done", calls=1)
    assert session.window.learned_limit == limit
    assert (await texts(memory, "user")).count("Well?") == 1
    first, second = provider.requests
    assert canonical(first) != canonical(second)
    assert valid(provider)


async def test_every_attempt_is_in_the_log_with_what_the_provider_told(memory):
    session = await create(memory, **BELIEVED)
    await rounds(session, 12, 3_000)
    provider = Narrow("anthropic", ["Fine."], window=5_000)
    await act(session, provider, says="And now?")
    refused, answered = await found(memory, Outcome)
    assert refused.error is not None
    assert (refused.error["kind"], refused.error["limit"]) == ("overflow", 5_000)
    assert answered.status == "ok"
    assert len(await found(memory, CallEvent)) == 2
