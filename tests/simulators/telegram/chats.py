"""The users and chats of a local Bot API, and their messages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True, kw_only=True)
class TelegramChat:
    """A chat that the bot is in, or was."""

    id: int
    """The id, negative for groups."""
    type: str
    """`private`, `group`, `supergroup` or `channel`."""
    title: str
    """The user's first name, or the group's title."""
    username: str | None = None
    """The user name without the `@`."""
    blocked: bool = False
    """Whether the user has blocked the bot, or the group has removed it."""
    moved_to: int | None = None
    """The supergroup that the group has become."""
    topics: set[int] = field(default_factory=set[int])
    """The topics of the group."""
    messages: dict[int, dict[str, Any]] = field(default_factory=dict[int, dict[str, Any]])
    """The messages by id, as the API shows them."""
    last_message_id: int = 0
    """The id of the newest message."""

    def to_json(self) -> dict[str, Any]:
        """Return the chat as the API shows it."""
        chat_json: dict[str, Any] = {"id": self.id, "type": self.type}
        chat_json["first_name" if self.type == "private" else "title"] = self.title
        if self.username is not None:
            chat_json["username"] = self.username
        if self.topics:
            chat_json["is_forum"] = True
        return chat_json

    def next_message_id(self) -> int:
        """Return the id of a new message."""
        self.last_message_id += 1
        return self.last_message_id


def make_telegram_user(
    user_id: int, first_name: str, username: str | None = None, **fields: Any
) -> dict[str, Any]:
    """Return a user as the API shows it."""
    user: dict[str, Any] = {"id": user_id, "is_bot": False, "first_name": first_name}
    if username is not None:
        user["username"] = username
    return {**user, **fields}


def find_commands_and_mentions(text: str) -> list[dict[str, Any]]:
    """Return the entities that Telegram finds in a text by itself: commands and names."""
    import re

    entities: list[dict[str, Any]] = []
    for match in re.finditer(r"(?<![\w/@])(/[A-Za-z0-9_]+(?:@\w+)?|@\w{3,})", text):
        offset = len(text[: match.start()].encode("utf-16-le")) // 2
        kind = "bot_command" if match[0].startswith("/") else "mention"
        entities.append({"type": kind, "offset": offset, "length": len(match[0])})
    return entities
