"""What a server refuses, as an exception that says what to do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from trimtab.errors import TrimtabError


class ServerUnreachable(TrimtabError):
    """The server could not be reached, or broke off, for longer than it was waited for."""


class ApiError(TrimtabError):
    """The server answered that it cannot be done."""

    def __init__(self, status: int, problem: Mapping[str, Any], retry_after: float | None) -> None:
        self.status = status
        """The HTTP status."""
        self.kind = str(problem.get("type", "")).rpartition(":")[2]
        """The last word of the problem's `type`: `not-found`, `invalid-request`, …"""
        self.detail = str(problem.get("detail", f"the server answered {status}"))
        """What happened."""
        self.help = str(problem.get("help", ""))
        """What to do next."""
        self.errors: list[Mapping[str, str]] = problem.get("errors") or []
        """If the body was invalid: `field` and `detail` of each error."""
        self.retry_after = retry_after
        """Seconds after which it is worth another try; None where it is not said."""
        super().__init__(f"{self.detail}. {self.help}".strip())


def parse_api_error(status: int, body: bytes, headers: Mapping[str, str]) -> ApiError:
    """The refusal that an answer is."""
    try:
        problem: Any = json.loads(body)
    except ValueError:
        problem = {}
    header = headers.get("retry-after", "")
    wait = float(header) if header.isdigit() else None
    return ApiError(status, cast("Any", problem) if isinstance(problem, dict) else {}, wait)
