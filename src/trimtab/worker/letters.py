"""What came in from outside, and what must go out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trimtab.core.message import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Where a reply goes."""

    door: str
    """Who delivers it: `telegram`, `discord`, …"""
    address: Mapping[str, Any]
    """What that door needs to find the receiver, in plain JSON values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inbound:
    """Something said to an agent that waits for its turn."""

    session: str
    """The session's id in the store."""
    message: Message
    """What was said."""
    key: str
    """The sender's own: two with the same key in one session are the same."""
    at: float
    """When it came, in seconds since the epoch."""
    route: Route | None = None
    """Where the reply goes; None where whoever asked reads it in the session."""
    number: int = 0
    """Given by the mail: ascending in the order of arrival."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outbound:
    """A reply on its way out."""

    session: str
    """The session's id in the store."""
    seq: int
    """Where the reply stands in the log; 0 for a word that is not in it, such as an apology."""
    text: str
    """What is sent."""
    route: Route
    """Where it goes."""
    key: str
    """The same for each attempt at it, and for no other; for platforms that know idempotency."""
    number: int = 0
    """Given by the mail: ascending in the order in which they were written."""
    attempts: int = 0
    """Deliveries that were begun before and of which nobody knows whether they arrived."""
