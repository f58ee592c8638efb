"""Summaries that somebody else writes: what is to be summarised, and what replaces it."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.engine.log.event import SummaryAttempt
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


def add_summary(
    state: State,
    text: str,
    *,
    span: MessageSpan | None = None,
    attempts: Sequence[SummaryAttempt] = (),
) -> Verb[None]:
    """Replace messages by a summary. What it took is recorded in the same batch."""
    decision = state.run_policy(state.budget())
    span = span or decision.span_to_summarise
    if span is None:
        raise UnusableSummary("no messages are waiting to be summarised")
    plan = Plan(state.window, state.budget())
    yield [*build_summary_edits(plan, span, text, decision), *attempts]


def add_result_summary(
    state: State,
    request: ResultSummaryRequest,
    text: str,
    *,
    written_by: str = "",
    attempts: Sequence[SummaryAttempt] = (),
) -> Verb[None]:
    """Send a summary instead of a tool result. What it took is recorded in the same batch."""
    plan = Plan(state.window, state.budget())
    yield [*build_result_summary_edits(plan, request, text, written_by), *attempts]
