"""What the presets that summarise share, and what they ask of those who can do better."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from trimtab.core.event import Edit
from trimtab.core.extract import extract, newest_lines
from trimtab.core.message import Message
from trimtab.core.plan import Plan, Span
from trimtab.core.rounds import Group
from trimtab.core.tokens import front_size
from trimtab.core.window import Window


class SummaryRefused(ValueError):
    """A summary that would not make the context smaller, or that is no longer true."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedSummary:
    """What should be summarised now, by someone who can."""

    messages: tuple[Message, ...]
    """The messages that the summary will replace, oldest first."""
    prior: str
    """The summary so far, which the new one must carry on; empty for the first."""
    span: Span
    """Where the messages stand in the log."""


def stand_in(plan: Plan, older: list[Group], why: str) -> bool:
    """Replace the groups by an extractive summary, which needs no model."""
    return plan.summarise(older, extractive(plan, older), f"{why}; extractive")


def stand_in_down_to(plan: Plan, older: list[Group], low: int, why: str, *, max_names: int) -> None:
    """The same for as many of the oldest groups as leave no more tokens than `low`."""
    size = partial(front_size, plan.window.counter)
    prior = plan.window.summary
    before = size(prior.text if prior else "", "").tokens
    text, taken, freed, need = "", 0, 0, plan.tokens - low
    while freed < need and taken < len(older):
        while freed < need and taken < len(older):
            freed += plan.group_tokens(older[taken])
            taken += 1
        text = extractive(plan, older[:taken], max_names)
        need = plan.tokens - low + size(text, "").tokens - before
    plan.summarise(older[:taken], text, f"{why}; extractive")


def extractive(plan: Plan, older: list[Group], max_names: int = 0) -> str:
    """The summary so far and what the groups add to it."""
    prior = plan.window.summary
    messages = [entry.message for group in older for entry in group.entries()]
    before = prior.text if prior else ""
    return extract(before, messages, plan.window.counter, max_names=max_names)


def wanted_span(older: list[Group]) -> Span | None:
    """The messages that someone should summarise; None where there are none."""
    return Span(first=older[0].first, last=older[-1].last) if older else None


def wanted(window: Window, span: Span) -> WantedSummary:
    """The messages of a span that are still seen, with the summary before them."""
    groups = [group for group in window.between(span.first, span.last) if group.hidden is None]
    return WantedSummary(
        messages=tuple(entry.message for group in groups for entry in group.entries()),
        prior=window.summary.text if window.summary else "",
        span=replace(span, position=window.seq),
    )


def summarised(plan: Plan, span: Span, text: str, max_tokens: int | None) -> tuple[Edit, ...]:
    """The edits that put a summary in place of a span; its oldest lines go if it is too long."""
    named = f"the summary of m{span.first}-m{span.last}"
    window = plan.window
    if _rewritten(window, span):
        raise SummaryRefused(
            f"{named} was made from messages that have been undone or erased since; ask again for "
            "what should be summarised"
        )
    if max_tokens is not None:
        text = newest_lines(text, window.counter, max_tokens)
    groups = [group for group in window.between(span.first, span.last) if group.hidden is None]
    if not text.strip() or not plan.summarise(groups, text, "summary"):
        raise SummaryRefused(
            f"{named} is empty or not smaller than what it replaces; the messages stay"
        )
    return plan.decision().edits


def _rewritten(window: Window, span: Span) -> bool:
    """Whether messages of the span were undone or destroyed after it was named."""
    since = window.seq if span.position is None else span.position
    undone = any(at > since and to < span.last for at, to in window.rewinds)
    return undone or any(
        at > since and first <= span.last and span.first <= last
        for first, last, _, at in window.erased
    )
