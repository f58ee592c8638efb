"""Texts as UTF-8 can say them: half of a surrogate pair, which JSON can name, it cannot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast


def whole_pairs(text: str) -> str:
    """The text with a replacement character for each half of a pair that stands alone."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def whole_pairs_in(value: Any) -> Any:
    """A JSON value with all its texts so."""
    if isinstance(value, str):
        return whole_pairs(value)
    if isinstance(value, Mapping):
        told = cast("Mapping[str, Any]", value)
        return {whole_pairs_in(key): whole_pairs_in(each) for key, each in told.items()}
    if isinstance(value, list):
        return [whole_pairs_in(each) for each in cast("list[Any]", value)]
    return value
