"""The people and chats of a local Bot API, and what stands in them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True, kw_only=True)
class TelegramChat:
    """A chat that the bot is in, or was."""

    id: int
    """Below 0 for groups."""
    type: str
    """`private`, `group`, `supergroup` or `channel`."""
    title: str
    """A person's first name, or a group's title."""
    username: str | None = None
    """Without the `@`."""
    blocked: bool = False
    """Whether the person has blocked the bot, or the group has thrown it out."""
    moved_to: int | None = None
    """The supergroup that it has become."""
    topics: set[int] = field(default_factory=set[int])
    """Topics that there are."""
    messages: dict[int, dict[str, Any]] = field(default_factory=dict[int, dict[str, Any]])
    """What stands in it, by message id: as the API shows it."""
    last_message_id: int = 0
    """The newest message's id."""

    def to_json(self) -> dict[str, Any]:
        """As the API shows it."""
        told: dict[str, Any] = {"id": self.id, "type": self.type}
        told["first_name" if self.type == "private" else "title"] = self.title
        if self.username is not None:
            told["username"] = self.username
        if self.topics:
            told["is_forum"] = True
        return told

    def next_message_id(self) -> int:
        """The id of a new message."""
        self.last_message_id += 1
        return self.last_message_id


def make_telegram_user(
    user_id: int, first_name: str, username: str | None = None, **fields: Any
) -> dict[str, Any]:
    """A person as the API shows them."""
    told: dict[str, Any] = {"id": user_id, "is_bot": False, "first_name": first_name}
    if username is not None:
        told["username"] = username
    return {**told, **fields}


def find_commands_and_mentions(text: str) -> list[dict[str, Any]]:
    """What Telegram finds in a text by itself: commands and names."""
    import re

    found: list[dict[str, Any]] = []
    for match in re.finditer(r"(?<![\w/@])(/[A-Za-z0-9_]+(?:@\w+)?|@\w{3,})", text):
        offset = len(text[: match.start()].encode("utf-16-le")) // 2
        kind = "bot_command" if match[0].startswith("/") else "mention"
        found.append({"type": kind, "offset": offset, "length": len(match[0])})
    return found
