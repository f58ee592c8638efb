"""Which results `auto` hides or cuts, and what stands in their place."""

import pytest

from tests.agents import Agent, source
from tests.conversations import prose
from tests.engine.policy.auto.contexts import GOAL_LOW, MASKED, above_the_mark, compacted, names_of
from tests.recording import rendering
from trimtab.engine.policy.auto import RESULT_CAP_TOKENS_BY_GOAL

pytestmark = pytest.mark.usefixtures("low_mark")


def test_the_three_newest_results_are_never_masked():
    agent = Agent()
    agent.work(9)
    agent.clock.now += 301
    agent.work(1, 15_000)
    shown = [not text.startswith(MASKED) for text in agent.shown]
    assert shown[-3:] == [True] * 3
    assert not all(shown)


def test_results_that_the_model_has_not_seen_are_never_masked():
    agent = Agent()
    agent.work(3)
    ids = [f"p{number}" for number in range(6)]
    made = [{"type": "tool_use", "id": each, "name": "read", "input": {}} for each in ids]
    agent.context.add({"role": "assistant", "content": made})
    blocks = [
        {"type": "tool_result", "tool_use_id": each, "content": source(number, 8_000)}
        for number, each in enumerate(ids, 100)
    ]
    agent.context.add({"role": "user", "content": blocks})
    agent.clock.now += 301
    agent.context.request()
    assert agent.edits
    assert agent.window.tokens > GOAL_LOW
    assert agent.shown[-6:] == [source(number, 8_000) for number in range(100, 106)]


def test_pinned_and_exempt_results_are_never_masked():
    agent = Agent(limits={"tools": {"plan": {"exempt": True}}})
    pinned = agent.use(source(100, 8_000), path="a.py")
    exempt = agent.use(source(101, 8_000), tool="plan")
    agent.context.pin(pinned)
    agent.work(8)
    agent.clock.now += 301
    agent.work(1)
    assert len(agent.masked()) >= 4
    assert not {pinned, exempt} & set(agent.masked())


@pytest.mark.parametrize(("first", "last"), [(2, 1), (0, 4), (1, 0)])
def test_the_first_and_last_results_that_the_user_keeps_are_kept(first, last):
    agent = Agent(limits={"tool_result_keep_first": first, "tool_result_keep_last": last})
    agent.work(10)
    agent.clock.now += 301
    agent.work(1, 14_000)
    shown = [not text.startswith(MASKED) for text in agent.shown]
    assert all(shown[:first])
    assert all(shown[len(shown) - max(1, last) :])
    assert not all(shown)


def test_both_keeps_at_zero_mask_nothing():
    agent = Agent(limits={"tool_result_keep_first": 0, "tool_result_keep_last": 0})
    agent.work(12)
    agent.clock.now += 301
    agent.work(1)
    assert names_of(agent) == ["summarise"]


def test_a_placeholder_is_one_short_line():
    assert compacted().shown[0] == "[result masked — ~2071 tokens removed]"


def test_the_handle_stands_last_in_a_placeholder():
    agent = Agent(recall=True)
    agent.work(10)
    agent.clock.now += 301
    agent.work(1)
    assert agent.shown[0] == f"[result masked — ~2071 tokens removed · recall {agent.masked()[0]}]"
    assert agent.context.recall(agent.masked()[0]) == source(0, 8_000)


@pytest.mark.parametrize("strategy", ["head", "tail", "both"])
@pytest.mark.parametrize("recall", [False, True])
def test_a_cut_result_says_what_stays_within_the_cap(strategy, recall):
    agent = Agent(recall=recall, limits={"tool_result_truncation": strategy})
    agent.work(5)
    assert GOAL_LOW - RESULT_CAP_TOKENS_BY_GOAL["cost"] < agent.window.tokens <= GOAL_LOW
    lines = [f"{prose(60)} field_{number}_name" for number in range(2_000)]
    handle = agent.use("\n".join(lines))
    shown = agent.shown[-1]
    edit = next(edit for edit in agent.edits if edit.handle == handle)
    assert edit.op == "truncate"
    assert agent.window.counter.count(shown) <= RESULT_CAP_TOKENS_BY_GOAL["cost"]
    indicator = next(line for line in shown.splitlines() if line.startswith("[truncated: "))
    assert f"({strategy})" in indicator
    assert indicator.endswith(f" · recall {handle}]") is recall


@pytest.mark.parametrize("before", [0, 1, 3])
def test_below_the_mark_a_result_takes_half_of_it_and_by_the_third_power_less_as_it_fills(before):
    agent = Agent()
    agent.work(before)
    share = (GOAL_LOW - agent.window.tokens) / GOAL_LOW
    most = max(RESULT_CAP_TOKENS_BY_GOAL["cost"], GOAL_LOW / 2 * share**3)
    agent.use(source(100, int(3 * most)))
    assert agent.shown[-1] == source(100, int(3 * most))
    agent.context.rewind(agent.window.seq - 3)
    agent.use("\n".join(f"{prose(60)} field_{number}_name" for number in range(2_000)))
    shown = agent.shown[-1]
    assert shown.startswith("[shortened: ~")
    assert 0.8 * most < agent.window.counter.count(shown) <= most + 1


def test_a_result_within_the_cap_is_whole():
    agent = Agent()
    agent.work(1, 15_000)
    assert agent.shown == [source(0, 15_000)]


def test_a_cap_of_the_users_own_replaces_the_goals():
    agent = Agent(limits={"max_tool_result_tokens": 1_000})
    agent.work(1)
    assert agent.window.counter.count(agent.shown[0]) <= 1_000


def test_the_frontier_mark_stands_before_the_first_result_that_would_go():
    agent = above_the_mark()
    assert agent.call.marks == (-1, 0, agent.call.blocks - 1)
    agent.clock.now += 301
    agent.work(1)
    oldest = next(iter(agent.window.results.values()))
    start = rendering(agent.context).block_index_by_seq[oldest.entry.round.entries[0].seq]
    assert start > 1
    assert agent.call.marks == (-1, start - 1, agent.call.blocks - 1)
