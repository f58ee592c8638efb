"""JSON as somebody wrote it, so that a change of one value leaves all others as they are.

Parsing and writing again would change spacing, duplicate keys, numbers that Python cannot hold, and
halves of surrogate pairs.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, cast

from trimtab.dialects.json_values import dict_or_none, list_or_none
from trimtab.engine.text.utf8 import replace_lone_surrogates_in_json

_SPACE = re.compile(r"[ \t\n\r]*")
_SURROGATE_ESCAPES = ("\\ud", "\\uD")
"""How half of a surrogate pair begins in JSON."""
_CLOSING = {"{": "}", "[": "]"}

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
        whole = self.read_item(start, levels)
        if self._skip_space(whole.end) != len(self.text):
            raise ValueError(f"more than one JSON value, at character {whole.end}")
        return whole

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

    def _read_value(self, at: int) -> tuple[Any, int]:
        try:
            value, end = _DECODER.raw_decode(self.text, at)
        except RecursionError:
            raise ValueError("the JSON is nested too deeply") from None
        return (replace_lone_surrogates_in_json(value) if self._has_surrogates else value), end

    def _read_items(self, at: int, opening: str, levels: Levels) -> tuple[list[JsonItem], int]:
        items: list[JsonItem] = []
        closing = _CLOSING[opening]
        at = self._skip_space(at + 1)
        if self.text.startswith(closing, at):
            return items, at + 1
        while True:
            first, key, inner = at, None, None
            if opening == "{":
                key, at = self._read_key(at)
                inner = levels.get(key)
            items.append(self.read_item(at, inner, key=key, first=first))
            at = self._skip_space(items[-1].end)
            if self.text.startswith(closing, at):
                return items, at + 1
            at = self._skip_mark(at, ",")

    def _read_key(self, at: int) -> tuple[str, int]:
        if not self.text.startswith('"', at):
            raise ValueError(f"no key at character {at}")
        key, end = self._read_value(at)
        return key, self._skip_mark(self._skip_space(end), ":")

    def _skip_mark(self, at: int, mark: str) -> int:
        if not self.text.startswith(mark, at):
            raise ValueError(f"no {mark!r} at character {at}")
        return self._skip_space(at + 1)

    def _skip_space(self, at: int) -> int:
        return cast("re.Match[str]", _SPACE.match(self.text, at)).end()


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
    return _Patch(JsonText(text)).write(0, changed)


def patch_items(own: Sequence[tuple[Any, str]], changed: Sequence[Any]) -> list[str]:
    """Return the texts of changed items, in the order of their own ones.

    An item has its own text if it is the same, and what is left of it if it has the same name. New
    ones stand before the item that they are listed before.

    Args:
        own: The items with their texts.
        changed: The items as they should be, in any order.
    """
    matches: dict[int, int] = {}
    free = dict(enumerate(own))
    for is_match in (_is_same, _has_same_name, _has_same_type):
        for at, item in enumerate(changed):
            if at not in matches:
                found = (index for index, (value, _) in free.items() if is_match(value, item))
                if (index := next(found, None)) is not None:
                    matches[at] = index
                    del free[index]
    placed: list[tuple[float, str]] = []
    new: list[str] = []
    for at, item in enumerate(changed):
        if at not in matches:
            new.append(dump_json(item))
            continue
        index = matches[at]
        placed += [(index - 0.5, text) for text in new]
        placed.append((index, patch_json(own[index][1], item)))
        new = []
    placed.sort(key=lambda pair: pair[0])
    return [text for _, text in placed] + new


def _has_same_name(one: Any, other: Any) -> bool:
    """Whether two items are the same call, or the same result."""
    return _name_item(one) is not None and _name_item(one) == _name_item(other)


def _name_item(item: Any) -> tuple[Any, ...] | None:
    fields = dict_or_none(item) or {}
    ids = tuple(fields.get(key) for key in ("id", "call_id", "tool_use_id", "tool_call_id"))
    return (fields.get("type"), *ids) if any(ids) else None


def _has_same_type(one: Any, other: Any) -> bool:
    """Whether two items may be the same before and after an edit."""
    fields, others = dict_or_none(one), dict_or_none(other)
    if fields is None or others is None:
        return isinstance(one, str) and isinstance(other, str)
    if _name_item(fields) or _name_item(others):
        return False
    return all(fields.get(key) == others.get(key) for key in ("type", "role"))


class _Patch:
    """Writes changed values, with the text of those that are the same."""

    def __init__(self, source: JsonText) -> None:
        self._source = source

    def write(self, start: int, changed: Any) -> str:
        known = self._source.read_item(start, {})
        if _is_same(known.value, changed):
            return self._source.text[known.start : known.end]
        old, new = dict_or_none(known.value), dict_or_none(changed)
        if old is not None and new is not None and old.get("type") == new.get("type"):
            return self._write_object(known, new)
        if list_or_none(known.value) is not None and isinstance(changed, list):
            return self._write_list(known, cast("list[Any]", changed))
        return dump_json(changed)

    def _write_object(self, known: JsonItem, changed: dict[str, Any]) -> str:
        text, items = self._source.text, [*(known.items or ())]
        members = {item.key: item for item in items}
        written: list[str] = []
        end = known.start + 1
        for item in items:
            own = self._write_member(item, changed, is_last=item is members[item.key])
            if own is not None:
                between = text[end : item.first] if written or item is items[0] else ""
                written.append(between + own)
            end = item.end
        more = (each for each in changed.items() if each[0] not in members)
        for key, value in more:
            comma = "," if written else ""
            written.append(f"{comma}{dump_json(key)}:{dump_json(value)}")
        return "{" + "".join(written) + text[end : known.end]

    def _write_member(
        self, item: JsonItem, changed: dict[str, Any], *, is_last: bool
    ) -> str | None:
        """Return the text of a member; None if it is gone. Readers take the last of its key."""
        if item.key not in changed:
            own = self._source.text[item.first : item.end]
            return None if item.key in _CONTENT_KEYS else own
        if is_last:
            head = self._source.text[item.first : item.start]
            return head + self.write(item.start, changed[item.key])
        if _is_same(item.value, changed[item.key]) or item.key not in _CONTENT_KEYS:
            return self._source.text[item.first : item.end]
        return None

    def _write_list(self, known: JsonItem, changed: list[Any]) -> str:
        own = [(item.value, self._source.text[item.start : item.end]) for item in known.items or ()]
        return "[" + self._find_separator(known).join(patch_items(own, changed)) + "]"

    def _find_separator(self, known: JsonItem) -> str:
        """Return what stands between the first two items."""
        items = known.items or ()
        return self._source.text[items[0].end : items[1].first] if len(items) > 1 else ","


_CONTENT_KEYS = frozenset(
    ["arguments", "content", "function_call", "input", "output", "summary", "text", "tool_calls"]
)
"""Members that an edit may remove. All others stay."""


def _is_same(one: Any, other: Any) -> bool:
    return bool(one == other)


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
