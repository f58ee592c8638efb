"""Refusals in the words and bodies of the provider that makes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

Cause = Literal["violation", "overflow", "auth"]
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class Refused(Exception):
    """A request that the provider does not take."""

    def __init__(
        self,
        status: int,
        body: Mapping[str, Any],
        *,
        cause: Cause = "violation",
    ) -> None:
        self.status = status
        self.body = body
        self.cause: Cause = cause
        super().__init__(str(body["error"]["message"]))


def anthropic_body(status: int, message: str, kind: str | None = None) -> dict[str, Any]:
    """An error of the Messages API."""
    error = {"type": kind or _TYPES.get(status, "api_error"), "message": message}
    return {"type": "error", "error": error, "request_id": "req_simulated"}


def openai_body(
    status: int,
    message: str,
    *,
    kind: str | None = None,
    param: str | None = None,
    code: str | int | None = None,
) -> dict[str, Any]:
    """An error of the Chat Completions and Responses APIs."""
    usual = "server_error" if status >= 500 else "invalid_request_error"
    error = {"message": message, "type": kind or usual, "param": param, "code": code}
    return {"error": error}


def anthropic(message: str, status: int = 400, *, cause: Cause = "violation") -> Refused:
    return Refused(status, anthropic_body(status, message), cause=cause)


def openai(
    message: str,
    status: int = 400,
    *,
    param: str | None = None,
    code: str | None = None,
    cause: Cause = "violation",
) -> Refused:
    return Refused(status, openai_body(status, message, param=param, code=code), cause=cause)
