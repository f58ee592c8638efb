"""The errors of Discord's API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class DiscordRefusal(Exception):
    """A request that is answered with an error, in Discord's words."""

    def __init__(
        self, status: int, code: int, message: str, *, errors: Mapping[str, Any] | None = None
    ) -> None:
        self.status = status
        """The status of the HTTP response."""
        self.code = code
        """Discord's own code."""
        self.body: dict[str, Any] = {"message": message, "code": code}
        """The body of the response."""
        self.headers: dict[str, str] = {}
        """Additional headers of the response."""
        if errors is not None:
            self.body["errors"] = errors
        super().__init__(f"{status} {code}: {message}")


def make_unauthorised_refusal() -> DiscordRefusal:
    """Return an error for an invalid token."""
    return DiscordRefusal(401, 0, "401: Unauthorized")


def make_unknown_refusal(resource: str) -> DiscordRefusal:
    """Return an error for something that does not exist, or that the bot may not see."""
    codes = {"Channel": 10003, "Message": 10008, "Interaction": 10062, "Webhook": 10015}
    return DiscordRefusal(404, codes.get(resource, 0), f"Unknown {resource}")


def make_missing_access_refusal() -> DiscordRefusal:
    """Return an error for a channel that the bot cannot see."""
    return DiscordRefusal(403, 50001, "Missing Access")


def make_missing_permissions_refusal() -> DiscordRefusal:
    """Return an error for an action that the bot may not do in a channel that it sees."""
    return DiscordRefusal(403, 50013, "Missing Permissions")


def make_invalid_field_refusal(field: str, code: str, message: str) -> DiscordRefusal:
    """Return an error for an invalid field of the body."""
    errors = {field: {"_errors": [{"code": code, "message": message}]}}
    return DiscordRefusal(400, 50035, "Invalid Form Body", errors=errors)


def make_rate_limit_refusal(retry_after_s: float, *, is_global: bool) -> DiscordRefusal:
    """Return an error for too many requests. The client must wait."""
    refusal = DiscordRefusal(429, 0, "You are being rate limited.")
    refusal.body = {
        "message": "You are being rate limited.",
        "retry_after": round(retry_after_s, 3),
        "global": is_global,
    }
    refusal.headers = {"Retry-After": str(max(1, round(retry_after_s))), "Via": "1.1 simulated"}
    if is_global:
        refusal.headers["X-RateLimit-Global"] = "true"
    return refusal
