"""What a provider does not take is left out of what the model sees; the log keeps it.

A request that is rejected for one message would be rejected again with every later one. So the
message is masked, part by part, and a placeholder stands in its place: calls keep their results.
The user's newest word is not touched until there is a newer one. Until then it can be sent again,
for instance where a provider was out of order and said something else.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from trimtab.core.budget import Budget
from trimtab.core.edits import shown, with_recall
from trimtab.core.event import Edit
from trimtab.core.message import Media, Message, Opaque, Part, Text, ToolCall, ToolResult
from trimtab.core.plan import Decision
from trimtab.core.rounds import Entry
from trimtab.core.tokens import size_of
from trimtab.core.window import Window

WHY = "rejected by the provider"
"""What the reason of each such edit begins with; the provider's words follow."""
WORDS = 300
"""Characters of the provider's words that are kept."""
BESIDE = 2_000
"""Characters of a result's text that are still shown where a picture in it is left out."""
_MEDIA = re.compile(
    r"\b(?:image|picture|photo|pdf|document|file|audio|video|media)s?\b|image_url|base64|pixels",
    re.IGNORECASE,
)

Place = tuple[Entry, int]
"""A message, and the index of one of its parts."""


def at_once(window: Window, _budget: Budget, *, named: Collection[str] = ()) -> Decision:
    """What can be left out so that the call may be made again: nothing of the user's new word.

    `named` are texts and payloads that the provider has named as the fault. Where it has named
    none, it is taken to be the pictures in results that the model has not seen; then these results
    as a whole, and what is left of messages that were rejected before; then all older pictures,
    where the provider speaks of one and the new word has none.
    """
    new = [entry for entry in unanswered(window) if _is_new(window, entry)]
    fresh = {entry.seq for entry in new}
    if named:
        held = [place for place in _places(_visible(window)) if _holds(place, named)]
        held = [place for place in held if not _is_asked(window, place)]
        return _left_out(window, [place for place in held if place[0].seq not in fresh])
    others = [entry for entry in unanswered(window) if entry.seq not in fresh]
    decision = _left_out(window, _with_media(others))
    if not decision.edits:
        decision = _left_out(window, _places(others))
    if not decision.edits and _MEDIA.search(window.rejection.words) and not _with_media(new):
        decision = _left_out(window, _with_media(_visible(window)))
    return decision


def with_next(window: Window, *, named: Collection[str] = ()) -> Decision:
    """What is left out as soon as the user says something else: what was sent in the call that was
    rejected and has no answer; of it only what is at fault, where the provider's words tell."""
    sent = [entry for entry in unanswered(window) if entry.seq <= window.rejection.position]
    held = [place for place in _places(sent) if _holds(place, named)]
    if not held and _MEDIA.search(window.rejection.words):
        held = _with_media(sent)
    decision = _left_out(window, held)
    return decision if decision.edits else _left_out(window, _places(sent))


def unanswered(window: Window) -> list[Entry]:
    """What users and tools have said since the model did, oldest first."""
    found: list[Entry] = []
    for round in reversed(window.rounds):
        if round.entries[-1].seq <= window.replied:
            break
        found += (e for e in reversed(round.entries) if e.seq > window.replied)
    return [entry for entry in reversed(found) if entry.message.role in ("user", "tool")]


def undoing(window: Window) -> Entry | None:
    """The first message that goes when the user's newest is undone: it, or what was rejected right
    before it, which would be sent again without it. None where nothing was said."""
    first = window.newest_user
    for round in reversed(window.rounds):
        for entry in reversed(round.entries):
            if first is None or entry.seq >= first.seq:
                continue
            if entry.message.role != "user" or not _is_left_out(entry):
                return first
            first = entry
    return first


def tellable(entry: Entry) -> Message:
    """A message as a summary may tell of it: without what a provider has rejected."""
    if not _is_left_out(entry):
        return entry.message
    left = {index for index, edit in entry.edits.items() if edit.why.startswith(WHY)}
    parts = enumerate(entry.message.parts)
    made = tuple(shown(part, entry.edits[n]) if n in left else part for n, part in parts)
    return replace(entry.message, parts=made)


def _is_left_out(entry: Entry) -> bool:
    return any(edit.why.startswith(WHY) for edit in entry.edits.values())


def _left_out(window: Window, places: Iterable[Place]) -> Decision:
    edits = [_mask(window, entry, index) for entry, index in places]
    return Decision(edits=tuple(edit for edit in edits if edit is not None))


def _mask(window: Window, entry: Entry, index: int) -> Edit | None:
    """The edit; None for what nothing can stand for, or what is hidden already."""
    part, current = entry.message.parts[index], entry.edits.get(index)
    blank = isinstance(part, Text) and not part.text.strip()
    if blank or isinstance(part, ToolCall) or (current is not None and current.op == "mask"):
        return None
    words = window.rejection.words[:WORDS]
    why = f"{WHY}: {words}" if words else WHY
    seq, text = entry.seq, _stands(part)
    if window.settings.recall:
        text = with_recall(text, f"m{seq}.{index}")
    edit = Edit(op="mask", first=seq, last=seq, part=index, text=text, why=why)
    return replace(edit, size=size_of(shown(part, edit), window.counter))


def _stands(part: Part) -> str:
    """What the model reads in its place. The provider's words are not in it: they may repeat what
    was rejected."""
    match part:
        case Media():
            return f"[{part.kind} left out: the provider did not take it]"
        case ToolResult() if _has_media(part):
            beside = f"{part.text[:BESIDE]}\n" if part.text.strip() else ""
            return f"{beside}[left out: the provider did not take what else was here]"
        case ToolResult():
            return "[result left out: the provider did not take it]"
        case _:
            return "[message left out: the provider did not take it]"


def _visible(window: Window) -> Iterator[Entry]:
    for group in window.visible.values():
        yield from (entry for entry in group.entries() if entry.message.role != "assistant")


def _places(entries: Iterable[Entry]) -> list[Place]:
    return [(entry, index) for entry in entries for index in range(len(entry.message.parts))]


def _with_media(entries: Iterable[Entry]) -> list[Place]:
    return [place for place in _places(entries) if _has_media(place[0].message.parts[place[1]])]


def _has_media(part: Part) -> bool:
    if isinstance(part, ToolResult):
        return any(isinstance(inner, Media) for inner in part.content)
    return isinstance(part, Media)


def _holds(place: Place, named: Collection[str]) -> bool:
    part = place[0].message.parts[place[1]]
    inner: tuple[Part, ...] = part.content if isinstance(part, ToolResult) else (part,)
    return any(text in named for each in inner for text in _told(each))


def _told(part: Part) -> tuple[str, ...]:
    match part:
        case Text():
            return (part.text,)
        case Media():
            return tuple(text for text in (part.data, part.url) if text)
        case Opaque() | ToolCall() | ToolResult():
            return ()


def _is_asked(window: Window, place: Place) -> bool:
    """Whether it is the question that is being answered."""
    entry, index = place
    return entry is window.newest_user and isinstance(entry.message.parts[index], Text)


def _is_new(window: Window, entry: Entry) -> bool:
    """Whether it is a word of the user's that no other came after when it was rejected."""
    if entry.message.role != "user" or not any(
        not isinstance(part, ToolResult) for part in entry.message.parts
    ):
        return False
    return entry.seq > window.rejection.passed or entry is window.newest_user
