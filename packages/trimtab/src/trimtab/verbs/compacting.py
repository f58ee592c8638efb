"""Edits at once, whatever the policy of the context is."""

from __future__ import annotations

from dataclasses import dataclass

from trimtab.engine.log.event import Edit
from trimtab.engine.policy.config import parse_policy_config
from trimtab.engine.policy.on_demand import decide_on_demand_compaction
from trimtab.engine.policy.planning.plan import Policy
from trimtab.verbs.reporting import build_report
from trimtab.verbs.state import State, Verb


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """The result of `compact`."""

    tokens_before: int
    """Tokens in use before."""
    tokens_after: int
    """Tokens in use now."""
    edits: tuple[Edit, ...]
    """The edits that were made. Empty if nothing could be hidden."""


def compact(state: State) -> Verb[Compaction]:
    """Make the context smaller now."""
    before = build_report(state).used
    config = parse_policy_config(state.options.limits)
    edits = decide_on_demand_compaction(state.window, state.budget(), config=config).edits
    yield edits
    return Compaction(tokens_before=before, tokens_after=build_report(state).used, edits=edits)


def apply_policy(state: State, policy: Policy) -> Verb[tuple[Edit, ...]]:
    """Make the edits that a policy wants now. Return them."""
    edits = policy(state.window, state.budget()).edits
    yield edits
    return edits
