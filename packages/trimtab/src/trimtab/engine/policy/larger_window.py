"""Show users' words again that only a smaller window had cut.

Another model or a raised limit may give a conversation more room. The provider's cache holds
nothing of it then, so showing more costs no cache write.
"""

from __future__ import annotations

from collections.abc import Iterator

from trimtab.engine.log.event import Edit, UserPartReference
from trimtab.engine.log.message import Message, Text
from trimtab.engine.policy.auto import NO_ROOM_REASON
from trimtab.engine.policy.budget import Budget
from trimtab.engine.policy.guard import CUT_FILL_SHARE, OVER_LIMIT_REASON, OVER_ROOM_REASON
from trimtab.engine.policy.overflow import OVERFLOW_REASON
from trimtab.engine.policy.planning.plan import Plan
from trimtab.engine.policy.planning.user_words import compute_user_words_allowance
from trimtab.engine.window.structure import Entry
from trimtab.engine.window.user_words import UserWordsItem, UserWordsList, make_said_message
from trimtab.engine.window.window import Window

LARGER_WINDOW_REASON = "there is room for it now"
_NO_ROOM_REASONS = (OVER_LIMIT_REASON, OVER_ROOM_REASON, OVERFLOW_REASON, NO_ROOM_REASON)


def decide_restored_user_words(window: Window, budget: Budget) -> tuple[Edit, ...]:
    """Return the edits that show users' words again for which there was no room before."""
    list_edit = _relist_user_words(window, budget)
    return (*_reveal_cut_texts(window, budget), *([] if list_edit is None else [list_edit]))


def _reveal_cut_texts(window: Window, budget: Budget) -> Iterator[Edit]:
    """Yield the reveals of user messages that are cut in their place, the newest first."""
    plan = Plan(window, budget)
    for group in reversed(window.visible_groups.values()):
        for entry in reversed([*group.entries()]):
            for part in _list_parts_cut_for_room(entry):
                size_now = entry.shown_size(part)
                whole = entry.sizes[part]
                plan.tokens += whole.tokens - size_now.tokens
                plan.bytes += whole.bytes - size_now.bytes
                if plan.tokens > CUT_FILL_SHARE * budget.room or not plan.fits_request_bytes():
                    return
                yield Edit(
                    op="reveal",
                    first=entry.seq,
                    last=entry.seq,
                    part=part,
                    why=LARGER_WINDOW_REASON,
                )


def _list_parts_cut_for_room(entry: Entry) -> list[int]:
    return [
        part
        for part, edit in sorted(entry.edits.items())
        if entry.message.role == "user"
        and isinstance(entry.message.parts[part], Text)
        and edit.op == "truncate"
        and edit.why.startswith(_NO_ROOM_REASONS)
    ]


def _relist_user_words(window: Window, budget: Budget) -> Edit | None:
    """Return the edit that lists more of what users said in hidden messages; None if there is no
    more to list."""
    words = window.conversation.user_words
    allowance = compute_user_words_allowance(window.settings, budget)
    if allowance is None or not (words.left_out or any(map(_is_cut, _listed_parts(words)))):
        return None
    missing = _list_left_out_items(window)
    messages = dict(words.messages)
    for item in missing:
        entry = window.entries[item.listed_part.seq]
        messages[entry.seq] = make_said_message(entry)
    update = UserWordsList().compute_update(
        [*words.listed_items(), *missing],
        messages,
        allowance,
        window.counter,
        recall_hint=window.settings.recall_hint,
    )
    before = sum(_kept_chars(place, messages[place.seq].message) for place in _listed_parts(words))
    after = sum(_kept_chars(place, messages[place.seq].message) for place in update.listed_parts)
    unseen = None if missing else words.left_out
    if after <= before or (unseen is not None and update.left_out is not None):
        return None
    return Edit(
        op="drop",
        first=0,
        last=0,
        why=LARGER_WINDOW_REASON,
        listed=update.listed_parts,
        relists=True,
        left_out=update.left_out or unseen,
    )


def _list_left_out_items(window: Window) -> list[UserWordsItem]:
    """Return what the list leaves out; nothing if a part of it has left memory."""
    words = window.conversation.user_words
    if (line := words.left_out) is None:
        return []
    places = {place[:2] for place in _listed_parts(words)}
    missing = [
        item
        for group in window.conversation.groups
        if group.hidden is not None and line.first <= group.last and group.first <= line.last
        for entry in group.entries()
        for item in words.items_of_entry(entry)
        if line.first <= entry.seq <= line.last and item.listed_part[:2] not in places
    ]
    seqs = {item.listed_part.seq for item in missing}
    return missing if len(seqs) == line.messages else []


def _listed_parts(words: UserWordsList) -> list[UserPartReference]:
    return [place for block in words.blocks for place in block.listed_parts]


def _is_cut(place: UserPartReference) -> bool:
    return place.head >= 0 and not place.same_seq


def _kept_chars(place: UserPartReference, message: Message) -> int:
    content = message.parts[place.part]
    if not isinstance(content, Text) or place.same_seq:
        return 0
    return len(content.text) if place.head < 0 else min(len(content.text), place.head + place.tail)
