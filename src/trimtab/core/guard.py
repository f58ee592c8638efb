"""The final guard: after any policy, the request fits by its upper bound, or it says why not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from trimtab.core.budget import Budget
from trimtab.core.event import Edit
from trimtab.core.message import Media, Text
from trimtab.core.plan import Cap, Plan
from trimtab.core.rounds import Entry, Group
from trimtab.core.window import Window

WHY = "guard: over the limit"
TOO_LARGE = "guard: larger than the room"
SLACK = 0.9
"""Share of the room that is filled when something is cut to it: more will be said."""
GIANT = 0.5
"""Share of the room that is left to what was said and found last, where it would not fit alone."""
LEAST = 0.1
"""The same for what came after others were cut so."""
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
    decided, least = tuple(edits), replace(budget, max_output=budget.least_output)
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


def _adopted(window: Window, budget: Budget, edits: Iterable[Edit]) -> Plan:
    plan = Plan(window, budget)
    plan.adopt(edits)
    return plan


def guard(plan: Plan) -> None:
    """Add to the plan until its bound fits; least loss first."""
    fits = _fits(plan)
    if fits():
        return
    cut_giants(plan, plan.budget.room)
    if fits():
        return
    _drop(plan, fits)
    if fits():
        return
    _mask_older(plan)
    for entries in (_active_results(plan), _newest_user(plan)):
        if fits():
            return
        _level(plan, list(entries))
    plan.shorten_summary(fits, WHY)
    if not fits():
        raise cannot_fit(plan)


def _drop(plan: Plan, fits: Callable[[], bool]) -> None:
    """Oldest groups go until it fits; what was asked for by name stays if others are enough."""
    before = plan.tokens

    def enough() -> bool:
        # A drop alone may make it fit, because the count reported for the old prefix no longer
        # holds: it must save more than the notice of it takes, too.
        return plan.tokens < before and fits()

    with plan.provided(fits):
        plan.drop_oldest(enough, WHY)
    if not fits():
        with plan.provided(lambda: plan.tokens < before or fits()):
            plan.drop_oldest(enough, WHY, unread=True)


def cut_giants(plan: Plan, room: int) -> None:
    """Where what was said and found last is larger than the room alone, cut it first: to let all
    the rest go would be in vain."""
    if plan.tokens <= room:
        return
    texts = [*_active_results(plan), *_newest_user(plan)]
    last = sum(plan.size(*text).tokens for text in texts)
    if last <= room:
        return
    # Once is enough: what is cut a little more at each call is read from no cache.
    cut = max(_cut_at(entry, part) for entry, part in texts)
    texts = [(entry, part) for entry, part in texts if entry.seq > cut]
    size = sum(plan.size(*text).tokens for text in texts)
    room = int(SLACK * room)
    left = max(int(GIANT * room) - (last - size), int(LEAST * room), room - (plan.tokens - size))
    # The small ones first: what they do not need is for the others.
    texts.sort(key=lambda text: plan.size(*text).tokens)
    for index, (entry, part) in enumerate(texts):
        share = left // (len(texts) - index)
        if plan.size(entry, part).tokens > share > 0:
            plan.truncate(entry, part, _cap(entry, part, share), TOO_LARGE)
        left -= plan.size(entry, part).tokens


def _cut_at(entry: Entry, part: int) -> int:
    """The position at which a text was cut to the room; 0 where it was not."""
    edit = entry.edits.get(part)
    return entry.edited_by[part] if edit is not None and edit.why in (WHY, TOO_LARGE) else 0


def _cap(entry: Entry, part: int, amount: int) -> Cap:
    """What was said keeps its end, too: questions stand there."""
    said = isinstance(entry.message.parts[part], Text)
    return Cap(amount=amount, strategy="both" if said else "head")


def cannot_fit(plan: Plan, *, refusal: str | None = None) -> CannotFit:
    """The error that says what cannot shrink; after a `refusal`, what the provider said."""
    needed = plan.bound() + plan.budget.max_output
    return CannotFit(plan.budget.limit, needed, _parts(plan, needed), refusal, plan.budget.source)


def _fits(plan: Plan) -> Callable[[], bool]:
    def fits() -> bool:
        return plan.bound() <= plan.budget.most_input

    return fits


def _kept(plan: Plan) -> Iterable[Group]:
    return [group for group in plan.groups() if plan.window.protected(group) or group.pinned]


def _mask_older(plan: Plan) -> None:
    """Results of rounds that must stay, but are not the active one, oldest first."""
    fits = _fits(plan)
    active = plan.window.rounds[-1] if plan.window.rounds else None
    for group in _kept(plan):
        for entry, part in list(_answers(plan, group)):
            if entry.pinned or entry.round is active:
                continue
            plan.mask(entry, part, WHY)
            if fits():
                return


def _answers(plan: Plan, group: Group) -> Iterable[tuple[Entry, int]]:
    """Results that are seen, late ones among them."""
    for result in group.results():
        if result.key in plan.window.results:
            yield result.entry, result.part
    for entry in group.entries():
        for part in entry.notes:
            yield entry, part


def _active_results(plan: Plan) -> Iterable[tuple[Entry, int]]:
    active = plan.window.rounds[-1] if plan.window.rounds else None
    for pairing in active.calls if active is not None else ():
        if pairing.result is not None and not pairing.result.entry.pinned:
            yield pairing.result.entry, pairing.result.part


def _newest_user(plan: Plan) -> Iterable[tuple[Entry, int]]:
    """Texts of the newest user message, and of whatever else was said in the active round."""
    entries = list(plan.window.rounds[-1].entries) if plan.window.rounds else []
    newest = plan.window.newest_user
    if newest is not None and newest not in entries:
        entries.append(newest)
    for entry in entries:
        if entry.message.role != "assistant" and not entry.pinned:
            for part, content in enumerate(entry.message.parts):
                if isinstance(content, Text | Media) or part in entry.notes:
                    yield entry, part


def _level(plan: Plan, texts: list[tuple[Entry, int]]) -> None:
    """Cut the largest texts to one cap, lowered until it fits; then hide what has no text."""
    fits = _fits(plan)
    sizes = sorted((plan.size(entry, part).tokens for entry, part in texts), reverse=True)
    cap = sizes[0] if sizes else 0
    # A token less takes up to this much off the bound: whoever forgets it cuts more than is over.
    counter = plan.window.counter
    weight = (1 + max(counter.unanchored, counter.single)) * plan.budget.ratio
    while cap > 0 and not fits():
        over = int((plan.bound() - plan.budget.most_input) / weight)
        tall = [size for size in sizes if size >= cap] or sizes[:1]
        step = max(over // max(1, len(tall)), cap // 8, 8)
        cap = cap - step if cap > step else 0
        for entry, part in texts:
            if plan.size(entry, part).tokens > cap:
                plan.truncate(entry, part, _cap(entry, part, cap), WHY)
    for entry, part in texts:
        if fits():
            return
        content = entry.message.parts[part]
        text = f"[{content.kind} removed]" if isinstance(content, Media) else None
        plan.mask(entry, part, WHY, text)


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
