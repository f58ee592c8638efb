"""A summary for a session: asked for, checked, put in place, and all of it in the log.

Where it fails the messages stay. Failures in a row are waited out, by what the log says of them:
a process that starts anew does not ask again either.

Single tool results over their cap, summarised by a model before they are first sent.

The whole text is in the log and recalled by its handle. Where no summary may stand the result is
cut, as it would have been without a model: the turn goes on either way.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from time import perf_counter
from typing import Any, cast

from trimtab.catalog import resolve_model_info
from trimtab.errors import UnusableSummary
from trimtab.log.event import SummaryAttempt
from trimtab.policy.config import PolicyLimits
from trimtab.policy.summary_requests import ResultSummaryRequest
from trimtab.session.events import SummaryFinished, TurnEvent
from trimtab.session.session import Session
from trimtab.session.summariser import (
    Summariser,
    SummaryResult,
    build_summary_attempt,
    make_summary,
    read_prompt_file,
    summarise_texts,
)
from trimtab.session.tools import OnEvent
from trimtab.summaries.transcript import cut_middle
from trimtab.summaries.validate_and_repair import ValidatedSummary, validate_result_summary
from trimtab.tokens.counter import TokenCounter
from trimtab.tokens.usage_cost_usd import resolve_prices_at

log = logging.getLogger("trimtab.summary")


def _ignore_event(_: TurnEvent) -> None:
    pass


async def summarise_session_if_due(
    session: Session,
    summariser: Summariser,
    *,
    instead_of_placeholder: bool = False,
    on_event: OnEvent = _ignore_event,
) -> SummaryAttempt | None:
    """Make the summary that the session's policy wants; None where it wants none, or not yet.

    `forced` makes the one that the next call would put a stand-in for. What is said meanwhile is
    not touched by it; what is undone or erased meanwhile makes it void.
    """
    if summariser.only_results or session.pending_summary(forced=instead_of_placeholder) is None:
        return None  # a turn does not wait for a summary that it can do without
    async with session.summary_lock:
        wanted = session.pending_summary(forced=instead_of_placeholder)
        if wanted is None:
            return None
        if wait := session.window.accounting.summary_stats.messages_until_retry(
            session.window.conversation.total_messages
        ):
            if instead_of_placeholder:
                log.info(
                    "session %s: no summary is requested for the next %d messages", session.id, wait
                )
            return None
        since = perf_counter()
        made = await make_summary(
            summariser,
            wanted.messages,
            wanted.prior_summary,
            counter=session.window.counter,
            max_tokens=wanted.max_tokens,
            list_tokens=wanted.list_tokens,
            replaced_tokens=wanted.replaced_tokens,
            visible_text=wanted.visible_text,
        )
        seconds = perf_counter() - since
        span = wanted.span
        attempt = build_summary_attempt(
            summariser, made, session.window.counter, at=session.budget().now
        )
        attempt = replace(
            attempt, first=span.first, last=span.last, replaced=wanted.replaced_tokens
        )
        attempt = await apply_summary_and_record_attempt(session, attempt, made.text, span=span)
    told = build_summary_finished(session, attempt, seconds)
    _log_summary(session, told)
    on_event(told)
    return attempt


def build_summary_finished(
    session: Session, attempt: SummaryAttempt, duration_s: float
) -> SummaryFinished:
    """What became of it, and how large the window is now."""
    window = session.window
    return SummaryFinished(
        attempt=attempt,
        messages=window.visible_messages,
        tokens=window.settings.head.tokens + window.tokens,
        summaries_so_far=window.accounting.summary_stats.made,
        seconds=duration_s,
    )


async def summarise_session_logging_errors(
    session: Session, summariser: Summariser, on_event: OnEvent = _ignore_event
) -> None:
    """The same, for nobody who waits: what goes wrong is only logged, the messages stay."""
    try:
        await summarise_session_if_due(session, summariser, on_event=on_event)
    except Exception as error:  # noqa: BLE001 - there is nobody to raise it to
        log.warning("session %s: the summary was not stored: %r", session.id, error)


async def configure_policy_for_summariser(session: Session, summariser: Summariser) -> None:
    """Let the session's policy wait for a summariser, and know what it costs."""
    options = session.options
    if options.summaries == "manual" or summariser.only_results:
        return
    context = cast("PolicyLimits", dict(options.limits))
    given = context.get("summary") or {}
    now = session.budget().now
    own = resolve_model_info(summariser.model, summariser.model_info, at=now).input_price
    prices = resolve_prices_at(session.window.settings.entry, now)
    price = relative_input_price(own, prices.get("input_price"))
    context["summary"] = {"price": price, **given}
    await session.configure(summaries="manual", limits=context)


def relative_input_price(summariser_price: float | None, session_price: float | None) -> float:
    """What an input token costs there, relative to the session's model; 1 where not known."""
    return (
        round(summariser_price / session_price, 4)
        if summariser_price is not None and session_price
        else 1.0
    )


async def apply_summary_and_record_attempt(
    session: Session, attempt: SummaryAttempt, text: str, **span_or_result: Any
) -> SummaryAttempt:
    """The attempt in the log, and with it the summary if it may stand; as it was recorded."""
    if text:
        try:
            await session.record_summary_attempt(attempt, text, **span_or_result)
        except UnusableSummary as refused:
            attempt = replace(attempt, outcome="rejected", why=str(refused), tokens=0, patched=0)
        else:
            return attempt
    await session.record_summary_attempt(attempt)
    return attempt


def _log_summary(session: Session, event: SummaryFinished) -> None:
    attempt, meter = event.attempt, session.window.accounting.summary_stats
    stands = attempt.outcome in ("made", "patched")
    sizes = f"{attempt.tokens} tokens for {attempt.replaced}"
    log.log(
        logging.INFO if stands else logging.WARNING,
        "Summary %s: %s (%s); window %d messages (~%d tokens); "
        "%d made, %d patched, %d rejected, %d failed so far",
        attempt.outcome,
        sizes if stands else f"{attempt.replaced} tokens of messages stay",
        attempt.why or "as it came",
        event.messages,
        event.tokens,
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
            "messages": event.messages,
            "tokens": event.tokens,
            "made": meter.made,
            "seconds": round(event.seconds, 3),
        },
    )


MAX_SHOWN_CHARS = 200_000
"""Of one result that a model is shown, head and tail: about 60,000 tokens are paid at most."""
MAX_PIECE_CHARS = 4_000
"""Of one piece, along lines; pieces are put together as far as the model's window goes."""
MAX_PARALLEL_SUMMARIES = 4
"""Results that a model is asked about side by side."""


@cache
def read_result_prompt() -> str:
    """What the model is told about a result."""
    return read_prompt_file("result.txt")


async def summarise_oversized_results(
    session: Session, summariser: Summariser | None, on_event: OnEvent
) -> None:
    """Let a model tell what results say that the next call would cut, where that is wanted."""
    wanted = session.pending_result_summaries()
    if not wanted:
        return
    if why := _explain_why_nobody_is_asked(session, summariser):
        log.warning(
            "session %s: %d results are cut without a summary: %s", session.id, len(wanted), why
        )
        return
    assert summariser is not None  # noqa: S101 - somebody is asked
    every = await _summarise_each_result(summariser, wanted, session.window.counter)
    for one, (made, seconds) in zip(wanted, every, strict=True):
        attempt = build_summary_attempt(
            summariser, made, session.window.counter, at=session.budget().now
        )
        attempt = replace(attempt, first=one.seq, last=one.seq, part=one.part, replaced=one.tokens)
        attempt = await apply_summary_and_record_attempt(session, attempt, made.text, result=one)
        told = build_summary_finished(session, attempt, seconds)
        _log_result_summary(session, one, told)
        on_event(told)


def _log_result_summary(
    session: Session, request: ResultSummaryRequest, event: SummaryFinished
) -> None:
    attempt, meter = event.attempt, session.window.accounting.summary_stats
    log.log(
        logging.INFO if attempt.tokens else logging.WARNING,
        "Result summary %s: %s of %s, %d tokens for %d (%s)%s; %d results summarised, "
        "%d cut instead so far",
        attempt.outcome,
        request.handle,
        request.tool,
        attempt.tokens,
        attempt.replaced,
        attempt.why or "as it came",
        "" if attempt.tokens else "; it is cut instead",
        meter.results,
        meter.results_cut,
        extra={
            "session": session.id,
            "outcome": attempt.outcome,
            "model": attempt.model,
            "handle": request.handle,
            "tool": request.tool,
            "summary_tokens": attempt.tokens,
            "replaced_tokens": attempt.replaced,
            "patched": attempt.patched,
            "seconds": round(event.seconds, 3),
        },
    )


async def make_result_summary(
    summariser: Summariser, request: ResultSummaryRequest, *, counter: TokenCounter
) -> SummaryResult:
    """A summary of one result, checked; never raises for a reply."""

    def judge(raw: str) -> ValidatedSummary:
        return validate_result_summary(
            raw,
            request.message,
            counter,
            max_tokens=request.max_tokens,
            list_tokens=request.list_tokens,
            max_total_tokens=request.max_total_tokens,
        )

    texts = list(split_result_for_summary(request.tool, request.result.text))
    return await summarise_texts(
        summariser, texts, judge, max_tokens=request.max_tokens, system=read_result_prompt()
    )


def split_result_for_summary(tool: str, text: str) -> Iterator[str]:
    """A result as texts to be read about: each line set in by a space, below a line that says what
    it is, so that nothing in it can pass for such a line."""
    shown = cut_middle(text, MAX_SHOWN_CHARS)
    part: list[str] = []
    size = number = 0
    for line in _split_long_lines(shown):
        if part and size + len(line) > MAX_PIECE_CHARS:
            number += 1
            yield _format_piece(tool, number, part)
            part, size = [], 0
        part.append(line)
        size += len(line) + 1
    if part:
        yield _format_piece(tool, number + 1, part)


def _format_piece(tool: str, number: int, lines: Sequence[str]) -> str:
    return "\n".join([f"result of {tool}, piece {number}:", *(f" {line}" for line in lines)])


def _split_long_lines(text: str) -> Iterator[str]:
    for line in text.splitlines():
        for start in range(0, max(1, len(line)), MAX_PIECE_CHARS):
            yield line[start : start + MAX_PIECE_CHARS]


def _explain_why_nobody_is_asked(session: Session, summariser: Summariser | None) -> str:
    """Why no model is asked now; nothing where one is."""
    if summariser is None:
        return "there is no summariser"
    wait = session.window.accounting.summary_stats.messages_until_result_retry(
        session.window.conversation.total_messages
    )
    return f"it failed lately, so no summary is requested for {wait} more messages" if wait else ""


async def _summarise_each_result(
    summariser: Summariser, requests: Sequence[ResultSummaryRequest], counter: TokenCounter
) -> list[tuple[SummaryResult, float]]:
    """What a model makes of each, and the seconds that it took."""
    free = asyncio.Semaphore(MAX_PARALLEL_SUMMARIES)

    async def one(each: ResultSummaryRequest) -> tuple[SummaryResult, float]:
        async with free:
            since = perf_counter()
            made = await make_result_summary(summariser, each, counter=counter)
            return made, perf_counter() - since

    return await asyncio.gather(*(one(each) for each in requests))
