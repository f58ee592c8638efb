"""What a session is found by apart from its id: its users, and the sessions it was copied from.

A store can be asked for all sessions with a subject. Its answer may contain others, so a caller
reads what it gets, but it never lacks one.
"""

from __future__ import annotations

from trimtab.engine.log.event import Event, Fork, MessageAdded
from trimtab.engine.log.message import SENDER_KEY


def find_subject(event: Event) -> str | None:
    """Return the sender of a message, or the name of the session that a fork was copied from."""
    body = event.body
    if isinstance(body, MessageAdded):
        sender = (body.message.extra or {}).get(SENDER_KEY)
        return sender if isinstance(sender, str) else None
    return session_subject(body.parent) if isinstance(body, Fork) else None


def session_subject(session: str) -> str:
    """Return the subject of a session's forks.

    It is the last part of the id, up to a second colon. So forks of `telegram:123` and of
    `telegram:123:2` are found by the user `telegram:123`, even if these sessions are deleted.
    """
    return ":".join(session.rpartition("/")[2].split(":", 2)[:2])


def session_scope(session: str) -> str:
    """Return the part of an id up to its first slash. Subjects are kept apart by it."""
    scope, slash, _ = session.partition("/")
    return scope + slash if slash else ""
