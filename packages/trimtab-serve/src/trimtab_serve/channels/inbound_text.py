"""Build the text that the agent reads from a chat message. It is the same on every platform.

In a group, a message begins with its sender: `Ada (4242): hello`. The platform assigns the id, so
nobody else can have it, while everybody can choose the name. The further lines of what a member
wrote are indented. So a line that is not indented is never a member's own. In a private chat, what
is forwarded is indented, and so is the text of a file: others may have written it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

from trimtab.engine.text.quoting import collapse_whitespace, indent_further_lines, indent_lines

EDITED_NOTICE = "[A message was edited. It now says:]"
"""Precedes an edited message."""
FORWARDED_NOTICE = "[forwarded]"
"""Precedes a text that another author wrote."""
MAX_QUOTE_CHARS = 200
"""Maximum number of characters of a quoted message that the agent reads."""
MAX_SENDER_NAME_CHARS = 130
"""Maximum number of characters of a sender's name. No platform allows more."""
UNKNOWN_SENDER_NAME = "somebody"
_MARKS = re.compile(r"[()\[\]:\"“”„‟«»]")
"""Characters that mark the name or a quote in a text. A name itself has none of them."""
_NOTICE_MARKS = str.maketrans("[]［］“”„‟＂", "()()" + "'" * 5)
"""Replacements of characters that begin or end a notice or a quote in it."""
_BLANK_SIGNS = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f]")
"""Characters that look like nothing, although Unicode has other categories for them."""


def quote_in_notice(text: str) -> str:
    """Return a text on one line that cannot end the notice it stands in."""
    return collapse_whitespace(text.translate(_NOTICE_MARKS))


def remove_invisible_characters(name: str) -> str:
    """Return a name on one line without characters that nobody sees."""
    visible = "".join(
        char for char in name if char.isspace() or unicodedata.category(char)[0] != "C"
    )
    return collapse_whitespace(_BLANK_SIGNS.sub("", visible))


def format_sender(name: str | None, sender_id: int | None) -> str:
    """Return the name and the id of a sender on one line, without characters that nobody sees."""
    plain = _MARKS.sub(" ", unicodedata.normalize("NFKC", name or ""))
    short = remove_invisible_characters(plain)[:MAX_SENDER_NAME_CHARS] or UNKNOWN_SENDER_NAME
    return short if sender_id is None else f"{short} ({sender_id})"


def format_reply_quote(quoted_text: str, author: str | None) -> str:
    """Return the line that quotes the message replied to. Empty if that has no text.

    `author` is None if the agent itself is quoted.
    """
    text = quote_in_notice(quoted_text)
    if not text:
        return ""
    short = text if len(text) <= MAX_QUOTE_CHARS else f"{text[:MAX_QUOTE_CHARS]}…"
    return f"[in reply to {author or 'you'}: “{short}”]"


def format_poll(question: str, options: Iterable[str]) -> str:
    """Return a poll as text."""
    return f"[poll: {quote_in_notice(question)} ({'; '.join(map(quote_in_notice, options))})]"


def format_inbound_text(
    lines: Sequence[str],
    *,
    notices: Sequence[str] = (),
    sender: str | None,
    edited: bool,
    forwarded: bool,
) -> str:
    """Return the whole text of a message: what the platform says about it, then its own lines.

    `sender` is None in a private chat, because the agent knows the sender there. What others wrote
    is indented there as well.
    """
    text = "\n".join(lines)
    if sender is not None:
        text = f"{sender}: {indent_further_lines(text)}"
    elif forwarded and text:
        text = indent_lines(text)
    head = [EDITED_NOTICE] if edited else []
    mark = [FORWARDED_NOTICE] if forwarded else []
    return "\n".join(filter(None, [*head, *mark, *notices, text]))
