"""What is done about a call that failed, and what is left alone."""

import pytest

from tests.combinations import in_pairs
from tests.conversations import prose
from tests.providers.other_error_texts import MALFORMED, OTHERS
from tests.providers.overflow_texts import OVERFLOWS
from tests.session.turns.narrow_provider import Narrow
from tests.session.turns.sessions import (
    BELIEVED,
    Hand,
    act,
    chat,
    create,
    edits_in,
    found,
    history,
    log,
    notices,
    of,
    reopened,
    results_in,
    say,
    texts,
    valid,
    words_in,
)
from trimtab.engine.log.event import CallOutcome, dump_canonical_json
from trimtab.engine.log.event import ModelCall as CallEvent
from trimtab.engine.policy.budget import MIN_OUTPUT_TOKENS
from trimtab.engine.policy.overflow import (
    KEPT_RESULT_CHARS,
    OVERFLOW_REASON,
    UNKNOWN_LIMIT_TARGET_BYTES,
)
from trimtab.errors import CannotFit, ProviderError, ProviderFailureDetails
from trimtab.providers.error_parser import parse_error_response
from trimtab.session.events import COMPACTED_NOTICE, ModelCallRetried
from trimtab.testing import ScriptedCall, ScriptedProvider

pytestmark = pytest.mark.anyio


TOO_LONG = ProviderFailureDetails(
    kind="overflow", message="Input is too long for requested model.", status=400
)


async def rounds(session, count, size):
    """A question and so many rounds of a tool, none of them sent yet."""
    await session.add(say("Read them all."))
    for number in range(count):
        asks = {"type": "tool_use", "id": f"c{number}", "name": "read", "input": {"path": "a"}}
        await session.add({"role": "assistant", "content": [asks]})
        told = prose(size, f"result {number}")
        block = {"type": "tool_result", "tool_use_id": f"c{number}", "content": told}
        await session.add({"role": "user", "content": [block]})


async def test_less_output_is_asked_for_where_that_is_enough(memory):
    session = await create(memory, **BELIEVED)
    await chat(session, 8, 2_000)
    provider = Narrow("anthropic", ["Fine."], window=6_000)
    told = await act(session, provider)
    first, second = (request["max_tokens"] for request in provider.requests)
    assert provider.refused == [0]
    assert first == 8_192
    assert MIN_OUTPUT_TOKENS <= second < 3_000
    assert not edits_in(await log(memory))
    assert notices(told) == []
    assert [each.limit for each in of(ModelCallRetried, told)] == [6_000]
    assert session.window.accounting.learned_limit == 6_000


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
    assert session.window.accounting.learned_limit == 5_000
    assert session.budget().source == "learned"
    assert notices(told) == ["Context was compacted and truncated to fit token limits."]
    assert [each.limit for each in of(ModelCallRetried, told)] == [5_000]
    assert (await texts(memory, "user")).count("And now?") == 1
    assert words_in(provider.requests[1]).count("And now?") == 1
    assert await texts(memory, "assistant") == [*[""] * 12, "Fine."]
    assert valid(provider)
    twin = await reopened(memory)
    assert twin.window.accounting.learned_limit == 5_000
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
    assert KEPT_RESULT_CHARS == 1_000
    assert all(990 < len(text) <= 1_000 for text in results_in(provider.requests[1])[5:])
    assert {edit.why for edit in edits} == {"the provider refused the request for its length"}


@pytest.mark.parametrize("policy", ["full", "compact"])
async def test_where_nothing_can_be_learned_30000_bytes_are_kept(memory, policy):
    session = await create(memory, context_window=100_000, policy=policy)
    await rounds(session, 20, 3_500)
    await session.add(say(prose(8_000)))
    before = session.window.bytes
    assert before > 70_000
    told = await act(session, ScriptedProvider("anthropic", [TOO_LONG, "Fine."]), says=None)
    assert UNKNOWN_LIMIT_TARGET_BYTES == 30_000
    assert session.window.bytes <= UNKNOWN_LIMIT_TARGET_BYTES
    assert session.window.accounting.learned_limit is None
    assert notices(told) == [COMPACTED_NOTICE]
    assert {edit.op for edit in edits_in(await log(memory))} == {"mask"}


@pytest.mark.parametrize(
    ("policy", "ops"),
    [("compact", {"mask", "truncate"}), ("full", {"mask"}), ("layered", {"mask"})],
)
async def test_compact_keeps_30000_bytes_though_the_limit_would_allow_more(memory, policy, ops):
    """Elsewhere the limit that was learned takes their place."""
    session = await create(memory, context_window=200_000, policy=policy, goal="quality")
    await session.add(say(prose(25_000)))
    await rounds(session, 12, 3_500)
    assert 65_000 < session.window.bytes < 80_000
    failure = ProviderFailureDetails(kind="overflow", message="too long", limit=24_000)
    told = await act(session, ScriptedProvider("anthropic", [failure, "Fine."]), says=None)
    assert session.window.accounting.learned_limit == 24_000
    assert notices(told) == [COMPACTED_NOTICE]
    assert (session.window.bytes <= 30_000) == (policy == "compact")
    edits = edits_in(await log(memory))
    assert {edit.op for edit in edits if edit.why == OVERFLOW_REASON} == ops


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
        "the provider refused the request for its length. By our count it has at most "
        f"{needed:,} tokens, including output. The provider said: 'Input is too long for requested "
        "model.'. The known limit is 100,000. These parts cannot shrink: system prompt and "
        "tools 12, requested output 8,192, user message m12 7, margin of the estimate "
        f"{caught.value.parts['margin of the estimate']:,}. Set context_window to what the "
        "provider really accepts, or use a model with a larger window, or a smaller "
        "max_output_tokens"
    )
    assert caught.value.refusal == TOO_LONG.message
    assert "system prompt and tools" in caught.value.parts
    assert any(name.startswith("user message m") for name in caught.value.parts)
    assert "Input is too long for requested model" in str(caught.value.__cause__)
    assert (await texts(memory, "user")).count("Go.") == 1
    assert [each.status for each in await found(memory, CallOutcome)] == ["error", "error"]
    # It is no dead end: the session goes on.
    provider = ScriptedProvider("anthropic", ["Fine."])
    finished = (await act(session, provider, says=None))[-1]
    assert (finished.reason, finished.calls) == ("done", 1)


async def test_a_system_prompt_that_is_too_long_is_named(memory):
    session = await create(memory, **BELIEVED, system=prose(40_000))
    provider = Narrow("anthropic", ["Fine."], window=5_000)
    with pytest.raises(CannotFit) as caught:
        await act(session, provider)
    assert caught.value.limit == 5_000
    assert caught.value.parts["system prompt and tools"] > 5_000
    assert provider.refused == [0]
    assert await texts(memory, "user") == ["Go."]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "dialect", "heavier"),
    in_pairs(
        ["auto", "layered", "compact", "full"],
        ["anthropic", "openai_chat"],
        [1.3, 1.6],
        together=1,
    ),
)
async def test_a_heavier_tokenizer_refuses_once_and_never_again(memory, policy, dialect, heavier):
    """30 turns, the first of which is already nearly too long by our own count."""
    session = await create(memory, dialect, context_window=6_000, policy=policy)
    await chat(session, 20, 900)
    numbers = iter(range(1_000))

    def replies(request):
        number = next(numbers)
        if number % 3 == 2:
            return f"{number} {prose(200)}"
        return [ScriptedCall(name="read", arguments={"path": f"{number}"})] * (1 + number % 2)

    provider = Narrow(dialect, [replies] * 400, window=6_000, heavier=heavier)
    hand = Hand(gives=prose(900))
    for turn in range(30):
        await act(session, provider, [hand], says=f"{turn} {prose(120)}")
    assert len(provider.refused) <= 1
    assert provider.refused in ([], [0])
    assert provider.answered == 90
    assert valid(provider)


@pytest.mark.parametrize("name", MALFORMED)
async def test_a_malformed_history_is_repaired_once_and_not_compacted(memory, name):
    session = await create(memory, **BELIEVED)
    await chat(session, 10, 5_000)
    status, body = MALFORMED[name]
    failure = parse_error_response(status, body)
    provider = ScriptedProvider("anthropic", [failure, "Fine."])
    told = await act(session, provider)
    assert [each.reason for each in of(ModelCallRetried, told)] == [failure.message]
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
                failure = ProviderFailureDetails(kind="malformed", message=str(error), status=400)
                raise ProviderError(failure) from error

    broken = session.window.conversation.rounds[2]
    broken.entries.pop()
    broken.rendered = None
    provider = Strict("anthropic", ["unused", "Fine."])
    told = await act(session, provider, says=None)
    assert len(of(ModelCallRetried, told)) == 1
    assert (told[-1].reason, told[-1].calls) == ("done", 1)
    assert not edits_in(await log(memory))


@pytest.mark.parametrize(
    "name",
    [
        "a picture that nobody can draw",
        "a text that a policy forbids",
        "a message of a wrong form",
        "string_above_max_length",
    ],
)
async def test_what_is_left_out_in_vain_leaves_the_request_as_it_was(memory, name):
    session = await create(memory, context_window=100_000)
    await rounds(session, 10, 4_000)
    await session.request()
    _, status, body = OTHERS[name]
    shown = dump_canonical_json((await session.preview()).request)
    provider = ScriptedProvider("anthropic", [parse_error_response(status, body)] * 9)
    with pytest.raises(ProviderError) as caught:
        await act(session, provider, says=None)
    assert caught.value.failure.kind == "rejected"
    assert dump_canonical_json((await session.preview()).request) == shown
    assert session.window.accounting.learned_limit is None
    # The second without the newest result; what the user asks for stays, though it is named.
    tried = 1 if name == "string_above_max_length" else 2
    assert len(provider.requests) == tried
    assert [edit.op for edit in edits_in(await log(memory))] == ["mask", "reveal"][: 2 * tried - 2]


@pytest.mark.parametrize("name", [name for name, other in OTHERS.items() if other[0] != "rejected"])
async def test_what_is_no_overflow_leaves_the_history_as_it_is(memory, name):
    session = await create(memory, context_window=100_000)
    await rounds(session, 10, 4_000)
    await session.request()
    kind, status, body = OTHERS[name]
    before, shown = (
        history(await log(memory)),
        dump_canonical_json((await session.preview()).request),
    )
    provider = ScriptedProvider("anthropic", [parse_error_response(status, body)] * 9)
    with pytest.raises(ProviderError) as caught:
        await act(session, provider, says=None)
    assert caught.value.failure.kind == kind
    assert history(await log(memory)) == before
    assert dump_canonical_json((await session.preview()).request) == shown
    assert session.window.accounting.learned_limit is None
    assert len(provider.requests) == 1
    provider = ScriptedProvider("anthropic", ["Fine."])
    await act(session, provider, says=None)
    assert dump_canonical_json({**provider.requests[0], "stream": False}) == dump_canonical_json(
        {
            **(await session.preview()).request,
            "messages": provider.requests[0]["messages"],
            "stream": False,
        }
    )


@pytest.mark.parametrize("name", OVERFLOWS)
async def test_every_wording_of_an_overflow_is_recovered_from(memory, name):
    session = await create(memory, context_window=4_000_000, policy="full")
    await chat(session, 40, 4_000)
    status, body, limit, _, _ = OVERFLOWS[name]
    provider = ScriptedProvider("anthropic", [parse_error_response(status, body), "Fine."])
    told = await act(session, provider, says="Well?")
    assert (told[-1].reason, told[-1].calls) == ("done", 1)
    refused, _ = await found(memory, CallEvent)
    learned = session.window.accounting.learned_limit
    if limit is None and learned is not None:  # it names the window, and so teaches what it refused
        assert refused.tokens < learned <= refused.bound + refused.max_output
    else:
        assert learned == limit
    assert (await texts(memory, "user")).count("Well?") == 1
    first, second = provider.requests
    assert dump_canonical_json(first) != dump_canonical_json(second)
    assert valid(provider)


async def test_every_attempt_is_in_the_log_with_what_the_provider_told(memory):
    session = await create(memory, **BELIEVED)
    await rounds(session, 12, 3_000)
    provider = Narrow("anthropic", ["Fine."], window=5_000)
    await act(session, provider, says="And now?")
    refused, answered = await found(memory, CallOutcome)
    assert refused.error is not None
    assert (refused.error["kind"], refused.error["limit"]) == ("overflow", 5_000)
    assert answered.status == "ok"
    assert len(await found(memory, CallEvent)) == 2
