"""The ids of sessions for a framework's conversations, whose own ids may be any text."""

from __future__ import annotations

import hashlib
import re

_PLAIN_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,99}")
"""Ids that are the same name in every store, also in a file system that ignores case."""
_OTHER_CHARACTERS = re.compile(r"[^a-z0-9_-]+")


def check_conversation_id(conversation_id: object) -> None:
    """Raise `TypeError` if this is not a text."""
    if not isinstance(conversation_id, str):
        raise TypeError(
            "a conversation's id must be a text, such as result.conversation_id or "
            f"session.session_id, not {type(conversation_id).__name__}"
        )


def make_session_id(conversation_id: str) -> str:
    """Return the session id of a conversation: the same text if every store takes it, else a hash.

    Two conversations never have the same session id.
    """
    check_conversation_id(conversation_id)
    if _PLAIN_ID.fullmatch(conversation_id):
        return conversation_id
    digest = hashlib.sha256(conversation_id.encode("utf-8", "surrogatepass")).hexdigest()
    readable = _OTHER_CHARACTERS.sub("-", conversation_id.lower()[:60]).strip("-")
    return f"{readable}~{digest}" if readable else f"x~{digest}"  # `~` is in no plain id
