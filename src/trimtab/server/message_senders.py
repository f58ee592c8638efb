"""Who sent a message: recorded with it, so that what is a user's can be found and forgotten.

A user is named as the channel knows them: `telegram:123`, `discord:456`, or over HTTP whatever the
caller calls them. The name is kept beside the message, in its extras: no model is given it.
"""

from __future__ import annotations

from dataclasses import replace

from trimtab.log.message import PRIVATE_CHAT_KEY, SENDER_KEY, Message


def with_sender(message: Message, user: str, *, is_private: bool = False) -> Message:
    """The message with a note of who sent it, and of whether nobody else is in that chat."""
    extra = {**(message.extra or {}), SENDER_KEY: user}
    return replace(message, extra={**extra, PRIVATE_CHAT_KEY: True} if is_private else extra)


def find_sender(message: Message) -> str | None:
    """Who sent a message; None where that was not recorded."""
    found = (message.extra or {}).get(SENDER_KEY)
    return found if isinstance(found, str) else None


def was_sent_in_private(message: Message) -> bool:
    """Whether a message is recorded as one of a chat of two."""
    return (message.extra or {}).get(PRIVATE_CHAT_KEY) is True
