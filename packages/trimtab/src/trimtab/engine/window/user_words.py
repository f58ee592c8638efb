"""A list of the user's words, so that the model still sees user messages that are hidden.

The list comes before the summary. It consists of blocks, one for each compaction. A later block
does not change earlier ones, so a provider's cache still holds them. An entry names a message and
how much of it is kept. The text itself is never copied, so an erasure finds it in one place.

Each item begins with the label of its message, and all its further lines are indented. So a text
that a user has pasted cannot add an item.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import groupby
from typing import NamedTuple

from trimtab.engine.log.edits import ERASED_PLACEHOLDER
from trimtab.engine.log.event import (
    DEFAULT_RECALL_HINT,
    Edit,
    OmittedUserMessages,
    Size,
    UserPartReference,
)
from trimtab.engine.log.message import Media, Message, Part, Text
from trimtab.engine.log.text_cuts import add_recall_handle
from trimtab.engine.text.client_text import is_wholly_client_generated
from trimtab.engine.text.quoting import count_further_lines, indent_further_lines, indent_lines
from trimtab.engine.tokens.counter import (
    MESSAGE_OVERHEAD_TOKENS,
    TokenCounter,
    add_sizes,
    measure_text_message,
)
from trimtab.engine.window.structure import Entry

USER_WORDS_ROOM_DIVISOR = 4
"""The user's words get at most one part in this number of the room for messages, and instructions
the same."""
MIN_CUT_TOKENS = 400
"""A message is cut to no fewer tokens than this. It would say too little beside the mark of the
cut."""
MIN_CUT_DIVISOR = 10
"""A message is cut to no less than one part in this number of the list."""
REFILL_SHARE = 0.8
"""Share of the allowance to fill after it was exceeded, so that the list can grow again."""
DOCUMENT_LABEL = "[document]"
"""Precedes the text of a document that a user has attached. It is not among the user's words."""
USER_WORDS_HEADER = "[The user's earlier messages, word for word]"
"""The header of each block."""
LABEL_TOKENS = 8
"""Tokens of the label and the line end of an item, about."""
LINES_PER_INDENTATION_TOKEN = 2
"""The indentation of this many lines is one token, about: most of it merges with the words."""
SHORT_ITEM_SIZE = Size(bytes=40, tokens=16)
"""Size of an item without text, about: the handle of a picture, or a reference to another item."""
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - it stands for UTC
_MAX_TIMESTAMP = 253_402_300_799
"""The last second of the year 9999."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserWordsUpdate:
    """The change of the list by one edit."""

    listed_parts: tuple[UserPartReference, ...]
    """The parts that it adds, or the whole list if it replaces the list."""
    relists: bool
    """Whether it replaces the whole list."""
    left_out: OmittedUserMessages | None
    """User messages that even the list does not show."""
    size: Size
    """Size of the whole list after the change."""


class UserAndClientAllowance(NamedTuple):
    """Maximum tokens of the list."""

    user_tokens: int
    """Tokens for the words of users."""
    client_tokens: int
    """Tokens for texts that client programs put into user messages, such as reminders."""
    limited_by: str = ""
    """The setting that makes the allowance smaller than its default."""

    def scaled(self, numerator: int, denominator: int) -> UserAndClientAllowance:
        """Return a part of both numbers."""
        return self._replace(
            user_tokens=self.user_tokens * numerator // denominator,
            client_tokens=self.client_tokens * numerator // denominator,
        )


class SaidMessage(NamedTuple):
    """A message of the list."""

    message: Message
    """The complete message."""
    sizes: tuple[Size, ...]
    """Size of each part in full."""
    at: float | None
    """Time of the message, in seconds since the epoch; None if it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserWordsItem:
    """One part of a user's message, as an item of the list."""

    listed_part: UserPartReference
    """The position of the part in the log, and how much of it is kept."""
    text: str = ""
    """The whole text; empty for a picture and for a reference to another item."""
    is_from_client: bool = False
    """True for a text that a client program put there."""
    tokens: int
    """Tokens of the text as a message of its own. They count towards the allowance."""
    listed_tokens: int
    """Tokens of the item in the list, including its label, about."""
    listed_bytes: int
    """Bytes of the item in the list, about."""
    said_at: float | None = None
    """Time of the message, in seconds since the epoch; None if it is not known."""


class WordTotals(NamedTuple):
    """Totals of several items."""

    user_tokens: int = 0
    """Tokens of the words of users."""
    client_tokens: int = 0
    """Tokens of the texts of client programs."""
    user_listed_tokens: int = 0
    """Tokens of the words of users in the list."""
    client_listed_tokens: int = 0
    """Tokens of the texts of client programs in the list."""
    listed_bytes: int = 0
    """Bytes of all items in the list."""

    def with_item(self, item: UserWordsItem) -> WordTotals:
        """Return the totals with one more item."""
        user, client, user_listed, client_listed, listed_bytes = self
        if item.is_from_client:
            client += item.tokens
            client_listed += item.listed_tokens
        else:
            user += item.tokens
            user_listed += item.listed_tokens
        return WordTotals(
            user, client, user_listed, client_listed, listed_bytes + item.listed_bytes
        )

    def fits(self, allowance: UserAndClientAllowance) -> bool:
        """Whether all texts may stay in full."""
        return (
            self.user_tokens <= allowance.user_tokens
            and self.client_tokens <= allowance.client_tokens
        )

    def estimate_capped_size(self, allowance: UserAndClientAllowance) -> Size:
        """Return the size of a list of these items after it is cut to the allowance, about."""
        tokens = 0
        for all_tokens, list_tokens, limit in (
            (self.user_tokens, self.user_listed_tokens, allowance.user_tokens),
            (self.client_tokens, self.client_listed_tokens, allowance.client_tokens),
        ):
            tokens += (
                list_tokens
                if all_tokens <= limit
                else int(list_tokens * REFILL_SHARE * limit / all_tokens)
            )
        whole = self.user_listed_tokens + self.client_listed_tokens
        return Size(bytes=self.listed_bytes * tokens // max(1, whole), tokens=tokens)


@dataclass(slots=True)
class CompactionUserWords:
    """The block that one compaction has added to the list."""

    listed_parts: list[UserPartReference]
    """The parts in the order of the conversation."""
    left_out: OmittedUserMessages | None = None
    """User messages before these for which there was no room."""
    text: str | None = None
    """The block as the model reads it; None if it must be rendered again."""
    size: Size | None = None
    """Size of that text as a message."""


@dataclass(slots=True)
class UserWordsList:
    """The list as it is sent now."""

    blocks: list[CompactionUserWords] = field(default_factory=list[CompactionUserWords])
    """The blocks, oldest first."""
    messages: dict[int, SaidMessage] = field(default_factory=dict[int, SaidMessage])
    """By position: each listed message."""
    _items: dict[tuple[int, int], UserWordsItem | None] = field(
        default_factory=dict[tuple[int, int], "UserWordsItem | None"]
    )
    """By position and part: the item of a part that was looked at."""
    _totals: tuple[WordTotals, dict[str, tuple[int, int]]] | None = None
    """The totals, as long as they are valid."""
    _drafts: dict[object, tuple[UserWordsUpdate, CompactionUserWords]] = field(
        default_factory=dict[object, "tuple[UserWordsUpdate, CompactionUserWords]"]
    )
    """By what is added and the allowance: the change and its block. The plans of one decision ask
    for the same one."""

    def copy(self) -> UserWordsList:
        """Return a copy of the list that can change independently."""
        blocks = [replace(block, listed_parts=[*block.listed_parts]) for block in self.blocks]
        return replace(
            self,
            blocks=blocks,
            messages=dict(self.messages),
            _items=dict(self._items),
            _drafts=dict(self._drafts),
        )

    @property
    def left_out(self) -> OmittedUserMessages | None:
        """User messages that even the list does not show."""
        return self.blocks[0].left_out if self.blocks else None

    def add_block_of_edit(self, edit: Edit, entries: Mapping[int, Entry]) -> None:
        """Add the block of an edit. It names messages of the window or of the current list."""
        if edit.relists:
            self.blocks = []
        for seq in {place.seq for place in edit.listed} & entries.keys():
            self.messages[seq] = make_said_message(entries[seq])
        places = [place for place in edit.listed if place.seq in self.messages]
        if places or edit.left_out is not None:
            block = CompactionUserWords(listed_parts=places, left_out=edit.left_out)
            for _, draft in self._drafts.values():
                if (draft.listed_parts, draft.left_out) == (places, edit.left_out):
                    block = draft  # it is rendered and measured already
            self.blocks.append(block)
        self._drop_unlisted_messages()

    def find_partly_listed(self) -> set[int]:
        """Return the messages with one part in the list and another part left out."""
        places = {place[:2] for block in self.blocks for place in block.listed_parts}
        omission = self.left_out
        return {
            seq
            for seq, (message, *_) in self.messages.items()
            if omission is not None and omission.first <= seq <= omission.last
            for index, part in enumerate(message.parts)
            if (seq, index) not in places and is_nonblank_part(part)
        }

    def discard_messages(self, seqs: Iterable[int]) -> None:
        """Remove messages that are visible in the conversation again."""
        visible_seqs = set(seqs)
        for block in self.blocks:
            places = [place for place in block.listed_parts if place.seq not in visible_seqs]
            if len(places) != len(block.listed_parts):
                block.listed_parts = places
                block.text = None
                block.size = None
        self.blocks = [block for block in self.blocks if block.listed_parts or block.left_out]
        self._drop_unlisted_messages()

    def _drop_unlisted_messages(self) -> None:
        self._forget_derived()
        listed_seqs = {place.seq for block in self.blocks for place in block.listed_parts}
        self.messages = {
            seq: message for seq, message in self.messages.items() if seq in listed_seqs
        }
        self._items = {key: item for key, item in self._items.items() if key[0] in listed_seqs}

    def _forget_derived(self) -> None:
        self._totals = None
        self._drafts = {}

    def render_message(self, seq: int, part_index: int | None) -> str:
        """Return a message, or one of its parts, as the list shows it; empty if it does not."""
        places = [
            place for block in self.blocks for place in block.listed_parts if place.seq == seq
        ]
        places_of_part = [
            place for place in places if part_index is None or place.part == part_index
        ]
        texts = [
            _render_listed_part(place, self.messages[seq].message, recall_hint="")
            for place in places_of_part
        ]
        return "\n".join(text for text in texts if text)

    def clear_rendered(self) -> None:
        """Clear the rendered texts, because handles or token counts have changed."""
        self._forget_derived()
        for block in self.blocks:
            block.text = block.size = None

    def render_blocks(self, *, recall_hint: str) -> list[str]:
        """Return the blocks as the model reads them."""
        for block in self.blocks:
            if block.text is None:
                block.text = render_user_words_block(block, self.messages, recall_hint=recall_hint)
        return [block.text for block in self.blocks if block.text]

    def measure_blocks(self, counter: TokenCounter, *, recall_hint: str) -> list[Size]:
        """Return the sizes of the blocks. Each block is a message."""
        self.render_blocks(recall_hint=recall_hint)
        for block in self.blocks:
            if block.size is None:
                block.size = measure_text_message(block.text or "", counter)
        return [block.size for block in self.blocks if block.size is not None]

    def measure_all_blocks(self, counter: TokenCounter, *, recall_hint: str) -> Size:
        """Return the size of all blocks together."""
        sizes = self.measure_blocks(counter, recall_hint=recall_hint)
        return Size(bytes=sum(s.bytes for s in sizes), tokens=sum(s.tokens for s in sizes))

    def item_of_part(self, seq: int, part: int, said: SaidMessage | Entry) -> UserWordsItem | None:
        """Return a part of a user's message as an item; None if it is empty."""
        if (seq, part) not in self._items:
            self._items[seq, part] = make_user_words_item(said, seq, part)
        return self._items[seq, part]

    def items_of_entry(self, entry: Entry) -> list[UserWordsItem]:
        """Return the user's words in a message, part by part.

        Skip a text that was masked because a provider rejected it.
        """
        if entry.message.speaker != "user":
            return []
        items: list[UserWordsItem] = []
        for part, content in enumerate(entry.message.parts):
            edit = entry.edits.get(part)
            is_masked = edit is not None and edit.op == "mask" and isinstance(content, Text)
            item = self.item_of_part(entry.seq, part, entry)
            if item is not None and not is_masked and part not in entry.unpaired_results:
                items.append(item)
        return items

    def listed_items(self) -> list[UserWordsItem]:
        """Return all listed items in full, in the order of the conversation."""
        places = [place for block in self.blocks for place in block.listed_parts]
        items = (self.item_of_part(seq, part, self.messages[seq]) for seq, part, *_ in places)
        return [item for item in items if item is not None]

    def compute_totals(self) -> tuple[WordTotals, dict[str, tuple[int, int]]]:
        """Return the totals of the list; and, by text of a client program, its first position."""
        if self._totals is None:
            total = WordTotals()
            first = dict[str, tuple[int, int]]()
            for place in [place for block in self.blocks for place in block.listed_parts]:
                item = self.item_of_part(place.seq, place.part, self.messages[place.seq])
                if item is not None and place.same_seq:
                    # What it refers to may be gone: the next that says it must not refer to this.
                    total = total.with_item(make_reference_item(item, place[4:]))
                elif item is not None:
                    total = total.with_item(replace_repeated_client_text(item, first))
            self._totals = total, first
        return self._totals

    def compute_update(
        self,
        new_items: Iterable[UserWordsItem],
        said_messages: Mapping[int, SaidMessage],
        allowance: UserAndClientAllowance,
        counter: TokenCounter,
        *,
        recall_hint: str,
    ) -> UserWordsUpdate:
        """Return the change of the list when items are added. `said_messages` has all their
        messages."""
        new_items = sorted(new_items, key=_position)
        key = (allowance, tuple(map(_position, new_items)))
        if key not in self._drafts:
            block, relists = self._draft_block(new_items, allowance, counter)
            block.text = render_user_words_block(
                block, {**self.messages, **said_messages}, recall_hint=recall_hint
            )
            size = block.size = measure_text_message(block.text, counter)
            if not relists:
                size = add_sizes(size, self.measure_all_blocks(counter, recall_hint=recall_hint))
            update = UserWordsUpdate(
                listed_parts=tuple(block.listed_parts),
                relists=relists,
                left_out=block.left_out,
                size=size,
            )
            self._drafts[key] = update, block
        return self._drafts[key][0]

    def find_staying(
        self,
        new_items: Iterable[UserWordsItem],
        allowance: UserAndClientAllowance,
        counter: TokenCounter,
    ) -> set[int]:
        """Return the positions of the messages that are in the list when items are added."""
        block, relists = self._draft_block(sorted(new_items, key=_position), allowance, counter)
        staying = {place.seq for place in block.listed_parts}
        return staying if relists else staying | self.messages.keys()

    def _draft_block(
        self,
        new_items: Sequence[UserWordsItem],
        allowance: UserAndClientAllowance,
        counter: TokenCounter,
    ) -> tuple[CompactionUserWords, bool]:
        """Return the block of an update, and whether it replaces the whole list."""
        total, first = self.compute_totals()
        first_places = dict(first)
        additions = [replace_repeated_client_text(item, first_places) for item in new_items]
        for item in additions:
            total = total.with_item(item)
        if total.fits(allowance):
            return CompactionUserWords(listed_parts=[item.listed_part for item in additions]), False
        first_places = dict[str, tuple[int, int]]()
        every = sorted([*self.listed_items(), *new_items], key=_position)
        short_items, left_out = shorten_items_to_allowance(
            [replace_repeated_client_text(item, first_places) for item in every],
            allowance,
            self.left_out,
            counter,
            self.find_partly_listed(),
        )
        places = [item.listed_part for item in short_items]
        return CompactionUserWords(listed_parts=places, left_out=left_out), True


def make_said_message(entry: Entry) -> SaidMessage:
    """Return a message of the window, as the list keeps it."""
    return SaidMessage(entry.message, entry.sizes, entry.at)


def has_user_words(entry: Entry) -> bool:
    """Whether a message contains words of a user."""
    return entry.message.speaker == "user" and any(map(is_nonblank_part, entry.message.parts))


def is_nonblank_part(part: Part) -> bool:
    """Whether a part of a user's message contains anything."""
    return isinstance(part, Media) or (isinstance(part, Text) and bool(part.text.strip()))


def may_be_written_by_person(message: Message) -> bool:
    """Whether a person may have written the message: it has more than texts of a client program."""
    return not message.parts or any(
        isinstance(part, Media)
        or (isinstance(part, Text) and not is_wholly_client_generated(part.text))
        for part in message.parts
    )


def make_user_words_item(said: SaidMessage | Entry, seq: int, part: int) -> UserWordsItem | None:
    """Return a part of a user's message as an item of the list; None if it is empty."""
    content = said.message.parts[part] if part < len(said.message.parts) else None
    place = UserPartReference(seq, part)
    if isinstance(content, Media):
        return UserWordsItem(
            listed_part=place,
            tokens=SHORT_ITEM_SIZE.tokens,
            listed_tokens=SHORT_ITEM_SIZE.tokens,
            listed_bytes=SHORT_ITEM_SIZE.bytes,
            said_at=said.at,
        )
    if not isinstance(content, Text) or not content.text.strip():
        return None
    if content.text == ERASED_PLACEHOLDER:
        return None
    size = said.sizes[part]
    further_lines = count_further_lines(content.text)
    return UserWordsItem(
        listed_part=place,
        text=content.text,
        is_from_client=is_wholly_client_generated(content.text),
        tokens=size.tokens,
        listed_tokens=size.tokens + LABEL_TOKENS + further_lines // LINES_PER_INDENTATION_TOKEN,
        listed_bytes=size.bytes + SHORT_ITEM_SIZE.bytes + further_lines,
        said_at=said.at,
    )


def make_reference_item(item: UserWordsItem, earlier_part: tuple[int, int]) -> UserWordsItem:
    """Return the item as a reference to an earlier one."""
    seq, part = earlier_part
    return replace(
        item,
        listed_part=item.listed_part._replace(head=0, tail=0, same_seq=seq, same_part=part),
        text="",
        tokens=0,
        listed_tokens=SHORT_ITEM_SIZE.tokens,
        listed_bytes=SHORT_ITEM_SIZE.bytes,
    )


def replace_repeated_client_text(
    item: UserWordsItem, first_place_by_text: dict[str, tuple[int, int]]
) -> UserWordsItem:
    """Replace a repeated text of a client program by a reference to its first occurrence."""
    if not item.is_from_client:
        return item
    place = first_place_by_text.setdefault(item.text, _position(item))
    return item if place == _position(item) else make_reference_item(item, place)


def _position(item: UserWordsItem) -> tuple[int, int]:
    return item.listed_part[:2]


def shorten_items_to_allowance(
    items: Sequence[UserWordsItem],
    allowance: UserAndClientAllowance,
    earlier_omitted: OmittedUserMessages | None,
    counter: TokenCounter,
    seqs_already_counted: Collection[int] = (),
) -> tuple[list[UserWordsItem], OmittedUserMessages | None]:
    """Shorten the items of the list if they exceed the allowance.

    The longest are cut to both ends. If that is not enough, the newest messages stay, and one line
    stands for the others. `seqs_already_counted` are messages that this line already counts.
    """
    short_items: list[UserWordsItem] = []
    for client, most in ((False, allowance.user_tokens), (True, allowance.client_tokens)):
        group = [item for item in items if item.is_from_client is client]
        is_over = sum(item.tokens for item in group) > most
        short_items += _keep_newest(group, int(REFILL_SHARE * most), counter) if is_over else group
    short_items.sort(key=_position)
    return short_items, _merge_omitted(items, short_items, earlier_omitted, seqs_already_counted)


def _keep_newest(
    items: Sequence[UserWordsItem], max_tokens: int, counter: TokenCounter
) -> list[UserWordsItem]:
    """Cut the longest items to a common size, then leave out the oldest messages."""
    least = max(MIN_CUT_TOKENS, max_tokens // MIN_CUT_DIVISOR)
    level = _find_cut_level([item.tokens for item in items], max_tokens, least)
    newest_items: list[UserWordsItem] = []
    tokens = max_tokens
    for _, parts in groupby(reversed(items), key=lambda item: item.listed_part.seq):
        message = list(parts)
        tokens -= sum(min(item.tokens, level) for item in message)
        if tokens < 0:
            break
        newest_items += [_shorten_item(item, level, counter) for item in message]
    return newest_items


def _find_cut_level(sizes: Sequence[int], most: int, least: int) -> int:
    """Return the size to which the largest items are cut so that all together take at most
    `most`."""
    tokens = most
    tall = sorted(sizes)
    for index, size in enumerate(tall):
        share = tokens // (len(tall) - index)
        if size > share:
            return max(share, least)
        tokens -= size
    return max(least, tall[-1] if tall else 0)


def _shorten_item(item: UserWordsItem, max_tokens: int, counter: TokenCounter) -> UserWordsItem:
    """Cut the item to both its ends. Return it unchanged if that does not make it smaller."""
    if item.tokens <= max_tokens:
        return item
    text = item.text
    mark = _format_cut_label(
        len(text), len(text), item.listed_part, recall_hint=DEFAULT_RECALL_HINT
    )
    mark_tokens = counter.count(mark) + 2 + MESSAGE_OVERHEAD_TOKENS
    room = max(0, max_tokens - mark_tokens)
    ends = len(text) * room // item.tokens // 2
    while (tokens := counter.count(text[:ends]) + counter.count(text[len(text) - ends :])) > room:
        ends = ends * 9 // 10
    if tokens + mark_tokens >= item.tokens:
        return item
    return replace(item, listed_part=item.listed_part._replace(head=ends, tail=ends))


def _merge_omitted(
    items: Sequence[UserWordsItem],
    listed_items: Sequence[UserWordsItem],
    earlier_omitted: OmittedUserMessages | None,
    already_omitted: Collection[int],
) -> OmittedUserMessages | None:
    """Return the line for messages that are partly left out, including those left out earlier."""
    positions = set(map(_position, listed_items))
    times_by_seq = {
        item.listed_part.seq: item.said_at
        for item in items
        if _position(item) not in positions and item.listed_part.seq not in already_omitted
    }
    if not times_by_seq:
        return earlier_omitted
    first = min(times_by_seq)
    last = max(times_by_seq)
    omission = OmittedUserMessages(
        len(times_by_seq), first, last, times_by_seq[first], times_by_seq[last]
    )
    if earlier_omitted is None:
        return omission
    oldest, newest = sorted((earlier_omitted, omission), key=lambda line: line.first)
    if newest.last < oldest.last:
        newest = oldest
    return OmittedUserMessages(
        earlier_omitted.messages + omission.messages,
        oldest.first,
        newest.last,
        oldest.since,
        newest.until,
    )


def render_user_words_block(
    block: CompactionUserWords,
    said_messages: Mapping[int, SaidMessage],
    *,
    recall_hint: str,
) -> str:
    """Return a block as the model reads it; empty if all of it was erased."""
    lines: list[str] = []
    last = 0
    for place in block.listed_parts:
        same = said_messages.get(place.same_seq)
        # If the message that it refers to was erased, only this one still has the text.
        alone = same is not None and _is_erased(same.message, place.same_part)
        reference = place._replace(head=-1, same_seq=0) if alone else place
        words = _render_listed_part(
            reference, said_messages[place.seq].message, recall_hint=recall_hint
        )
        if words is None:
            continue
        if place.seq == last:
            lines.append(indent_lines(words))
        else:
            label = _format_message_label(place.seq, recall_hint=recall_hint)
            lines.append(f"{label} {indent_further_lines(words)}")
            last = place.seq
    omission_lines = (
        [_format_omitted_line(block.left_out, recall_hint=recall_hint)]
        if block.left_out is not None
        else []
    )
    return (
        "\n".join([USER_WORDS_HEADER, *omission_lines, *lines]) if omission_lines or lines else ""
    )


def _is_erased(message: Message, part: int) -> bool:
    content = message.parts[part] if part < len(message.parts) else None
    return isinstance(content, Text) and content.text == ERASED_PLACEHOLDER


def _render_listed_part(
    place: UserPartReference, message: Message, *, recall_hint: str
) -> str | None:
    content = message.parts[place.part] if place.part < len(message.parts) else None
    if isinstance(content, Media):
        return _format_media_label(content.kind, place, recall_hint=recall_hint)
    if not isinstance(content, Text) or content.text == ERASED_PLACEHOLDER:
        return None
    if place.same_seq:
        return _format_repeat_label(place, recall_hint=recall_hint)
    text = content.text
    if 0 <= place.head < len(text) - place.tail:
        gap = _format_cut_label(place.head + place.tail, len(text), place, recall_hint=recall_hint)
        text = f"{text[: place.head]}{gap}{text[len(text) - place.tail :]}"
    return f"{DOCUMENT_LABEL}\n{indent_lines(text)}" if content.is_document else text


def _format_message_label(seq: int, *, recall_hint: str) -> str:
    return f"[m{seq}]" if recall_hint else "[user]"


def _format_media_label(kind: str, place: UserPartReference, *, recall_hint: str) -> str:
    return add_recall_handle(f"[{kind}]", f"m{place.seq}.{place.part}", recall_hint)


def _format_repeat_label(place: UserPartReference, *, recall_hint: str) -> str:
    return f"[the same as in m{place.same_seq}]" if recall_hint else "[the same as before]"


def _format_cut_label(kept: int, total: int, place: UserPartReference, *, recall_hint: str) -> str:
    sign = f"[… cut: {kept:,} of {total:,} characters are kept …]"
    return add_recall_handle(sign, f"m{place.seq}.{place.part}", recall_hint)


def _format_omitted_line(left_out: OmittedUserMessages, *, recall_hint: str) -> str:
    count, first, last, since, until = left_out
    many = "1 older user message" if count == 1 else f"{count:,} older user messages"
    verb = "is" if count == 1 else "are"
    times = (
        f", from {_format_utc_time(since)} to {_format_utc_time(until)},"
        if since is not None and until is not None
        else ""
    )
    line = f"[{many}{times} {verb} not shown]"
    handle = f"m{first}" if first == last else f"m{first}-m{last}"
    return add_recall_handle(line, handle, recall_hint)


def _format_utc_time(timestamp: float) -> str:
    """Format seconds since the epoch as a date and time."""
    moment = _EPOCH + timedelta(seconds=min(max(int(timestamp), 0), _MAX_TIMESTAMP))
    return f"{moment:%Y-%m-%d %H:%M} UTC"
