"""Makes texts valid UTF-8. JSON can name half of a surrogate pair, UTF-8 cannot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast


def join_surrogate_pairs(text: str) -> str:
    """Join each two halves that follow each other, as a reader of JSON does. A lone half stays.

    Such halves come from a text that was cut between them. Unjoined they are two characters, so all
    positions after them would change when the log is read again.
    """
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return text


def replace_lone_surrogates(text: str) -> str:
    """Replace each lone half of a surrogate pair by a replacement character."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def replace_lone_surrogates_in_json(json_value: Any) -> Any:
    """Do the same in all texts of a JSON value."""
    if isinstance(json_value, str):
        return replace_lone_surrogates(json_value)
    if isinstance(json_value, Mapping):
        mapping = cast("Mapping[str, Any]", json_value)
        return {
            replace_lone_surrogates_in_json(key): replace_lone_surrogates_in_json(each)
            for key, each in mapping.items()
        }
    if isinstance(json_value, list):
        return [replace_lone_surrogates_in_json(each) for each in cast("list[Any]", json_value)]
    return json_value
