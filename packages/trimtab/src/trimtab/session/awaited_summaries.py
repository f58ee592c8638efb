"""The next request of a turn: what must be summarised first, and its sizes in the log file."""

from __future__ import annotations

import logging
from typing import Any

from trimtab.engine.policy.budget import bytes_to_tokens
from trimtab.engine.policy.config import parse_policy_config
from trimtab.engine.policy.presets import compute_compact_trigger_bytes
from trimtab.session.events import ContextEdited
from trimtab.session.model_summaries import summarise_oversized_results, summarise_session_if_due
from trimtab.session.session import Session
from trimtab.session.summariser import Summariser
from trimtab.session.tools import OnEvent
from trimtab.session.turn_event_builders import build_call_started, total_edits_by_kind_since

NEAR_LIMIT_SHARE = 0.8
"""Warn if the input reaches this share of its budget."""

log = logging.getLogger("trimtab.turn")


async def summarise_then_build_request(
    session: Session,
    *,
    stream: bool,
    volatile: str | None,
    summariser: Summariser | None,
    on_event: OnEvent,
) -> dict[str, Any]:
    """Build the next request.

    If it would contain an extract or cut a result that should be summarised, a model writes the
    summary first.
    """
    await summarise_oversized_results(session, summariser, on_event)
    if summariser is not None:
        await summarise_session_if_due(
            session, summariser, instead_of_placeholder=True, on_event=on_event
        )
    before = session.window.bytes
    last = session.window.last_call
    unsent = [
        (result.entry, result.part, result.size.bytes) for result in session.window.unsent_results()
    ]
    limit = _estimate_bytes_limit(session)
    position = session.window.seq
    request = await session.request(stream=stream, volatile=volatile)
    now = session.window.bytes
    # A result that is cut before it is first sent is no compaction: it never stood there whole.
    before -= sum(size - entry.shown_size(part).bytes for entry, part, size in unsent)
    if now < before:
        _log_compaction(session, before, now, limit)
    messages = session.window.visible_messages
    tokens = bytes_to_tokens(now)
    log.info(
        "Calling AI with %d messages (~%d bytes, ~%d tokens)",
        *(messages, now, tokens),
        extra={"session": session.id, "messages": messages, "bytes": now, "tokens": tokens},
    )
    for edit in await total_edits_by_kind_since(session, position, "policy"):
        if summariser is not None and edit.op == "summarise":
            _warn_of_placeholder_summary(session, edit)
        on_event(edit)
    on_event(
        build_call_started(
            session,
            near_limit=_warn_near_limit(session, last.body.tokens if last is not None else 0),
        )
    )
    return request


def _warn_of_placeholder_summary(session: Session, edited: ContextEdited) -> None:
    """Warn that an extract has replaced messages although a model should have summarised them."""
    failures = session.window.accounting.summary_stats.in_a_row
    if failures:
        log.warning(
            "%d summaries in a row were rejected or failed: an extract replaces %d messages "
            "(~%d tokens)",
            *(failures, edited.count, edited.tokens),
            extra={
                "session": session.id,
                "consecutive_failures": failures,
                "messages": edited.count,
                "tokens": edited.tokens,
            },
        )


def _log_compaction(session: Session, bytes_before: int, bytes_now: int, limit_bytes: int) -> None:
    if bytes_before > limit_bytes:
        log.info(
            "Context size %d bytes exceeds limit %d, compacting old tool results...",
            *(bytes_before, limit_bytes),
            extra={"session": session.id, "bytes": bytes_before, "limit_bytes": limit_bytes},
        )
    saving = bytes_before - bytes_now
    log.info(
        "Context compacted: %d bytes -> %d bytes (saved %d bytes)",
        *(bytes_before, bytes_now, saving),
        extra={"session": session.id, "bytes": bytes_now, "saved_bytes": saving},
    )


def _warn_near_limit(session: Session, tokens_before: int) -> bool:
    """Warn once if this call is near the limit and the previous one was not; return whether it
    is."""
    call = session.window.last_call
    budget = session.budget()
    room = budget.max_input_bound
    now = call.body.tokens if call is not None else 0
    near = tokens_before < NEAR_LIMIT_SHARE * room <= now
    if near:
        log.warning(
            "Context is at %.0f%% of its budget: ~%d of %d tokens",
            *(100 * now / room, now, room),
            extra={"session": session.id, "tokens": now, "budget_tokens": room},
        )
    return near


def _estimate_bytes_limit(session: Session) -> int:
    """Return the bytes above which the context is made smaller, as far as one number can express
    it."""
    options = session.options
    budget = session.budget()
    if options.policy == "compact":
        return compute_compact_trigger_bytes(
            parse_policy_config(options.limits), options.goal, budget
        )
    return budget.available * 4
