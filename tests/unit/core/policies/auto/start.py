"""Agents whose window is above the mark of `auto`, for its tests."""

from typing import Any

from tests.agents import Agent
from trimtab.core.budget import Budget
from trimtab.core.plan import Decision, Plan
from trimtab.core.policies.auto import (
    KEEP,
    LOW,
    MIN_GAIN,
    Outlook,
    Prices,
    auto,
    candidates,
    outlook,
    prices_of,
)
from trimtab.core.policies.knobs import Knobs
from trimtab.core.policies.order import least_needed
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


def beside_the_list(agent: Agent) -> int:
    """Tokens of the window without the list of the user's words: what the mark is for."""
    listed = agent.window.words.size(agent.window.counter, recall=agent.window.settings.recall)
    return agent.window.tokens - listed.tokens


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
