"""What Discord's API says where it refuses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Refused(Exception):
    """A request that is answered with an error, in Discord's words."""

    def __init__(
        self, status: int, code: int, message: str, *, errors: Mapping[str, Any] | None = None
    ) -> None:
        self.status = status
        """Of the HTTP response."""
        self.code = code
        """Discord's own."""
        self.body: dict[str, Any] = {"message": message, "code": code}
        """The response's."""
        self.headers: dict[str, str] = {}
        """The response's, beside the usual."""
        if errors is not None:
            self.body["errors"] = errors
        super().__init__(f"{status} {code}: {message}")


def unauthorised() -> Refused:
    """The token is none."""
    return Refused(401, 0, "401: Unauthorized")


def unknown(what: str) -> Refused:
    """There is no such thing, or the bot may not know of it."""
    codes = {"Channel": 10003, "Message": 10008, "Interaction": 10062, "Webhook": 10015}
    return Refused(404, codes.get(what, 0), f"Unknown {what}")


def missing_access() -> Refused:
    """The bot does not see the channel."""
    return Refused(403, 50001, "Missing Access")


def missing_permissions() -> Refused:
    """The bot sees the channel and may not do this there."""
    return Refused(403, 50013, "Missing Permissions")


def invalid(field: str, code: str, message: str) -> Refused:
    """A field of the body is wrong."""
    errors = {field: {"_errors": [{"code": code, "message": message}]}}
    return Refused(400, 50035, "Invalid Form Body", errors=errors)


def limited(seconds: float, *, everything: bool) -> Refused:
    """Too many requests; the client must wait."""
    told = Refused(429, 0, "You are being rate limited.")
    told.body = {
        "message": "You are being rate limited.",
        "retry_after": round(seconds, 3),
        "global": everything,
    }
    told.headers = {"Retry-After": str(max(1, round(seconds))), "Via": "1.1 simulated"}
    if everything:
        told.headers["X-RateLimit-Global"] = "true"
    return told
