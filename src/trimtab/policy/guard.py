"""The final guard: after any policy, the request fits by its upper bound, or it says why not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Literal

from trimtab.errors import TrimtabError
from trimtab.log.event import Edit
from trimtab.policy.budget import Budget
from trimtab.policy.hiding_steps import (
    PartRef,
    build_text_cap_for_part,
    compute_min_newest_text_tokens,
    hide_in_order,
    list_active_round_results,
    list_newest_user_text_parts,
)
from trimtab.policy.media_over_limits import hide_media_over_limits, list_pinned_over_limits
from trimtab.policy.planning.plan import Plan
from trimtab.window.entries_rounds_groups import Entry, Group
from trimtab.window.window import Window

OVER_LIMIT_REASON = "guard: over the limit"
OVER_ROOM_REASON = "guard: larger than the room"
CUT_FILL_SHARE = 0.9
"""Share of the room that is filled when something is cut to it: more will be said."""
OVERSIZED_ROOM_SHARE = 0.5
"""Share of the room that is left to what was said and found last, where it would not fit alone."""
MIN_OVERSIZED_ROOM_SHARE = 0.1
"""The same for what came after others were cut so."""
MAX_GUARD_ATTEMPTS = 3
"""How often it is tried again after an estimate turned out too low."""
MAX_NAMED_MESSAGES = 5
"""Messages that an error names."""
_MARGIN_LABEL = "margin of the estimate"
_OTHERS_LABEL = "other messages that must stay"
_USER_SET_LIMITS = ("max_input_tokens", "context_window")
_ADVICE_BY_PART = {
    "system prompt and tools": "a shorter system prompt or fewer tools",
    "requested output": "a smaller max_output_tokens",
    "volatile tail": "a shorter volatile text",
}
"""By part: what makes it smaller."""
LimitUnit = Literal["tokens", "bytes", "pictures"]
_ADVICE_BY_UNIT: dict[LimitUnit, str] = {
    "bytes": "limits={'max_request_bytes': …} if the provider takes more",
    "pictures": "limits={'max_pictures': …} if the provider takes more",
}


class CannotFit(TrimtabError, ValueError):
    """What must be sent is larger than the model takes."""

    def __init__(
        self,
        limit: int,
        needed: int,
        parts: dict[str, int],
        refusal: str | None = None,
        source: str = "model",
        *,
        unit: LimitUnit = "tokens",
    ) -> None:
        self.limit = limit
        """Tokens that input and output may reach together; else what `unit` says."""
        self.needed = needed
        """Tokens that the smallest request we could make takes, as an upper bound."""
        self.parts = parts
        """What cannot shrink, by name, in tokens."""
        self.unit: LimitUnit = unit
        """What is counted: `tokens`, or the `bytes` or `pictures` of a request."""
        self.refusal = refusal
        """The provider's words, where it refused what fits by all that we know."""
        told = ", ".join(f"{name} {size:,}" for name, size in parts.items() if size)
        if refusal is None:
            own = f" ({source})" if source in _USER_SET_LIMITS else ""
            what = (
                f"the request needs up to {needed:,} {unit} and the limit{own} is {limit:,}; what"
            )
            then = "Use"
        else:
            words = f" Its words: {refusal!r}." if refusal else ""
            what = (
                f"the provider refused the request for its length, at {needed:,} tokens at most by "
                f"our count, output included.{words} The limit that we know of is {limit:,}. What"
            )
            then = "Set context_window to what the provider really takes; or use"
        larger = f"a larger {source}" if refusal is None and source in _USER_SET_LIMITS else ""
        advice = [larger or "a model with a larger window", *_advice(parts, limit, needed)]
        if unit != "tokens":
            advice = [_ADVICE_BY_UNIT[unit], *_advice(parts, limit, needed)]
        super().__init__(f"{what} cannot shrink: {told}. {then} {', or '.join(advice)}")


def _advice(parts: Mapping[str, int], limit: int, needed: int) -> Iterator[str]:
    """What makes the largest parts smaller."""
    named = [name for name in parts if name not in (_MARGIN_LABEL, _OTHERS_LABEL)]
    for name in sorted(named, key=lambda part: -parts[part])[:2]:
        handle = name.split()[-1]
        if name.startswith("pinned"):
            yield f"pin({handle!r}, pinned=False)"
        elif parts[name] * 10 > needed:
            yield _ADVICE_BY_PART.get(name, f"rewind() to before {handle}")
    if needed - parts.get(_MARGIN_LABEL, 0) <= limit < needed:
        yield "a tokenizer of your own that counts exactly"


def add_edits_to_fit(window: Window, budget: Budget, edits: Iterable[Edit]) -> tuple[Edit, ...]:
    """A policy's edits, and what it takes beside them for the request to fit.

    Before it gives up, it asks for less output, unless the user has said how much. After a refusal
    for length it does so before it hides anything.
    """
    decided = keep_edits_only_if_smaller(window, budget, tuple(edits))
    least = replace(budget, max_output=budget.least_output)
    if budget.output_first and _make_fits_check(plan := _start_plan(window, least, decided))():
        return plan.to_decision().edits
    plan = _start_plan(window, budget, decided)
    try:
        shrink_plan_to_fit(plan)
    except CannotFit:
        if budget.max_output <= budget.least_output:
            raise
        plan = _start_plan(window, least, decided)
        shrink_plan_to_fit(plan)
    return plan.to_decision().edits


def keep_edits_only_if_smaller(
    window: Window, budget: Budget, edits: tuple[Edit, ...]
) -> tuple[Edit, ...]:
    """The edits, without those of what was sent where all of them do not make the request smaller
    by its upper bound: they would only be written to the provider's cache."""
    plan = _plan_with_edits(window, budget, edits)
    plan.settle_user_words()
    if not plan.breaks_prefix or plan.bound() < Plan(window, budget).bound():
        return edits
    return tuple(
        edit
        for edit in edits
        if edit.part is not None and edit.first > window.accounting.sent_through_seq
    )


def _start_plan(window: Window, budget: Budget, edits: Iterable[Edit]) -> Plan:
    """What was decided, without the pictures that no request may hold."""
    plan = _plan_with_edits(window, budget, edits)
    hide_media_over_limits(plan)
    if pinned := list_pinned_over_limits(plan):
        most = budget.request_limits.max_pictures
        raise CannotFit(most, sum(pinned.values()), pinned, unit="pictures")
    return plan


def _plan_with_edits(window: Window, budget: Budget, edits: Iterable[Edit]) -> Plan:
    plan = Plan(window, budget)
    plan.adopt_edits(edits)
    return plan


def shrink_plan_to_fit(plan: Plan) -> None:
    """Add to the plan until its bound fits; least loss first."""
    fits = _make_fits_check(plan)
    plan.settle_user_words()
    if fits():
        return
    cut_oversized_newest_texts(plan, plan.budget.room)
    _drop_unshowable(plan, fits)
    # What was estimated is counted once it is settled, and may turn out to be more.
    for _ in range(MAX_GUARD_ATTEMPTS):
        hide_in_order(plan, fits, OVER_LIMIT_REASON)
        plan.settle_user_words()
        if fits():
            return
    # Where nobody named a limit, it is the refusal that has to be told.
    raise build_cannot_fit_error(
        plan, refusal="" if plan.window.accounting.overflow_without_numbers else None
    )


def _drop_unshowable(plan: Plan, fits: Callable[[], bool]) -> None:
    """What was revealed and would not fit if all else went goes at once: it costs nothing else."""
    for group in [group for group in plan.visible_groups() if plan.is_unread(group)]:
        possible = False
        with plan.undo_unless(lambda: False):  # only to see
            for other in plan.visible_groups():
                if not plan.is_unread(other):
                    plan.drop(other, OVER_LIMIT_REASON)
            possible = fits()
        if possible:
            return
        plan.drop(group, OVER_LIMIT_REASON)


def cut_oversized_newest_texts(plan: Plan, room_tokens: int) -> None:
    """Where what was said and found last is larger than the room alone, cut it first: to let all
    the rest go would be in vain. What was said is cut less than what was found."""
    said, found = list_newest_user_text_parts(plan), list_active_round_results(plan)
    last = sum(plan.part_size(*place).tokens for place in (*said, *found))
    if plan.tokens <= room_tokens or last <= room_tokens:
        return
    # Once is enough: what is cut a little more at each call is read from no cache.
    cut = max(_guard_cut_seq(entry, part) for entry, part in (*said, *found))
    said = [place for place in said if place[0].seq > cut]
    found = [place for place in found if place[0].seq > cut]
    words = sum(plan.part_size(*place).tokens for place in said)
    size = words + sum(plan.part_size(*place).tokens for place in found)
    room_tokens = int(CUT_FILL_SHARE * room_tokens)
    left = max(
        int(OVERSIZED_ROOM_SHARE * room_tokens) - (last - size),
        int(MIN_OVERSIZED_ROOM_SHARE * room_tokens),
        room_tokens - (plan.tokens - size),
    )
    least = compute_min_newest_text_tokens(plan)
    kept = min(words, max(left // 2 if found else left, least))
    # Others may have spoken while calls waited: the newest has its part whatever they said.
    newest = [place for place in said if place[0] is plan.window.newest_user_entry]
    others = [place for place in said if place[0] is not plan.window.newest_user_entry]
    own = sum(plan.part_size(*place).tokens for place in newest)
    own_kept = min(own, max(kept // 2, kept - (words - own), least))
    some = int(MIN_OVERSIZED_ROOM_SHARE * room_tokens)
    _cut_to_shares(plan, newest, own_kept)
    _cut_to_shares(plan, others, max(kept - own_kept, some))
    _cut_to_shares(plan, found, max(left - kept, some))


def _cut_to_shares(plan: Plan, texts: list[PartRef], total_tokens: int) -> None:
    """Cut texts so that they take no more than is left for them."""
    # The small ones first: what they do not need is for the others.
    texts.sort(key=lambda place: plan.part_size(*place).tokens)
    for index, (entry, part) in enumerate(texts):
        share = total_tokens // (len(texts) - index)
        if plan.part_size(entry, part).tokens > share > 0:
            plan.truncate(
                entry, part, build_text_cap_for_part(entry, part, share), OVER_ROOM_REASON
            )
        total_tokens -= plan.part_size(entry, part).tokens


def _guard_cut_seq(entry: Entry, part: int) -> int:
    """The position at which a text was cut to the room; 0 where it was not."""
    edit = entry.edits.get(part)
    return (
        entry.edited_by[part]
        if edit is not None and edit.why in (OVER_LIMIT_REASON, OVER_ROOM_REASON)
        else 0
    )


def build_cannot_fit_error(plan: Plan, *, refusal: str | None = None) -> CannotFit:
    """The error that says what cannot shrink; after a `refusal`, what the provider said."""
    needed, last = plan.bound() + plan.budget.max_output, plan.window.last_call
    if refusal is None and not plan.fits_request_bytes():
        return _build_too_many_bytes_error(plan)
    if refusal is not None and last is not None:
        # What was refused counts, not what could be asked for now.
        needed = last.body.bound + last.body.max_output
        plan.budget = replace(plan.budget, max_output=last.body.max_output)
    return CannotFit(
        plan.budget.limit, needed, _unshrinkable_parts(plan, needed), refusal, plan.budget.source
    )


def _build_too_many_bytes_error(plan: Plan) -> CannotFit:
    kept = {
        f"{'pinned ' if entry.pinned else ''}{entry.message.role} message m{entry.seq}": size.bytes
        for entry, _, size in plan.shown_media()
    }
    largest = dict(sorted(kept.items(), key=lambda item: -item[1])[:MAX_NAMED_MESSAGES])
    needed = plan.request_bytes()
    parts = {
        "system prompt and tools": plan.budget.head.bytes,
        **largest,
        _OTHERS_LABEL: needed - plan.budget.head.bytes - sum(largest.values()),
    }
    return CannotFit(plan.budget.request_limits.max_bytes, needed, parts, unit="bytes")


def _make_fits_check(plan: Plan) -> Callable[[], bool]:
    def fits() -> bool:
        return plan.fits_request_bytes() and plan.bound() <= plan.budget.max_input_bound

    return fits


def _groups_that_must_stay(plan: Plan) -> Iterable[Group]:
    return [
        group
        for group in plan.visible_groups()
        if plan.window.is_protected(group) or group.pinned or group.has_instructions
    ]


def _unshrinkable_parts(plan: Plan, needed: int) -> dict[str, int]:
    kept: dict[str, int] = {}
    for group in _groups_that_must_stay(plan):
        for entry in group.entries():
            size = sum(plan.part_size(entry, part).tokens for part in range(len(entry.sizes)))
            pinned = "pinned " if entry.pinned else ""
            name = f"{pinned}{entry.message.role} message m{entry.seq}"
            kept[name] = size
    largest = dict(sorted(kept.items(), key=lambda item: -item[1])[:MAX_NAMED_MESSAGES])
    parts = {
        "system prompt and tools": plan.budget.head.tokens,
        "requested output": plan.budget.max_output,
        "volatile tail": plan.budget.volatile,
        **largest,
        _OTHERS_LABEL: sum(kept.values()) - sum(largest.values()),
    }
    return {**parts, _MARGIN_LABEL: max(0, needed - sum(parts.values()))}
