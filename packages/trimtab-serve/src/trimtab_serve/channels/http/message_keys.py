"""Idempotency keys of callers, as they are stored.

A stored key says that an HTTP caller chose it. So no caller can write a key that Trimtab itself
uses, such as that of a schedule's run, of a chat's message or of a tool call, and prevent it.
"""

from __future__ import annotations

CALLER_KEY_PREFIX = "http "
"""Begins the stored key. No other key begins so, because names contain no space."""


def to_stored_key(key: str) -> str:
    """Return the stored form of a caller's key."""
    return f"{CALLER_KEY_PREFIX}{key}"


def to_shown_key(stored_key: str) -> str:
    """Return a stored key as callers see it: their own keys as they wrote them."""
    return stored_key.removeprefix(CALLER_KEY_PREFIX)
