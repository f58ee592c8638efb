"""How a wrong argument is refused: by its name, the value and what is right."""

from __future__ import annotations

from reprlib import repr as short
from typing import Any


def describe_wrong_value(name: str, value: Any, expected: str) -> str:
    """What an error says of a value that it cannot take."""
    return f"{name} is {short(value)}; it must be {expected}"


def check_token_count(name: str, value: Any, *, minimum: int | None = 1) -> None:
    """Refuse what is no number of tokens, or less than the least; None is not set."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(
            describe_wrong_value(name, value, "a whole number of tokens, such as 32_000")
        )
    if minimum is not None and value < minimum:
        right = (
            "0 (not set) or more" if minimum == 0 else "more than 0, or None where it is not set"
        )
        raise ValueError(describe_wrong_value(name, value, right))
