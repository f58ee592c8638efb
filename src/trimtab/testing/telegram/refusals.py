"""What the Bot API refuses, in its own words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Refusal(Exception):
    """An answer that is not ok."""

    def __init__(
        self, *, code: int, description: str, parameters: Mapping[str, Any] | None = None
    ) -> None:
        self.code = code
        """The HTTP status and `error_code`."""
        self.description = description
        """What it says."""
        self.parameters = dict(parameters or {})
        """`retry_after` or `migrate_to_chat_id`."""
        super().__init__(description)

    def body(self) -> dict[str, Any]:
        """As it goes over the wire."""
        told = {"ok": False, "error_code": self.code, "description": self.description}
        return {**told, "parameters": self.parameters} if self.parameters else told


def bad(why: str, **parameters: Any) -> Refusal:
    """A request that makes no sense."""
    return Refusal(code=400, description=f"Bad Request: {why}", parameters=parameters)


def forbidden(why: str) -> Refusal:
    """Something that the bot may not do."""
    return Refusal(code=403, description=f"Forbidden: {why}")


def conflict(why: str) -> Refusal:
    """Two who want the same."""
    return Refusal(code=409, description=f"Conflict: {why}")


def flood(seconds: int) -> Refusal:
    """Too much in too short a time."""
    told = f"Too Many Requests: retry after {seconds}"
    return Refusal(code=429, description=told, parameters={"retry_after": seconds})


UNAUTHORIZED = Refusal(code=401, description="Unauthorized")
NOT_FOUND = Refusal(code=404, description="Not Found")
SECOND_POLL = (
    "terminated by other getUpdates request; make sure that only one bot instance is running"
)
WEBHOOK_SET = (
    "can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook "
    "first"
)
SAME = (
    "message is not modified: specified new message content and reply markup are exactly the same "
    "as a current content and reply markup of the message"
)
