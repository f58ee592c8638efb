"""Build the text that the agent reads from a chat message. It is the same on every platform."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

EDITED_NOTICE = "[A message was edited. It now says:]"
"""Precedes an edited message."""
FORWARDED_NOTICE = "[forwarded]"
"""Precedes a text that another author wrote."""
MAX_QUOTE_CHARS = 200
"""Maximum number of characters of a quoted message that the agent reads."""
MAX_SENDER_NAME_CHARS = 130
"""Maximum number of characters of a sender's name. No platform allows more."""
UNKNOWN_SENDER_NAME = "somebody"


def collapse_whitespace(text: str) -> str:
    """Return a text on one line."""
    return " ".join(text.split())


def format_sender_name(name: str | None) -> str:
    """Return a name on one line. With two lines, a sender could pretend to be another."""
    return collapse_whitespace(name or "")[:MAX_SENDER_NAME_CHARS] or UNKNOWN_SENDER_NAME


def format_reply_quote(quoted_text: str, author_name: str | None) -> str:
    """Return the line that quotes the message replied to. Empty if that has no text.

    `author_name` is None if the agent itself is quoted.
    """
    text = collapse_whitespace(quoted_text)
    if not text:
        return ""
    author = "you" if author_name is None else author_name
    short = text if len(text) <= MAX_QUOTE_CHARS else f"{text[:MAX_QUOTE_CHARS]}…"
    return f"[in reply to {author}: “{short}”]"


def format_poll(question: str, options: Iterable[str]) -> str:
    """Return a poll as text."""
    return f"[poll: {question} ({'; '.join(options)})]"


def format_inbound_text(lines: Sequence[str], *, sender_name: str | None, edited: bool) -> str:
    """Return the whole text of a message.

    `sender_name` is None in a private chat, because the agent knows the sender there.
    """
    text = "\n".join(lines)
    if sender_name is not None:
        text = f"{sender_name}: {text}"
    return f"{EDITED_NOTICE}\n{text}" if edited else text
