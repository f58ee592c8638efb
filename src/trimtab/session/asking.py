"""The next request of a turn: what must be summarised first, and its sizes in the log file."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from trimtab.core.budget import quarter
from trimtab.core.policies.compact import max_bytes
from trimtab.core.policies.knobs import knobs_from
from trimtab.session.results import summarise_results
from trimtab.session.session import Session
from trimtab.session.summarise import summarise
from trimtab.session.summariser import Summariser
from trimtab.session.telling import call_begun, edited_since
from trimtab.session.tools import Tell

NEAR = 0.8
"""Share of the input's budget at which a warning is due."""

log = logging.getLogger("trimtab.turn")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """How a turn asks."""

    stream: bool
    """Whether replies are streamed."""
    tell: Tell
    """Who hears what happens."""
    summariser: Summariser | None = None
    """Who is asked for a summary where a stand-in would be due; None for nobody."""


async def next_request(session: Session, how: Asking, volatile: str | None) -> dict[str, Any]:
    """The next request. Where it would have a stand-in for a summary, or a result would be cut that
    is to be summarised, a model is asked first."""
    await summarise_results(session, how.summariser, how.tell)
    if how.summariser is not None:
        await summarise(session, how.summariser, forced=True, tell=how.tell)
        _warn_of_stand_in(session)
    before, last = session.window.bytes, session.window.last_call
    unsent = [
        (result.entry, result.part, result.size.bytes) for result in session.window.new_results()
    ]
    limit, position = _bytes_limit(session), session.window.seq
    request = await session.request(stream=how.stream, volatile=volatile)
    now = session.window.bytes
    # A result that is cut before it is first sent is no compaction: it never stood there whole.
    before -= sum(size - entry.shown(part).bytes for entry, part, size in unsent)
    if now < before:
        _log_compaction(session, before, now, limit)
    messages, tokens = session.window.messages, quarter(now)
    log.info(
        "Calling AI with %d messages (~%d bytes, ~%d tokens)",
        *(messages, now, tokens),
        extra={"session": session.id, "messages": messages, "bytes": now, "tokens": tokens},
    )
    for edited in await edited_since(session, position, "policy"):
        how.tell(edited)
    how.tell(call_begun(session, near=_warn(session, last.body.tokens if last is not None else 0)))
    return request


def _warn_of_stand_in(session: Session) -> None:
    """Where a model was to write a summary and lines of what was said take its place."""
    meter = session.window.summaries
    if not meter.in_a_row or (wanted := session.wanted_summary(forced=True)) is None:
        return
    log.warning(
        "%d summaries in a row were rejected or failed: lines of what was said stand in for %d "
        "messages (~%d tokens)",
        *(meter.in_a_row, len(wanted.messages), wanted.tokens),
        extra={
            "session": session.id,
            "in_a_row": meter.in_a_row,
            "messages": len(wanted.messages),
            "tokens": wanted.tokens,
        },
    )


def _log_compaction(session: Session, before: int, now: int, limit: int) -> None:
    if before > limit:
        log.info(
            "Context size %d bytes exceeds limit %d, compacting old tool results...",
            *(before, limit),
            extra={"session": session.id, "bytes": before, "limit_bytes": limit},
        )
    saved = before - now
    log.info(
        "Context compacted: %d bytes -> %d bytes (saved %d bytes)",
        *(before, now, saved),
        extra={"session": session.id, "bytes": now, "saved_bytes": saved},
    )


def _warn(session: Session, before: int) -> bool:
    """Once when a call is near the limit and the one before it was not; returns whether."""
    made, budget = session.window.last_call, session.budget()
    room = budget.most_input
    now = made.body.tokens if made is not None else 0
    near = before < NEAR * room <= now
    if near:
        log.warning(
            "Context is at %.0f%% of its budget: ~%d of %d tokens",
            *(100 * now / room, now, room),
            extra={"session": session.id, "tokens": now, "room": room},
        )
    return near


def _bytes_limit(session: Session) -> int:
    """Bytes above which the context is made smaller, as far as one number can say it."""
    options, budget = session.options, session.budget()
    if options.policy == "compact":
        return max_bytes(knobs_from(options.context), options.goal, budget)
    return budget.available * 4
