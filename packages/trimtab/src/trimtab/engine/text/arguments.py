"""How an invalid argument is reported: its name, its value and what is valid."""

from __future__ import annotations

from reprlib import repr as short
from typing import Any


def describe_wrong_value(name: str, value: Any, expected: str) -> str:
    """Return the error text for an invalid value."""
    return f"{name} is {short(value)}; it must be {expected}"


MAX_TOKEN_COUNT = 10**15
"""More than any window has. Calculations with larger numbers would fail later."""


def check_token_count(name: str, value: Any, *, minimum: int | None = 1) -> None:
    """Raise unless the value is None or a number of tokens of at least the minimum."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(
            describe_wrong_value(name, value, "a whole number of tokens, such as 32_000")
        )
    if value > MAX_TOKEN_COUNT:
        raise ValueError(f"{name} is too large; it must be at most {MAX_TOKEN_COUNT:,}")
    if minimum is not None and value < minimum:
        right = "0 (not set) or more" if minimum == 0 else "more than 0, or None if it is not set"
        raise ValueError(describe_wrong_value(name, value, right))


def check_idempotency_key(key: Any) -> None:
    """Raise unless the key is a text, or None."""
    if key is not None and not isinstance(key, str):
        raise TypeError(describe_wrong_value("key", key, "a text such as 'update-871', or None"))
