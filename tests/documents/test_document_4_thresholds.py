"""Document 4, Context Management with thresholds: summaries at 70 %, a safety trim at 90 %."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.documents.product import (
    ANTHROPIC,
    FIRST_SUMMARY_LINE,
    ROLLING,
    SUMMARY,
    THRESHOLDS,
    TOLD,
    Life,
    Talk,
    cheap,
    definition,
    limit_of,
    script,
    summary_knobs,
    threshold_knobs,
)
from tests.documents.reading import assert_paired, dumped, omitted, results, text_of, texts
from tests.documents.words import prose

WINDOW = 15_000


def message(number: int, size: int = 400) -> str:
    return prose(size, f"M{number}.")


def talking(**options: Any) -> Talk:
    own = {"preset": THRESHOLDS, "wire": ANTHROPIC, "window": WINDOW, "output": 500, **options}
    return Talk("gpt-4o", **own)


def filled(share: float, **options: Any) -> tuple[Talk, int]:
    """A conversation that takes just more than a share of the window, and its messages."""
    talk, count = talking(**options), 0
    while talk.used <= share * WINDOW:
        (talk.reply if count % 2 else talk.user)(message(count))
        count += 1
    return talk, count


def first_summary(**options: Any) -> tuple[float, float]:
    """The highest share of the window without a summary, and the first share that has one."""
    talk, count, below = talking(**options), 0, 0.0
    while True:
        (talk.reply if count % 2 else talk.user)(message(count))
        count += 1
        share = talk.used / WINDOW
        talk.request()
        if talk.summary is not None:
            return below, share
        below = share
        assert share < 0.95, "never summarised"


def test_the_window_is_200000_tokens_for_claude_or_what_is_set():
    assert limit_of("claude-zz") == 200_000
    assert limit_of("claude-zz", window=64_000) == 64_000


def test_older_messages_are_summarised_as_soon_as_70_percent_are_exceeded():
    below, above = first_summary()
    assert below <= 0.7 < above
    assert above - below < 0.01


def test_of_60_messages_at_72_percent_50_become_a_summary_and_the_last_10_stay():
    talk = talking(system="SYSTEM")
    for number in range(1, 61):
        (talk.user if number % 2 else talk.reply)(message(number, 840))
    assert 0.71 < talk.used / WINDOW < 0.75
    request = talk.request()
    assert text_of(request["system"]) == "SYSTEM"
    front, *recent = texts(request)
    assert front.startswith(FIRST_SUMMARY_LINE)
    assert recent == [message(number, 840) for number in range(51, 61)]
    assert omitted(request) == []


@pytest.mark.anyio
async def test_the_next_summary_is_made_from_the_previous_one_and_what_was_said_since():
    life = await Life.begin(THRESHOLDS, model="gpt-4o", wire=ANTHROPIC, window=WINDOW, output=500)
    small, number = script(*[SUMMARY] * 3), 0
    while len(small.requests) < 2:
        model = script(prose(1_500, f"A{number}."))
        await life.turn(model, prose(1_500, f"Q{number}."), summariser=cheap(small))
        await life.settle()
        number += 1
        assert number < 60
    first, second = (dumped(request["messages"]) for request in small.requests)
    assert TOLD not in first
    assert TOLD in second
    told = [[int(n) for n in re.findall(r"Q(\d+)\.", prompt)] for prompt in (first, second)]
    assert told[0] == list(range(len(told[0])))
    assert told[1] == list(range(len(told[0]), len(told[0]) + len(told[1])))
    assert SUMMARY in (life.summary or "")


@pytest.mark.anyio
@pytest.mark.parametrize("preset", [ROLLING, THRESHOLDS])
@pytest.mark.parametrize("window", [3_000, 6_000, pytest.param(12_000, marks=pytest.mark.slow)])
async def test_what_long_messages_say_is_seen_by_the_model_or_by_the_one_that_summarises(
    preset, window
):
    life = await Life.begin(preset, model="gpt-4o", wire=ANTHROPIC, window=window, output=300)
    small, sent = script(*[SUMMARY] * 99), {}
    for number in range(9):
        model = script(prose(window // 2, f"A{number}."))
        await life.turn(model, prose(window, f"Q{number}."), summariser=cheap(small))
        await life.settle()
        sent = model.requests[-1]
        told = "".join(dumped(request["messages"]) for request in small.requests)
        shown = dumped(sent["messages"])
        said = [f"{what}{n}." for n in range(number) for what in "QA"]
        assert [fact for fact in said if fact not in told and fact not in shown] == []
        assert omitted(sent) == []
    assert small.requests


def test_above_90_percent_the_oldest_go_whoever_was_to_summarise():
    talk, count = filled(0.95, by_hand=True)
    talk.user("now")
    request = talk.request()
    assert talk.used <= 0.9 * WINDOW
    assert len(texts(request)) < count
    assert texts(request)[-2:] == [message(count - 1), "now"]


def trimmed_at(share: float) -> bool:
    """Whether anything is hidden from a conversation that takes this share, exactly counted."""
    talk, count = filled(share, by_hand=True, output=200, tokenizer=lambda text: len(text) // 4)
    assert talk.used / WINDOW < share + 0.01
    return texts(talk.request()) != [message(number) for number in range(count)]


def test_with_an_exact_tokenizer_the_safety_trim_is_at_90_percent():
    assert not trimmed_at(0.885)
    assert trimmed_at(0.9)


def test_both_thresholds_and_the_messages_that_are_kept_may_be_set():
    knobs = threshold_knobs(0.4, 0.6, 4)
    below, above = first_summary(knobs=knobs)
    assert below <= 0.4 < above
    talk, count = filled(0.45, knobs=knobs)
    front, *recent = texts(talk.request())
    assert front.startswith(FIRST_SUMMARY_LINE)
    assert recent == [message(number) for number in range(count - 4, count)]
    talk, _ = filled(0.7, knobs=knobs, by_hand=True)
    talk.request()
    assert talk.used <= 0.6 * WINDOW


def test_a_tool_output_takes_8000_characters_at_most():
    talk = Talk(preset=THRESHOLDS, tools=[definition()])
    talk.user("go")
    whole, cut = results(talk.rounds("é" * 8_000, "é" * 20_000))
    assert whole == "é" * 8_000
    head, indicator = cut.rsplit("\n", 1)
    assert head == "é" * len(head)
    assert 7_800 <= len(cut) <= 8_000
    assert indicator == "[truncated: kept first ~2000 of ~5000 tokens (head)]"


def test_the_characters_of_a_tool_output_may_be_set():
    talk = Talk(preset=THRESHOLDS, tools=[definition()], knobs={"max_tool_result_chars": 3_000})
    talk.user("go")
    whole, cut = results(talk.rounds("é" * 3_000, "é" * 20_000))
    assert whole == "é" * 3_000
    assert 2_800 <= len(cut) <= 3_000
    assert cut.endswith("\n[truncated: kept first ~750 of ~5000 tokens (head)]")


@pytest.mark.anyio
@pytest.mark.parametrize("preset", [ROLLING, THRESHOLDS])
@pytest.mark.parametrize("limit", [None, 400])
async def test_of_one_message_1000_characters_or_what_is_set_are_shown_to_the_model_that_summarises(
    preset, limit
):
    options: dict[str, Any] = {} if limit is None else {"knobs": summary_knobs(shown=limit)}
    life = await Life.begin(
        preset, model="gpt-4o", wire=ANTHROPIC, window=WINDOW, output=500, **options
    )
    small, turns = script(*[SUMMARY] * 9), 0
    while not small.requests:
        turns += 1
        assert turns < 40
        await life.turn(script("B" * 3_000), "A" * 3_000, summariser=cheap(small))
        await life.settle()
    shown = dumped(small.requests[0]["messages"])
    history = shown[shown.index("<history>") :]
    parts = re.split(r"(?:user|assistant):", history)[1:]
    assert len(parts) >= 6
    for part in parts:
        assert 0.9 * (limit or 1_000) <= max(part.count("A"), part.count("B")) <= (limit or 1_000)


def test_the_recent_10_are_kept_whole_around_tool_calls():
    talk = Talk(
        "gpt-4o",
        preset=THRESHOLDS,
        wire=ANTHROPIC,
        window=12_000,
        output=500,
        tools=[definition()],
    )
    seen: list[int] = []
    summary = None
    for turn in range(14):
        talk.user(prose(300, f"q{turn}"))
        for number in range(3):
            assert_paired(talk.request())
            if talk.summary != summary:
                summary = talk.summary
                seen.append(talk.messages)
            talk.call()
            talk.result(prose(1_500, f"r{turn}{number}"))
        talk.reply(prose(300, f"a{turn}"))
    assert len(seen) >= 2
    assert all(10 <= count <= 12 for count in seen)
