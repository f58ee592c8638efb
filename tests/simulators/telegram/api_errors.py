"""The errors of the Bot API, with the original texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trimtab.errors import TrimtabError


class TelegramRefusal(TrimtabError):
    """An answer that is not ok."""

    def __init__(
        self, *, code: int, description: str, parameters: Mapping[str, Any] | None = None
    ) -> None:
        self.code = code
        """The HTTP status and `error_code`."""
        self.description = description
        """The text of the error."""
        self.parameters = dict(parameters or {})
        """`retry_after` or `migrate_to_chat_id`."""
        super().__init__(description)

    def to_json(self) -> dict[str, Any]:
        """Return the error as JSON."""
        error_json = {"ok": False, "error_code": self.code, "description": self.description}
        return {**error_json, "parameters": self.parameters} if self.parameters else error_json


def make_bad_request_refusal(reason: str, **parameters: Any) -> TelegramRefusal:
    """Return an error for an invalid request."""
    return TelegramRefusal(code=400, description=f"Bad Request: {reason}", parameters=parameters)


def make_forbidden_refusal(reason: str) -> TelegramRefusal:
    """Return an error for an action that the bot may not do."""
    return TelegramRefusal(code=403, description=f"Forbidden: {reason}")


def make_conflict_refusal(reason: str) -> TelegramRefusal:
    """Return an error for two conflicting clients."""
    return TelegramRefusal(code=409, description=f"Conflict: {reason}")


def make_flood_refusal(retry_after_s: int) -> TelegramRefusal:
    """Return an error for too many requests."""
    description = f"Too Many Requests: retry after {retry_after_s}"
    return TelegramRefusal(
        code=429, description=description, parameters={"retry_after": retry_after_s}
    )


UNAUTHORIZED_REFUSAL = TelegramRefusal(code=401, description="Unauthorized")
NOT_FOUND_REFUSAL = TelegramRefusal(code=404, description="Not Found")
SECOND_POLL_REASON = (
    "terminated by other getUpdates request; make sure that only one bot instance is running"
)
WEBHOOK_ACTIVE_REASON = (
    "can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook "
    "first"
)
NOT_MODIFIED_REASON = (
    "message is not modified: specified new message content and reply markup are exactly the same "
    "as a current content and reply markup of the message"
)
