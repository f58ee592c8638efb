"""Under `auto`, what users have said is in every request: word for word, in its place or in the
list that stands first, as long as there is room for it; what there is no room for is cut in a known
order, and never silently."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.laws import wires
from tests.laws.lives import law
from tests.laws.oracle import Told, from_client, said_as, settings_at, tell, tokens_of_parts
from tests.laws.wires import Piece, pieces
from tests.strategies.life import Hooks, Life, live
from tests.strategies.logs import Chat, Say, Setup, Squeeze, Story, Touch, Turn, Words, listings
from trimtab.engine.log.edits import ERASED_PLACEHOLDER
from trimtab.engine.log.event import (
    CallOutcome,
    Edit,
    Event,
    Fork,
    OmittedUserMessages,
    PayloadErasure,
    RetentionErasure,
    Rewind,
    Settings,
    UserPartReference,
    dump_canonical_json,
    dump_event_line,
)
from trimtab.engine.log.message import Media, OpaqueBlock, Text
from trimtab.engine.policy import overflow
from trimtab.engine.policy.rejections import REJECTED_REASON as REJECTED
from trimtab.engine.tokens.counter import TokenCounter

LEAST = 400
"""Tokens that are left of a message that is cut, with the sign of the cut."""
AROUND = 60
"""Tokens of what stands around a text in the list, its name and the sign of a cut, at most."""
CRUMBS = 300
"""Tokens of older messages that may stay while words are cut: what tells of them takes as much."""
TAG = re.compile(r"<\d+>")
"""What tells one text of a life from all others."""

Place = tuple[int, int]
"""A message, and the index of one of its parts."""


def sayings(told: Told, seq: int) -> Iterator[int]:
    """The parts of a message in which a user says something that may be shown."""
    message = told.messages[seq]
    for part, said in enumerate(message.parts):
        edit = told.edits.get((seq, part))
        rejected = edit is not None and edit.why.startswith(REJECTED)
        speaks = isinstance(said, Text) and said.text.strip() and said.text != ERASED_PLACEHOLDER
        if message.role == "user" and not rejected and (speaks or isinstance(said, Media)):
            yield part


def hidden_sayings(told: Told) -> list[Place]:
    """All that users say in messages that are hidden, in order."""
    hidden = sorted(seq for group in told.hidden for seq in told.groups[group])
    return [(seq, part) for seq in hidden for part in sayings(told, seq)]


def places_of(told: Told) -> dict[Place, UserPartReference]:
    found = [place for block, _ in told.words for place in block]
    assert len({place[:2] for place in found}) == len(found), "something is listed twice"
    return {(place.seq, place.part): place for place in found}


def text_of(told: Told, place: Place) -> str:
    said = told.messages[place[0]].parts[place[1]]
    return said.text if isinstance(said, Text) else ""


def is_client(told: Told, place: Place) -> bool:
    return from_client(text_of(told, place))


def is_whole(told: Told, place: UserPartReference) -> bool:
    kept = place.head + place.tail
    return not place.same_seq and (place.head < 0 or kept >= len(text_of(told, place[:2])))


def left_out(told: Told) -> OmittedUserMessages | None:
    return told.words[0][1] if told.words else None


def nothing_else_can_go(told: Told, counter: TokenCounter) -> bool:
    """Whether of all that is older only crumbs are seen, words of users aside."""
    rest = 0
    for group, seqs in enumerate(told.groups):
        instructs = any(told.messages[seq].role == "system" for seq in seqs)
        if group in told.hidden or told.fixed(group) or instructs:
            continue
        for seq in seqs:
            said = set(sayings(told, seq))
            sizes = enumerate(tokens_of_parts(told, seq, counter))
            rest += sum(size for part, size in sizes if part not in said)
    return rest <= CRUMBS


@dataclass
class Watch:
    """What a life was at the last look."""

    seq: int = 0
    forks: list[tuple[int, float]] = field(default_factory=list[tuple[int, float]])
    room: int = 0
    blocks: list[str] = field(default_factory=list[str])

    def asking(self, life: Life, stream: bool, volatile: str | None) -> None:
        """Look at what was decided since the last request, before more is decided."""
        self.look(life, life.context.budget().room)
        self.room = life.context.budget(volatile).room

    def asked(self, life: Life, request: dict[str, Any]) -> None:
        self.look(life, self.room)
        now = life.context.window.settings
        told = tell(life.events)
        volatile, front = life.last_call.volatile, told.front(now.recall)
        the_list_is_read(told, wires.said(request, now, volatile, front), now.recall)
        found = pieces(request, now, volatile, front)
        every_word_is_somewhere(told, found)
        instructions_are_there(told, found, now.dialect)
        thoughts_are_as_they_were(life, told, found)

    def look(self, life: Life, room: int) -> None:
        """All events since the last look; `room` was there for the edits among them."""
        events = life.events
        forks = [(event.seq, event.at) for event in events if isinstance(event.body, Fork)]
        if forks != self.forks:  # what was seen before may be left behind
            self.seq, self.blocks, self.forks = forks[-1][0], [], forks
        new = events[self.seq :]
        changed = max(
            (
                e.seq
                for e in new
                if isinstance(e.body, Settings | CallOutcome | Rewind | PayloadErasure)
            ),
            default=0,
        )
        before = tell(events[: max(self.seq, changed)])
        edits = [e for e in new if isinstance(e.body, Edit) and e.seq > changed]
        if edits and not any(isinstance(e.body, Edit) and e.body.op == "reveal" for e in edits):
            counter = life.context.window.counter
            judge(before, events[: edits[-1].seq], [e.body for e in edits], room, counter)
        self.only_grows(events, new)
        self.seq = len(events)

    def only_grows(self, events: Sequence[Event], new: Sequence[Event]) -> None:
        """Blocks of the list that were there stay as they were, byte for byte."""
        blocks = tell(events).blocks(recall=settings_at(events).recall)
        if not any(takes_out(event) for event in new):
            assert blocks[: len(self.blocks)] == self.blocks, "an earlier block has changed"
        self.blocks = blocks


def takes_out(event: Event) -> bool:
    match event.body:
        case Edit() as edit:
            return edit.relists or edit.op == "reveal"
        case Settings() | Rewind() | PayloadErasure() | RetentionErasure():
            return True
        case _:
            return False


def the_list_is_read(told: Told, found: list[Piece], recall: bool | str) -> None:
    """The list stands first, one text for each block, by users; there is no other of its kind."""
    blocks = [text.replace("\ud800", "\ufffd") for text in told.blocks(recall)]
    assert [piece.text for piece in found[: len(blocks)]] == blocks
    assert all(piece.role == "user" for piece in found[: len(blocks)])


def every_word_is_somewhere(told: Told, found: list[Piece]) -> None:
    """Each word of users is in its place, in the list, or among those that a line tells of."""
    listed = places_of(told)
    texts = [piece.text for piece in found if piece.kind == "text"]
    hidden = set(hidden_sayings(told))
    gone = {place for place in hidden if place not in listed}
    line = left_out(told)
    for seq, part in gone:
        assert line is not None, f"m{seq}.{part} is nowhere"
        assert line.first <= seq <= line.last, f"m{seq}.{part} is nowhere: {line}"
    for seq in told.messages:
        for part in sayings(told, seq):
            if (seq, part) in hidden or isinstance(told.messages[seq].parts[part], Media):
                continue
            text = said_as(told.shown(seq, part), note=False)
            assert not text or text in texts, f"m{seq}.{part} is not in its place"
    references_lead_somewhere(told, listed, gone)


def references_lead_somewhere(
    told: Told, listed: dict[Place, UserPartReference], gone: set[Place]
) -> None:
    """What a client says again refers to where it is said, and only that does."""
    whole: set[str] = set()
    for place in listed.values():
        text = text_of(told, place[:2])
        if not place.same_seq:
            assert not from_client(text) or text not in whole, "the same is listed twice"
            whole.add(text)
            continue
        first = (place.same_seq, place.same_part)
        if ERASED_PLACEHOLDER in (text, text_of(told, first)):
            continue
        assert from_client(text)
        assert text_of(told, first) == text, f"{place} refers to something else"
        seen = first not in listed or not listed[first].same_seq
        assert seen or first in gone, f"{place} refers to what refers to another"


def instructions_are_there(told: Told, found: list[Piece], dialect: str) -> None:
    """System messages in the middle of a conversation keep their place, and their role where a
    dialect has one for them."""
    for seq, message in told.messages.items():
        if message.role != "system" or told.group_of(seq) in told.hidden:
            continue
        for part in range(len(message.parts)):
            text = said_as(told.shown(seq, part), note=False)
            roles = {piece.role for piece in found if text and piece.text == text}
            if text and text.strip():
                assert roles, f"m{seq}.{part} is not in its place"
                assert dialect == "anthropic" or roles & {"system", "developer"}


def thoughts_are_as_they_were(life: Life, told: Told, found: list[Piece]) -> None:
    """What a provider has signed goes back as it came. Of the newest reply nothing is touched where
    it thinks or calls and nobody has spoken since: its provider looks at it as a whole. If nobody
    has spoken at all, a framework wrote its texts."""
    thoughts = {
        dump_canonical_json(part.data)
        for message in life.said.values()
        for part in message.parts
        if isinstance(part, OpaqueBlock)
    }
    for piece in found:
        if piece.kind == "opaque" and "hm <" in piece.text:
            # Two replies in a row are one message of Chat Completions, with both thoughts in it.
            joined = piece.text.split("\n\n") if life.setup.dialect == "openai_chat" else []
            assert is_one_of(piece.text, thoughts) or (
                joined and all(is_one_of(thought, thoughts) for thought in joined)
            ), piece.text
    newest = told.messages.get(told.replied)
    thinks = newest is not None and any(isinstance(part, OpaqueBlock) for part in newest.parts)
    going_on = bool(told.rounds) and told.replied in told.rounds[-1].seqs
    if newest is not None and told.newest_user and going_on and (thinks or newest.calls):
        assert all(seq != told.replied for seq, _ in told.edits), "the newest reply was changed"


def is_one_of(sent: str, thoughts: set[str]) -> bool:
    return canonical_text(sent) in thoughts or any(
        f'"reasoning_content":"{sent}"' in said for said in thoughts
    )


def canonical_text(sent: str) -> str:
    try:
        return dump_canonical_json(json.loads(sent))
    except ValueError:
        return ""


def no_text_is_copied(told: Told, events: Sequence[Event], edit: Edit, *, whole: bool) -> None:
    """An edit names what it lists, and does not repeat it. A summary may tell of what the list has
    no room for; where all of it is listed `whole`, it does not."""
    seqs = {place.seq for place in edit.listed}
    texts = [text_of(told, (seq, part)) for seq in seqs for part in sayings(told, seq)]
    tags = {tag for text in texts for tag in TAG.findall(text)}
    prior = events[edit.prior - 1].body if edit.prior else None
    known = set(TAG.findall(prior.text)) if isinstance(prior, Edit) else set[str]()
    written = edit if whole else replace(edit, text="")
    copied = tags & set(TAG.findall(dump_event_line(Event(seq=0, at=0.0, body=written)))) - known
    assert not copied, f"what users said is copied into the log: {copied}"


def judge(
    before: Told, events: Sequence[Event], edits: Sequence[Any], room: int, counter: TokenCounter
) -> None:
    """What one batch of edits has done to the words of users, given the room that there was."""
    after = tell(events)
    only_the_newest_is_cut_in_place(before, edits)
    a_quarter_is_left_of_the_newest(before, after, edits, room, counter)
    instructions_stay(before, after, room, counter)
    whole = within(after, room, settings_at(events), counter)
    for edit in edits:
        no_text_is_copied(after, events, edit, whole=whole)
    if any(edit.relists for edit in edits):
        assert not (whole and cut_now(before, after)) or nothing_else_can_go(after, counter), (
            f"{cut_now(before, after)} were cut though there is room"
        )
        in_order(before, after, counter)
        if not any(takes_away(event) for event in events):
            the_line_counts_right(after)


def takes_away(event: Event) -> bool:
    match event.body:
        case Edit() as edit:
            return edit.op == "reveal"
        case PayloadErasure() | RetentionErasure():
            return True
        case _:
            return False


def is_last(told: Told, seq: int) -> bool:
    return seq == told.newest_user or (bool(told.rounds) and seq in told.rounds[-1].seqs)


def only_the_newest_is_cut_in_place(before: Told, edits: Sequence[Edit]) -> None:
    for edit in edits:
        if edit.part is None or edit.why.startswith(REJECTED) or edit.first not in before.messages:
            continue
        message = before.messages[edit.first]
        if message.role == "user" and isinstance(message.parts[edit.part], Text):
            assert is_last(before, edit.first), f"m{edit.first} is cut in its place: {edit}"


def newest_texts(told: Told) -> list[Place]:
    return [
        (seq, part)
        for seq, message in told.messages.items()
        if is_last(told, seq) and message.role in ("user", "tool")
        for part, said in enumerate(message.parts)
        if isinstance(said, Text)
    ]


def a_quarter_is_left_of_the_newest(
    before: Told, after: Told, edits: Sequence[Edit], room: int, counter: TokenCounter
) -> None:
    """The newest user message is cut at last, and never below a quarter of the room."""
    newest = newest_texts(before)
    cut = [e for e in edits if e.part is not None and (e.first, e.part) in newest]
    cut = [e for e in cut if not e.why.startswith(REJECTED)]
    if not cut:
        return
    was = sum(tokens_of_parts(before, *place[:1], counter)[place[1]] for place in newest)
    now = sum(tokens_of_parts(after, *place[:1], counter)[place[1]] for place in newest)
    assert now >= min(was, room // 4), f"{now} of {was} tokens are left in a room of {room}"
    if any(edit.why == overflow.OVERFLOW_REASON for edit in cut):
        assert nothing_else_can_go(after, counter), "the newest message is cut before others"


def instructions_stay(before: Told, after: Told, room: int, counter: TokenCounter) -> None:
    """System messages stay as they are, up to a quarter of the room together."""
    said = [
        (seq, part)
        for seq, message in before.messages.items()
        if message.role == "system" and before.group_of(seq) not in before.hidden
        for part in range(len(message.parts))
    ]
    changed = [
        place
        for place in said
        if after.group_of(place[0]) in after.hidden
        or after.edits.get(place) != before.edits.get(place)
    ]
    if not changed:
        return
    total = sum(tokens_of_parts(before, seq, counter)[part] for seq, part in said)
    assert total > room // 4 or nothing_else_can_go(after, counter), f"{changed} were changed"


def allowance(room: int, now: Settings) -> tuple[int, int]:
    """Tokens for the words of users, and for those of client programs."""
    params = now.policy_params
    words = quarter = room // 4
    words = min(words, 20_000 if params.get("goal") == "cost" else 40_000)
    context: dict[str, Any] = params.get("context") or {}
    own = [context.get("max_history_tokens", 0) // 2 or words]
    own.append((context.get("summary") or {}).get("max_tokens") or words)
    return min(words, *own), min(quarter, *own) if min(own) < words else quarter


def cut_now(before: Told, after: Told) -> list[Place]:
    """What was whole, or cut, and is now cut or left out."""
    listed, earlier = places_of(after), places_of(before)
    gone = {place for place in hidden_sayings(before) if place not in earlier}
    hidden = [place for place in hidden_sayings(after) if place not in gone]
    short = [p for p in hidden if p not in listed or not is_whole(after, listed[p])]
    return [place for place in short if place not in listed or not listed[place].same_seq]


def within(after: Told, room: int, now: Settings, counter: TokenCounter) -> bool:
    """Whether all that users said is within the allowance, the newest message aside."""
    words, instructions, seen = 0, 0, set[str]()
    for seq in after.messages:
        for part in sayings(after, seq) if seq != after.newest_user else ():
            text = text_of(after, (seq, part))
            size = counter.count(text) + 16
            if not from_client(text):
                words += size
            elif text not in seen:
                instructions += size
                seen.add(text)
    most, beside = allowance(room, now)
    return words <= most and instructions <= beside


def in_order(before: Told, after: Told, counter: TokenCounter) -> None:
    """The longest are cut first, then the oldest are left out."""
    listed, earlier = places_of(after), places_of(before)
    gone_before = {place for place in hidden_sayings(before) if place not in earlier}
    every = [place for place in hidden_sayings(after) if place not in gone_before]
    for client in (False, True):
        own = [place for place in every if is_client(after, place) is client]
        kept = [listed[place] for place in own if place in listed]
        gone = [place for place in own if place not in listed]
        # What only refers to another takes no room that could be had.
        kept = [place for place in kept if not place.same_seq and text_of(after, place[:2])]
        the_newest_stay(after, kept, gone, counter)


def the_newest_stay(
    told: Told, kept: list[UserPartReference], gone: list[Place], counter: TokenCounter
) -> None:
    sizes = [kept_size(told, place, counter) for place in kept]
    cut = [size for size, place in zip(sizes, kept, strict=True) if not is_whole(told, place)]
    if gone:
        first = min((place[:2] for place in kept), default=None)
        assert first is None or max(gone) < first, f"{max(gone)} is left out before {first}"
    if cut:
        assert min(cut) >= LEAST // 1.3 - AROUND, f"little is left of one: {sizes}"
        assert max(sizes) <= min(cut) * 1.3 + AROUND, f"not the longest is cut: {sizes}"


def kept_size(told: Told, place: UserPartReference, counter: TokenCounter) -> int:
    text = text_of(told, place[:2])
    if is_whole(told, place):
        return counter.count(text)
    return counter.count(text[: place.head]) + counter.count(text[len(text) - place.tail :])


def the_line_counts_right(told: Told) -> None:
    """How many are left out, which, and from when to when."""
    listed = places_of(told)
    gone = sorted({place[0] for place in hidden_sayings(told) if place not in listed})
    line = left_out(told)
    if not gone:
        assert line is None
        return
    first, last = gone[0], gone[-1]
    assert line == OmittedUserMessages(len(gone), first, last, told.at[first], told.at[last])


FOUND = {
    "a reminder that was the newest message is erased": Story(
        setup=Setup(policy="auto"),
        steps=(
            Chat(rounds=2, words=Words(size=120), reply=Words(unit="[masked]", size=6_000)),
            Squeeze(times=3),
            Say(client=1, alone=True),
            Turn(calls=("a",), reply="lost"),
            Touch(what="erase", which=33, until=3),
        ),
    ),
}
"""Lives in which a word of a user was once lost."""


@pytest.mark.parametrize("name", FOUND)
def test_what_was_once_lost_stays(name: str):
    watch = Watch()
    live(FOUND[name], Hooks(asking=watch.asking, asked=watch.asked))


@pytest.mark.slow
@law(listings)
def test_what_users_said_is_in_every_request_or_a_line_tells_of_it(story: Story) -> Hooks:
    watch = Watch()
    return Hooks(asking=watch.asking, asked=watch.asked)
