"""What somebody says in a chat, as the text that the agent reads. The same on every platform."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

EDITED_NOTICE = "[A message was edited. It now says:]"
"""Stands before a message that was edited."""
FORWARDED_NOTICE = "[forwarded]"
"""Stands before a text that somebody else wrote."""
MAX_QUOTE_CHARS = 200
"""Characters of a quoted message that the agent reads."""
MAX_SENDER_NAME_CHARS = 130
"""Characters of a sender's name; no platform allows more."""
UNKNOWN_SENDER_NAME = "somebody"


def collapse_whitespace(text: str) -> str:
    """Return a text on one line."""
    return " ".join(text.split())


def format_sender_name(name: str | None) -> str:
    """Return a name on one line: on two lines it could pretend that somebody else speaks."""
    return collapse_whitespace(name or "")[:MAX_SENDER_NAME_CHARS] or UNKNOWN_SENDER_NAME


def format_reply_quote(quoted_text: str, author_name: str | None) -> str:
    """Return the line that says what a message replies to, empty if that has no text.

    `author_name` is None if the agent itself is quoted.
    """
    text = collapse_whitespace(quoted_text)
    if not text:
        return ""
    author = "you" if author_name is None else author_name
    short = text if len(text) <= MAX_QUOTE_CHARS else f"{text[:MAX_QUOTE_CHARS]}…"
    return f"[in reply to {author}: “{short}”]"


def format_poll(question: str, options: Iterable[str]) -> str:
    """Return a poll in words."""
    return f"[poll: {question} ({'; '.join(options)})]"


def format_inbound_text(lines: Sequence[str], *, sender_name: str | None, edited: bool) -> str:
    """Return the whole text of a message.

    `sender_name` is None in a conversation of two, where the agent knows who speaks.
    """
    text = "\n".join(lines)
    if sender_name is not None:
        text = f"{sender_name}: {text}"
    return f"{EDITED_NOTICE}\n{text}" if edited else text
