"""Document 2, a proposal on context budget and boundaries: the arithmetic under every policy."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.documents.product import (
    ANTHROPIC,
    AUTO,
    CHAT,
    CLAUDE,
    FIRST_SUMMARY_LINE,
    FULL,
    HEAD_PART,
    LAYERED,
    OUTPUT_PART,
    PRESETS,
    ROLLING,
    SUMMARY,
    THRESHOLDS,
    TOLD,
    CannotFit,
    Life,
    Model,
    Never,
    Talk,
    asked_by_sdk,
    asks,
    cheap,
    definition,
    fitted,
    folder_store,
    limit_of,
    overflow,
    refusals_of,
    script,
    served_model,
    summary_knobs,
    tool,
)
from tests.documents.reading import (
    assert_paired,
    calls,
    dumped,
    messages,
    omitted,
    results,
    texts,
)
from tests.documents.words import prose, quarter


def test_the_window_and_the_output_are_two_settings():
    talk = Talk("own", wire=ANTHROPIC, window=64_000, output=32_768)
    talk.user("Hello")
    assert (talk.limit, talk.request()["max_tokens"]) == (64_000, 32_768)
    other = Talk("own", wire=ANTHROPIC, window=64_000, output=1_000)
    assert other.limit == 64_000


def test_a_window_of_0_is_not_set_and_a_safe_default_holds():
    assert limit_of("unknown-model", window=0) == 128_000
    assert limit_of("claude-zz", window=0) == 200_000


def exact(**options: Any) -> Talk:
    """One in which each character is a token, so that sums can be checked to the token."""
    return Talk(
        "gpt-4o", wire=CHAT, **{"window": 50_000, "output": 2_000, **options, "tokenizer": len}
    )


def test_the_room_is_window_less_system_less_tools_less_output_to_the_token():
    described = definition(description="d" * 3_000)
    plain, system, tools = exact(), exact(system="s" * 4_000), exact(tools=[described])
    output = exact(output=2_000 + 10_100)
    for talk in (plain, system, tools, output, Talk("gpt-4o", wire=CHAT, system=prose(8_000))):
        budget = talk.budget
        usable = int((budget["limit"] - budget["output"]) / (1 + budget["margin"]))
        assert budget["room"] == usable - budget["head"]
    full = plain.budget["room"]
    assert 4_000 <= full - system.budget["room"] <= 4_010
    assert 3_000 <= full - tools.budget["room"] <= 3_000 + 700
    # A margin of 1 % is kept free of what is counted exactly.
    assert 10_000 <= full - output.budget["room"] <= 10_100


def summarised_after(output: int) -> int:
    """The number of exchanges after which a window of 16,000 tokens has a summary."""
    talk = Talk("own", wire=ANTHROPIC, preset=THRESHOLDS, window=16_000, output=output)
    for number in range(100):
        talk.exchange(number, 600)
        talk.request()
        if talk.summary is not None:
            return number
    raise AssertionError(f"never summarised with {output} tokens of output")


def test_a_raised_output_lets_summaries_come_earlier_instead_of_never():
    few, many = summarised_after(500), summarised_after(12_000)
    assert many < few


async def long_lives(exchanges: int, iterations: int) -> tuple[dict[str, int], list[int]]:
    """What a strict server counted, asked by the real SDK far beyond its window."""
    with served_model(window=12_000, tokenizer=None) as served:
        async with asked_by_sdk(served) as provider:
            await lives(served, provider, exchanges, iterations)
        return served.counts(), served.sizes()


async def lives(served: Model, provider: Any, exchanges: int, iterations: int) -> None:
    read = tool(lambda _: prose(9_000))
    for preset in (LAYERED, ROLLING, AUTO):
        life = await Life.begin(preset, model=CLAUDE, window=12_000, output=1_000)
        call = {"calls": [{"name": "read", "arguments": {"path": "x"}}], "repeat": iterations}
        served.script(call, otherwise=prose(500))
        await life.turn(provider, tools=[read])
        for number in range(exchanges):
            await life.turn(provider, prose(2_500, f"q{number}"), tools=[read])
        await life.close()


def assert_never_refused(counts: dict[str, int], sizes: list[int]) -> None:
    assert not counts.get("overflow"), counts
    assert not counts.get("violation"), counts
    assert 0.5 * 12_000 < max(sizes) + 1_000 <= 12_000


@pytest.mark.anyio
async def test_a_request_fits_before_it_is_sent_and_no_server_refuses_it():
    assert_never_refused(*await long_lives(exchanges=4, iterations=5))


@pytest.mark.anyio
@pytest.mark.soak
async def test_no_server_refuses_a_request_of_a_long_life():
    assert_never_refused(*await long_lives(exchanges=25, iterations=20))


@pytest.mark.anyio
@pytest.mark.parametrize("preset", [ROLLING, THRESHOLDS])
async def test_above_the_budget_a_model_summarises_before_the_call(preset):
    life = await Life.begin(preset, model="gpt-4o", wire=ANTHROPIC, window=8_000, output=1_000)
    for number in range(14):
        await life.user(prose(1_500, f"q{number}"))
        await life.reply(prose(1_500, f"a{number}"))
    small, model = script(*[SUMMARY] * 5), script("Fine.")
    await life.turn(model, "now", summariser=cheap(small))
    assert len(small.requests) >= 1
    assert TOLD in texts(model.requests[0])[0]
    assert len(model.requests) == 1


@pytest.mark.anyio
async def test_after_a_refusal_the_oldest_half_goes_with_a_notice_and_the_call_is_made_once_more():
    life = await Life.begin(FULL, window=200_000)
    for number in range(20):
        await life.user(prose(200, f"q{number}"))
        await life.reply(prose(200, f"a{number}"))
    model = script(overflow(), "Fine.")
    assert (await life.turn(model, "now")).why == "done"
    before, after = (texts(request) for request in model.requests)
    assert len(before) == 41
    (gone,) = omitted(model.requests[1])
    assert 20 <= gone <= 22
    assert after[1:] == before[gone:]


@pytest.mark.anyio
async def test_the_half_that_goes_after_a_refusal_parts_no_call_from_its_result():
    for rounds in (8, 9):
        life, model = (
            await Life.begin(FULL, window=200_000),
            script(*asks(rounds), overflow(), "Fine."),
        )
        await life.turn(model, tools=[tool(lambda given: prose(500, given["path"]))])
        before, after = model.requests[-2:]
        assert_paired(after)
        assert len(messages(after)) <= len(messages(before)) / 2 + 1
        assert results(after) == results(before)[-len(calls(after)) :]
        assert omitted(after) == [2 * (rounds - len(calls(after)))]


def test_a_refusal_that_names_the_limit_teaches_it():
    talk = Talk("own", wire=ANTHROPIC, preset=FULL, window=200_000, output=500)
    for number in range(30):
        talk.exchange(number, 1_500)
    talk.user("now")
    assert quarter(dumped(talk.request())) > 20_000
    words = "prompt is too long: 30000 tokens > 8192 maximum"
    assert talk.refused(400, {"type": "error", "error": {"message": words}}) == "overflow"
    assert talk.limit == 8_192
    for number in range(30, 40):
        assert quarter(dumped(talk.request())) + 500 <= 8_192
        talk.exchange(number, 600)
        talk.user("and now")


@pytest.mark.parametrize("preset", PRESETS)
def test_no_cut_of_any_policy_parts_a_call_from_its_results(preset):
    talk = Talk(
        "gpt-4o", wire=ANTHROPIC, preset=preset, window=6_000, output=500, tools=[definition()]
    )
    whole = [prose(1_200, f"r{number}") for number in range(24)]
    hidden = False
    for number in range(8):
        talk.user(prose(300, f"q{number}"))
        for result in whole[3 * number : 3 * number + 3]:
            assert_paired(talk.request())
            talk.call()
            talk.result(result)
        request = talk.request()
        assert_paired(request)
        hidden = hidden or results(request) != whole[: 3 * number + 3]
        talk.reply(prose(300, f"a{number}"))
    assert hidden, "24 results do not fit"


@pytest.mark.parametrize("preset", PRESETS)
def test_what_is_stored_keeps_every_call_with_its_result(preset):
    talk = Talk(
        "gpt-4o", wire=ANTHROPIC, preset=preset, window=6_000, output=500, tools=[definition()]
    )
    talk.user("go")
    request = talk.rounds(*(prose(3_000, f"r{n}") for n in range(1, 21)))
    assert sum(text == prose(3_000, f"r{n}") for n, text in enumerate(results(request), 1)) < 20
    log = talk.log()
    for number in range(1, 21):
        assert prose(3_000, f"r{number}") in log
        assert log.count(f'"t{number}"') >= 2, f"call {number} and its result"


def test_orphans_of_a_history_are_never_sent_as_calls_or_results():
    orphans = [
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "gone", "content": "orphan"}],
        },
        {"role": "assistant", "content": "Well."},
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "t1", "name": "read", "input": {}}],
        },
        {"role": "user", "content": "next"},
    ]
    request = fitted(orphans, "claude-x", tools=[definition()]).request
    assert refusals_of(orphaned(orphans)) != []
    assert refusals_of(request) == []
    assert_paired(request)
    assert "orphan" not in results(request)
    assert "next" in dumped(messages(request)[-1])


def orphaned(history: list[dict[str, Any]]) -> dict[str, Any]:
    """The request that somebody would send who looks after nothing."""
    return {"model": "claude-x", "max_tokens": 10, "messages": history, "tools": [definition()]}


def test_tool_calls_are_counted_with_their_names_and_arguments():
    talk = Talk("gpt-4o", wire=ANTHROPIC, preset=FULL, tokenizer=len)
    talk.user("go")
    before = talk.used
    talk.call("n" * 60, path="p" * 8_000)
    assert 8_060 <= talk.used - before <= 8_060 + 60


def test_the_system_prompt_and_tool_definitions_are_counted():
    plain, system = exact(), exact(system="s" * 4_000)
    tools = exact(tools=[definition(description="d" * 4_000)])
    for talk in (plain, system, tools):
        talk.user("Hello")
    assert 4_000 <= system.used - plain.used <= 4_010
    assert 4_000 <= tools.used - plain.used <= 4_700


def test_the_order_is_system_prompt_summary_history_current_message():
    talk = Talk("gpt-4o", wire=CHAT, preset=ROLLING, system="SYSTEM")
    for number in range(20):
        talk.exchange(number, 180)
    talk.user("current message")
    request = talk.request()
    assert request["messages"][0] == {"role": "system", "content": "SYSTEM"}
    (front, *history), current = texts(request)[:-1], texts(request)[-1]
    assert front.startswith(FIRST_SUMMARY_LINE)
    assert current == "current message"
    everything = [prose(180, f"{who}{number}") for number in range(20) for who in "qa"]
    kept = [text for text in history if text in everything]
    assert len(kept) >= 8
    assert kept == everything[-len(kept) :]


def test_between_two_edits_a_request_only_grows_at_its_end():
    talk = Talk("gpt-4o", wire=CHAT, system="S", tools=[definition()])
    before: list[Any] = []
    for number in range(10):
        talk.user(f"q{number}")
        request = talk.request()
        assert request["messages"][: len(before)] == before
        before = request["messages"]
        talk.reply(f"a{number}")
    assert len(before) == 1 + 19


def test_runtime_text_is_sent_once_and_is_no_part_of_the_session():
    talk = Talk(preset=FULL, system="S")
    talk.user("Hello")
    sent = talk.request(volatile="It is noon.")
    assert "It is noon." in dumped(messages(sent)[-1])
    talk.reply("Hello.")
    talk.user("And?")
    assert "It is noon." not in dumped(talk.request())
    assert talk.messages == 3


def test_a_list_of_messages_is_made_to_fit_without_any_loop_store_or_agent():
    history = [
        {"role": role, "content": prose(2_000, f"{role}{number}")}
        for number in range(40)
        for role in ("user", "assistant")
    ]
    made = fitted(
        [*history, {"role": "user", "content": "now"}], "gpt-4o", window=8_000, output=500
    )
    assert made.report.limit == 8_000
    assert quarter(dumped(made.request["messages"])) + 500 <= 8_000
    assert texts(made.request)[-1] == "now"
    assert prose(2_000, "assistant39") in texts(made.request)


@pytest.mark.anyio
async def test_a_turn_does_not_wait_for_a_summary_that_is_made_in_the_background():
    life, model, slow = await Life.begin(ROLLING), script(*["Fine. " * 30] * 10), Never()
    async with asyncio.timeout(60):
        for number in range(8):
            await life.turn(model, f"q{number} " * 30, summariser=cheap(slow))
        await slow.asked.wait()
        for number in range(8, 10):
            ended = await life.turn(model, f"q{number} " * 30, summariser=cheap(slow))
            assert ended.why == "done"
    assert not slow.answered
    slow.give_up()
    await life.close()


def test_an_error_that_is_no_overflow_changes_nothing_that_is_seen():
    talk = Talk("gpt-4o", wire=ANTHROPIC, preset=FULL, window=6_000, output=500)
    for number in range(20):
        talk.exchange(number, 400)
    talk.user("now")
    before, limit = talk.request(), talk.limit
    for status in (401, 429, 500, 529):
        assert talk.refused(status, {"error": {"message": "try again"}}) != "overflow"
        assert talk.request() == before
        assert talk.limit == limit


def test_a_request_that_cannot_fit_is_an_error_that_names_the_parts_and_their_sizes():
    talk = Talk("gpt-4o", wire=ANTHROPIC, window=2_000, output=500, system=prose(20_000))
    talk.user("Hello")
    with pytest.raises(CannotFit) as caught:
        talk.request()
    error = caught.value
    assert error.limit == 2_000 < error.needed
    assert 3_000 < error.parts[HEAD_PART] < 6_000
    assert error.parts[OUTPUT_PART] == 500
    assert "2,000" in str(error)


def test_a_conversation_is_summarised_above_20_messages_if_that_is_set():
    talk = Talk(preset=ROLLING, knobs=summary_knobs(window=20, keep=10))
    for number in range(10):
        talk.exchange(number, 500)
        talk.request()
        assert talk.summary is None, f"{talk.messages} messages"
    talk.user("question")
    talk.request()
    assert talk.summary is not None


def test_every_term_of_the_budget_is_visible_by_name():
    budget = Talk("gpt-4o", wire=CHAT, window=50_000, output=3_000, system=prose(400)).budget
    assert (budget["limit"], budget["source"], budget["output"]) == (
        50_000,
        "context_window",
        3_000,
    )
    assert 60 <= budget["head"] <= 150
    assert 0 < budget["margin"] < 0.3
    assert 35_000 < budget["room"] < 47_000
    assert Talk("gpt-4o", limit=9_000).budget["source"] == "max_input_tokens"


def few_and_long(preset: str) -> tuple[Talk, dict[str, Any]]:
    """The request for a few messages that do not fit together."""
    talk = Talk("gpt-4o", wire=ANTHROPIC, preset=preset, window=6_000, output=500)
    for number in range(4):
        talk.exchange(number, 4_000)
    talk.user("now")
    return talk, talk.request()


def test_few_long_messages_above_the_budget_are_summarised_by_the_default_policy():
    talk, request = few_and_long(AUTO)
    assert talk.summary is not None
    assert omitted(request) == []


def test_few_long_messages_above_the_budget_are_summarised_and_none_is_dropped_unsummarised():
    for preset in (ROLLING, THRESHOLDS):
        talk, request = few_and_long(preset)
        assert talk.summary is not None, preset
        assert omitted(request) == [], preset


def turns_before_a_summary(**options: Any) -> int:
    talk = Talk("own", wire=ANTHROPIC, preset=THRESHOLDS, window=20_000, output=1_000, **options)
    turns = 0
    while talk.summary is None:
        talk.exchange(turns, 800)
        talk.user("and?")
        talk.request()
        talk.reply("so")
        turns += 1
        assert turns < 200
    return turns


def test_a_large_system_prompt_or_tool_definition_brings_the_summary_forward():
    plain = turns_before_a_summary()
    assert turns_before_a_summary(system=prose(16_000)) < plain
    large = {**definition(), "description": prose(16_000)}
    assert turns_before_a_summary(tools=[large]) < plain


def test_a_window_of_131072_with_32768_of_output_is_summarised_above_80000_tokens():
    talk = Talk("own", wire=ANTHROPIC, preset=THRESHOLDS, window=131_072, output=32_768)
    used = number = 0
    while talk.summary is None:
        talk.user(prose(12_000, f"q{number}"))
        used = talk.used
        talk.request()
        talk.reply("so")
        number += 1
        assert number < 60
    assert used > 80_000


def use(*ids: str) -> dict[str, Any]:
    blocks = [{"type": "tool_use", "id": each, "name": "read", "input": {}} for each in ids]
    return {"role": "assistant", "content": blocks}


def result(*ids: str) -> dict[str, Any]:
    blocks = [{"type": "tool_result", "tool_use_id": each, "content": each} for each in ids]
    return {"role": "user", "content": blocks}


@pytest.mark.parametrize(
    "middle",
    [
        [use("a", "b"), result("b", "a"), {"role": "assistant", "content": "x"}],
        [use("a"), result("a"), result("a")],
        [use("a", "b"), result("a"), {"role": "assistant", "content": "x"}],
        [result("z")],
    ],
    ids=["out of order", "twice", "one for two", "without a call"],
)
def test_results_that_a_provider_would_refuse_are_made_right(middle):
    history = [{"role": "user", "content": "go"}, *middle, {"role": "user", "content": "now"}]
    request = fitted(history, CLAUDE, tools=[definition()]).request
    assert refusals_of(request) == []
    assert texts(request)[-1] == "now"


@pytest.mark.anyio
async def test_a_history_keeps_its_pairs_after_summaries_and_a_restart(tmp_path):
    life = await Life.begin(
        ROLLING, store=folder_store(tmp_path), wire=ANTHROPIC, window=8_000, output=500
    )
    read = tool(lambda _: prose(1_500))
    for number in range(6):
        await life.turn(script(*asks(2), prose(300)), prose(300, f"q{number}"), [read])
    assert life.summary is not None
    await life.close()
    again = await Life.take_up(folder_store(tmp_path))
    await again.user("now")
    request = await again.request()
    assert_paired(request)
    assert texts(request)[-1] == "now"
    await again.close()
    log = (tmp_path / "one" / "events.jsonl").read_text(encoding="utf-8")
    assert log.count('"call":"') == log.count('"result":"') == 12
