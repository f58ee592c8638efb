"""Small, typed looks into untyped wire values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

_BARE = (str, int, float, list, tuple)


def as_dict(value: Any) -> dict[str, Any] | None:
    """The value where it is a JSON object."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def as_list(value: Any) -> list[Any] | None:
    """The value where it is a JSON array."""
    return cast("list[Any]", value) if isinstance(value, list) else None


def objects(value: Any) -> list[dict[str, Any]]:
    """The objects of an array; empty where it is no array."""
    items = as_list(value) or []
    return [cast("dict[str, Any]", item) for item in items if isinstance(item, dict)]


def bare(value: Any) -> list[int]:
    """Where an array holds what is no object; one of an SDK's is."""
    entries = enumerate(as_list(value) or [])
    return [index for index, each in entries if each is None or isinstance(each, _BARE)]


def as_int(value: Any) -> int:
    """A count, 0 where the wire has none."""
    return value if isinstance(value, int) else 0


def rest(wire: Mapping[str, Any], *held: str) -> dict[str, Any] | None:
    """The keys that no field holds; None where there are none."""
    if len(wire) <= len(held) and all(key in held for key in wire):
        return None
    return {key: value for key, value in wire.items() if key not in held} or None


def compact(value: Any) -> str:
    """JSON text without spaces, keys in the order given, as a model would have written it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
