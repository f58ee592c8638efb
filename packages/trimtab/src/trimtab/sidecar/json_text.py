"""JSON as somebody wrote it, so that a change of one value leaves all others as they are.

Parsing and writing again would change spacing, duplicate keys, numbers that Python cannot hold, and
halves of surrogate pairs.
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar, cast

from trimtab.dialects.json_values import dict_or_none
from trimtab.engine.text.utf8 import replace_lone_surrogates_in_json

_SPACE = re.compile(r"[ \t\n\r]*")
_SURROGATE_ESCAPES = ("\\ud", "\\uD")
"""How half of a surrogate pair begins in JSON."""
_CLOSING = {"{": "}", "[": "]"}
_CONTENT_KEYS = frozenset(
    ["arguments", "content", "function_call", "input", "output", "summary", "text", "tool_calls"]
)
"""Members that an edit may remove. All others stay."""

_T = TypeVar("_T")
Levels = Mapping[str, "Levels"]
"""Keys whose objects and lists are read member by member, each with such keys in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonItem:
    """A value in a JSON text."""

    key: str | None = None
    """Its key in an object; None in a list, and for the whole text."""
    first: int
    """The beginning of its key, or of its value if it has no key."""
    start: int
    """The beginning of its value."""
    end: int
    """The end of its value."""
    value: Any
    """The value. A number that Python cannot hold is its digits as a text, and half of a surrogate
    pair is the replacement character."""
    items: Sequence[JsonItem] | None = None
    """Its members or elements in order, duplicates included, if they were read one by one."""

    def find(self, key: str) -> JsonItem | None:
        """Return the last member with a key, as a reader of JSON does."""
        return next((item for item in reversed(self.items or ()) if item.key == key), None)


class JsonText:
    """A JSON text whose values are read with their places."""

    def __init__(self, text: str) -> None:
        self.text = text
        """The text."""
        self._has_surrogates = any(escape in text for escape in _SURROGATE_ESCAPES)

    def read(self, levels: Levels) -> JsonItem:
        """Read the whole text.

        Args:
            levels: The keys of objects and lists whose items are wanted with their places.

        Raises:
            ValueError: If it is not one JSON value, or if it is nested too deeply.
        """
        start = self._skip_space(0)
        item = self.read_item(start, levels)
        if self._skip_space(item.end) != len(self.text):
            raise ValueError(f"more than one JSON value, at character {item.end}")
        return item

    def text_of(self, item: JsonItem) -> str:
        """Return the text of a value."""
        return self.text[item.start : item.end]

    def find_separator(self, item: JsonItem) -> str:
        """Return what stands between the first two items of a list."""
        items = item.items or ()
        return self.text[items[0].end : items[1].first] if len(items) > 1 else ","

    def read_item(
        self, start: int, levels: Levels | None, *, key: str | None = None, first: int | None = None
    ) -> JsonItem:
        """Read the value at a position; its items as well unless `levels` is None."""
        first = start if first is None else first
        opening = self.text[start : start + 1]
        if levels is None or opening not in _CLOSING:
            value, end = self._read_value(start)
            return JsonItem(key=key, first=first, start=start, end=end, value=value)
        items, end = self._read_items(start, opening, levels)
        value: Any = [item.value for item in items]
        if opening == "{":
            value = {item.key: item.value for item in items}
        return JsonItem(key=key, first=first, start=start, end=end, value=value, items=items)

    def _read_value(self, start: int) -> tuple[Any, int]:
        try:
            value, end = _DECODER.raw_decode(self.text, start)
        except RecursionError:
            raise ValueError("the JSON is nested too deeply") from None
        return (replace_lone_surrogates_in_json(value) if self._has_surrogates else value), end

    def _read_items(self, start: int, opening: str, levels: Levels) -> tuple[list[JsonItem], int]:
        items: list[JsonItem] = []
        closing = _CLOSING[opening]
        position = self._skip_space(start + 1)
        if self.text.startswith(closing, position):
            return items, position + 1
        while True:
            first, key, item_levels = position, None, None
            if opening == "{":
                if not self.text.startswith('"', position):
                    raise ValueError(f"no key at character {position}")
                key, position = self._read_value(position)
                position = self._skip_mark(self._skip_space(position), ":")
                item_levels = levels.get(key)
            items.append(self.read_item(position, item_levels, key=key, first=first))
            position = self._skip_space(items[-1].end)
            if self.text.startswith(closing, position):
                return items, position + 1
            position = self._skip_mark(position, ",")

    def _skip_mark(self, position: int, mark: str) -> int:
        if not self.text.startswith(mark, position):
            raise ValueError(f"no {mark!r} at character {position}")
        return self._skip_space(position + 1)

    def _skip_space(self, position: int) -> int:
        return cast("re.Match[str]", _SPACE.match(self.text, position)).end()


def dump_json(value: Any) -> str:
    """Return a value as JSON in ASCII without spaces."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def list_words(text: str) -> list[str]:
    """Return every key, text and whole number in a JSON text, those that come twice included."""
    words: list[str] = []
    values: list[Any] = [_WORD_DECODER.decode(text)]
    while values:
        value = values.pop()
        if isinstance(value, str):
            words.append(value)
        elif isinstance(value, list | tuple):
            values += cast("Sequence[Any]", value)
    return words


def patch_json(text: str, changed: Any) -> str:
    """Return a JSON text with a changed value, and everything else as it is.

    Values that are equal keep their text. An object keeps its members that the changed one does not
    have, because a reader does not know all fields, unless it becomes an object of another type.
    """
    return _patch_value(JsonText(text), 0, changed)


def patch_items(own: Sequence[tuple[Any, str]], changed: Sequence[Any]) -> list[str]:
    """Return the texts of changed items, in the order of their own ones.

    An item has its own text if it is the same, and what is left of it if it has the same name. New
    ones stand before the item that they are listed before.

    Args:
        own: The items with their texts.
        changed: The items as they should be, in any order.
    """
    matches: dict[int, int] = {}
    unmatched = dict(enumerate(own))
    for is_match in (operator.eq, _has_same_name, _has_same_type):
        for index, item in enumerate(changed):
            if index in matches:
                continue
            places = (place for place, (value, _) in unmatched.items() if is_match(value, item))
            place = next(places, None)
            if place is not None:
                matches[index] = place
                del unmatched[place]
    texts: list[tuple[int | None, str]] = []
    for index, item in enumerate(changed):
        place = matches.get(index)
        text = dump_json(item) if place is None else patch_json(own[place][1], item)
        texts.append((place, text))
    return sort_by_place(texts)


def sort_by_place(entries: Iterable[tuple[int | None, _T]]) -> list[_T]:
    """Return entries by place. One without a place stays before the next one that has a place."""
    groups: list[tuple[int, list[_T]]] = []
    group: list[_T] = []
    for place, entry in entries:
        group.append(entry)
        if place is not None:
            groups.append((place, group))
            group = []
    groups.sort(key=operator.itemgetter(0))
    return [entry for _, members in groups for entry in members] + group


def _has_same_name(own: Any, changed: Any) -> bool:
    """Whether two items are the same call, or the same result."""
    return _name_item(own) is not None and _name_item(own) == _name_item(changed)


def _name_item(item: Any) -> tuple[Any, ...] | None:
    fields = dict_or_none(item) or {}
    ids = tuple(fields.get(key) for key in ("id", "call_id", "tool_use_id", "tool_call_id"))
    return (fields.get("type"), *ids) if any(ids) else None


def _has_same_type(own: Any, changed: Any) -> bool:
    """Whether two items may be the same before and after an edit."""
    old, new = dict_or_none(own), dict_or_none(changed)
    if old is None or new is None:
        return isinstance(own, str) and isinstance(changed, str)
    if _name_item(old) or _name_item(new):
        return False
    return all(old.get(key) == new.get(key) for key in ("type", "role"))


def _patch_value(source: JsonText, start: int, changed: Any) -> str:
    own = source.read_item(start, {})
    if own.value == changed:
        return source.text_of(own)
    old, new = dict_or_none(own.value), dict_or_none(changed)
    if old is not None and new is not None and old.get("type") == new.get("type"):
        return _patch_object(source, own, new)
    if isinstance(own.value, list) and isinstance(changed, list):
        own_items = [(item.value, source.text_of(item)) for item in own.items or ()]
        texts = patch_items(own_items, cast("list[Any]", changed))
        return "[" + source.find_separator(own).join(texts) + "]"
    return dump_json(changed)


def _patch_object(source: JsonText, own: JsonItem, changed: dict[str, Any]) -> str:
    items = [*(own.items or ())]
    last_members = {item.key: item for item in items}
    members: list[str] = []
    end = own.start + 1
    for item in items:
        member = _patch_member(source, item, changed, is_last=item is last_members[item.key])
        if member is not None:
            separator = source.text[end : item.first] if members or item is items[0] else ""
            members.append(separator + member)
        end = item.end
    for key, value in changed.items():
        if key not in last_members:
            separator = "," if members else ""
            members.append(f"{separator}{dump_json(key)}:{dump_json(value)}")
    return "{" + "".join(members) + source.text[end : own.end]


def _patch_member(
    source: JsonText, item: JsonItem, changed: dict[str, Any], *, is_last: bool
) -> str | None:
    """Return the text of a member; None if it is gone. Readers take the last of its key."""
    if is_last and item.key in changed:
        head = source.text[item.first : item.start]
        return head + _patch_value(source, item.start, changed[item.key])
    is_kept = item.key not in _CONTENT_KEYS
    is_same = item.key in changed and item.value == changed[item.key]
    return source.text[item.first : item.end] if is_kept or is_same else None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _read_float(digits: str) -> float | str:
    number = float(digits)
    return number if math.isfinite(number) else digits


def _read_int(digits: str) -> int | str:
    try:
        return int(digits)
    except ValueError:  # Python reads at most a few thousand digits
        return digits


_DECODER = json.JSONDecoder(
    parse_constant=_refuse_constant, parse_float=_read_float, parse_int=_read_int
)
_WORD_DECODER = json.JSONDecoder(object_pairs_hook=list, parse_int=str)
"""Reads objects as lists of pairs."""
