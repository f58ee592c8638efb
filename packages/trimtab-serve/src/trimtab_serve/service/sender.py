"""Record the sender of each message, so that a user's data can be found and erased.

The channel names the user: `telegram:123`, `discord:456`, or the name that an HTTP caller gives.
The name is stored in the extras of the message, which the model never sees.
"""

from __future__ import annotations

from dataclasses import replace

from trimtab.engine.log.message import PRIVATE_CHAT_KEY, SENDER_KEY, Message


def with_sender(message: Message, user: str, *, is_private: bool = False) -> Message:
    """Return the message with its sender, and with whether the chat is private."""
    extra = {**(message.extra or {}), SENDER_KEY: user}
    return replace(message, extra={**extra, PRIVATE_CHAT_KEY: True} if is_private else extra)


def find_sender(message: Message) -> str | None:
    """Return the sender of a message. None if it was not recorded."""
    sender = (message.extra or {}).get(SENDER_KEY)
    return sender if isinstance(sender, str) else None


def was_sent_in_private(message: Message) -> bool:
    """Whether a message is recorded as sent in a private chat."""
    return (message.extra or {}).get(PRIVATE_CHAT_KEY) is True
