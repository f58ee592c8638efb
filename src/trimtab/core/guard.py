"""The final guard: after any policy, the request fits by its upper bound, or it says why not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from trimtab.core.budget import Budget
from trimtab.core.event import Edit
from trimtab.core.plan import Plan
from trimtab.core.rounds import Entry, Group
from trimtab.core.sacrifice import (
    Place,
    cap_of,
    least_words,
    new_results,
    newest_words,
    sacrifice,
)
from trimtab.core.window import Window

WHY = "guard: over the limit"
TOO_LARGE = "guard: larger than the room"
SLACK = 0.9
"""Share of the room that is filled when something is cut to it: more will be said."""
GIANT = 0.5
"""Share of the room that is left to what was said and found last, where it would not fit alone."""
LEAST = 0.1
"""The same for what came after others were cut so."""
ROUNDS = 3
"""How often it is tried again after an estimate turned out too low."""
LISTED = 5
"""Messages that an error names."""
_MARGIN = "margin of the estimate"
_OTHERS = "other messages that must stay"
_OWN = ("max_input_tokens", "context_window")
_SHORTER = {
    "system prompt and tools": "a shorter system prompt or fewer tools",
    "requested output": "a smaller max_output_tokens",
    "volatile tail": "a shorter volatile text",
}
"""By part: what makes it smaller."""


class CannotFit(ValueError):
    """What must be sent is larger than the model takes."""

    def __init__(
        self,
        limit: int,
        needed: int,
        parts: dict[str, int],
        refusal: str | None = None,
        source: str = "model",
    ) -> None:
        self.limit = limit
        """Tokens that input and output may reach together."""
        self.needed = needed
        """Tokens that the smallest request we could make takes, as an upper bound."""
        self.parts = parts
        """What cannot shrink, by name, in tokens."""
        self.refusal = refusal
        """The provider's words, where it refused what fits by all that we know."""
        told = ", ".join(f"{name} {size:,}" for name, size in parts.items() if size)
        if refusal is None:
            own = f" ({source})" if source in _OWN else ""
            what = (
                f"the request needs up to {needed:,} tokens and the limit{own} is {limit:,}; what"
            )
            then = "Use"
        else:
            words = f" Its words: {refusal!r}." if refusal else ""
            what = (
                f"the provider refused the request for its length, at {needed:,} tokens at most by "
                f"our count, output included.{words} The limit that we know of is {limit:,}. What"
            )
            then = "Set context_window to what the provider really takes; or use"
        larger = f"a larger {source}" if refusal is None and source in _OWN else ""
        advice = [larger or "a model with a larger window", *_advice(parts, limit, needed)]
        super().__init__(f"{what} cannot shrink: {told}. {then} {', or '.join(advice)}")


def _advice(parts: Mapping[str, int], limit: int, needed: int) -> Iterator[str]:
    """What makes the largest parts smaller."""
    named = [name for name in parts if name not in (_MARGIN, _OTHERS)]
    for name in sorted(named, key=lambda part: -parts[part])[:2]:
        handle = name.split()[-1]
        if name.startswith("pinned"):
            yield f"pin({handle!r}, pinned=False)"
        elif parts[name] * 10 > needed:
            yield _SHORTER.get(name, f"rewind() to before {handle}")
    if needed - parts.get(_MARGIN, 0) <= limit < needed:
        yield "a tokenizer of your own that counts exactly"


def guarded(window: Window, budget: Budget, edits: Iterable[Edit]) -> tuple[Edit, ...]:
    """A policy's edits, and what it takes beside them for the request to fit.

    Before it gives up, it asks for less output, unless the user has said how much. After a refusal
    for length it does so before it hides anything.
    """
    decided = worthwhile(window, budget, tuple(edits))
    least = replace(budget, max_output=budget.least_output)
    if budget.output_first and _fits(plan := _adopted(window, least, decided))():
        return plan.decision().edits
    plan = _adopted(window, budget, decided)
    try:
        guard(plan)
    except CannotFit:
        if budget.max_output <= budget.least_output:
            raise
        plan = _adopted(window, least, decided)
        guard(plan)
    return plan.decision().edits


def worthwhile(window: Window, budget: Budget, edits: tuple[Edit, ...]) -> tuple[Edit, ...]:
    """The edits, without those of what was sent where all of them do not make the request smaller
    by its upper bound: they would only be written to the provider's cache."""
    plan = _adopted(window, budget, edits)
    plan.settle()
    if not plan.breaks or plan.bound() < Plan(window, budget).bound():
        return edits
    return tuple(edit for edit in edits if edit.part is not None and edit.first > window.sent)


def _adopted(window: Window, budget: Budget, edits: Iterable[Edit]) -> Plan:
    plan = Plan(window, budget)
    plan.adopt(edits)
    return plan


def guard(plan: Plan) -> None:
    """Add to the plan until its bound fits; least loss first."""
    fits = _fits(plan)
    plan.settle()
    if fits():
        return
    cut_giants(plan, plan.budget.room)
    _drop_unshowable(plan, fits)
    # What was estimated is counted once it is settled, and may turn out to be more.
    for _ in range(ROUNDS):
        sacrifice(plan, fits, WHY)
        plan.settle()
        if fits():
            return
    # Where nobody named a limit, it is the refusal that has to be told.
    raise cannot_fit(plan, refusal="" if plan.window.refused else None)


def _drop_unshowable(plan: Plan, fits: Callable[[], bool]) -> None:
    """What was revealed and would not fit if all else went goes at once: it costs nothing else."""
    for group in [group for group in plan.groups() if plan.unread(group)]:
        possible = False
        with plan.provided(lambda: False):  # only to see
            for other in plan.groups():
                if not plan.unread(other):
                    plan.drop(other, WHY)
            possible = fits()
        if possible:
            return
        plan.drop(group, WHY)


def cut_giants(plan: Plan, room: int) -> None:
    """Where what was said and found last is larger than the room alone, cut it first: to let all
    the rest go would be in vain. What was said is cut less than what was found."""
    said, found = newest_words(plan), new_results(plan)
    last = sum(plan.size(*place).tokens for place in (*said, *found))
    if plan.tokens <= room or last <= room:
        return
    # Once is enough: what is cut a little more at each call is read from no cache.
    cut = max(_cut_at(entry, part) for entry, part in (*said, *found))
    said = [place for place in said if place[0].seq > cut]
    found = [place for place in found if place[0].seq > cut]
    words = sum(plan.size(*place).tokens for place in said)
    size = words + sum(plan.size(*place).tokens for place in found)
    room = int(SLACK * room)
    left = max(int(GIANT * room) - (last - size), int(LEAST * room), room - (plan.tokens - size))
    kept = min(words, max(left // 2 if found else left, least_words(plan)))
    _share(plan, said, kept)
    _share(plan, found, max(left - kept, int(LEAST * room)))


def _share(plan: Plan, texts: list[Place], left: int) -> None:
    """Cut texts so that they take no more than is left for them."""
    # The small ones first: what they do not need is for the others.
    texts.sort(key=lambda place: plan.size(*place).tokens)
    for index, (entry, part) in enumerate(texts):
        share = left // (len(texts) - index)
        if plan.size(entry, part).tokens > share > 0:
            plan.truncate(entry, part, cap_of(entry, part, share), TOO_LARGE)
        left -= plan.size(entry, part).tokens


def _cut_at(entry: Entry, part: int) -> int:
    """The position at which a text was cut to the room; 0 where it was not."""
    edit = entry.edits.get(part)
    return entry.edited_by[part] if edit is not None and edit.why in (WHY, TOO_LARGE) else 0


def cannot_fit(plan: Plan, *, refusal: str | None = None) -> CannotFit:
    """The error that says what cannot shrink; after a `refusal`, what the provider said."""
    needed, last = plan.bound() + plan.budget.max_output, plan.window.last_call
    if refusal is not None and last is not None:
        # What was refused counts, not what could be asked for now.
        needed = last.body.bound + last.body.max_output
        plan.budget = replace(plan.budget, max_output=last.body.max_output)
    return CannotFit(plan.budget.limit, needed, _parts(plan, needed), refusal, plan.budget.source)


def _fits(plan: Plan) -> Callable[[], bool]:
    def fits() -> bool:
        return plan.bound() <= plan.budget.most_input

    return fits


def _kept(plan: Plan) -> Iterable[Group]:
    return [
        group
        for group in plan.groups()
        if plan.window.protected(group) or group.pinned or group.instructs
    ]


def _parts(plan: Plan, needed: int) -> dict[str, int]:
    kept: dict[str, int] = {}
    for group in _kept(plan):
        for entry in group.entries():
            size = sum(plan.size(entry, part).tokens for part in range(len(entry.sizes)))
            pinned = "pinned " if entry.pinned else ""
            name = f"{pinned}{entry.message.role} message m{entry.seq}"
            kept[name] = size
    largest = dict(sorted(kept.items(), key=lambda item: -item[1])[:LISTED])
    parts = {
        "system prompt and tools": plan.budget.head.tokens,
        "requested output": plan.budget.max_output,
        "volatile tail": plan.budget.volatile,
        **largest,
        _OTHERS: sum(kept.values()) - sum(largest.values()),
    }
    return {**parts, _MARGIN: max(0, needed - sum(parts.values()))}
