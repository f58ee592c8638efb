"""What Discord's API says where it refuses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class DiscordRefusal(Exception):
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


def make_unauthorised_refusal() -> DiscordRefusal:
    """The token is none."""
    return DiscordRefusal(401, 0, "401: Unauthorized")


def make_unknown_refusal(resource: str) -> DiscordRefusal:
    """There is no such thing, or the bot may not know of it."""
    codes = {"Channel": 10003, "Message": 10008, "Interaction": 10062, "Webhook": 10015}
    return DiscordRefusal(404, codes.get(resource, 0), f"Unknown {resource}")


def make_missing_access_refusal() -> DiscordRefusal:
    """The bot does not see the channel."""
    return DiscordRefusal(403, 50001, "Missing Access")


def make_missing_permissions_refusal() -> DiscordRefusal:
    """The bot sees the channel and may not do this there."""
    return DiscordRefusal(403, 50013, "Missing Permissions")


def make_invalid_field_refusal(field: str, code: str, message: str) -> DiscordRefusal:
    """A field of the body is wrong."""
    errors = {field: {"_errors": [{"code": code, "message": message}]}}
    return DiscordRefusal(400, 50035, "Invalid Form Body", errors=errors)


def make_rate_limit_refusal(retry_after_s: float, *, is_global: bool) -> DiscordRefusal:
    """Too many requests; the client must wait."""
    told = DiscordRefusal(429, 0, "You are being rate limited.")
    told.body = {
        "message": "You are being rate limited.",
        "retry_after": round(retry_after_s, 3),
        "global": is_global,
    }
    told.headers = {"Retry-After": str(max(1, round(retry_after_s))), "Via": "1.1 simulated"}
    if is_global:
        told.headers["X-RateLimit-Global"] = "true"
    return told
