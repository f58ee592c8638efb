"""A failed call: its outcome is recorded, and then what makes the next request smaller."""

from __future__ import annotations

from trimtab.engine.log.call_failure import build_error_outcome
from trimtab.engine.log.event import CallOutcome, Usage
from trimtab.engine.policy.config import parse_policy_config
from trimtab.engine.policy.overflow import choose_policy_after_error
from trimtab.verbs.adding import find_texts_of_last_request, require_usage_with_cached_tokens
from trimtab.verbs.state import State, Verb


def fail(
    state: State, kind: str, *, message: str, usage: Usage | None, **token_counts: int | None
) -> Verb[bool]:
    """Record a failure, and edits for the next request. Return whether to send it at once."""
    config = parse_policy_config(state.options.limits)
    # Started again, it may have stored the outcome already. Then no call is open any more.
    outcomes: list[CallOutcome] = []
    if not any(isinstance(event.body, CallOutcome) for event in state.stored):
        outcomes = [build_outcome(state, kind, message=message, usage=usage, **token_counts)]
    texts = find_texts_of_last_request(state, message)
    yield outcomes
    policy = choose_policy_after_error(kind, config, texts)
    edits = policy(state.window, state.budget()).edits
    yield edits
    return kind == "overflow" or bool(edits)


def build_outcome(
    state: State, kind: str, *, message: str, usage: Usage | None, **token_counts: int | None
) -> CallOutcome:
    """Build the outcome of the call that waits for one."""
    outcome = build_error_outcome(
        state.window.accounting.open_call_seq,
        kind,
        message=message,
        redact=state.options.redact,
        usage=usage,
        **token_counts,
    )
    if usage is not None:
        require_usage_with_cached_tokens(usage)
    return outcome
