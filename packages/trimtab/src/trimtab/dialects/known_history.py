"""Which items of a caller's list were already read, so that only new ones have to be read.

An item is known by the caller's id for it, as the same object, or because an equal one was in its
place. The same object may have been changed since, so the newest items are compared with their
earlier content. Two items are equal if a provider reads them alike: without cache marks, a text
like its one block, null and an empty list like a missing value.
"""

from __future__ import annotations

import operator
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Container, Sequence, Set
from contextlib import suppress
from copy import deepcopy
from typing import Any, Literal, cast

from trimtab.dialects.caller_marks import MARK_KEYS, without_marks
from trimtab.dialects.langchain import is_langchain_message, list_read_fields
from trimtab.dialects.reading import to_plain_dict
from trimtab.engine.log.message import Message, message_to_json
from trimtab.engine.log.redaction import Redact
from trimtab.engine.text.arguments import describe_wrong_value

HistoryCheck = Literal["newest", "all"]
"""Which known items are compared with their earlier content: the newest, or all of them."""
MAX_COMPARED_ITEMS = 64
"""How many of the newest items are compared with their earlier content, even if they are the same
objects."""
_CHUNK_ITEMS = 512
"""Items that are compared at once. A difference is searched only in its chunk."""


class _FrozenItem:
    """The content of an item as it was when it was read."""

    __slots__ = ("_content", "_kind", "_langchain_fields")

    def __init__(self, item: Any, content: dict[str, Any] | Message) -> None:
        # The newest items have the marks that move on.
        self._content = content if isinstance(content, Message) else without_marks(content)
        self._kind: type[Any] = type(item)
        is_langchain = is_langchain_message(item)
        self._langchain_fields = deepcopy(list_read_fields(item)) if is_langchain else None

    def is_like(self, item: Any) -> bool:
        """Whether a provider would read an item like this one."""
        if self._langchain_fields is not None and type(item) is self._kind:
            with suppress(TypeError, ValueError):  # of objects that compare in ways of their own
                if self._langchain_fields == list_read_fields(item):
                    return True
        return is_same_item(self._content, item)


class KnownHistory:
    """A caller's list as it was last read, and the positions of its messages in the log."""

    def __init__(self) -> None:
        self._items: list[Any] = []
        self._ids: list[str] | None = None
        self._newest: list[_FrozenItem] = []
        self._starts: list[int] = []
        self._seqs: list[int] = []
        self._id_set: set[str] = set()
        self._changed: set[int] = set()
        self.redact: Redact | None = None
        """What redacted the messages when they were read."""
        self.version = 0
        """Another number as soon as a known message has another place in the list."""

    @property
    def positions(self) -> range:
        """The places of the messages, without those of the system prompt."""
        return range(self._starts[0] if self._starts else 0, len(self._items))

    def copy(self) -> KnownHistory:
        """Return a copy that can change independently."""
        twin = KnownHistory()
        twin._items = [*self._items]
        twin._newest = [*self._newest]
        twin._ids = None if self._ids is None else [*self._ids]
        twin._starts = [*self._starts]
        twin._seqs = [*self._seqs]
        twin._id_set = set(self._id_set)
        twin._changed = set(self._changed)
        twin.redact = self.redact
        twin.version = self.version
        return twin

    @property
    def item_count(self) -> int:
        """How many items are known."""
        return len(self._items)

    @property
    def changed_seqs(self) -> Container[int]:
        """Positions of messages that differ in the log from the caller's: redacted, erased, or with
        a picture that only the log has."""
        return self._changed

    def find_restart(
        self, items: Sequence[Any], ids: Sequence[str] | None, in_force: Container[int]
    ) -> tuple[int, int, int]:
        """Find where to start reading a list: at the last known message, because new items may
        continue it.

        Returns the number of messages before it, the index of its first item, and the position of
        the message before it. Zeros mean that the whole list must be read. `in_force` are the
        positions of messages that were not undone.
        """
        known_count = self._count_known_items(items, ids)
        if ids is not None:
            self._validate_ids(ids, known_count)
        messages = bisect_right(self._starts, known_count - 1) if known_count else 0
        while messages and self._seqs[messages - 1] not in in_force:
            messages -= 1
        if messages < 2:
            return 0, 0, 0
        return messages - 1, self._starts[messages - 1], self._seqs[messages - 2]

    def find_positions(self, seq: int) -> range:
        """Return the indexes in the list of the message at a position in the log; empty if there
        are none."""
        index = bisect_left(self._seqs, seq)
        if index == len(self._seqs) or self._seqs[index] != seq:
            return range(0)
        is_last = index + 1 == len(self._starts)
        end = len(self._items) if is_last else self._starts[index + 1]
        return range(self._starts[index], end)

    def find_position(self, index: int) -> int | None:
        """Return the position in the log of the message that an item of the list belongs to."""
        count = bisect_right(self._starts, index)
        return self._seqs[count - 1] if count else None

    def remember(
        self,
        items: Sequence[Any],
        ids: Sequence[str] | None,
        messages_before: int,
        starts: Sequence[int],
        seqs: Sequence[int],
        *,
        contents: Sequence[dict[str, Any] | Message],
        changed_seqs: Set[int] = frozenset(),
    ) -> None:
        """Remember a list whose messages are at `starts` and `seqs`, from a message on.

        `contents` are the items from there on, as new dicts. If starts and seqs do not agree,
        nothing is remembered, and the next list is read completely.
        """
        if len(starts) != len(seqs):
            self._items = []
            self._ids = None
            self._newest = []
            self._starts = []
            self._seqs = []
            self._changed = set()
            self.version += 1
            return
        first = starts[0] if messages_before and starts else 0
        compared_from = max(0, len(self._items) - len(self._newest))
        older = self._newest[: max(0, first - compared_from)]
        newest = [*zip(items[first:], contents, strict=True)][-MAX_COMPARED_ITEMS:]
        fresh = [_FrozenItem(item, content) for item, content in newest]
        self._newest = [*older, *fresh][-MAX_COMPARED_ITEMS:]
        self._items = [*items]  # also those that have lost a mark, so that they are equal next time
        self._ids = None if ids is None else [*ids]
        pairs_before = [
            *zip(self._starts[messages_before:], self._seqs[messages_before:], strict=True)
        ]
        if pairs_before != [*zip(starts, seqs, strict=True)][: len(pairs_before)]:
            self.version += 1
        self._starts[messages_before:], self._seqs[messages_before:] = starts, seqs
        self._changed |= changed_seqs

    def _validate_ids(self, ids: Sequence[Any], known_count: int) -> None:
        """Check that each new id is a text, and that no two messages have the same id."""
        # Ids of a list that was refused are in the set, but not in the list.
        if self._ids is None or not known_count == len(self._ids) == len(self._id_set):
            self._id_set = set()
            known_count = 0
        for index in range(known_count, len(ids)):
            if not isinstance(ids[index], str):
                raise TypeError(describe_wrong_value(f"ids[{index}]", ids[index], "a text"))
            if ids[index] in self._id_set:
                raise ValueError(f"ids[{index}] is {ids[index]!r}, the id of an earlier message")
            self._id_set.add(ids[index])

    def _count_known_items(self, items: Sequence[Any], ids: Sequence[str] | None) -> int:
        if ids is not None and self._ids is not None:
            equal_count = _count_equal(self._ids, ids, operator.eq)
        else:
            equal_count = _count_equal(self._items, items, is_same_item)
        first = len(self._items) - len(self._newest)
        for index in range(first, equal_count):
            if not self._newest[index - first].is_like(items[index]):
                return index
        return equal_count


def is_same_item(known: Any, item: Any) -> bool:
    """Whether a provider would read two items alike. An unreadable item is like nothing else."""
    try:
        if known is item or known == item:
            return True
        return _comparable(_to_dict(known)) == _comparable(_to_dict(item))
    except (TypeError, ValueError):
        return False


def _to_dict(item: Any) -> dict[str, Any]:
    return message_to_json(item) if isinstance(item, Message) else to_plain_dict(item)


def _comparable(value: Any) -> Any:
    if isinstance(value, dict):
        fields: dict[str, Any] = {}
        for key, inner in cast("dict[str, Any]", value).items():
            if key not in MARK_KEYS and inner is not None and inner != []:
                is_text = key == "content" and isinstance(inner, str)
                fields[key] = [{"type": "text", "text": inner}] if is_text else _comparable(inner)
        return fields
    if isinstance(value, list):
        return [_comparable(inner) for inner in cast("list[Any]", value)]
    return value


def _are_same_objects(before: Sequence[Any], items: Sequence[Any]) -> bool:
    """Whether a list begins with the very same objects.

    Lists of one length are compared by their pointers, which takes a nanosecond per item.
    """
    size = len(before)
    if not (isinstance(before, list) and isinstance(items, list) and 0 < size <= len(items)):
        return False
    if any(before[index] is not items[index] for index in (0, size // 2, size - 1)):
        return False
    before += items[size:]
    try:
        return bool(before == items)
    except (TypeError, ValueError):  # of objects that compare in ways of their own
        return False
    finally:
        del before[size:]


def _count_equal(
    known: Sequence[Any], items: Sequence[Any], is_same: Callable[[Any, Any], bool]
) -> int:
    """Return how many items from the start are equal.

    Lists of the same or equal objects are compared as a whole, which takes a few nanoseconds per
    item.
    """
    end = min(len(known), len(items))
    if _are_same_objects(known, items):
        return end
    for first in range(0, end, _CHUNK_ITEMS):
        last = min(first + _CHUNK_ITEMS, end)
        with suppress(TypeError, ValueError):  # of objects that compare in ways of their own
            if known[first:last] == items[first:last]:
                continue
        for index in range(first, last):
            if not is_same(known[index], items[index]):
                return index
    return end
