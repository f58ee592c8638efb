"""Small typed accessors for untyped wire values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from trimtab.engine.text.arguments import MAX_TOKEN_COUNT

_NON_OBJECT_TYPES = (str, int, float, list, tuple)


def dict_or_none(value: Any) -> dict[str, Any] | None:
    """Return the value if it is a JSON object."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def text_or_none(value: Any) -> str | None:
    """Return the value if it is a text."""
    return value if isinstance(value, str) else None


def list_or_none(value: Any) -> list[Any] | None:
    """Return the value if it is a JSON array."""
    return cast("list[Any]", value) if isinstance(value, list) else None


def dicts_in_list(value: Any) -> list[dict[str, Any]]:
    """Return the objects of an array; empty if it is not an array."""
    items = list_or_none(value) or []
    return [cast("dict[str, Any]", item) for item in items if isinstance(item, dict)]


def find_non_object_indexes(value: Any) -> list[int]:
    """Return the indexes of array items that are not objects. An SDK's object counts as one."""
    items = enumerate(list_or_none(value) or [])
    return [index for index, item in items if item is None or isinstance(item, _NON_OBJECT_TYPES)]


def int_or_zero(value: Any) -> int:
    """Return a count, or 0 if there is none, or one that no window has."""
    is_count = isinstance(value, int) and not isinstance(value, bool)
    return value if is_count and 0 <= value <= MAX_TOKEN_COUNT else 0


def collect_extra_keys(wire: Mapping[str, Any], *known_keys: str) -> dict[str, Any] | None:
    """Return the keys that no field holds; None if there are none."""
    if len(wire) <= len(known_keys) and all(key in known_keys for key in wire):
        return None
    return {key: value for key, value in wire.items() if key not in known_keys} or None


def to_compact_json(value: Any) -> str:
    """Return JSON text without spaces, keys in the given order, as a model would have written
    it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
