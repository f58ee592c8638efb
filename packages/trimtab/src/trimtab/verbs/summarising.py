"""Summaries that somebody else writes: what is to be summarised, and what replaces it."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.engine.log.event import Edit
from trimtab.engine.policy.config import parse_policy_config
from trimtab.engine.policy.planning.plan import MessageSpan, Plan
from trimtab.engine.policy.summary_requests import (
    ResultSummaryRequest,
    SummaryRequest,
    build_result_summary_edits,
    build_summary_edits,
    build_summary_request,
    list_result_summary_requests,
)
from trimtab.errors import UnusableSummary
from trimtab.verbs.state import State, Verb


def find_pending_summary(state: State, *, forced: bool = False) -> SummaryRequest | None:
    """Return which messages should be summarised now, or None. Nothing is recorded."""
    decision = state.run_policy(state.budget())
    return build_summary_request(state.window, decision, take_extractive_span=forced)


def find_pending_result_summaries(state: State) -> tuple[ResultSummaryRequest, ...]:
    """Return the tool results that should be summarised. Nothing is recorded."""
    config = parse_policy_config(state.options.limits)
    if not config.summarises_results:
        return ()
    return list_result_summary_requests(state.window, state.run_policy(state.budget()), config)


def build_edits_of_summary(state: State, text: str, span: MessageSpan | None) -> Sequence[Edit]:
    """Build the edits that replace messages by a summary."""
    decision = state.run_policy(state.budget())
    span = span or decision.span_to_summarise
    if span is None:
        raise UnusableSummary("no messages are waiting to be summarised")
    return build_summary_edits(Plan(state.window, state.budget()), span, text, decision)


def build_edits_of_result_summary(
    state: State, request: ResultSummaryRequest, text: str, written_by: str
) -> Sequence[Edit]:
    """Build the edits that send a summary instead of a tool result."""
    plan = Plan(state.window, state.budget())
    return build_result_summary_edits(plan, request, text, written_by)


def add_summary(state: State, text: str, *, span: MessageSpan | None = None) -> Verb[None]:
    """Replace messages by a summary."""
    yield build_edits_of_summary(state, text, span)


def add_result_summary(
    state: State, request: ResultSummaryRequest, text: str, *, written_by: str = ""
) -> Verb[None]:
    """Send a summary instead of a tool result."""
    yield build_edits_of_result_summary(state, request, text, written_by)
