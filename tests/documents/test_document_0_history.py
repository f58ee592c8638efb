"""Document 0, Context Window Management: what a session keeps, and the history of a request."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import pytest

from tests.documents.product import (
    ANTHROPIC,
    CHAT,
    LAYERED,
    PRESETS,
    RESPONSES,
    Life,
    Talk,
    counting_messages,
    definition,
    folder_store,
)
from tests.documents.reading import (
    NOTICE,
    assert_paired,
    dumped,
    messages,
    omitted,
    text_of,
    texts,
)
from tests.documents.words import prose, quarter

SIZE = 400
"""Bytes of each message here: 100 tokens."""
EXCHANGES = 110
"""Questions with their answers: 22,000 tokens."""
AROUND = 4
"""Tokens that a provider's format puts around each message."""
TAGGED = re.compile(r"([qa]\d+) ")
UNBOUND = {"max_history_tokens": 0}


def layered(exchanges: int = EXCHANGES, **options: Any) -> dict[str, Any]:
    """The request after so many questions and answers of 100 tokens each."""
    talk = Talk(
        options.pop("model", "gpt-4o"),
        preset=LAYERED,
        **{"wire": CHAT, "knobs": UNBOUND, **options},
    )
    for number in range(exchanges):
        talk.exchange(number, SIZE)
    talk.user("now")
    return talk.request()


def kept(request: dict[str, Any]) -> list[str]:
    """The tags of the messages that are sent whole, in order."""
    return [tag[1] for text in texts(request) if (tag := TAGGED.match(text)) and len(text) == SIZE]


def assert_filled(request: dict[str, Any], budget: int) -> None:
    """Fail unless the history is within the budget and another message would not be."""
    history = sum(quarter(text) for text in texts(request)[:-1])
    assert history <= budget < history + SIZE / 4 + 20


def test_the_history_fills_limit_less_system_less_output_less_a_tenth():
    request = layered(limit=20_000, system=prose(8_000), output=1_000)
    assert_filled(request, 20_000 - 2_000 - 1_000 - 2_000)


def test_the_history_gives_way_to_tool_definitions():
    tools = [definition(f"tool{n}", prose(4_000)) for n in range(5)]
    without = layered(limit=20_000, output=1_000)
    request = layered(limit=20_000, output=1_000, tools=tools)
    sent = quarter(dumped(request["tools"]))
    less = (len(kept(without)) - len(kept(request))) * SIZE / 4
    assert 5_000 <= sent <= 5_200
    assert 5_000 - SIZE / 4 <= less <= sent + 500


def test_the_history_gives_way_to_the_output_that_is_reserved():
    for output in (1_000, 6_000):
        assert_filled(layered(limit=20_000, output=output), 20_000 - output - 2_000)


def test_a_window_of_200000_tokens_has_20000_tokens_of_history_by_default():
    request = layered(model="claude-zz", wire=None, knobs=None)
    assert_filled(request, 20_000)


def test_a_history_cap_of_0_is_none():
    request = layered(model="claude-zz", wire=None)
    assert len(kept(request)) == 2 * EXCHANGES
    assert omitted(request) == []


@pytest.mark.parametrize("cap", [1_000, 3_000])
def test_a_history_cap_that_is_set_binds(cap):
    assert_filled(layered(60, knobs={"max_history_tokens": cap}), cap)


def test_a_history_cap_above_what_is_available_does_not_bind():
    request = layered(limit=20_000, output=1_000, knobs={"max_history_tokens": 100_000})
    assert_filled(request, 20_000 - 1_000 - 2_000)


def test_the_oldest_messages_go_first_and_the_rest_stays_in_order():
    request = layered(limit=20_000, output=1_000)
    everything = [f"{who}{number}" for number in range(EXCHANGES) for who in "qa"]
    tags = kept(request)
    assert 0 < len(tags) < len(everything)
    assert tags == everything[-len(tags) :]
    assert texts(request)[-1] == "now"


def test_a_notice_states_how_many_messages_were_omitted():
    for limit in (5_000, 20_000):
        request = layered(limit=limit, output=1_000)
        missing = 2 * EXCHANGES - len(kept(request))
        assert omitted(request) == [missing]
        assert texts(request)[0] == f"[conversation truncated — {missing} older messages omitted]"


def test_the_notice_has_the_system_role_in_responses_and_leads_the_users_message_elsewhere():
    cap = {"max_history_tokens": 500}
    first = messages(layered(40, wire=RESPONSES, knobs=cap))[0]
    assert first["role"] == "system"
    assert NOTICE.fullmatch(text_of(first["content"]))
    for wire in (CHAT, None):
        model = "gpt-4o" if wire else "claude-zz"
        first = messages(layered(40, model=model, wire=wire, knobs=cap))[0]
        assert first["role"] == "user"
        assert NOTICE.match(text_of(first["content"]))


def test_there_is_no_notice_if_nothing_was_omitted():
    for wire in (CHAT, RESPONSES):
        assert "truncated" not in dumped(layered(20, wire=wire, knobs=None))


@pytest.mark.parametrize("preset", PRESETS)
def test_a_session_that_has_outgrown_its_window_many_times_goes_on(preset):
    talk = Talk("gpt-4o", preset=preset, window=5_000, output=500)
    for number in range(25):
        talk.user(prose(900, f"q{number}"))
        request = talk.request()
        assert sum(quarter(text) + AROUND for text in texts(request)) + 500 <= 5_000
        assert prose(900, f"q{number}") in dumped(messages(request)[-1])
        talk.reply(prose(900, f"a{number}"))


@pytest.mark.parametrize(
    ("limit", "messages_kept"), [(5_000, 100), (40_000, 400), (500_000, 2_000)]
)
def test_a_session_holds_limit_over_200_times_2_messages_from_100_to_2000(limit, messages_kept):
    talk = Talk("gpt-4o", preset=LAYERED, limit=limit, output=500, knobs=UNBOUND)
    for _ in range(messages_kept // 2 + 10):
        talk.user("q")
        talk.reply("a")
    talk.user("now")
    request = talk.request()
    assert len([text for text in texts(request) if text in ("q", "a", "now")]) == messages_kept
    assert omitted(request) == [21]


async def grown(folder: Any, exchanges: int, looks: int) -> None:
    """Let a session grow, and look at it: in memory, in its state and in its log."""
    life = await Life.begin(store=folder_store(folder), limit=10_000)
    alive, states = [], []
    with counting_messages() as in_memory:
        for number in range(exchanges):
            await life.user(prose(120, f"question {number}"))
            if number % 10 == 0:
                await life.request()
            await life.reply(prose(120, f"answer {number}"))
            if number >= exchanges // 2 and number % (exchanges // 2 // looks) == 9:
                alive.append(in_memory())
                states.append((folder / "one" / "state.yaml").stat().st_size)
    assert len(alive) == looks
    # At 100 messages, and those that were said since the last request.
    assert life.messages <= 100 + 20
    assert 50 < max(alive) <= 1.5 * min(alive)
    assert max(states) <= 1.5 * min(states)
    await life.close()
    log = (folder / "one" / "events.jsonl").read_text(encoding="utf-8")
    for number in range(exchanges):
        assert prose(120, f"question {number}") in log
        assert prose(120, f"answer {number}") in log
    again = await Life.take_up(folder_store(folder))
    await again.user("after a restart")
    request = await again.request()
    assert texts(request)[-1] == "after a restart"
    assert prose(120, f"answer {exchanges - 1}") in texts(request)
    await again.close()


@pytest.mark.anyio
async def test_memory_and_state_stay_bounded_while_the_log_keeps_every_message(tmp_path):
    await grown(tmp_path, 300, looks=2)


@pytest.mark.anyio
async def test_memory_stays_bounded_while_nothing_is_asked_of_the_model():
    life = await Life.begin(limit=10_000)
    with counting_messages() as in_memory:
        for number in range(200):
            await life.user(prose(120, f"question {number}"))
            await life.reply(prose(120, f"answer {number}"))
        assert in_memory() <= 2 * 120
    assert life.messages <= 110


@pytest.mark.anyio
@pytest.mark.soak
async def test_memory_and_state_stay_bounded_over_thousands_of_messages(tmp_path):
    await grown(tmp_path, 2_000, looks=10)


@pytest.mark.anyio
async def test_the_log_is_lines_of_json_that_are_only_appended_to(tmp_path):
    life = await Life.begin(store=folder_store(tmp_path), limit=5_000, output=500)
    log, seen, request = tmp_path / "one" / "events.jsonl", [b""], {}
    for number in range(60):
        await life.user(prose(300, f"q{number}"))
        request = await life.request()
        await life.reply("Fine.")
        if number % 10 == 0:
            seen.append(log.read_bytes())
    assert omitted(request), "something was hidden on the way"
    await life.close()
    seen.append(log.read_bytes())
    assert all(later.startswith(earlier) for earlier, later in pairwise(seen))
    assert len(seen[1]) < len(seen[-1])
    assert all(isinstance(json.loads(line), dict) for line in seen[-1].splitlines())


@pytest.mark.parametrize("text", ["q" * 1_200, "字" * 400], ids=["ASCII", "CJK"])
def test_a_token_of_the_history_is_four_bytes_in_every_script(text):
    talk = Talk("gpt-4o", preset=LAYERED, knobs={"max_history_tokens": 3_000})
    for _ in range(20):
        talk.user(text)
        talk.reply(text)
    talk.user("now")
    assert 9 <= len([each for each in texts(talk.request()) if each == text]) <= 10


@pytest.mark.parametrize("cap", range(300, 2_400, 450))
def test_a_history_with_tools_is_cut_between_a_result_and_the_next_call(cap):
    talk = Talk(
        preset=LAYERED, wire=ANTHROPIC, tools=[definition()], knobs={"max_history_tokens": cap}
    )
    for turn in range(3):
        talk.user(prose(300, f"q{turn}"))
        talk.rounds(*(prose(900, f"r{turn}{n}") for n in range(3)))
        talk.reply(prose(300, f"a{turn}"))
    talk.user("now")
    request = talk.request()
    assert_paired(request)
    assert omitted(request)


@pytest.mark.anyio
async def test_a_text_above_64_kib_is_beside_the_log_and_recalled_whole(tmp_path):
    life = await Life.begin(store=folder_store(tmp_path), limit=20_000)
    small, large = prose(60_000, "SMALL"), prose(70_000, "LARGE")
    for text in (small, large):
        await life.user(text)
        await life.request()
        await life.reply("Fine.")
    await life.close()
    log = (tmp_path / "one" / "events.jsonl").read_text(encoding="utf-8")
    assert small in log
    assert "LARGE" not in log
    assert list((tmp_path / "one" / "blobs").iterdir())
    again = await Life.take_up(folder_store(tmp_path))
    assert await again.recall(again.handle_of(large)) == large
    await again.close()
