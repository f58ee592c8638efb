"""Summaries of a session: requested, checked, applied and recorded in the log.

If a summary fails, the messages stay. After failures in a row, no summary is requested for a while.
The log decides how long, so a restarted process also waits.

Single tool results over their cap can be summarised by a model before they are first sent. The
whole text is in the log and can be recalled by its handle. If no summary can be used, the result is
cut, as it would have been without a model. The turn continues in either case.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from time import perf_counter
from typing import Any, cast

from trimtab.engine.log.event import SummaryAttempt
from trimtab.engine.policy.config import PolicyLimits, parse_policy_config
from trimtab.engine.policy.summary_requests import ResultSummaryRequest
from trimtab.engine.summaries.transcript import cut_middle
from trimtab.engine.summaries.validation import ValidatedSummary, validate_result_summary
from trimtab.engine.text.quoting import collapse_whitespace
from trimtab.engine.tokens.cost import resolve_prices_at
from trimtab.engine.tokens.counter import TokenCounter
from trimtab.errors import UnusableSummary
from trimtab.models.catalog import resolve_model_info
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
    """Make the summary that the session's policy wants; return None if it wants none now.

    `instead_of_placeholder` makes the summary for which the next call would use an extract.
    Messages that are added in the meantime stay. If messages are undone or erased in the meantime,
    the summary is not used.
    """
    if (
        summariser.only_results
        or await session.pending_summary(forced=instead_of_placeholder) is None
    ):
        return None  # a turn does not wait for a summary that it can do without
    async with session.recorder.summary_lock:
        request = await session.pending_summary(forced=instead_of_placeholder)
        if request is None:
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
        summary = await make_summary(
            summariser,
            request.messages,
            request.prior_summary,
            counter=session.window.counter,
            max_tokens=request.max_tokens,
            list_tokens=request.list_tokens,
            replaced_tokens=request.replaced_tokens,
            visible_text=request.visible_text,
            max_message_chars=parse_policy_config(session.options.limits).summary.max_message_chars,
        )
        seconds = perf_counter() - since
        span = request.span
        attempt = build_summary_attempt(
            summariser, summary, session.window.counter, at=session.budget().now
        )
        attempt = replace(
            attempt, first=span.first, last=span.last, replaced=request.replaced_tokens
        )
        attempt = await apply_summary_and_record_attempt(session, attempt, summary.text, span=span)
    finish_event = build_summary_finished(session, attempt, seconds)
    _log_summary(session, finish_event)
    on_event(finish_event)
    return attempt


def build_summary_finished(
    session: Session, attempt: SummaryAttempt, duration_s: float
) -> SummaryFinished:
    """Build the event that reports the outcome and the size of the window now."""
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
    """Do the same in the background: an error is only logged, and the messages stay."""
    try:
        await summarise_session_if_due(session, summariser, on_event=on_event)
    except Exception as error:  # noqa: BLE001 - there is nobody to raise it to
        log.warning("session %s: the summary was not stored: %r", session.id, error)


async def configure_policy_for_summariser(session: Session, summariser: Summariser) -> None:
    """Configure the session's policy to wait for the summariser, and tell it the price."""
    options = session.options
    if options.summaries == "manual" or summariser.only_results:
        return
    context = cast("PolicyLimits", dict(options.limits))
    summary_limits = context.get("summary") or {}
    now = session.budget().now
    summariser_price = resolve_model_info(
        summariser.model, summariser.model_info, at=now
    ).input_price
    prices = resolve_prices_at(session.window.settings.entry, now)
    price = relative_input_price(summariser_price, prices.get("input_price"))
    context["summary"] = {"price": price, **summary_limits}
    await session.configure(summaries="manual", limits=context)


def relative_input_price(summariser_price: float | None, session_price: float | None) -> float:
    """Return the input price relative to the session's model; 1 if it is unknown."""
    return (
        round(summariser_price / session_price, 4)
        if summariser_price is not None and session_price
        else 1.0
    )


async def apply_summary_and_record_attempt(
    session: Session, attempt: SummaryAttempt, text: str, **span_or_result: Any
) -> SummaryAttempt:
    """Record the attempt and apply the summary if it can be used; return the attempt as
    recorded."""
    if text:
        try:
            await session.recorder.record_summary_attempt(attempt, text, **span_or_result)
        except UnusableSummary as refusal:
            attempt = replace(attempt, outcome="rejected", why=str(refusal), tokens=0, patched=0)
        else:
            return attempt
    await session.recorder.record_summary_attempt(attempt)
    return attempt


def _log_summary(session: Session, event: SummaryFinished) -> None:
    attempt = event.attempt
    meter = session.window.accounting.summary_stats
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
"""Maximum number of characters of one result that a model reads, head and tail: about 60,000
tokens."""
MAX_PIECE_CHARS = 4_000
"""Maximum number of characters of one piece, split at lines. Pieces are joined up to the window."""
MAX_PARALLEL_SUMMARIES = 4
"""How many results are summarised at the same time."""


@cache
def read_result_prompt() -> str:
    """Return the prompt for the summary of a result."""
    return read_prompt_file("result.txt")


async def summarise_oversized_results(
    session: Session, summariser: Summariser | None, on_event: OnEvent
) -> None:
    """Summarise results that the next call would cut, if the limits ask for it."""
    requests = await session.pending_result_summaries()
    if not requests:
        return
    if why := _explain_why_nobody_is_asked(session, summariser):
        log.warning(
            "session %s: %d results are cut without a summary: %s", session.id, len(requests), why
        )
        return
    assert summariser is not None  # noqa: S101 - somebody is asked
    every = await _summarise_each_result(summariser, requests, session.window.counter)
    for one, (summary, seconds) in zip(requests, every, strict=True):
        attempt = build_summary_attempt(
            summariser, summary, session.window.counter, at=session.budget().now
        )
        attempt = replace(attempt, first=one.seq, last=one.seq, part=one.part, replaced=one.tokens)
        attempt = await apply_summary_and_record_attempt(session, attempt, summary.text, result=one)
        finish_event = build_summary_finished(session, attempt, seconds)
        _log_result_summary(session, one, finish_event)
        on_event(finish_event)


def _log_result_summary(
    session: Session, request: ResultSummaryRequest, event: SummaryFinished
) -> None:
    attempt = event.attempt
    meter = session.window.accounting.summary_stats
    log.log(
        logging.INFO if attempt.tokens else logging.WARNING,
        "Summary of %s, a result of the tool %s, %s: %d tokens instead of %d (%s)%s. So far, %d "
        "results were summarised and %d were cut",
        request.handle,
        request.tool,
        attempt.outcome,
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
    """Summarise one result and check the summary. A bad reply never raises."""

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
    """Split a result into pieces for the model.

    Each line is indented by a space, below a heading, so that no line can be mistaken for a
    heading.
    """
    excerpt = cut_middle(text, MAX_SHOWN_CHARS)
    part: list[str] = []
    size = number = 0
    for line in _split_long_lines(excerpt):
        if part and size + len(line) > MAX_PIECE_CHARS:
            number += 1
            yield _format_piece(tool, number, part)
            part = []
            size = 0
        part.append(line)
        size += len(line) + 1
    if part:
        yield _format_piece(tool, number + 1, part)


def _format_piece(tool: str, number: int, lines: Sequence[str]) -> str:
    heading = f"result of {collapse_whitespace(tool)}, piece {number}:"
    return "\n".join([heading, *(f" {line}" for line in lines)])


def _split_long_lines(text: str) -> Iterator[str]:
    for line in text.splitlines():
        for start in range(0, max(1, len(line)), MAX_PIECE_CHARS):
            yield line[start : start + MAX_PIECE_CHARS]


def _explain_why_nobody_is_asked(session: Session, summariser: Summariser | None) -> str:
    """Explain why no model is called now; empty if one is called."""
    if summariser is None:
        return "there is no summariser"
    wait = session.window.accounting.summary_stats.messages_until_result_retry(
        session.window.conversation.total_messages
    )
    return (
        f"the summariser failed recently, so no summary is requested for {wait} more messages"
        if wait
        else ""
    )


async def _summarise_each_result(
    summariser: Summariser, requests: Sequence[ResultSummaryRequest], counter: TokenCounter
) -> list[tuple[SummaryResult, float]]:
    """Return the summary of each result, and the seconds it took."""
    free = asyncio.Semaphore(MAX_PARALLEL_SUMMARIES)

    async def one(each: ResultSummaryRequest) -> tuple[SummaryResult, float]:
        async with free:
            since = perf_counter()
            summary = await make_result_summary(summariser, each, counter=counter)
            return summary, perf_counter() - since

    return await asyncio.gather(*(one(each) for each in requests))
