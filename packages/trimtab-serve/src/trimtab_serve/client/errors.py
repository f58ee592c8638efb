"""Exceptions for refused requests and unreachable servers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from trimtab.errors import TrimtabError


class ServerUnreachable(TrimtabError):
    """The server did not answer, or a connection broke, for longer than the timeout."""


class ApiError(TrimtabError):
    """The server refused a request. The message says why and what to do."""

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
        """Seconds after which to try again. None if the server does not say."""
        super().__init__(f"{self.detail}. {self.help}".strip())


def parse_api_error(status: int, body: bytes, headers: Mapping[str, str]) -> ApiError:
    """Convert an error response to an exception."""
    try:
        problem: Any = json.loads(body)
    except ValueError:
        problem = {}
    header = headers.get("retry-after", "")
    wait = float(header) if header.isdigit() else None
    return ApiError(status, cast("Any", problem) if isinstance(problem, dict) else {}, wait)
