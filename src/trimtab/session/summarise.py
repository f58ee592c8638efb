"""A summary for a session: asked for, checked, put in place, and all of it in the log.

Where it fails the messages stay. Failures in a row are waited out, by what the log says of them:
a process that starts anew does not ask again either.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from time import perf_counter
from typing import Any, cast

from trimtab.catalog import resolve
from trimtab.core.event import Attempt
from trimtab.core.policies.summaries import SummaryRefused
from trimtab.session.happenings import Happening, Summarised
from trimtab.session.session import Session
from trimtab.session.summariser import Summariser, attempt_of, make_summary
from trimtab.session.tools import Tell

log = logging.getLogger("trimtab.summary")


def _ignore(_: Happening) -> None:
    pass


async def summarise(
    session: Session, summariser: Summariser, *, forced: bool = False, tell: Tell = _ignore
) -> Attempt | None:
    """Make the summary that the session's policy wants; None where it wants none, or not yet.

    `forced` makes the one that the next call would put a stand-in for. What is said meanwhile is
    not touched by it; what is undone or erased meanwhile makes it void.
    """
    if summariser.only_results or session.wanted_summary(forced=forced) is None:
        return None  # a turn does not wait for a summary that it can do without
    async with session.summarising:
        wanted = session.wanted_summary(forced=forced)
        if wanted is None:
            return None
        if wait := session.window.summaries.waits(session.window.said):
            if forced:
                log.info("session %s: no model is asked for %d more messages", session.id, wait)
            return None
        since = perf_counter()
        made = await make_summary(
            summariser,
            wanted.messages,
            wanted.prior,
            counter=session.window.counter,
            max_tokens=wanted.max_tokens,
            list_tokens=wanted.list_tokens,
            replaced=wanted.tokens,
            seen=wanted.seen,
        )
        seconds = perf_counter() - since
        span = wanted.span
        attempt = attempt_of(summariser, made, session.window.counter)
        attempt = replace(attempt, first=span.first, last=span.last, replaced=wanted.tokens)
        attempt = await recorded(session, attempt, made.text, span=span)
    told = summarised(session, attempt, seconds)
    _log(session, told)
    tell(told)
    return attempt


def summarised(session: Session, attempt: Attempt, seconds: float) -> Summarised:
    """What became of it, and how large the window is now."""
    window = session.window
    return Summarised(
        attempt=attempt,
        messages=window.messages,
        tokens=window.settings.head.tokens + window.tokens,
        made=window.summaries.made,
        seconds=seconds,
    )


async def in_background(session: Session, summariser: Summariser, tell: Tell = _ignore) -> None:
    """The same, for nobody who waits: what goes wrong is only logged, the messages stay."""
    try:
        await summarise(session, summariser, tell=tell)
    except Exception as error:  # noqa: BLE001 - there is nobody to raise it to
        log.warning("session %s: no summary was kept: %r", session.id, error)


async def wait_for(session: Session, summariser: Summariser) -> None:
    """Let the session's policy wait for a summariser, and know what it costs."""
    options = session.options
    if options.summaries == "manual" or summariser.only_results:
        return
    context: dict[str, Any] = dict(options.context)
    given = cast("dict[str, Any]", dict(context.get("summary") or {}))
    own = resolve(summariser.model, summariser.entry).input_price
    price = relative_price(own, session.window.settings.entry.get("input_price"))
    context["summary"] = {"price": price, **given}
    await session.configure(summaries="manual", context=context)


def relative_price(own: float | None, main: float | None) -> float:
    """What an input token costs there, relative to the session's model; 1 where not known."""
    return round(own / main, 4) if own is not None and main else 1.0


async def recorded(session: Session, attempt: Attempt, text: str, **where: Any) -> Attempt:
    """The attempt in the log, and with it the summary if it may stand; as it was recorded."""
    if text:
        try:
            await session.attempted(attempt, text, **where)
        except SummaryRefused as refused:
            attempt = replace(attempt, outcome="rejected", why=str(refused), tokens=0, patched=0)
        else:
            return attempt
    await session.attempted(attempt)
    return attempt


def _log(session: Session, told: Summarised) -> None:
    attempt, meter = told.attempt, session.window.summaries
    stands = attempt.outcome in ("made", "patched")
    sizes = f"{attempt.tokens} tokens for {attempt.replaced}"
    log.log(
        logging.INFO if stands else logging.WARNING,
        "Summary %s: %s (%s); window %d messages (~%d tokens); "
        "%d made, %d patched, %d rejected, %d failed so far",
        attempt.outcome,
        sizes if stands else f"{attempt.replaced} tokens of messages stay",
        attempt.why or "as it came",
        told.messages,
        told.tokens,
        meter.made,
        meter.patched,
        meter.rejected,
        meter.failed,
        extra={
            "session": session.id,
            "outcome": attempt.outcome,
            "model": attempt.model,
            "summary_tokens": attempt.tokens,
            "replaced_tokens": attempt.replaced,
            "patched": attempt.patched,
            "messages": told.messages,
            "tokens": told.tokens,
            "made": meter.made,
            "seconds": round(told.seconds, 3),
        },
    )
