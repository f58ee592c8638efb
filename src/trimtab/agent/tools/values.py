"""Whether a value is what the JSON Schema of a command's parameter says: the plain part of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

CHECKED = frozenset(
    {"type", "enum", "pattern", "minimum", "maximum", "minLength", "maxLength", "items"}
)
"""Keywords that are held to."""
TOLD = frozenset({"default", "description", "examples", "format", "title"})
"""Keywords that only the model reads."""

_KINDS: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
}


def wrong_value(value: Any, schema: Mapping[str, Any]) -> str | None:
    """What is wrong with it, in words for the model."""
    kind = schema.get("type", "string")
    if not isinstance(value, _KINDS.get(kind, (str,))) or (
        isinstance(value, bool) and kind != "boolean"
    ):
        return f"must be of type {kind}, not {_shown(value)}"
    if "enum" in schema and value not in schema["enum"]:
        return f"must be one of {', '.join(map(str, schema['enum']))}, not {_shown(value)}"
    if isinstance(value, list):
        items = cast("Mapping[str, Any]", schema.get("items", {}))
        found = (wrong_value(each, items) for each in cast("list[Any]", value))
        return next((f"has an item that {wrong}" for wrong in found if wrong), None)
    return _wrong_text(value, schema) if isinstance(value, str) else _wrong_number(value, schema)


def _wrong_text(value: str, schema: Mapping[str, Any]) -> str | None:
    if "pattern" in schema and not re.search(schema["pattern"], value):
        return f"must match {schema['pattern']}, not {_shown(value)}"
    if len(value) < schema.get("minLength", 0):
        return f"must have at least {schema['minLength']} characters, not {len(value)}"
    if len(value) > schema.get("maxLength", len(value)):
        return f"must have at most {schema['maxLength']} characters, not {len(value)}"
    return None


def _wrong_number(value: float, schema: Mapping[str, Any]) -> str | None:
    if value < schema.get("minimum", value):
        return f"must be at least {schema['minimum']}, not {value}"
    if value > schema.get("maximum", value):
        return f"must be at most {schema['maximum']}, not {value}"
    return None


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"
