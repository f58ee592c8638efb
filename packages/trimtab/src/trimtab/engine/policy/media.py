"""Hide older pictures and files that one request cannot hold, before the provider refuses it.

More is hidden than necessary, so that the next pictures have room. Each time content that was
already sent is hidden, the provider's prompt cache ends there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from trimtab.engine.log.edits import add_recall_handle
from trimtab.engine.log.message import ToolResult
from trimtab.engine.policy.budget import Budget
from trimtab.engine.policy.hiding import list_active_round_entries
from trimtab.engine.policy.planning.plan import Decision, Plan
from trimtab.engine.policy.request_limits import RequestLimits, format_megabytes
from trimtab.engine.tokens.counter import MediaSize, list_media
from trimtab.engine.tokens.media import describe_media
from trimtab.engine.window.structure import Entry
from trimtab.engine.window.window import Window

TARGET_SHARE = 0.7
"""Share of a limit that older pictures may fill after some were hidden."""
MAX_KEPT_CAPTION_CHARS = 2_000
"""Maximum characters of a result's text that are still shown if its picture is hidden."""


class _ShownMedia(NamedTuple):
    """Pictures and files of one part, as the plan shows them."""

    entry: Entry
    part: int
    size: MediaSize
    is_older: bool
    """Whether they are older: outside the active round, and read by the model."""


def decide_media_over_limits(window: Window, budget: Budget) -> Decision:
    """Return only the edits that hide what one request cannot hold; none if everything fits."""
    plan = Plan(window, budget)
    hide_media_over_limits(plan)
    return plan.to_decision()


def hide_media_over_limits(plan: Plan) -> None:
    """Hide pictures and files until the provider accepts the rest by size, number and bytes.

    The oldest are hidden first. Those of the active round and those that the model asked for are
    hidden last.
    """
    if not plan.window.conversation.visible_media:
        return
    limits = plan.budget.request_limits
    _hide_unsendable(plan, limits)
    _hide_too_many(plan, limits)
    _hide_large_among_many(plan, limits)
    _hide_over_bytes(plan, limits)


def find_pictures_over_limits(plan: Plan) -> tuple[int, dict[str, int]] | None:
    """Return how many pictures are allowed, and those that are shown, by name. None if all may be.

    They are pinned: all others were hidden.
    """
    visible = _list_shown(plan)
    limits = plan.budget.request_limits
    most = limits.max_pictures
    if any(each.size.longest_side_px > limits.max_side_of_many_px for each in visible):
        most = min(most or limits.many_pictures, limits.many_pictures or most)
    if not most or _count_pictures(visible) <= most:
        return None
    return most, {f"pinned pictures of m{s.entry.seq}": s.size.pictures for s in visible}


def _hide_unsendable(plan: Plan, limits: RequestLimits) -> None:
    """Hide media that cannot be sent even alone. The placeholder says why and offers no recall."""
    for media in _list_shown(plan):
        if limits.max_side_px and media.size.longest_side_px > limits.max_side_px:
            why = f"{media.size.longest_side_px:,} of {limits.max_side_px:,} pixels a side"
        elif limits.max_picture_bytes and (
            media.size.largest_picture_bytes > limits.max_picture_bytes
        ):
            has = media.size.largest_picture_bytes
            most = limits.max_picture_bytes
            why = f"{format_megabytes(has)} of {format_megabytes(most)} for a picture"
        elif limits.max_bytes and media.size.bytes > limits.max_bytes:
            has = media.size.bytes
            most = limits.max_bytes
            why = f"{format_megabytes(has)} of {format_megabytes(most)} for a request"
        else:
            continue
        text = _placeholder(plan, media, f"too large to be sent ({why})", offers_recall=False)
        plan.hide_media(media.entry, media.part, f"guard: {why}", text)


def _hide_too_many(plan: Plan, limits: RequestLimits) -> None:
    visible = _list_shown(plan)
    count = _count_pictures(visible)
    most = limits.max_pictures
    if not most or count <= most:
        return
    why = f"guard: {count:,} of {most:,} pictures"
    for each in _in_hiding_order(visible):
        if count <= (int(TARGET_SHARE * most) if each.is_older else most):
            return
        if each.size.pictures and _hide(plan, each, why):
            count -= each.size.pictures


def _hide_large_among_many(plan: Plan, limits: RequestLimits) -> None:
    """Hide pictures if large ones are among too many pictures, because the provider refuses that.

    If few older pictures are large, hide those. If there are more, or if a large one is new, hide
    the oldest pictures until the number is below the limit.
    """
    many = limits.many_pictures
    most = limits.max_side_of_many_px
    visible = _list_shown(plan)
    count = _count_pictures(visible)
    large = [each for each in visible if each.size.longest_side_px > most]
    if not many or count <= many or not large:
        return
    all_older = all(each.is_older for each in large)
    if all_older and _count_pictures(large) <= count - int(TARGET_SHARE * many):
        why = f"guard: larger than {most:,} pixels a side in a request with {count:,} pictures"
        removals = [each for each in large if _hide(plan, each, why)]
        count -= _count_pictures(removals)
        if len(removals) == len(large) or count <= many:
            return
    why = (
        f"guard: the request has {count:,} pictures, and one is larger than {most:,} pixels a "
        f"side, so only {many:,} are allowed"
    )
    for each in _in_hiding_order(_list_shown(plan)):
        if count <= (int(TARGET_SHARE * many) if each.is_older else many):
            return
        if each.size.pictures and _hide(plan, each, why):
            count -= each.size.pictures


def _hide_over_bytes(plan: Plan, limits: RequestLimits) -> None:
    if plan.fits_request_bytes():
        return
    most = limits.max_bytes
    why = f"guard: {format_megabytes(plan.request_bytes())} of {format_megabytes(most)} a request"
    for each in _in_hiding_order(_list_shown(plan)):
        if plan.request_bytes() <= (int(TARGET_SHARE * most) if each.is_older else most):
            return
        if each.size.bytes:
            _hide(plan, each, why)


def _hide(plan: Plan, shown: _ShownMedia, reason: str) -> bool:
    text = _placeholder(plan, shown, "hidden", offers_recall=True)
    return plan.hide_media(shown.entry, shown.part, reason, text)


def _list_shown(plan: Plan) -> list[_ShownMedia]:
    active = {entry.seq for entry in list_active_round_entries(plan)}
    return [
        _ShownMedia(
            entry,
            part,
            size,
            is_older=entry.seq not in active and not plan.is_unread(entry.round.group),
        )
        for entry, part, size in plan.shown_media()
    ]


def _in_hiding_order(shown: Iterable[_ShownMedia]) -> list[_ShownMedia]:
    return sorted(shown, key=lambda each: not each.is_older)


def _count_pictures(shown: Iterable[_ShownMedia]) -> int:
    return sum(each.size.pictures for each in shown)


def _placeholder(plan: Plan, place: _ShownMedia, what: str, *, offers_recall: bool) -> str:
    """Return what the model reads in place of pictures: the text beside them, and what they
    were."""
    content = place.entry.message.parts[place.part]
    contents = list_media(content)
    kinds = ", ".join(dict.fromkeys(media.kind for media in contents))
    words = f"[{kinds} {what}: {'; '.join(map(describe_media, contents))}]"
    if offers_recall:
        hint = plan.window.settings.recall_hint
        words = add_recall_handle(words, f"m{place.entry.seq}.{place.part}", hint)
    caption = content.text[:MAX_KEPT_CAPTION_CHARS] if isinstance(content, ToolResult) else ""
    return f"{caption}\n{words}" if caption.strip() else words
