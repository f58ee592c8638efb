"""A list of the user's words, so that the model still sees user messages that are hidden.

The list comes before the summary. It consists of blocks, one for each compaction. A later block
does not change earlier ones, so a provider's cache still holds them. An entry names a message and
how much of it is kept. The text itself is never copied, so an erasure finds it in one place.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import NamedTuple

from trimtab.engine.log.edits import ERASED_PLACEHOLDER, add_recall_handle
from trimtab.engine.log.event import Edit, OmittedUserMessages, Size, UserPartReference
from trimtab.engine.log.message import Media, Message, Part, Text
from trimtab.engine.text.client_text import is_wholly_client_generated
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
USER_WORDS_HEADER = "[The user's earlier messages, word for word]"
"""The header of each block."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class UserWordsItem:
    """One part of a user's message, as an item of the list."""

    listed_part: UserPartReference
    """The position of the part in the log, and how much of it is kept."""
    text: str = ""
    """The whole text; empty for a picture and for a reference to another item."""
    media: str = ""
    """The kind of a picture or file."""
    is_from_client: bool = False
    """True for a text that a client program put there."""
    said_tokens: int = 0
    """Tokens of the original text."""
    label_tokens: int = 0
    """Tokens of the label before it in the list."""
    listed_tokens: int = 0
    """Maximum tokens of the item in the list, including the label."""
    listed_bytes: int = 0
    """Maximum bytes of the item in the list."""
    said_at: float = 0.0
    """Time of the message, in seconds since the epoch."""


class WordTotals(NamedTuple):
    """Totals of several items."""

    user_tokens: int = 0
    """Tokens of the words of users."""
    client_tokens: int = 0
    """Tokens of the texts of client programs."""
    user_listed_tokens: int = 0
    """Maximum tokens of the words of users in the list."""
    client_listed_tokens: int = 0
    """Maximum tokens of the texts of client programs in the list."""
    listed_bytes: int = 0
    """Maximum bytes of all items in the list."""

    def __add__(self, other: object) -> WordTotals:
        """Return the sum of two totals."""
        assert isinstance(other, WordTotals)  # noqa: S101 - nothing else is added to one
        return WordTotals(*(one + more for one, more in zip(self, other, strict=True)))

    def fits(self, allowance: UserAndClientAllowance) -> bool:
        """Whether all texts may stay in full."""
        return (
            self.user_tokens <= allowance.user_tokens
            and self.client_tokens <= allowance.client_tokens
        )

    def estimate_capped_size(self, allowance: UserAndClientAllowance) -> Size:
        """Return the maximum size of a list of these items after it is cut to the allowance."""
        most = 0
        for said, cost, limit in (
            (self.user_tokens, self.user_listed_tokens, allowance.user_tokens),
            (self.client_tokens, self.client_listed_tokens, allowance.client_tokens),
        ):
            most += cost if said <= limit else min(cost, int(REFILL_SHARE * limit))
        whole = self.user_listed_tokens + self.client_listed_tokens
        return Size(bytes=self.listed_bytes * most // max(1, whole), tokens=most)


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
    messages: dict[int, tuple[Message, float]] = field(
        default_factory=dict[int, tuple[Message, float]]
    )
    """By position: each listed message, and its time."""
    _cached_totals: tuple[WordTotals, dict[str, tuple[int, int]]] | None = None
    """The totals, as long as they are valid."""

    def copy(self) -> UserWordsList:
        """Return a copy of the list that can change independently."""
        blocks = [replace(block, listed_parts=[*block.listed_parts]) for block in self.blocks]
        return replace(self, blocks=blocks, messages=dict(self.messages))

    @property
    def left_out(self) -> OmittedUserMessages | None:
        """User messages that even the list does not show."""
        return self.blocks[0].left_out if self.blocks else None

    def add_block_of_edit(self, edit: Edit, entries: Mapping[int, Entry]) -> None:
        """Add the block of an edit. It names messages of the window or of the current list."""
        if edit.relists:
            self.blocks = []
        for seq in {place.seq for place in edit.listed} & entries.keys():
            self.messages[seq] = (entries[seq].message, entries[seq].at)
        places = [place for place in edit.listed if place.seq in self.messages]
        if places or edit.left_out is not None:
            self.blocks.append(CompactionUserWords(listed_parts=places, left_out=edit.left_out))
        self._drop_unlisted_messages()

    def find_partly_listed(self) -> set[int]:
        """Return the messages with one part in the list and another part left out."""
        named = {place[:2] for block in self.blocks for place in block.listed_parts}
        left = self.left_out
        return {
            seq
            for seq, (message, _) in self.messages.items()
            if left is not None and left.first <= seq <= left.last
            for index, part in enumerate(message.parts)
            if (seq, index) not in named and is_nonblank_part(part)
        }

    def discard_messages(self, seqs: Iterable[int]) -> None:
        """Remove messages that are visible in the conversation again."""
        gone = set(seqs)
        for block in self.blocks:
            kept = [place for place in block.listed_parts if place.seq not in gone]
            if len(kept) != len(block.listed_parts):
                block.listed_parts, block.text, block.size = kept, None, None
        self.blocks = [block for block in self.blocks if block.listed_parts or block.left_out]
        self._drop_unlisted_messages()

    def _drop_unlisted_messages(self) -> None:
        self._cached_totals = None
        named = {place.seq for block in self.blocks for place in block.listed_parts}
        self.messages = {seq: said for seq, said in self.messages.items() if seq in named}

    def render_message(self, seq: int, part_index: int | None) -> str:
        """Return a message, or one of its parts, as the list shows it; empty if it does not."""
        places = [
            place for block in self.blocks for place in block.listed_parts if place.seq == seq
        ]
        found = [place for place in places if part_index is None or place.part == part_index]
        texts = [
            _render_listed_part(place, self.messages[seq][0], show_handles=False) for place in found
        ]
        return "\n".join(text for text in texts if text)

    def clear_rendered(self) -> None:
        """Clear the rendered texts, because handles or token counts have changed."""
        self._cached_totals = None
        for block in self.blocks:
            block.text = block.size = None

    def render_blocks(self, *, show_handles: bool) -> list[str]:
        """Return the blocks as the model reads them."""
        for block in self.blocks:
            if block.text is None:
                block.text = render_user_words_block(
                    block, self.messages, show_handles=show_handles
                )
        return [block.text for block in self.blocks if block.text]

    def measure_blocks(self, counter: TokenCounter, *, show_handles: bool) -> list[Size]:
        """Return the sizes of the blocks. Each block is a message."""
        self.render_blocks(show_handles=show_handles)
        for block in self.blocks:
            if block.size is None:
                block.size = measure_text_message(block.text or "", counter)
        return [block.size for block in self.blocks if block.size is not None]

    def measure_all_blocks(self, counter: TokenCounter, *, show_handles: bool) -> Size:
        """Return the size of all blocks together."""
        sizes = self.measure_blocks(counter, show_handles=show_handles)
        return Size(bytes=sum(s.bytes for s in sizes), tokens=sum(s.tokens for s in sizes))

    def iter_items(self, counter: TokenCounter, *, show_handles: bool) -> Iterator[UserWordsItem]:
        """Yield all listed items in full, in the order of the conversation."""
        for block in self.blocks:
            for seq, part, *_ in block.listed_parts:
                message, at = self.messages[seq]
                made = make_user_words_item(
                    message, seq, part, counter, show_handles=show_handles, said_at=at
                )
                if made is not None:
                    yield made

    def compute_totals(
        self, counter: TokenCounter, *, show_handles: bool
    ) -> tuple[WordTotals, dict[str, tuple[int, int]]]:
        """Return the totals of the list; and, by text of a client program, its first position."""
        if self._cached_totals is None:
            total, first = WordTotals(), dict[str, tuple[int, int]]()
            for place in [place for block in self.blocks for place in block.listed_parts]:
                message, at = self.messages[place.seq]
                saying = make_user_words_item(
                    message, *place[:2], counter, show_handles=show_handles, said_at=at
                )
                if saying is not None and place.same_seq:
                    # What it refers to may be gone: the next that says it must not refer to this.
                    total += compute_item_totals(make_reference_item(saying, place[4:], counter))
                elif saying is not None:
                    total += compute_item_totals(
                        replace_repeated_client_text(saying, first, counter)
                    )
            self._cached_totals = total, first
        return self._cached_totals


def iter_user_words_of_entry(
    entry: Entry, counter: TokenCounter, *, show_handles: bool
) -> Iterator[UserWordsItem]:
    """Yield the user's words in a message, part by part.

    Skip a text that was masked because a provider rejected it.
    """
    if entry.message.role != "user":
        return
    for part in range(len(entry.message.parts)):
        edit = entry.edits.get(part)
        masked = edit is not None and edit.op == "mask"
        if part in entry.unpaired_results or (
            masked and isinstance(entry.message.parts[part], Text)
        ):
            continue
        made = make_user_words_item(
            entry.message, entry.seq, part, counter, show_handles=show_handles, said_at=entry.at
        )
        if made is not None:
            yield made


def has_user_words(entry: Entry) -> bool:
    """Whether a message contains words of a user."""
    return entry.message.role == "user" and any(map(is_nonblank_part, entry.message.parts))


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


def make_user_words_item(
    message: Message,
    seq: int,
    part_index: int,
    counter: TokenCounter,
    *,
    show_handles: bool,
    said_at: float,
) -> UserWordsItem | None:
    """Return a part of a user's message as an item of the list; None if it is empty."""
    content = message.parts[part_index] if part_index < len(message.parts) else None
    place = UserPartReference(seq, part_index)
    if isinstance(content, Media):
        shown = _format_media_label(content.kind, place, show_handles=show_handles)
        text, media = "", content.kind
    elif isinstance(content, Text) and content.text.strip() and content.text != ERASED_PLACEHOLDER:
        shown = text = content.text
        media = ""
    else:
        return None
    own = f"{_format_message_label(seq, show_handles=show_handles)} \n"
    tokens, around = counter.count(shown), counter.count(own) + 1
    return UserWordsItem(
        listed_part=place,
        text=text,
        media=media,
        is_from_client=bool(text) and is_wholly_client_generated(text),
        said_tokens=tokens + MESSAGE_OVERHEAD_TOKENS,
        label_tokens=around,
        listed_tokens=tokens + around,
        listed_bytes=len(f"{own}{shown}".encode("utf-8", "surrogatepass")),
        said_at=said_at,
    )


def make_reference_item(
    item: UserWordsItem, earlier_part: tuple[int, int], counter: TokenCounter
) -> UserWordsItem:
    """Return the item as a reference to an earlier one."""
    seq, part = earlier_part
    place = item.listed_part._replace(head=0, tail=0, same_seq=seq, same_part=part)
    refers = (
        f"{_format_message_label(place.seq, show_handles=True)} "
        f"{_format_repeat_label(place, show_handles=True)}\n"
    )
    tokens = counter.count(refers) + 1
    return replace(
        item,
        listed_part=place,
        text="",
        said_tokens=0,
        listed_tokens=tokens,
        listed_bytes=len(refers.encode()),
    )


def compute_item_totals(item: UserWordsItem) -> WordTotals:
    """Return the totals of one item."""
    if item.is_from_client:
        return WordTotals(
            client_tokens=item.said_tokens,
            client_listed_tokens=item.listed_tokens,
            listed_bytes=item.listed_bytes,
        )
    return WordTotals(
        user_tokens=item.said_tokens,
        user_listed_tokens=item.listed_tokens,
        listed_bytes=item.listed_bytes,
    )


def replace_repeated_client_text(
    item: UserWordsItem, first_place_by_text: dict[str, tuple[int, int]], counter: TokenCounter
) -> UserWordsItem:
    """Replace a repeated text of a client program by a reference to its first occurrence."""
    if not item.is_from_client:
        return item
    place = first_place_by_text.setdefault(item.text, item.listed_part[:2])
    return item if place == item.listed_part[:2] else make_reference_item(item, place, counter)


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
    kept: list[UserWordsItem] = []
    for client, most in ((False, allowance.user_tokens), (True, allowance.client_tokens)):
        own = [saying for saying in items if saying.is_from_client is client]
        over = sum(saying.said_tokens for saying in own) > most
        kept += _keep_newest(own, int(REFILL_SHARE * most), counter) if over else own
    kept.sort(key=lambda saying: saying.listed_part[:2])
    return kept, _merge_omitted(items, kept, earlier_omitted, seqs_already_counted)


def compute_user_words_update(
    user_words: UserWordsList,
    new_items: Sequence[UserWordsItem],
    messages_by_seq: Mapping[int, tuple[Message, float]],
    allowance: UserAndClientAllowance,
    counter: TokenCounter,
    *,
    show_handles: bool,
) -> UserWordsUpdate:
    """Return the change of the list when items are added. `messages_by_seq` has all their
    messages."""
    total, first = user_words.compute_totals(counter, show_handles=show_handles)
    known = dict(first)
    new_items = sorted(new_items, key=lambda saying: saying.listed_part[:2])
    added = [replace_repeated_client_text(saying, known, counter) for saying in new_items]
    for saying in added:
        total += compute_item_totals(saying)
    before, relists = user_words.left_out, not total.fits(allowance)
    if relists:
        every = sorted(
            [*user_words.iter_items(counter, show_handles=show_handles), *new_items],
            key=lambda saying: saying.listed_part[:2],
        )
        known = dict[str, tuple[int, int]]()
        added, before = shorten_items_to_allowance(
            [replace_repeated_client_text(saying, known, counter) for saying in every],
            allowance,
            before,
            counter,
            user_words.find_partly_listed(),
        )
    places = tuple(saying.listed_part for saying in added)
    block = CompactionUserWords(listed_parts=list(places), left_out=before if relists else None)
    size = measure_text_message(
        render_user_words_block(block, messages_by_seq, show_handles=show_handles), counter
    )
    if not relists:
        size = add_sizes(size, user_words.measure_all_blocks(counter, show_handles=show_handles))
    return UserWordsUpdate(
        listed_parts=places, relists=relists, left_out=before if relists else None, size=size
    )


def _keep_newest(
    items: Sequence[UserWordsItem], max_tokens: int, counter: TokenCounter
) -> list[UserWordsItem]:
    """Cut the longest items to a common size, then leave out the oldest messages."""
    least = max(MIN_CUT_TOKENS, max_tokens // MIN_CUT_DIVISOR)
    level = _find_cut_level([item.listed_tokens for item in items], max_tokens, least)
    kept: list[UserWordsItem] = []
    left = max_tokens
    for _, parts in groupby(reversed(items), key=lambda item: item.listed_part.seq):
        message = [_shorten_item(item, level, counter) for item in parts]
        left -= sum(item.listed_tokens for item in message)
        if left < 0:
            break
        kept += message
    return kept


def _find_cut_level(sizes: Sequence[int], most: int, least: int) -> int:
    """Return the size to which the largest items are cut so that all together take at most
    `most`."""
    left, tall = most, sorted(sizes)
    for index, size in enumerate(tall):
        share = left // (len(tall) - index)
        if size > share:
            return max(share, least)
        left -= size
    return max(least, tall[-1] if tall else 0)


def _shorten_item(item: UserWordsItem, max_tokens: int, counter: TokenCounter) -> UserWordsItem:
    """Cut the item to both its ends. Return it unchanged if that does not make it smaller."""
    if item.listed_tokens <= max_tokens or not item.text:
        return item
    text = item.text
    sign = (
        counter.count(_format_cut_label(len(text), len(text), item.listed_part, show_handles=True))
        + 2
    )
    room = max(0, max_tokens - item.label_tokens - sign)
    ends = len(text) * room // max(1, counter.count(text)) // 2
    while ends and counter.count(text[:ends]) + counter.count(text[-ends:]) > room:
        ends = ends * 9 // 10
    tokens = counter.count(text[:ends]) + counter.count(text[len(text) - ends :]) + sign
    tokens += item.label_tokens
    if tokens >= item.listed_tokens:
        return item
    size = len(f"{text[:ends]}{text[len(text) - ends :]}".encode("utf-8", "surrogatepass"))
    place = item.listed_part._replace(head=ends, tail=ends)
    return replace(item, listed_part=place, listed_tokens=tokens, listed_bytes=size + 100)


def _merge_omitted(
    items: Sequence[UserWordsItem],
    kept: Sequence[UserWordsItem],
    earlier_omitted: OmittedUserMessages | None,
    already_omitted: Collection[int],
) -> OmittedUserMessages | None:
    """Return the line for messages that are partly left out, including those left out earlier."""
    shown = {saying.listed_part[:2] for saying in kept}
    gone = {
        saying.listed_part.seq: saying.said_at
        for saying in items
        if saying.listed_part[:2] not in shown and saying.listed_part.seq not in already_omitted
    }
    if not gone:
        return earlier_omitted
    first, last = min(gone), max(gone)
    made = OmittedUserMessages(len(gone), first, last, gone[first], gone[last])
    if earlier_omitted is None:
        return made
    return OmittedUserMessages(
        earlier_omitted.messages + made.messages,
        min(earlier_omitted.first, first),
        max(earlier_omitted.last, last),
        min(earlier_omitted.since, made.since),
        max(earlier_omitted.until, made.until),
    )


def render_user_words_block(
    block: CompactionUserWords,
    messages_by_seq: Mapping[int, tuple[Message, float]],
    *,
    show_handles: bool,
) -> str:
    """Return a block as the model reads it; empty if all of it was erased."""
    lines: list[str] = []
    last = 0
    for place in block.listed_parts:
        same = messages_by_seq.get(place.same_seq)
        # Where what it refers to was erased, it is the only one that says it.
        alone = same is not None and _is_erased(same[0], place.same_part)
        own = place._replace(head=-1, same_seq=0) if alone else place
        shown = _render_listed_part(own, messages_by_seq[place.seq][0], show_handles=show_handles)
        if shown is not None:
            name = (
                ""
                if place.seq == last
                else f"{_format_message_label(place.seq, show_handles=show_handles)} "
            )
            lines.append(f"{name}{shown}")
            last = place.seq
    told = (
        [_format_omitted_line(block.left_out, show_handles=show_handles)]
        if block.left_out is not None
        else []
    )
    return "\n".join([USER_WORDS_HEADER, *told, *lines]) if told or lines else ""


def _is_erased(message: Message, part: int) -> bool:
    content = message.parts[part] if part < len(message.parts) else None
    return isinstance(content, Text) and content.text == ERASED_PLACEHOLDER


def _render_listed_part(
    place: UserPartReference, message: Message, *, show_handles: bool
) -> str | None:
    content = message.parts[place.part] if place.part < len(message.parts) else None
    if isinstance(content, Media):
        return _format_media_label(content.kind, place, show_handles=show_handles)
    if not isinstance(content, Text) or content.text == ERASED_PLACEHOLDER:
        return None
    if place.same_seq:
        return _format_repeat_label(place, show_handles=show_handles)
    text = content.text
    if place.head < 0 or place.head + place.tail >= len(text):
        return text
    gap = _format_cut_label(place.head + place.tail, len(text), place, show_handles=show_handles)
    return f"{text[: place.head]}{gap}{text[len(text) - place.tail :]}"


def _format_message_label(seq: int, *, show_handles: bool) -> str:
    return f"[m{seq}]" if show_handles else "[user]"


def _format_media_label(kind: str, place: UserPartReference, *, show_handles: bool) -> str:
    handle = f"m{place.seq}.{place.part}"
    return add_recall_handle(f"[{kind}]", handle) if show_handles else f"[{kind}]"


def _format_repeat_label(place: UserPartReference, *, show_handles: bool) -> str:
    return f"[the same as in m{place.same_seq}]" if show_handles else "[the same as before]"


def _format_cut_label(
    kept: int, total: int, place: UserPartReference, *, show_handles: bool
) -> str:
    sign = f"[… cut: {kept:,} of {total:,} characters are kept …]"
    return add_recall_handle(sign, f"m{place.seq}.{place.part}") if show_handles else sign


def _format_omitted_line(left_out: OmittedUserMessages, *, show_handles: bool) -> str:
    count, first, last, since, until = left_out
    many = "1 older user message" if count == 1 else f"{count:,} older user messages"
    verb = "is" if count == 1 else "are"
    line = (
        f"[{many}, from {_format_utc_time(since)} to {_format_utc_time(until)}, {verb} not shown]"
    )
    return (
        add_recall_handle(line, f"m{first}" if first == last else f"m{first}-m{last}")
        if show_handles
        else line
    )


def _format_utc_time(timestamp: float) -> str:
    """Format seconds since the epoch as a date and time, without a clock or time zone module.

    Years begin in March here, so that a leap day is the last day of a year.
    """
    days, seconds = divmod(int(timestamp), 86_400)
    era, day = divmod(days + 719_468, 146_097)
    year = (day - day // 1_460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    date = day - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    year += 400 * era + (month <= 2)
    return f"{year:04}-{month:02}-{date:02} {seconds // 3_600:02}:{seconds % 3_600 // 60:02} UTC"
