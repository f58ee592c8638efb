"""Texts as UTF-8 can say them: half of a surrogate pair, which JSON can name, it cannot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast


def replace_lone_surrogates(text: str) -> str:
    """The text with a replacement character for each half of a pair that stands alone."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def replace_lone_surrogates_in_json(json_value: Any) -> Any:
    """A JSON value with all its texts so."""
    if isinstance(json_value, str):
        return replace_lone_surrogates(json_value)
    if isinstance(json_value, Mapping):
        told = cast("Mapping[str, Any]", json_value)
        return {
            replace_lone_surrogates_in_json(key): replace_lone_surrogates_in_json(each)
            for key, each in told.items()
        }
    if isinstance(json_value, list):
        return [replace_lone_surrogates_in_json(each) for each in cast("list[Any]", json_value)]
    return json_value
