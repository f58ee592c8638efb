"""Single tool results over their cap, summarised by a model before they are first sent.

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

from trimtab.core.policies.results import WantedResult
from trimtab.core.serial import middle_out
from trimtab.core.tokens import Counter
from trimtab.core.verdict import Verdict, judged_result
from trimtab.session.happenings import Summarised
from trimtab.session.session import Session
from trimtab.session.summarise import recorded, summarised
from trimtab.session.summariser import Made, Summariser, attempt_of, made_of, text_of
from trimtab.session.tools import Tell

SHOWN_CHARS = 200_000
"""Of one result that a model is shown, head and tail: about 60,000 tokens are paid at most."""
PIECE_CHARS = 4_000
"""Of one piece, along lines; pieces are put together as far as the model's window goes."""
MOST_AT_ONCE = 4
"""Results that a model is asked about side by side."""

log = logging.getLogger("trimtab.summary")


@cache
def prompt() -> str:
    """What the model is told about a result."""
    return text_of("result.txt")


async def summarise_results(session: Session, summariser: Summariser | None, tell: Tell) -> None:
    """Let a model tell what results say that the next call would cut, where that is wanted."""
    wanted = session.wanted_results()
    if not wanted:
        return
    if why := _asks_nobody(session, summariser):
        log.warning("session %s: %d results are cut: %s", session.id, len(wanted), why)
        return
    assert summariser is not None  # noqa: S101 - somebody is asked
    every = await _asked(summariser, wanted, session.window.counter)
    for one, (made, seconds) in zip(wanted, every, strict=True):
        attempt = attempt_of(summariser, made, session.window.counter)
        attempt = replace(attempt, first=one.seq, last=one.seq, part=one.part, replaced=one.tokens)
        attempt = await recorded(session, attempt, made.text, result=one)
        told = summarised(session, attempt, seconds)
        _log(session, one, told)
        tell(told)


def _log(session: Session, one: WantedResult, told: Summarised) -> None:
    attempt, meter = told.attempt, session.window.summaries
    log.log(
        logging.INFO if attempt.tokens else logging.WARNING,
        "Result summary %s: %s of %s, %d tokens for %d (%s)%s; %d results summarised, "
        "%d cut instead so far",
        attempt.outcome,
        one.handle,
        one.tool,
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
            "handle": one.handle,
            "tool": one.tool,
            "summary_tokens": attempt.tokens,
            "replaced_tokens": attempt.replaced,
            "patched": attempt.patched,
            "seconds": round(told.seconds, 3),
        },
    )


async def make_result_summary(
    summariser: Summariser, wanted: WantedResult, *, counter: Counter
) -> Made:
    """A summary of one result, checked; never raises for a reply."""

    def judge(raw: str) -> Verdict:
        return judged_result(
            raw,
            wanted.message,
            counter,
            max_tokens=wanted.max_tokens,
            list_tokens=wanted.list_tokens,
            most=wanted.most,
        )

    texts = list(pieces(wanted.tool, wanted.result.text))
    return await made_of(summariser, texts, judge, max_tokens=wanted.max_tokens, system=prompt())


def pieces(tool: str, text: str) -> Iterator[str]:
    """A result as texts to be read about: each line set in by a space, below a line that says what
    it is, so that nothing in it can pass for such a line."""
    shown = middle_out(text, SHOWN_CHARS)
    part: list[str] = []
    size = number = 0
    for line in _short_lines(shown):
        if part and size + len(line) > PIECE_CHARS:
            number += 1
            yield _piece(tool, number, part)
            part, size = [], 0
        part.append(line)
        size += len(line) + 1
    if part:
        yield _piece(tool, number + 1, part)


def _piece(tool: str, number: int, lines: Sequence[str]) -> str:
    return "\n".join([f"result of {tool}, piece {number}:", *(f" {line}" for line in lines)])


def _short_lines(text: str) -> Iterator[str]:
    for line in text.splitlines():
        for start in range(0, max(1, len(line)), PIECE_CHARS):
            yield line[start : start + PIECE_CHARS]


def _asks_nobody(session: Session, summariser: Summariser | None) -> str:
    """Why no model is asked now; nothing where one is."""
    if summariser is None:
        return "there is no summariser"
    wait = session.window.summaries.waits_for_results(session.window.said)
    return f"it failed lately, no model is asked for {wait} more messages" if wait else ""


async def _asked(
    summariser: Summariser, wanted: Sequence[WantedResult], counter: Counter
) -> list[tuple[Made, float]]:
    """What a model makes of each, and the seconds that it took."""
    free = asyncio.Semaphore(MOST_AT_ONCE)

    async def one(each: WantedResult) -> tuple[Made, float]:
        async with free:
            since = perf_counter()
            made = await make_result_summary(summariser, each, counter=counter)
            return made, perf_counter() - since

    return await asyncio.gather(*(one(each) for each in wanted))
