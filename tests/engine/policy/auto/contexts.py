"""Agents whose window is above the mark of `auto`, for its tests."""

from typing import Any

from tests.agents import Agent
from trimtab.engine.policy.auto import (
    KEPT_NEWEST_RESULTS,
    MIN_GAIN_TOKENS,
    PAYBACK_FACTOR,
    AutoTuning,
    CompactionForecast,
    RelativeCachePrices,
    build_auto_policy,
    compute_relative_cache_prices,
    count_excess_tokens,
    forecast_compaction,
    list_mask_candidates,
)
from trimtab.engine.policy.budget import Budget
from trimtab.engine.policy.config import PolicyConfig
from trimtab.engine.policy.planning.needs import value_results
from trimtab.engine.policy.planning.plan import Decision, Plan
from trimtab.engine.window.window import Window

GOAL_LOW = 12_000
"""The mark that the fixture `low_mark` sets."""
MASKED = "[result masked"


class Watched:
    """The policy, and what it had before it at each call above the mark."""

    def __init__(self) -> None:
        self.decide = build_auto_policy(PolicyConfig(), "cost")
        self.seen: list[tuple[float, RelativeCachePrices, CompactionForecast, Decision]] = []

    def __call__(self, window: Window, budget: Budget) -> Decision:
        decision = self.decide(window, budget)
        plan = Plan(window, budget)
        if plan.tokens > GOAL_LOW + MIN_GAIN_TOKENS:
            look = look_ahead(plan)
            meter = float((window.policy_note or {}).get("meter", 0.0))
            self.seen.append((meter, compute_relative_cache_prices(window, budget), look, decision))
        return decision


def look_ahead(plan: Plan) -> CompactionForecast:
    """What a compaction would do now."""
    tuning = AutoTuning(config=PolicyConfig(), goal="cost", payback_factor=PAYBACK_FACTOR)
    results = list_mask_candidates(plan, PolicyConfig(), KEPT_NEWEST_RESULTS)
    values = value_results(plan, results, tuning.price)
    excess = count_excess_tokens(tuning, plan, values)
    return forecast_compaction(tuning, plan, results, values, excess)


def beside_the_list(agent: Agent) -> int:
    """Tokens of the window without the list of the user's words: what the mark is for."""
    list_size = agent.window.conversation.user_words.measure_all_blocks(
        agent.window.counter, recall_hint=agent.window.settings.recall_hint
    )
    return agent.window.tokens - list_size.tokens


def names_of(agent: Agent) -> list[str]:
    return [edit.op for edit in agent.edits]


def above_the_mark(**options: Any) -> Agent:
    """An agent whose window is over the mark while its cache is warm, and nothing is hidden."""
    agent = Agent(**options)
    agent.work(10)
    assert agent.window.tokens > GOAL_LOW + MIN_GAIN_TOKENS
    assert agent.meter > 0
    assert not agent.edits
    return agent


def compacted() -> Agent:
    agent = above_the_mark()
    agent.clock.now += 301
    agent.work(1)
    assert agent.edits
    return agent
