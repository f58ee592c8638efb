"""Kinds of failed model calls, and the record that is kept of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trimtab.engine.log.event import CallOutcome, Usage
from trimtab.engine.log.redaction import redacted_text
from trimtab.engine.log.size_refusals import names_context_window, parse_size_refusal
from trimtab.engine.text.arguments import check_token_count, describe_wrong_value
from trimtab.engine.text.utf8 import replace_lone_surrogates

FAILURE_KINDS = (
    *("overflow", "malformed", "rate_limit", "overloaded", "server"),
    *("network", "timeout", "auth", "rejected", "refused"),
)
"""Kinds of errors that a call may end in. Provider errors have the same kinds."""
MAX_REJECTION_CHARS = 1_000
"""Maximum number of characters that are kept of a provider's rejection message."""


STOPPED_CALL_KIND = "stopped"
"""The `kind` of the outcome of a call that a person stopped."""


OVER_CEILING_KIND = "cost_ceiling"
"""The `kind` of the outcome of a call that was not made because of a cost ceiling."""


UNBILLED_KINDS = frozenset(FAILURE_KINDS) - {"server", "network", "timeout"} | {OVER_CEILING_KIND}
"""Kinds of failed calls that cost nothing, because the provider refused them or they were not made.
A call that failed in the middle, or that a person stopped, may be billed, and its usage is not
known."""


def build_over_ceiling_outcome(call_seq: int, ceiling: str) -> CallOutcome:
    """Return the outcome of a call that was not made. `ceiling` names the cost ceiling at risk."""
    error = {"kind": OVER_CEILING_KIND, "ceiling": ceiling}
    return CallOutcome(call=call_seq, status="error", error=error)


def build_stopped_outcome(call_seq: int) -> CallOutcome:
    """Return the outcome of a call that a person stopped. Nothing is learnt from it."""
    return CallOutcome(call=call_seq, status="error", error={"kind": STOPPED_CALL_KIND})


def build_error_outcome(
    open_call_seq: int | None,
    kind: str,
    *,
    message: str = "",
    redact: Callable[[str], str] | None = None,
    usage: Usage | None = None,
    **token_counts: int | None,
) -> CallOutcome:
    """Return the outcome of a call that ended in an error, with the token counts that it names.

    `usage` is what was billed for a reply that is not kept.

    The provider's message is kept if something is learned from it: if it is about the content of
    the request or its bytes, or if it names the context window and no tokens.
    """
    _validate_failure_report(kind, message, **token_counts)
    if open_call_seq is None:
        raise ValueError("no call is open, so no error can be recorded for it")
    details: dict[str, Any] = {
        name: value for name, value in token_counts.items() if value is not None
    }
    is_size = parse_size_refusal(message) is not None
    is_window = not details and names_context_window(message)
    teaches = kind == "rejected" or (kind == "overflow" and (is_size or is_window))
    if teaches and message:
        text = redacted_text(message, redact)
        details["message"] = replace_lone_surrogates(text[:MAX_REJECTION_CHARS])
    error = {"kind": kind, **details}
    return CallOutcome(call=open_call_seq, status="error", error=error, usage=usage)


def erase_provider_message(message: str) -> str:
    """Return what is kept of a provider's message if a text is erased, which it may quote: a
    statement about sizes, from which limits are learned, or nothing."""
    is_about_size = parse_size_refusal(message) is not None or names_context_window(message)
    return message if is_about_size else ""


def _validate_failure_report(kind: Any, message: Any, **token_counts: Any) -> None:
    """Raise an error if a failure report has invalid values."""
    if kind not in FAILURE_KINDS:
        raise ValueError(f"unknown error kind {kind!r}; choose one of {', '.join(FAILURE_KINDS)}")
    if not isinstance(message, str):
        raise TypeError(describe_wrong_value("message", message, "a text: what the provider said"))
    for name, value in token_counts.items():
        check_token_count(name, value, minimum=1 if name == "limit" else None)
