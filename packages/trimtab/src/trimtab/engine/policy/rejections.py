"""Hide content that a provider rejects from the model. The log keeps it.

A request that is rejected because of one message would be rejected again with every later message.
So the message is masked part by part and replaced by placeholders, and calls keep their results.
The user's newest message stays until there is a newer one. Until then it can be sent again, for
example if the provider rejected it only because of an outage.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from trimtab.engine.log.edits import REJECTED_REASON, apply_edit_to_part
from trimtab.engine.log.event import Edit
from trimtab.engine.log.message import Media, Message, OpaqueBlock, Part, Text, ToolCall, ToolResult
from trimtab.engine.log.size_refusals import parse_size_refusal
from trimtab.engine.log.text_cuts import add_recall_handle
from trimtab.engine.policy.budget import Budget
from trimtab.engine.policy.media import decide_media_over_limits
from trimtab.engine.policy.planning.plan import Decision
from trimtab.engine.tokens.counter import measure_part
from trimtab.engine.window.structure import Entry
from trimtab.engine.window.window import Window

MAX_PROVIDER_MESSAGE_CHARS = 300
"""Maximum characters of the provider's message that are kept."""
MAX_KEPT_RESULT_CHARS = 2_000
"""Maximum characters of a result's text that are still shown if a picture in it is left out."""
_MEDIA = re.compile(
    r"\b(?:image|picture|photo|pdf|document|file|audio|video|media)s?\b|image_url|base64|pixels",
    re.IGNORECASE,
)

EntryPart = tuple[Entry, int]
"""A message, and the index of one of its parts."""


def decide_masks_before_retry(
    window: Window, budget: Budget, *, blamed_texts: Collection[str] = ()
) -> Decision:
    """Return the edits after which a rejected call may be made again.

    The user's new message is never hidden. If the provider named a limit of pictures or pixels, the
    edits hide what exceeds it. If the provider named a fault, they hide what contains it. Otherwise
    they hide the first of these that can be hidden:

    - the pictures in results that the model has not seen;
    - these results as a whole, and the rest of messages that were rejected before;
    - all older pictures, if the provider mentions a picture and the new message has none.

    Args:
        window: The window after the rejection.
        budget: The budget of the next call.
        blamed_texts: Texts and payloads that the provider named as the fault.
    """
    if (over := decide_media_over_limits(window, budget)).edits:
        return over
    new = [
        entry for entry in list_unanswered_entries(window) if _is_new_user_message(window, entry)
    ]
    fresh = {entry.seq for entry in new}
    if blamed_texts:
        places = [
            place
            for place in _all_parts(_visible_entries(window))
            if _contains_blamed_text(place, blamed_texts)
        ]
        places = [place for place in places if not _is_current_question(window, place)]
        return _decide_masks(window, [place for place in places if place[0].seq not in fresh])
    others = [entry for entry in list_unanswered_entries(window) if entry.seq not in fresh]
    decision = _decide_masks(window, _media_parts(others))
    if not decision.edits:
        decision = _decide_masks(window, _all_parts(others))
    if (
        not decision.edits
        and _MEDIA.search(window.accounting.rejection.provider_message)
        and not _media_parts(new)
    ):
        decision = _decide_masks(window, _media_parts(_visible_entries(window)))
    return decision


def decide_masks_at_next_message(window: Window, *, blamed_texts: Collection[str] = ()) -> Decision:
    """Return the edits to make as soon as the user sends another message.

    They hide what the rejected call sent without an answer. If the provider's message names the
    fault, they hide only that.
    """
    refusal = parse_size_refusal(window.accounting.rejection.provider_message)
    if refusal is not None and refusal.cause in ("bytes", "pictures"):
        return Decision()  # older pictures go before the next call: these may be sent
    unanswered_entries = [
        entry
        for entry in list_unanswered_entries(window)
        if entry.seq <= window.accounting.rejection.last_sent_seq
    ]
    places = [
        place
        for place in _all_parts(unanswered_entries)
        if _contains_blamed_text(place, blamed_texts)
    ]
    if not places and _MEDIA.search(window.accounting.rejection.provider_message):
        places = _media_parts(unanswered_entries)
    decision = _decide_masks(window, places)
    return decision if decision.edits else _decide_masks(window, _all_parts(unanswered_entries))


def list_unanswered_entries(window: Window) -> list[Entry]:
    """Return the messages of users and tools since the model's last message, oldest first."""
    newest_first: list[Entry] = []
    for round in reversed(window.conversation.rounds):
        if round.entries[-1].seq <= window.conversation.last_assistant_seq:
            break
        newest_first += (
            e for e in reversed(round.entries) if e.seq > window.conversation.last_assistant_seq
        )
    return [entry for entry in reversed(newest_first) if entry.message.role in ("user", "tool")]


def find_first_entry_of_user_undo(window: Window) -> Entry | None:
    """Return the first message that is removed when the user's newest message is undone.

    That is the newest message, or rejected messages right before it, which would otherwise be sent
    again. Return None if there is no message.
    """
    first = window.newest_user_entry
    for round in reversed(window.conversation.rounds):
        for entry in reversed(round.entries):
            if first is None or entry.seq >= first.seq:
                continue
            if entry.message.role != "user" or not _has_rejected_parts(entry):
                return first
            first = entry
    return first


def build_message_without_rejected_parts(entry: Entry) -> Message:
    """Return a message as a summary may use it: without content that a provider has rejected."""
    if not _has_rejected_parts(entry):
        return entry.message
    rejections = {
        index for index, edit in entry.edits.items() if edit.why.startswith(REJECTED_REASON)
    }
    parts = enumerate(entry.message.parts)
    accepted_parts = tuple(
        apply_edit_to_part(part, entry.edits[n]) if n in rejections else part for n, part in parts
    )
    return replace(entry.message, parts=accepted_parts)


def _has_rejected_parts(entry: Entry) -> bool:
    return any(edit.why.startswith(REJECTED_REASON) for edit in entry.edits.values())


def _decide_masks(window: Window, entry_parts: Iterable[EntryPart]) -> Decision:
    edits = [_build_mask_edit(window, entry, index) for entry, index in entry_parts]
    return Decision(edits=tuple(edit for edit in edits if edit is not None))


def _build_mask_edit(window: Window, entry: Entry, index: int) -> Edit | None:
    """Return the mask; None if the part cannot be masked or is already hidden."""
    part = entry.message.parts[index]
    current = entry.edits.get(index)
    blank = isinstance(part, Text) and not part.text.strip()
    if blank or isinstance(part, ToolCall) or (current is not None and current.op == "mask"):
        return None
    words = window.accounting.rejection.provider_message[:MAX_PROVIDER_MESSAGE_CHARS]
    why = f"{REJECTED_REASON}: {words}" if words else REJECTED_REASON
    seq = entry.seq
    hint = window.settings.recall_hint
    text = add_recall_handle(_placeholder_text(part), f"m{seq}.{index}", hint)
    edit = Edit(op="mask", first=seq, last=seq, part=index, text=text, why=why)
    return replace(edit, size=measure_part(apply_edit_to_part(part, edit), window.counter))


def _placeholder_text(part: Part) -> str:
    """Return the placeholder of a part. It does not quote the provider, which may repeat the
    rejected content."""
    match part:
        case Media():
            return f"[{part.kind} left out: the provider did not take it]"
        case ToolResult() if _has_media(part):
            beside = f"{part.text[:MAX_KEPT_RESULT_CHARS]}\n" if part.text.strip() else ""
            return f"{beside}[left out: the provider did not take what else was here]"
        case ToolResult():
            return "[result left out: the provider did not take it]"
        case _:
            return "[message left out: the provider did not take it]"


def _visible_entries(window: Window) -> Iterator[Entry]:
    for group in window.visible_groups.values():
        yield from (entry for entry in group.entries() if entry.message.role != "assistant")


def _all_parts(entries: Iterable[Entry]) -> list[EntryPart]:
    return [(entry, index) for entry in entries for index in range(len(entry.message.parts))]


def _media_parts(entries: Iterable[Entry]) -> list[EntryPart]:
    return [place for place in _all_parts(entries) if _has_media(place[0].message.parts[place[1]])]


def _has_media(part: Part) -> bool:
    if isinstance(part, ToolResult):
        return any(isinstance(inner, Media) for inner in part.content)
    return isinstance(part, Media)


def _contains_blamed_text(entry_part: EntryPart, blamed_texts: Collection[str]) -> bool:
    part = entry_part[0].message.parts[entry_part[1]]
    inner: tuple[Part, ...] = part.content if isinstance(part, ToolResult) else (part,)
    return any(text in blamed_texts for each in inner for text in _part_payloads(each))


def _part_payloads(part: Part) -> tuple[str, ...]:
    match part:
        case Text():
            return (part.text,)
        case Media():
            return tuple(text for text in (part.data, part.url) if text)
        case OpaqueBlock() | ToolCall() | ToolResult():
            return ()


def _is_current_question(window: Window, entry_part: EntryPart) -> bool:
    """Whether a part is the question that is being answered."""
    entry, index = entry_part
    return entry is window.newest_user_entry and isinstance(entry.message.parts[index], Text)


def _is_new_user_message(window: Window, entry: Entry) -> bool:
    """Whether it is a user's message that was the newest one when it was rejected."""
    if entry.message.role != "user" or not any(
        not isinstance(part, ToolResult) for part in entry.message.parts
    ):
        return False
    return (
        entry.seq > window.accounting.rejection.superseded_seq or entry is window.newest_user_entry
    )
