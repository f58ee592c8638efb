"""What a server refuses, as an exception that says what to do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast


class Unreachable(Exception):
    """The server could not be reached, or broke off, for longer than it was waited for."""


class Refused(Exception):
    """The server answered that it cannot be done."""

    def __init__(self, status: int, told: Mapping[str, Any], retry_after: float | None) -> None:
        self.status = status
        """The HTTP status."""
        self.kind = str(told.get("type", "")).rpartition(":")[2]
        """The last word of the problem's `type`: `not-found`, `invalid`, …"""
        self.detail = str(told.get("detail", f"the server answered {status}"))
        """What happened."""
        self.help = str(told.get("help", ""))
        """What to do next."""
        self.fields: list[Mapping[str, str]] = told.get("fields") or []
        """Of a body that does not fit: `field` and `why`, for each mistake."""
        self.retry_after = retry_after
        """Seconds after which it is worth another try; None where it is not said."""
        super().__init__(f"{self.detail}. {self.help}".strip())


def refusal(status: int, body: bytes, headers: Mapping[str, str]) -> Refused:
    """The refusal that an answer is."""
    try:
        told: Any = json.loads(body)
    except ValueError:
        told = {}
    given = headers.get("retry-after", "")
    wait = float(given) if given.isdigit() else None
    return Refused(status, cast("Any", told) if isinstance(told, dict) else {}, wait)
