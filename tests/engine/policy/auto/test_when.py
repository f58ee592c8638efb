"""When `auto` compacts: when it pays, at once when it is free, and when there is no room left."""

import json

import pytest

from tests.agents import Agent, source
from tests.conversations import prose, user
from tests.engine.policy.auto.contexts import GOAL_LOW, above_the_mark, names_of
from tests.recording import append, decide
from trimtab.engine.log.event import Size
from trimtab.engine.policy.auto import (
    FORCED_SHARE_OF_ROOM,
    KEPT_NEWEST_RESULTS,
    MIN_GAIN_TOKENS,
    MIN_RESULT_CAP_TOKENS,
    compute_target_tokens,
)
from trimtab.engine.policy.budget import Budget

pytestmark = pytest.mark.usefixtures("low_mark")


def budget(limit: int = 200_000) -> Budget:
    return Budget(
        limit=limit,
        source="model",
        soft_limit=limit,
        head=Size(bytes=0, tokens=0),
        max_output=0,
        margin=0.0,
    )


def test_the_mark_is_at_most_half_of_the_room_and_more_in_a_small_window():
    assert compute_target_tokens(budget(100_000), "quality") == 50_000
    assert compute_target_tokens(budget(64_000), "quality") == 44_800
    assert compute_target_tokens(budget(3_000), "quality") == 0.95 * 3_000 - MIN_GAIN_TOKENS
    assert compute_target_tokens(budget(0), "quality") == 0


def test_nothing_is_hidden_below_the_mark():
    agent = Agent()
    agent.work(5)
    assert 10_000 < agent.window.tokens < GOAL_LOW
    agent.clock.now += 10_000
    agent.work(1)
    assert agent.window.tokens <= GOAL_LOW + MIN_GAIN_TOKENS
    assert not agent.edits
    assert agent.call.note is None


def test_a_compaction_is_one_batch_that_ends_at_the_mark():
    agent = Agent()
    sizes: list[int] = []
    batches: list[int] = []
    for _ in range(45):
        before = len(agent.edits)
        agent.work(1)
        if len(agent.edits) > before:
            sizes.append(agent.window.tokens)
            batches.append(len(agent.edits) - before)
    assert len(batches) == 3
    assert min(batches) > 5
    assert max(sizes) <= GOAL_LOW
    assert min(sizes) > GOAL_LOW - 2_500


def test_a_cache_whose_time_has_passed_is_compacted_at_once():
    agent = above_the_mark()
    agent.clock.now += 299
    agent.work(1)
    assert not agent.edits
    agent.clock.now += 300
    agent.work(1)
    assert agent.window.tokens <= GOAL_LOW
    assert set(names_of(agent)) == {"mask"}


@pytest.mark.parametrize(
    "changes",
    [
        {"tools": [{"name": "read", "description": "", "input_schema": {"type": "object"}}]},
        {"model": "claude-opus-4-1"},
        {"system": "Be brief."},
    ],
    ids=["tools", "model", "system"],
)
def test_a_changed_head_makes_the_cache_cold(changes):
    agent = above_the_mark()
    agent.context.configure(**changes)
    agent.work(1)
    assert agent.edits
    assert agent.window.tokens <= GOAL_LOW


def test_a_rewind_makes_the_cache_cold():
    agent = above_the_mark()
    agent.context.rewind(agent.window.seq - 5)
    agent.context.add(user("again"))
    agent.context.request()
    assert agent.edits
    assert agent.window.tokens <= GOAL_LOW


def test_a_prompt_below_the_cacheable_minimum_is_always_cold():
    agent = Agent(model_info={"cache_minimum": 1_000_000})
    agent.work(8)
    assert agent.edits


def test_at_95_percent_of_the_room_a_compaction_is_forced():
    agent = Agent(context_window=32_000, max_output_tokens=1_000)
    hard = FORCED_SHARE_OF_ROOM * agent.context.budget().room
    low = compute_target_tokens(agent.context.budget(), "cost")
    sizes = [agent.window.tokens]
    while not agent.edits:
        agent.work(1)
        sizes.append(agent.window.tokens)
    assert sizes[-2] <= hard < sizes[-2] + 2_103
    assert sizes[-1] <= low


def test_a_forced_compaction_goes_on_to_all_but_the_newest_result_in_the_same_batch():
    agent = small(10_000)
    low = compute_target_tokens(agent.context.budget(), "cost")
    agent.work(2, 6_000)
    before = len(agent.edits)
    agent.work(2, 11_000)
    assert before == 0
    assert agent.window.tokens <= low
    why = {edit.why for edit in agent.edits}
    assert f"no room left: the conversation has to shrink to {low:,} tokens" in why
    assert agent.shown[-1].startswith("value_")


@pytest.mark.parametrize("window", [8_000, 10_000, 16_000, 32_000])
def test_in_a_small_window_large_results_do_not_push_out_what_the_user_said(window):
    agent = Agent(context_window=window, max_output_tokens=1_000)
    agent.context.add(user("My name is Ann."))
    room, low = agent.context.budget().room, compute_target_tokens(agent.context.budget(), "cost")
    for _ in range(6):
        left = min(room // 2, low - agent.window.tokens)
        agent.work(1, 40_000)
        most = max(MIN_RESULT_CAP_TOKENS, room // 4, left)
        assert agent.window.counter.count(agent.shown[-1]) <= most + 8
    assert max(map(agent.window.counter.count, agent.shown)) <= room // 2 + 8
    assert "My name is Ann." in json.dumps(agent.context.request())


def test_where_what_must_stay_is_large_the_rest_is_not_let_go_in_vain():
    agent = small(10_000)
    low, room = compute_target_tokens(agent.context.budget(), "cost"), agent.context.budget().room
    for number in range(12):
        agent.context.add(user(f"Fact {number}. " + prose(700)))
        agent.context.add({"role": "assistant", "content": "Noted."})
    agent.context.add(user("Now read."))
    agent.use(prose(int(low * 4.2)))
    assert low < agent.window.tokens <= FORCED_SHARE_OF_ROOM * room
    assert "Fact 11." in json.dumps(agent.context.request())


def small(window: int) -> Agent:
    """An agent in a small window whose user lets results be as large as they are."""
    knobs = {"max_tool_result_tokens": 100_000}
    return Agent(context_window=window, max_output_tokens=1_000, limits=knobs)


def test_a_model_without_a_cache_is_trimmed_whenever_that_gains_a_thousand_tokens():
    agent = Agent(model_info={"cache_read": 1.0, "cache_write": 1.0, "cache_ttl": 10_000})
    compactions = 0
    for _ in range(20):
        before = len(agent.edits)
        agent.work(1)
        assert agent.window.tokens <= GOAL_LOW + MIN_GAIN_TOKENS
        compactions += len(agent.edits) > before
    assert compactions > 5


def test_nothing_is_trimmed_for_less_than_a_thousand_tokens():
    agent = Agent(model_info={"cache_read": 1.0, "cache_write": 1.0})
    agent.use(prose(3_200))
    agent.context.add(user(prose(52_000)))
    for number in range(KEPT_NEWEST_RESULTS):
        agent.use(f"ok {number}")
    assert agent.window.tokens > GOAL_LOW + MIN_GAIN_TOKENS
    assert not agent.edits


def test_deciding_again_after_a_compaction_changes_nothing():
    agent = above_the_mark()
    agent.ask()
    agent.answer(source(99, 8_000))
    agent.clock.now += 301
    edits = decide(agent.context)
    assert edits
    append(agent.context, *edits)
    assert decide(agent.context) == []


def test_deciding_again_after_a_forced_compaction_changes_nothing():
    agent = Agent(context_window=16_000, max_output_tokens=1_000)
    agent.work(4, 9_000)
    agent.ask()
    agent.answer(source(99, 14_000))
    edits = decide(agent.context)
    assert edits
    append(agent.context, *edits)
    assert decide(agent.context) == []
