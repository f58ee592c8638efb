"""The final guard: after any policy, make the request fit by its upper bound, or raise
`CannotFit`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from trimtab.engine.log.event import Edit
from trimtab.engine.policy.budget import Budget
from trimtab.engine.policy.hiding import (
    EnoughCheck,
    PartRef,
    build_text_cap_for_part,
    compute_min_newest_text_tokens,
    hide_in_order,
    list_active_round_results,
    list_newest_user_text_parts,
)
from trimtab.engine.policy.media import find_pictures_over_limits, hide_media_over_limits
from trimtab.engine.policy.planning.plan import Plan
from trimtab.engine.tokens.counter import compute_input_upper_bound
from trimtab.engine.window.structure import Entry
from trimtab.engine.window.window import Window
from trimtab.errors import MARGIN_PART, OTHER_MESSAGES_PART, CannotFit

OVER_LIMIT_REASON = "guard: over the limit"
OVER_ROOM_REASON = "guard: larger than the room"
CUT_FILL_SHARE = 0.9
"""Share of the room to fill when a text is cut to it. The rest is for the next messages."""
OVERSIZED_ROOM_SHARE = 0.5
"""Share of the room for the newest message and results if they do not fit alone."""
MIN_OVERSIZED_ROOM_SHARE = 0.1
"""The same share for texts that arrive after others were already cut in this way."""
BATCH_ROOM_SHARE = 0.3
"""Share of the room that is free after the guard has hidden older content that was already sent.

Each such edit makes the provider write the rest of the prompt to its cache again. With the cache
prices w and r, T tokens written again and a growth of g tokens a call, the cheapest amount to free
is √(2·(w − r)/r·T·g). That is about a third of a long prompt that grows by half a percent a call.
Twice or half of it costs only a few percent more.
"""
BATCH_REST_SHARE = 0.5
"""Maximum share to hide in advance of the older content that would fit. The newest of it stays."""
MAX_GUARD_ATTEMPTS = 3
"""Maximum number of retries after an estimate was too low."""
MAX_NAMED_MESSAGES = 5
"""Maximum number of messages that an error names."""


def add_edits_to_fit(window: Window, budget: Budget, edits: Iterable[Edit]) -> tuple[Edit, ...]:
    """Return a policy's edits, and further edits that make the request fit.

    If that is not enough, the guard requests less output, unless the user has set the output. After
    the provider refused a request for its length, it does so before it hides anything.
    """
    plan = plan_smaller_request(window, budget, tuple(edits))
    least = replace(budget, max_output=budget.least_output)
    if budget.output_first:
        shorter = _plan_with_edits(window, least, plan.to_decision().edits)
        _hide_media(shorter)
        if _make_fits_check(shorter)():
            return shorter.to_decision().edits
    try:
        _hide_media(plan)
        shrink_plan_to_fit(plan)
    except CannotFit:
        if budget.max_output <= budget.least_output:
            raise
        plan = plan_smaller_request(window, least, tuple(edits))
        _hide_media(plan)
        shrink_plan_to_fit(plan)
    return plan.to_decision().edits


def plan_smaller_request(window: Window, budget: Budget, edits: tuple[Edit, ...]) -> Plan:
    """Return a plan with the edits, without those that would only cost a cache write.

    If all edits together do not lower the upper bound of the request, edits of content that was
    already sent are left out.
    """
    plan = _plan_with_edits(window, budget, edits)
    if not edits:
        return plan
    plan.settle_user_words()
    if not plan.breaks_prefix or plan.bound() < Plan(window, budget).bound():
        return plan
    unsent = [
        edit
        for edit in edits
        if edit.part is not None and edit.first > window.accounting.sent_through_seq
    ]
    return _plan_with_edits(window, budget, unsent)


def _hide_media(plan: Plan) -> None:
    """Hide pictures that no request may contain."""
    hide_media_over_limits(plan)
    if (too_many := find_pictures_over_limits(plan)) is not None:
        limit, pinned_pictures = too_many
        raise CannotFit(limit, sum(pinned_pictures.values()), pinned_pictures, unit="pictures")


def _plan_with_edits(window: Window, budget: Budget, edits: Iterable[Edit]) -> Plan:
    plan = Plan(window, budget)
    plan.adopt_edits(edits)
    return plan


def shrink_plan_to_fit(plan: Plan) -> None:
    """Add edits to the plan until its bound fits, those with the least loss first."""
    fits = _make_fits_check(plan)
    plan.settle_user_words()
    if fits():
        return
    cut_oversized_newest_texts(plan, plan.budget.room)
    _drop_unshowable(plan, fits)
    # What was estimated is counted once it is settled, and may turn out to be more.
    for _ in range(MAX_GUARD_ATTEMPTS):
        hide_in_order(plan, fits, OVER_LIMIT_REASON, partial(_make_batch_check, plan, fits))
        plan.settle_user_words()
        if fits():
            return
    # If no limit is known, the error must quote the refusal.
    raise build_cannot_fit_error(
        plan, refusal="" if plan.window.accounting.overflow_without_numbers else None
    )


def _drop_unshowable(plan: Plan, fits: Callable[[], bool]) -> None:
    """Drop revealed groups that would not fit even without all other groups."""
    for group in [group for group in plan.visible_groups() if plan.is_unread(group)]:
        possible = False
        with plan.undo_unless(lambda: False):  # only to see
            plan.give_up_kept_calls()
            for other in plan.order_for_hiding(plan.visible_groups()):
                if not plan.is_unread(other):
                    plan.drop(other, OVER_LIMIT_REASON)
            possible = fits()
        if possible:
            return
        plan.drop(group, OVER_LIMIT_REASON)


def cut_oversized_newest_texts(plan: Plan, room_tokens: int) -> None:
    """Cut the newest message and results first if they alone are larger than the room.

    Hiding everything else would not help then. User messages are cut less than results.
    """
    words_places = list_newest_user_text_parts(plan)
    result_places = list_active_round_results(plan)
    last = sum(plan.part_size(*place).tokens for place in (*words_places, *result_places))
    if plan.tokens <= room_tokens or last <= room_tokens:
        return
    # Once is enough: what is cut a little more at each call is read from no cache.
    cut = max(_guard_cut_seq(entry, part) for entry, part in (*words_places, *result_places))
    words_places = [place for place in words_places if place[0].seq > cut]
    result_places = [place for place in result_places if place[0].seq > cut]
    words_tokens = sum(plan.part_size(*place).tokens for place in words_places)
    size = words_tokens + sum(plan.part_size(*place).tokens for place in result_places)
    room_tokens = int(CUT_FILL_SHARE * room_tokens)
    share = max(
        int(OVERSIZED_ROOM_SHARE * room_tokens) - (last - size),
        int(MIN_OVERSIZED_ROOM_SHARE * room_tokens),
        room_tokens - (plan.tokens - size),
    )
    least = compute_min_newest_text_tokens(plan)
    words_share = min(words_tokens, max(share // 2 if result_places else share, least))
    # Others may have spoken while calls waited: the newest has its part whatever they said.
    newest = [place for place in words_places if place[0] is plan.window.newest_user_entry]
    others = [place for place in words_places if place[0] is not plan.window.newest_user_entry]
    newest_tokens = sum(plan.part_size(*place).tokens for place in newest)
    newest_share = min(
        newest_tokens, max(words_share // 2, words_share - (words_tokens - newest_tokens), least)
    )
    some = int(MIN_OVERSIZED_ROOM_SHARE * room_tokens)
    _cut_to_shares(plan, newest, newest_share)
    _cut_to_shares(plan, others, max(words_share - newest_share, some))
    _cut_to_shares(plan, result_places, max(share - words_share, some))


def _cut_to_shares(plan: Plan, texts: list[PartRef], total_tokens: int) -> None:
    """Cut texts so that together they take at most this number of tokens."""
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
    """Return the position at which the guard cut a text; 0 if it did not."""
    edit = entry.edits.get(part)
    return (
        entry.edited_by[part]
        if edit is not None and edit.why in (OVER_LIMIT_REASON, OVER_ROOM_REASON)
        else 0
    )


def build_cannot_fit_error(plan: Plan, *, refusal: str | None = None) -> CannotFit:
    """Return the error that names the parts that cannot shrink, and the provider's `refusal` if
    there is one."""
    need = plan.bound() + plan.budget.max_output
    last = plan.window.last_call
    if refusal is None and not plan.fits_request_bytes():
        return _build_too_many_bytes_error(plan)
    if refusal is not None and last is not None:
        # What was refused counts, not what could be asked for now.
        need = last.body.bound + last.body.max_output
        plan.budget = replace(plan.budget, max_output=last.body.max_output)
    return CannotFit(
        plan.budget.limit, need, _unshrinkable_parts(plan, need), refusal, plan.budget.source
    )


def _build_too_many_bytes_error(plan: Plan) -> CannotFit:
    media = {
        f"{'pinned ' if entry.pinned else ''}{entry.message.role} message m{entry.seq}": size.bytes
        for entry, _, size in plan.shown_media()
    }
    largest = dict(sorted(media.items(), key=lambda item: -item[1])[:MAX_NAMED_MESSAGES])
    need = plan.request_bytes()
    parts = {
        "system prompt and tools": plan.budget.head.bytes,
        **largest,
        OTHER_MESSAGES_PART: need - plan.budget.head.bytes - sum(largest.values()),
    }
    return CannotFit(plan.budget.request_limits.max_bytes, need, parts, unit="bytes")


def request_fits(window: Window, budget: Budget) -> bool:
    """Whether the window's request fits as it is."""
    return _make_fits_check(Plan(window, budget))()


def _make_fits_check(plan: Plan) -> Callable[[], bool]:
    def fits() -> bool:
        return plan.fits_request_bytes() and plan.bound() <= plan.budget.max_input_bound

    return fits


def _make_batch_check(plan: Plan, fits: EnoughCheck, older_tokens: int) -> EnoughCheck:
    """Return the check that ends a batch of edits, if so many tokens of older content may be
    hidden.

    Without an earlier call there is no cached prompt, so only as much is hidden as necessary.
    """
    budget = plan.budget
    if plan.window.last_call is None:
        return fits
    overhead = compute_input_upper_bound(
        counter=plan.window.counter,
        new_tokens=budget.head.tokens + budget.volatile,
        learned_ratio=budget.ratio,
    )
    room = max(0, budget.max_input_bound - overhead)
    rest = max(0, budget.max_input_bound - plan.bound() + older_tokens)
    free = min(BATCH_ROOM_SHARE * room, BATCH_REST_SHARE * rest)
    return lambda: fits() and plan.bound() <= budget.max_input_bound - free


def _unshrinkable_parts(plan: Plan, need: int) -> dict[str, int]:
    sizes_by_name: dict[str, int] = {}
    for group in plan.visible_groups():
        stays = plan.window.is_protected(group) or group.pinned or group.has_instructions
        if not (stays or plan.is_needed(group)):
            continue
        for entry in group.entries():
            size = sum(plan.part_size(entry, part).tokens for part in range(len(entry.sizes)))
            prefix = "pinned " if entry.pinned else ""
            name = f"{prefix}{entry.message.role} message m{entry.seq}"
            sizes_by_name[name] = size
    largest = dict(sorted(sizes_by_name.items(), key=lambda item: -item[1])[:MAX_NAMED_MESSAGES])
    parts = {
        "system prompt and tools": plan.budget.head.tokens,
        "requested output": plan.budget.max_output,
        "volatile tail": plan.budget.volatile,
        **largest,
        OTHER_MESSAGES_PART: sum(sizes_by_name.values()) - sum(largest.values()),
    }
    return {**parts, MARGIN_PART: max(0, need - sum(parts.values()))}
