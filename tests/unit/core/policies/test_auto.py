"""`auto`: compact when it pays, at once when it is free, and when there is no room left."""

import json
from typing import Any

import pytest

from tests.agents import Agent, source
from tests.conversations import prose, said, user
from trimtab import Context
from trimtab.core.budget import Budget
from trimtab.core.event import Size
from trimtab.core.plan import Decision, Plan
from trimtab.core.policies.auto import (
    CAP,
    CAP_LEAST,
    HARD,
    KEEP,
    LOW,
    MIN_GAIN,
    THETA,
    Outlook,
    Prices,
    auto,
    candidates,
    outlook,
    prices_of,
    target,
)
from trimtab.core.policies.knobs import Knobs
from trimtab.core.policies.order import least_needed, oldest_first
from trimtab.core.window import Window

GOAL_LOW = LOW["cost"]
MASKED = "[result masked"


class Watched:
    """The policy, and what it had before it at each call above the mark."""

    def __init__(self) -> None:
        self.decide = auto(Knobs(), "cost")
        self.seen: list[tuple[float, Prices, Outlook, Decision]] = []

    def __call__(self, window: Window, budget: Budget) -> Decision:
        decision = self.decide(window, budget)
        plan = Plan(window, budget)
        if plan.tokens > GOAL_LOW + MIN_GAIN:
            order = least_needed(window, candidates(plan, Knobs(), KEEP))
            look = outlook(plan, order, GOAL_LOW)
            meter = float((window.note or {}).get("meter", 0.0))
            self.seen.append((meter, prices_of(window, budget), look, decision))
        return decision


def budget(limit: int = 200_000) -> Budget:
    return Budget(
        limit=limit,
        source="model",
        soft_limit=limit,
        head=Size(bytes=0, tokens=0),
        max_output=0,
        margin=0.0,
    )


def names_of(agent: Agent) -> list[str]:
    return [edit.op for edit in agent.edits]


def above_the_mark(**options: Any) -> Agent:
    """An agent whose window is over the mark while its cache is warm, and nothing is hidden."""
    agent = Agent(**options)
    agent.work(10)
    assert agent.window.tokens > GOAL_LOW + MIN_GAIN
    assert agent.meter > 0
    assert not agent.edits
    return agent


def compacted() -> Agent:
    agent = above_the_mark()
    agent.clock.now += 301
    agent.work(1)
    assert agent.edits
    return agent


def test_the_goals_have_their_marks_and_caps():
    assert LOW == {"cost": 12_000, "balanced": 64_000, "quality": 96_000}
    assert CAP == {"cost": 4_000, "balanced": 8_000, "quality": 8_000}
    assert [target(budget(), goal) for goal in LOW] == [12_000, 64_000, 96_000]


def test_the_mark_is_at_most_half_of_the_room_and_more_in_a_small_window():
    assert target(budget(100_000), "quality") == 50_000
    assert target(budget(64_000), "quality") == 44_800
    assert target(budget(3_000), "quality") == 0.95 * 3_000 - MIN_GAIN
    assert target(budget(0), "quality") == 0


def test_nothing_is_hidden_below_the_mark():
    agent = Agent()
    agent.work(5)
    assert 10_000 < agent.window.tokens < GOAL_LOW
    agent.clock.now += 10_000
    agent.work(1)
    assert agent.window.tokens <= GOAL_LOW + MIN_GAIN
    assert not agent.edits
    assert agent.call.note is None


def test_the_meter_grows_by_the_price_of_reading_what_could_go():
    watched = Watched()
    agent = Agent(policy=watched)
    agent.work(8)
    for _ in range(3):
        before = agent.meter
        agent.work(1)
        removed = watched.seen[-1][2].removed
        assert removed > MIN_GAIN
        assert agent.meter == pytest.approx(before + 0.1 * removed, abs=0.06)


def test_the_meter_is_kept_in_the_log():
    agent = above_the_mark()
    before = agent.meter
    twin = Context.load(agent.context.dump(), clock=agent.clock)
    assert twin.window.note == {"meter": agent.meter}
    agent.clock.now += 1
    for context in (agent.context, twin):
        context.add(said(prose(40)))
        context.add(user("more"))
        context.request()
    assert twin.window.note == agent.window.note
    assert agent.meter > before


def test_the_meter_is_kept_by_calls_that_were_made_elsewhere():
    agent = above_the_mark()
    before = agent.meter
    agent.context.add(said(prose(40)))
    agent.context.add(user("more"))
    agent.context.step()
    assert agent.meter > before


def test_the_meter_starts_anew_after_a_compaction():
    agent = compacted()
    assert agent.call.note is None
    agent.work(2)
    assert 0 < agent.meter < 1_000


def test_the_meter_of_a_fork_starts_anew():
    agent = above_the_mark()
    fork = agent.context.fork()
    assert fork.window.note is None
    agent.clock.now += 1
    made: list[float] = []
    for context in (agent.context, fork):
        context.add(said("ok"))
        context.add(user("more"))
        context.request()
        made.append((context.window.note or {})["meter"])
    mine, forked = made
    assert 0 < forked < mine


def test_a_fork_inherits_the_warmth_of_the_cache():
    agent = above_the_mark()
    fork = agent.context.fork()
    fork.add(said("ok"))
    fork.add(user("more"))
    assert not fork.decide()
    agent.clock.now += 301
    assert fork.decide()


def test_a_warm_cache_is_left_alone_until_the_meter_has_paid_twice():
    watched = Watched()
    agent = Agent(policy=watched)
    agent.work(45)
    made = [bool(decision.edits) for *_, decision in watched.seen]
    due = [
        meter + prices.read * look.removed >= THETA * (prices.write - prices.read) * look.rewritten
        for meter, prices, look, _ in watched.seen
    ]
    assert not any(prices.cold for _, prices, _, _ in watched.seen)
    assert made == due
    assert made.count(True) == 2
    assert made.index(True) > 5


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
    assert len(batches) == 2
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
    agent = Agent(entry={"cache_minimum": 1_000_000})
    agent.work(8)
    assert agent.edits


def test_at_95_percent_of_the_room_a_compaction_is_forced():
    agent = Agent(context_window=32_000, max_output_tokens=1_000)
    hard = HARD * agent.context.budget().room
    low = target(agent.context.budget(), "cost")
    sizes = [agent.window.tokens]
    while not agent.edits:
        agent.work(1)
        sizes.append(agent.window.tokens)
    assert sizes[-2] <= hard < sizes[-2] + 2_103
    assert sizes[-1] <= low


def test_a_forced_compaction_goes_on_to_all_but_the_newest_result_in_the_same_batch():
    agent = small(10_000)
    low = target(agent.context.budget(), "cost")
    agent.work(2, 6_000)
    before = len(agent.edits)
    agent.work(2, 11_000)
    assert before == 0
    assert agent.window.tokens <= low
    why = {edit.why for edit in agent.edits}
    assert f"no room left: to {low} tokens" in why
    assert agent.shown[-1].startswith("value_")


@pytest.mark.parametrize("window", [8_000, 10_000, 16_000, 32_000])
def test_in_a_small_window_large_results_do_not_push_out_what_the_user_said(window):
    agent = Agent(context_window=window, max_output_tokens=1_000)
    agent.context.add(user("My name is Ann."))
    agent.work(6, 40_000)
    assert "My name is Ann." in json.dumps(agent.context.request())
    room = agent.context.budget().room
    assert max(map(agent.window.counter.count, agent.shown)) <= max(CAP_LEAST, room // 4) + 8


def test_where_what_must_stay_is_large_the_rest_is_not_let_go_in_vain():
    agent = small(10_000)
    low, room = target(agent.context.budget(), "cost"), agent.context.budget().room
    for number in range(12):
        agent.context.add(user(f"Fact {number}. " + prose(700)))
        agent.context.add({"role": "assistant", "content": "Noted."})
    agent.context.add(user("Now read."))
    agent.use(prose(int(low * 4.2)))
    assert low < agent.window.tokens <= HARD * room
    assert "Fact 11." in json.dumps(agent.context.request())


def small(window: int) -> Agent:
    """An agent in a small window whose user lets results be as large as they are."""
    knobs = {"max_tool_result_tokens": 100_000}
    return Agent(context_window=window, max_output_tokens=1_000, context=knobs)


def test_a_model_without_a_cache_is_trimmed_whenever_that_gains_a_thousand_tokens():
    agent = Agent(entry={"cache_read": 1.0, "cache_write": 1.0, "cache_ttl": 10_000})
    compactions = 0
    for _ in range(20):
        before = len(agent.edits)
        agent.work(1)
        assert agent.window.tokens <= GOAL_LOW + MIN_GAIN
        compactions += len(agent.edits) > before
    assert compactions > 5


def test_nothing_is_trimmed_for_less_than_a_thousand_tokens():
    agent = Agent(entry={"cache_read": 1.0, "cache_write": 1.0})
    agent.use(prose(3_200))
    agent.context.add(user(prose(52_000)))
    for number in range(KEEP):
        agent.use(f"ok {number}")
    assert agent.window.tokens > GOAL_LOW + MIN_GAIN
    assert not agent.edits


@pytest.mark.parametrize("wrote", [0, 1])
def test_measured_misses_raise_the_price_of_a_read(wrote):
    agent = Agent(context_window=1_000_000)
    for number in range(6):
        size = agent.call.tokens
        agent.use(
            source(number, 8_000),
            usage={
                "input_tokens": size - wrote * size,
                "cache_creation_input_tokens": wrote * size,
                "cache_read_input_tokens": 0,
            },
        )
    prices = prices_of(agent.window, agent.context.budget())
    missed = agent.window.cache.miss_rate
    assert prices.read == pytest.approx((1 - missed) * 0.1 + missed * 1.25)
    assert (missed > 0.1) is bool(wrote)
    assert (prices.read > 0.2) is bool(wrote)


def test_reads_that_hit_leave_the_price_as_it_is():
    agent = Agent()
    for number in range(6):
        read = agent.call.tokens // 2
        agent.use(
            source(number, 8_000),
            usage={"input_tokens": agent.call.tokens - read, "cache_read_input_tokens": read},
        )
    assert agent.window.cache.reports
    assert prices_of(agent.window, agent.context.budget()).read == pytest.approx(0.1)


def test_usage_without_a_word_of_caches_says_nothing_of_them():
    agent = Agent()
    for number in range(6):
        agent.use(source(number, 8_000), usage={"input_tokens": agent.call.tokens})
    assert not agent.window.cache.reports
    assert prices_of(agent.window, agent.context.budget()).read == pytest.approx(0.1)


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
    agent = Agent(context={"tools": {"plan": {"exempt": True}}})
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
    agent = Agent(context={"tool_result_keep_first": first, "tool_result_keep_last": last})
    agent.work(10)
    agent.clock.now += 301
    agent.work(1, 14_000)
    shown = [not text.startswith(MASKED) for text in agent.shown]
    assert all(shown[:first])
    assert all(shown[len(shown) - max(1, last) :])
    assert not all(shown)


def test_both_keeps_at_zero_mask_nothing():
    agent = Agent(context={"tool_result_keep_first": 0, "tool_result_keep_last": 0})
    agent.work(12)
    agent.clock.now += 301
    agent.work(1)
    assert names_of(agent) == ["summarise"]


def test_a_placeholder_names_what_it_hides():
    agent = compacted()
    assert agent.shown[0] == (
        "[result masked — ~2071 tokens removed; it named "
        + ", ".join(f"value_0_{index}" for index in range(8))
        + "]"
    )


def test_the_handle_stands_last_in_a_placeholder():
    agent = Agent(recall=True)
    agent.work(10)
    agent.clock.now += 301
    agent.work(1)
    assert agent.shown[0].endswith(f"value_0_7 · recall {agent.masked()[0]}]")
    assert agent.context.recall(agent.masked()[0]) == source(0, 8_000)


@pytest.mark.parametrize("strategy", ["head", "tail", "both"])
@pytest.mark.parametrize("recall", [False, True])
def test_a_cut_result_names_what_was_cut_and_stays_within_the_cap(strategy, recall):
    agent = Agent(recall=recall, context={"tool_result_truncation": strategy})
    lines = [f"{prose(60)} field_{number}_name" for number in range(2_000)]
    handle = agent.use("\n".join(lines))
    [shown] = agent.shown
    [edit] = agent.edits
    assert edit.op == "truncate"
    assert agent.window.counter.count(shown) <= CAP["cost"]
    indicator = next(line for line in shown.splitlines() if line.startswith("[truncated: "))
    told, _, rest = indicator.partition("; it named ")
    assert told.endswith(f"({strategy})")
    named = rest.removesuffix("]").removesuffix(f" · recall {handle}").split(", ")
    assert len(named) > 50
    assert not set(named) & set(shown.replace(indicator, "").split())
    assert set(named) <= {f"field_{number}_name" for number in range(2_000)}
    assert rest.endswith(f" · recall {handle}]") is recall


def test_names_of_many_tokens_do_not_push_a_cut_result_over_the_cap():
    agent = Agent()
    agent.use(
        " ".join(f"{number * 7919 % 99991:05x}Q{number * 31:x}_Ж" for number in range(20_000))
    )
    [shown] = agent.shown
    assert agent.window.counter.count(shown) <= CAP["cost"]
    assert "; it named " in shown


def test_a_result_within_the_cap_is_whole():
    agent = Agent()
    agent.work(1, 15_000)
    assert agent.shown == [source(0, 15_000)]


def test_a_cap_of_the_users_own_replaces_the_goals():
    agent = Agent(context={"max_tool_result_tokens": 1_000})
    agent.work(1)
    assert agent.window.counter.count(agent.shown[0]) <= 1_000
    assert "it named" not in agent.shown[0]


def test_where_results_do_not_suffice_the_oldest_rounds_become_a_summary():
    agent = talkative()
    assert names_of(agent) == ["summarise"]
    assert agent.window.tokens <= GOAL_LOW
    assert agent.window.summary is not None
    last = agent.window.summary.text.splitlines()[-1]
    assert last.startswith("- named: ")
    assert "topic_0_a" in last


def talkative() -> Agent:
    """A conversation without tools that went over the mark and found its cache cold."""
    agent = Agent()
    talk(agent, 0, 20)
    assert not agent.edits
    agent.clock.now += 301
    talk(agent, 20, 1)
    return agent


def talk(agent: Agent, start: int, turns: int) -> None:
    for number in range(start, start + turns):
        agent.clock.now += 1
        agent.context.add(said(f"{prose(2_000)}\ntopic_{number}_a topic_{number}_b"))
        agent.context.add(user(prose(2_000)))
        agent.context.request()


def test_a_summary_carries_on_what_the_one_before_it_named():
    agent = talkative()
    talk(agent, 21, 12)
    agent.clock.now += 301
    talk(agent, 40, 1)
    assert names_of(agent) == ["summarise", "summarise"]
    assert agent.window.tokens <= GOAL_LOW
    assert "topic_0_a" in agent.edits[1].text
    assert "topic_21_a" in agent.edits[1].text
    assert "topic_21_a" not in agent.edits[0].text


def test_a_summary_counts_itself_when_it_brings_the_window_down_to_the_mark():
    agent = Agent()
    for number in range(30):
        agent.clock.now += 1
        words = " ".join(f"long_topic_name_{number}_{index}" for index in range(30))
        agent.context.add(said(f"{prose(1_500)}\n{words}"))
        agent.context.add(user(prose(400)))
        agent.context.request()
        if agent.edits:
            break
        agent.clock.now += 301
    assert agent.window.summary is not None
    assert agent.window.summary.size.tokens > MIN_GAIN
    assert agent.window.tokens <= GOAL_LOW


def test_a_loop_with_signed_thinking_is_masked_when_that_pays_though_it_cannot_be_summarised():
    agent = Agent()
    agent.context.add(user(prose(24_000)))
    for number in range(10):
        agent.clock.now += 1
        thought = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
        call = {"type": "tool_use", "id": f"t{number}", "name": "read", "input": {}}
        agent.context.add({"role": "assistant", "content": [thought, call]})
        back = {"type": "tool_result", "tool_use_id": f"t{number}", "content": prose(15_000)}
        agent.context.add({"role": "user", "content": [back]})
        agent.context.request()
    assert len(agent.window.visible) == 3
    agent.context.pin("m2")
    agent.clock.now += 301
    agent.context.add(
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "last", "name": "read", "input": {}}],
        }
    )
    agent.context.request()
    assert len(agent.masked()) == 8


def test_the_frontier_mark_stands_before_the_first_result_that_would_go():
    agent = above_the_mark()
    assert agent.call.marks == (-1, 0, agent.call.blocks - 1)
    agent.clock.now += 301
    agent.work(1)
    oldest = next(iter(agent.window.results.values()))
    start = agent.context.rendering.starts[oldest.entry.round.entries[0].seq]
    assert start > 1
    assert agent.call.marks == (-1, start - 1, agent.call.blocks - 1)


def test_the_frontier_passes_what_the_next_compaction_would_spare():
    agent = Agent()
    agent.use(source(100, 8_000), path="src/kept.py")
    for _ in range(9):
        agent.use("done", tool="edit", path="src/kept.py")
        names = " ".join(f"value_100_{index}" for index in range(8))
        agent.use(prose(7_000), path="notes.txt", why=names)
    assert agent.meter > 0
    decision = auto(Knobs(), "cost", order=lambda _, results: results[3:])(
        agent.window, agent.context.budget()
    )
    assert decision.frontier == list(agent.window.results.values())[3].seq


def test_deciding_again_after_a_compaction_changes_nothing():
    agent = above_the_mark()
    agent.ask()
    agent.answer(source(99, 8_000))
    agent.clock.now += 301
    edits = agent.context.decide()
    assert edits
    agent.context.apply(edits)
    assert agent.context.decide() == []


def test_deciding_again_after_a_summary_changes_nothing():
    agent = Agent()
    talk(agent, 0, 20)
    agent.context.add(said("ok"))
    agent.context.add(user("more"))
    agent.clock.now += 301
    edits = agent.context.decide()
    assert edits
    agent.context.apply(edits)
    assert agent.context.decide() == []


def test_deciding_again_after_a_forced_compaction_changes_nothing():
    agent = Agent(context_window=16_000, max_output_tokens=1_000)
    agent.work(4, 9_000)
    agent.ask()
    agent.answer(source(99, 14_000))
    edits = agent.context.decide()
    assert edits
    agent.context.apply(edits)
    assert agent.context.decide() == []


def test_the_order_of_hiding_is_the_callers_to_give():
    agent = Agent(policy=auto(Knobs(), "cost", order=oldest_first))
    agent.work(10)
    agent.clock.now += 301
    agent.work(1)
    seqs = [edit.first for edit in agent.edits]
    assert seqs == sorted(seqs)
    assert agent.shown[0].startswith(MASKED)


def test_what_is_new_in_a_call_is_not_written_again():
    agent = above_the_mark()
    before = agent.window.tokens
    agent.context.add(said(prose(8_000)))
    agent.context.add(user(prose(8_000)))
    look = ahead(agent)
    assert agent.window.tokens > before + 4_000
    assert before - 100 < look.removed + look.rewritten <= before


def ahead(agent: Agent) -> Outlook:
    """What a compaction would do now that masks the oldest results."""
    plan = Plan(agent.window, agent.context.budget())
    return outlook(plan, candidates(plan, Knobs(), KEEP), GOAL_LOW)
