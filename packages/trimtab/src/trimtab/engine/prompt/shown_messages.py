"""The messages that a model sees, each with its place in the caller's own list."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Container, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, overload

from trimtab.engine.log.message import Message, Part, Text, make_text_message
from trimtab.engine.prompt.render import (
    IncrementalRenderer,
    PromptBlock,
    SentBlocks,
    order_round_entries,
    render_entry_message,
)
from trimtab.engine.window.structure import Entry, Round
from trimtab.engine.window.window import Window

JoinBlocks = Callable[[Sequence[PromptBlock]], list[dict[str, Any]]]
"""A function of a dialect that builds messages or items of blocks."""
MustJoin = Callable[[PromptBlock, PromptBlock], bool]
"""A function of a dialect: whether a provider may refuse two neighbours in separate messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownMessage:
    """One message of the next request, in order."""

    message: Message
    """The message as the model sees it. Its parts are in the order of the caller's message."""
    handle: str
    """The handle that recalls it, such as `m12`. It is empty for texts that Trimtab wrote: a
    summary, a notice, the list of the user's earlier messages. If several messages are joined in
    it, it is the handle of the first."""
    positions: tuple[int, ...]
    """Its places in the list that was last passed to `sync`. One item in Chat or Anthropic, several
    in Responses and if messages are joined; empty for a message that is not in the list."""
    is_edited: bool
    """Whether the model sees something else than the caller's message: it was hidden, cut, redacted
    or erased, joined to another text, or Trimtab wrote it."""
    edited_parts: frozenset[int]
    """Indexes of the parts of `message` that differ from the caller's, or that Trimtab wrote."""
    has_cache_mark: bool = False
    """Whether a cache mark belongs at its end: on its last block that can carry one. Never true if
    the provider has no marks."""
    _blocks: tuple[PromptBlock, ...] = field(repr=False, compare=False)
    """The blocks that send it."""
    _join_blocks: JoinBlocks = field(repr=False, compare=False)
    """Builds messages of its dialect of them."""

    @property
    def is_callers_own(self) -> bool:
        """Whether the caller's own objects, at `positions`, can be sent unchanged.

        Build every other message from `message`.
        """
        return bool(self.positions) and not self.is_edited

    @property
    def wire(self) -> list[dict[str, Any]]:
        """The message in the context's dialect, with its cache mark, as `request()` sends it.

        In Responses these are one or more items. Values in it are shared: do not modify them.
        """
        return self._join_blocks(self._blocks)


class View(Sequence[ShownMessage]):
    """What a request shows: its messages in order, and what else the caller needs to send them."""

    __slots__ = ("_messages", "frontier", "is_unchanged", "max_output_tokens")

    def __init__(
        self,
        messages: Sequence[ShownMessage],
        *,
        frontier: int | None,
        is_unchanged: bool,
        max_output_tokens: int,
    ) -> None:
        self._messages = messages
        self.frontier = frontier
        """The first place in the caller's list that the next hiding would change; None if nothing
        can be hidden. What a cache mark before it covers is read again after that hiding."""
        self.is_unchanged = is_unchanged
        """Whether nothing is edited, added, repaired or in another order: the caller can send the
        own list."""
        self.max_output_tokens = max_output_tokens
        """How many tokens of output `request()` asks for."""

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[ShownMessage]:
        return iter(self._messages)

    @overload
    def __getitem__(self, index: int) -> ShownMessage: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[ShownMessage]: ...
    def __getitem__(self, index: int | slice) -> ShownMessage | Sequence[ShownMessage]:
        return self._messages[index]

    def __repr__(self) -> str:
        edit_count = sum(message.is_edited for message in self._messages)
        return f"<View: {len(self)} messages, {edit_count} edited>"


class CallersList(Protocol):
    """The list that the caller passed last."""

    @property
    def version(self) -> int:
        """Another number as soon as a known message has another place."""
        ...

    @property
    def positions(self) -> range:
        """The places of its messages, without those of the system prompt."""
        ...

    @property
    def changed_seqs(self) -> Container[int]:
        """Positions in the log of messages that differ there from the caller's."""
        ...

    def find_positions(self, seq: int) -> range:
        """Return the places of the message at a position in the log; empty if there are none."""
        ...


class IncrementalView:
    """The shown messages of a window, kept from view to view and extended by new ones."""

    def __init__(self, join_blocks: JoinBlocks, must_join: MustJoin) -> None:
        self._join = join_blocks
        self._must_join = must_join
        self._made_of: tuple[Any, ...] = ()
        self._known_rounds: dict[int, tuple[Any, list[ShownMessage]]] = {}
        self._start()

    def _start(self) -> None:
        self._shown: list[ShownMessage] = []
        self._first_blocks: list[int] = []
        self._rounds = self._blocks = 0
        self._is_in_order = True
        self._last_unplaced_seq = 0

    def update(
        self, window: Window, rendering: IncrementalRenderer, callers_list: CallersList
    ) -> None:
        """Bring the messages up to date with a rendered window."""
        places = (callers_list, callers_list.version, len(window.base.erased_ranges))
        made_of = (*places, rendering, rendering.start_count)
        has_moved = bool(callers_list.find_positions(self._last_unplaced_seq))
        past_rounds: dict[int, tuple[Any, list[ShownMessage]]] = {}
        if made_of != self._made_of or has_moved:
            if places == self._made_of[:3] and not has_moved:
                past_rounds = self._known_rounds
            self._start()
            self._made_of = made_of
            self._known_rounds = {}
        for part, count, _ in rendering.rendered_rounds[self._rounds :]:
            blocks = rendering.blocks[self._blocks : self._blocks + count]
            if part is None:
                messages = [self._show_written(rendering.written_messages[self._rounds], blocks)]
            elif not self._rounds and rendering.text_before_first_round:
                messages = self._show_round(window, callers_list, part, blocks)
                messages[0] = _start_with(rendering.text_before_first_round, messages[0])
            else:
                seq = part.entries[0].seq
                past_rendering, messages = past_rounds.get(seq, (None, []))
                if past_rendering is not part.rendered or not messages:
                    messages = self._show_round(window, callers_list, part, blocks)
                self._known_rounds[seq] = (part.rendered, messages)
            for one in messages:
                self._add(one)
            self._rounds += 1

    def _add(self, one: ShownMessage) -> None:
        last = self._shown[-1] if self._shown else None
        follows = last is None or _follows_in_list(last, one)
        self._is_in_order = self._is_in_order and one.is_callers_own and follows
        if last is not None and self._is_joined(last, one):
            self._shown[-1] = _join(last, one)
        else:
            self._shown.append(one)
            self._first_blocks.append(self._blocks)
        self._blocks += len(_blocks_of(one))

    def _is_joined(self, first: ShownMessage, second: ShownMessage) -> bool:
        """Whether two neighbours are one message. The caller's own neighbours are the caller's
        decision."""
        if _follows_in_list(first, second):
            return False
        return self._must_join(_blocks_of(first)[-1], _blocks_of(second)[0])

    def build_view(
        self,
        callers_list: CallersList,
        sent: SentBlocks,
        *,
        frontier_seq: int | None,
        max_output_tokens: int,
    ) -> View:
        """Build the view of a request that sends the blocks in this way."""
        messages = [*self._shown]
        block_numbers = sent.changed.keys() | sent.marked.keys()
        for index in {bisect_right(self._first_blocks, block) - 1 for block in block_numbers}:
            messages[index] = _as_sent(messages[index], self._first_blocks[index], sent)
        span = callers_list.positions
        is_unchanged = (
            self._is_in_order
            and bool(messages)
            and (messages[0].positions[0], messages[-1].positions[-1])
            == (span.start, span.stop - 1)
            and sent.opening is None
            and sent.volatile is None
        )
        if sent.opening is not None:
            messages.insert(0, self._show_text(sent.opening))
        if sent.volatile is not None:
            volatile = self._show_text(sent.volatile)
            if messages and self._is_joined(messages[-1], volatile):
                messages[-1] = _join(messages[-1], volatile)
            else:
                messages.append(volatile)
        places = callers_list.find_positions(frontier_seq) if frontier_seq is not None else ()
        return View(
            messages,
            frontier=min(places, default=None),
            is_unchanged=is_unchanged,
            max_output_tokens=max_output_tokens,
        )

    def _show_text(self, block: PromptBlock) -> ShownMessage:
        text = str(block.body.get("text") or block.body["content"])
        return self._show_written(make_text_message("user", text), [block])

    def _show_written(self, message: Message, blocks: Sequence[PromptBlock]) -> ShownMessage:
        """Show a text that Trimtab wrote."""
        return ShownMessage(
            message=message,
            handle="",
            positions=(),
            is_edited=True,
            edited_parts=frozenset(range(len(message.parts))),
            _blocks=tuple(blocks),
            _join_blocks=self._join,
        )

    def _show_round(
        self,
        window: Window,
        callers_list: CallersList,
        part: Round,
        blocks: Sequence[PromptBlock],
    ) -> list[ShownMessage]:
        """Show the messages of a round in send order, one for each of the caller's.

        Messages are joined if the request interleaves what they contain: a provider would refuse
        them in the caller's order.
        """
        pieces = order_round_entries(part)
        messages: list[ShownMessage] = []
        for first, last, members in _split_into_messages([entry for entry, _ in pieces], blocks):
            own_blocks = tuple(blocks[first:last])
            entries = {
                entry.seq: self._show_entry(window, callers_list, entry, own_blocks)
                for entry in members
            }
            one, *others = entries.values()
            if others:
                members_of_entries = [
                    (entry, piece) for entry, piece in pieces if entry.seq in entries
                ]
                one = _join_pieces(entries, members_of_entries)
            messages.append(one)
        return messages

    def _show_entry(
        self,
        window: Window,
        callers_list: CallersList,
        entry: Entry,
        blocks: tuple[PromptBlock, ...],
    ) -> ShownMessage:
        message = render_entry_message(entry)
        edited_parts = _find_edited_parts(window, entry, message)
        is_changed = entry.is_repair or entry.seq in callers_list.changed_seqs
        if is_changed:
            edited_parts = frozenset(range(len(message.parts)))
        positions = () if entry.is_repair else tuple(callers_list.find_positions(entry.seq))
        if not positions and not entry.is_repair:
            self._last_unplaced_seq = entry.seq
        return ShownMessage(
            message=message,
            handle=f"m{entry.seq}",
            positions=positions,
            is_edited=bool(edited_parts) or is_changed or message.role != entry.message.role,
            edited_parts=edited_parts,
            _blocks=blocks,
            _join_blocks=self._join,
        )


def _blocks_of(shown: ShownMessage) -> tuple[PromptBlock, ...]:
    return shown._blocks  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - of this module


def _start_with(text: str, shown_message: ShownMessage) -> ShownMessage:
    """Put a text of Trimtab's at the start of a message whose blocks already begin with it."""
    opening = make_text_message("user", text)
    message, edited_parts = _join_messages(
        opening, {0}, shown_message.message, shown_message.edited_parts
    )
    return replace(shown_message, message=message, is_edited=True, edited_parts=edited_parts)


def _join(first: ShownMessage, second: ShownMessage) -> ShownMessage:
    """Return two messages as one."""
    message, edited_parts = _join_messages(
        first.message, first.edited_parts, second.message, second.edited_parts
    )
    return replace(
        first,
        message=message,
        handle=first.handle or second.handle,
        positions=first.positions + second.positions,
        is_edited=True,
        edited_parts=edited_parts,
        has_cache_mark=second.has_cache_mark,
        _blocks=_blocks_of(first) + _blocks_of(second),
    )


def _as_sent(shown: ShownMessage, first: int, sent: SentBlocks) -> ShownMessage:
    """Return a message with its blocks as they are sent; `first` is the index of the first."""
    blocks = _blocks_of(shown)
    last = first + len(blocks) - 1
    return replace(
        shown,
        has_cache_mark=any(sent.marked.get(at, -1) >= last for at in range(first, last + 1)),
        _blocks=tuple(sent.changed.get(at, block) for at, block in enumerate(blocks, first)),
    )


def _follows_in_list(first: ShownMessage, second: ShownMessage) -> bool:
    """Whether the caller's list has a message right after another."""
    if not first.positions or not second.positions:
        return False
    return first.positions[-1] + 1 == second.positions[0]


def _find_edited_parts(window: Window, entry: Entry, wire_message: Message) -> frozenset[int]:
    indexes = {
        index
        for index in range(len(wire_message.parts))
        if window.base.find_erasing_event(entry.seq, index) is not None
    }
    if wire_message is not entry.message:
        pairs = enumerate(zip(wire_message.parts, entry.message.parts, strict=True))
        indexes |= {index for index, (part, logged_part) in pairs if part != logged_part}
    return frozenset(indexes)


def _split_into_messages(
    entries: Sequence[Entry], blocks: Sequence[PromptBlock]
) -> list[tuple[int, int, list[Entry]]]:
    """Split the blocks of a round so that all blocks of an entry are in one piece.

    Return for each piece its first block, the block after its last, and its entries.
    """
    owners = [entries[block.message_index] for block in blocks]
    last_block = {owner.seq: index for index, owner in enumerate(owners)}
    pieces: list[tuple[int, int, list[Entry]]] = []
    piece_by_seq: dict[int, int] = {}
    first = 0
    while first < len(owners):
        end = index = first
        while index <= end:
            end = max(end, last_block[owners[index].seq])
            index += 1
        members = {owner.seq: owner for owner in owners[first : end + 1]}
        piece_by_seq |= dict.fromkeys(members, len(pieces))
        pieces.append((first, end + 1, [*members.values()]))
        first = end + 1
    before = 0
    for entry in entries:
        if entry.seq not in piece_by_seq:
            # The dialect put it into the block of the message before it.
            piece_by_seq[entry.seq] = before
            pieces[before][2].append(entry)
        before = piece_by_seq[entry.seq]
    return pieces


def _join_pieces(
    shown_by_seq: Mapping[int, ShownMessage], pieces: Sequence[tuple[Entry, Message]]
) -> ShownMessage:
    """Return several messages as one, with their parts in send order."""
    parts: list[Part] = []
    indexes: set[int] = set()
    for entry, piece in pieces:
        shown_message = shown_by_seq[entry.seq]
        new_parts = [shown_message.message.parts[index] for index in shown_message.edited_parts]
        for part in piece.parts:
            if any(part is other or part == other for other in new_parts):
                indexes.add(len(parts))
            parts.append(part)
    one, *others = shown_by_seq.values()
    is_spoken = any(shown_message.message.role == "user" for shown_message in others)
    role = "user" if is_spoken else one.message.role
    return replace(
        one,
        message=replace(one.message, role=role, parts=tuple(parts), plain=False, extra=None),
        positions=tuple(
            sorted(at for shown_message in shown_by_seq.values() for at in shown_message.positions)
        ),
        is_edited=True,
        edited_parts=frozenset(indexes),
    )


def _join_messages(
    first: Message, first_edited: Set[int], second: Message, second_edited: Set[int]
) -> tuple[Message, frozenset[int]]:
    """Join two messages, and return which parts of the result are not the caller's."""
    texts = [_find_plain_text(message) for message in (first, second)]
    base = second if second.origin else first
    if texts[0] is not None and texts[1] is not None:
        text = "\n\n".join(text for text in texts if text)
        return replace(base, parts=(Text(text=text),)), frozenset({0})
    second_indexes = {index + len(first.parts) for index in second_edited}
    parts = (*first.parts, *second.parts)
    return replace(base, parts=parts, plain=False), frozenset({*first_edited, *second_indexes})


def _find_plain_text(message: Message) -> str | None:
    part = message.parts[0] if message.plain and len(message.parts) == 1 else None
    return part.text if isinstance(part, Text) and part.extra is None else None
