"""What the presets that summarise share, and what they ask of those who can do better."""

from __future__ import annotations

from dataclasses import dataclass, replace

from trimtab.core.event import Edit
from trimtab.core.extract import extract, tells_of
from trimtab.core.fidelity import list_room, with_list
from trimtab.core.message import Message, Text, words_of_part
from trimtab.core.plan import Decision, Plan, Span
from trimtab.core.rejected import tellable
from trimtab.core.rounds import Group
from trimtab.core.summary_text import (
    LIST_TOKENS,
    MAX_TOKENS,
    fitted,
    list_cap,
    listed_text,
    split,
)
from trimtab.core.tokens import Counter, front_size
from trimtab.core.verdict import Rejected, looked_at
from trimtab.core.window import Window

NAME_TOKENS = 8
"""Of one name in a list of names, about."""


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
    tokens: int = 0
    """Tokens that both take now."""
    max_tokens: int = MAX_TOKENS
    """Tokens that the summary's sections may take."""
    list_tokens: int = LIST_TOKENS
    """Tokens that its list may take beside them."""
    seen: str = ""
    """What is said behind the messages and stays: the list need not repeat it."""


def stand_in(
    plan: Plan,
    older: list[Group],
    why: str,
    max_tokens: int | None = None,
    list_tokens: int | None = None,
) -> bool:
    """Replace the groups by an extractive summary, which needs no model."""
    text = extractive(plan, older, max_tokens=max_tokens, list_tokens=list_tokens)
    return plan.summarise(older, text, f"{why}; extractive")


def stand_in_down_to(
    plan: Plan,
    older: list[Group],
    low: int,
    why: str,
    *,
    least: int = 0,
    max_names: int = 0,
    max_tokens: int | None = None,
    list_tokens: int | None = None,
) -> None:
    """The same for as many of the oldest groups as leave no more tokens than `low`, and for the
    first `least` of them at any rate."""
    before = size_before(plan.window, plan.summary)
    text, taken, freed, need = "", 0, 0, plan.tokens - plan.words - low
    while taken < len(older) and (freed < need or taken < least):
        while taken < len(older) and (freed < need or taken < least):
            freed += plan.group_tokens(older[taken])
            taken += 1
        given = sorted(older[:taken], key=lambda group: group.index)
        text = extractive(
            plan, given, max_names=max_names, max_tokens=max_tokens, list_tokens=list_tokens
        )
        need = plan.tokens - plan.words - low + plan.size_of_summary(given, text) - before
    plan.summarise(older[:taken], text, f"{why}; extractive")


def first_of(older: list[Group], others: list[Group]) -> list[Group]:
    """Groups, and after them the others that are not among them."""
    known = {group.index for group in older}
    return [*older, *(group for group in others if group.index not in known)]


def low_water(plan: Plan, older: list[Group], low: int, most: int) -> int:
    """Tokens down to which groups are summarised: `low`, or more where what must stay is large.
    Not all that was said goes then: half of what may is enough."""
    stays = plan.tokens - sum(map(plan.net_tokens, older))
    return min(most, max(low, (stays + most) // 2))


def extractive(
    plan: Plan,
    older: list[Group],
    *,
    max_names: int = 0,
    max_tokens: int | None = None,
    list_tokens: int | None = None,
) -> str:
    """The summary so far and what the groups add to it, in no more than `max_tokens`.

    With `max_names` its names are a line of its own. Without, and wherever there was a list
    before, they are a list as of a summary that a model made.
    """
    prior = plan.summary
    messages = [tellable(entry) for group in older for entry in group.entries()]
    if plan.lists_whole(older):
        # What users said is not told: it stands in the list, word for word.
        messages = [message for message in map(_without_words, messages) if message.parts]
    elif plan.lists:
        messages = [*_untold(plan, older), *messages]
    before, counter = prior.text if prior else "", plan.window.counter
    body, listed = split(before)
    if max_tokens is None:
        text = extract(body, messages, counter, max_names=max_names)
    else:
        # A cap of the user's own is on the whole text: at most half of it are names.
        lines = max_tokens // 2 if max_names else max_tokens
        names = min(max_names, (max_tokens - lines) // NAME_TOKENS)
        text = extract(body, messages, counter, max_tokens=lines, max_names=names)
        while names and counter.count(text) > max_tokens:
            names //= 2
            text = extract(body, messages, counter, max_tokens=lines, max_names=names)
    if max_names and not listed:
        return text
    replaced = sum(plan.group_tokens(group) for group in older) + size_before(plan.window, prior)
    most = listable(before, replaced, counter) if list_tokens is None else list_tokens
    room = list_room(text, listed, counter, replaced, most)
    seen = still_seen(plan.window, older[-1].last) if older else ""
    return with_list(before, messages, text, counter, list_tokens=room, seen=seen)


def _untold(plan: Plan, older: list[Group]) -> list[Message]:
    """What users said and the list may have no room for any more, as far as the summary that is to
    be made covers it and the one before it does not tell of it."""
    prior, text = plan.summary, plan.summary.text if plan.summary else ""
    first = min([group.first for group in older] + ([prior.first] if prior else []))
    listed = sorted(plan.window.words.messages.items())
    return [said for seq, (said, _) in listed if seq >= first and not tells_of(text, said)]


def _without_words(message: Message) -> Message:
    if message.role != "user":
        return message
    parts = tuple(part for part in message.parts if not isinstance(part, Text))
    return replace(message, parts=parts)


def listable(prior: str, replaced: int, counter: Counter) -> int:
    """Tokens that the list of a summary may take where nobody has set them."""
    return list_cap(replaced, counter.count(listed_text(split(prior)[1])))


def still_seen(window: Window, last: int) -> str:
    """All that is said behind a position and that the model sees as it was said."""
    return "\n".join(
        text
        for group in window.groups
        if group.hidden is None and group.first > last
        for entry in group.entries()
        for index, part in enumerate(entry.message.parts)
        if index not in entry.edits and (text := words_of_part(part))
    )


def size_before(window: Window, summary: Edit | None) -> int:
    """Tokens of the summary so far, as it is sent."""
    return front_size(window.counter, window.framed(summary), "").tokens


def wanted_span(plan: Plan, older: list[Group]) -> Span | None:
    """The messages that someone should summarise; None where there are none."""
    if not older:
        return None
    first, last = min(group.first for group in older), max(group.last for group in older)
    taken = {group.index for group in older}
    between = (group for group in plan.window.between(first, last) if group.hidden is None)
    spares = tuple(g.first for g in between if g.index not in taken and plan.keeps(g))
    return Span(first=first, last=last, spares=spares)


def wanted(window: Window, decision: Decision, *, forced: bool = False) -> WantedSummary | None:
    """The messages that a policy wants summarised and are still seen, with the summary before them.

    Where it is `forced`, those instead that the policy would put a stand-in for.
    """
    edits = (edit for edit in decision.edits if edit.op == "summarise")
    spans = (Span(first=edit.first, last=edit.last, spares=edit.spares) for edit in edits)
    span = next(spans, None) if forced else decision.wanted
    if span is None:
        return None
    groups = [group for group in window.between(span.first, span.last) if span.takes(group)]
    tokens = sum(group.tokens for group in groups) + size_before(window, window.summary)
    prior, listed = window.summary.text if window.summary else "", decision.list_tokens
    tells = (window.summary.first, window.summary.last) if window.summary else None
    return WantedSummary(
        messages=tuple(tellable(entry) for group in groups for entry in group.entries()),
        prior=prior,
        span=replace(span, position=window.seq, tells=tells),
        tokens=tokens,
        max_tokens=MAX_TOKENS if decision.summary_tokens is None else decision.summary_tokens,
        list_tokens=listable(prior, tokens, window.counter) if listed is None else listed,
        seen=still_seen(window, span.last),
    )


def summarised(plan: Plan, span: Span, text: str, decision: Decision) -> tuple[Edit, ...]:
    """The edits that put a summary in place of a span; its oldest lines go if it is too long."""
    named = f"the summary of m{span.first}-m{span.last}"
    window = plan.window
    if _rewritten(window, span):
        raise SummaryRefused(
            f"{named} was made from messages that have been undone or erased since; ask again for "
            "what should be summarised"
        )
    groups = [group for group in window.between(span.first, span.last) if span.takes(group)]
    replaced = sum(group.tokens for group in groups) + size_before(window, window.summary)
    prior, listed = window.summary.text if window.summary else "", decision.list_tokens
    if listed is None and decision.summary_tokens is not None:
        listed = listable(prior, replaced, window.counter)
    try:
        text = looked_at(text)
    except Rejected as why:
        raise SummaryRefused(f"{named} was not taken: {why}; the messages stay") from why
    if not text.strip():
        raise SummaryRefused(f"{named} is empty; the messages stay")
    size = window.counter.count(text)
    smaller = size < replaced
    text = fitted(text, window.counter, decision.summary_tokens, listed)
    if not smaller or not plan.summarise(groups, text, "summary"):
        if smaller and groups:
            size = plan.size_of_summary(groups, text)
        raise SummaryRefused(
            f"{named} is not smaller than what it replaces: {size} tokens, the list and the words "
            f"around it included, in place of {replaced}; the messages stay"
        )
    return plan.decision().edits


def _rewritten(window: Window, span: Span) -> bool:
    """Whether messages that the text tells of were undone or destroyed after it was asked for, or
    the summary that it carries on is no longer in force."""
    since = window.seq if span.position is None else span.position
    begin, end = span.first, span.last
    if span.tells is not None:
        if window.summary is None or window.summary.first > span.tells[0]:
            return True
        begin, end = min(begin, span.tells[0]), max(end, span.tells[1])
    undone = any(at > since and to < end for at, to in window.rewinds)
    return undone or any(
        at > since and first <= end and begin <= last for first, last, _, at in window.erased
    )
