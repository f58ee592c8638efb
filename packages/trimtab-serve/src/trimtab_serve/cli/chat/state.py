"""The state of a chat: its agent, its session and the text of its next input line.

Also finds the session of a chat: a new one, the newest one, or one that the user names.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from rich.console import Console

from trimtab.session import Session
from trimtab.session.history import HiddenTotals
from trimtab.stores.base import SessionListEntry, Store
from trimtab_serve.agent.agent import Agent
from trimtab_serve.queue.address import parse_session_address


@dataclass(slots=True, kw_only=True)
class ChatState:
    agent: Agent
    """The agent that answers."""
    session: Session
    """The session that holds the conversation."""
    console: Console
    """The console to draw on."""
    agent_option: str = ""
    """Options to type after `trimtab chat` to find this agent again."""
    draft: str = ""
    """Text to put into the next input line."""
    leaving: bool = False
    """Whether the chat is about to end."""
    hidden: Sequence[HiddenTotals] = ()
    """What was hidden last, the newest kind last."""
    forget_lines: Callable[[Collection[str]], None] = field(default=lambda _: None)
    """Removes lines from the input history."""

    def format_resume_command(self, session_id: str | None = None) -> str:
        """Return the command that continues a session."""
        return f"trimtab chat{self.agent_option} --session {session_id or self.session.id}"


async def close_chat_session(chat: ChatState, *, created_here: bool) -> None:
    """Close the session, or delete it if it was created here and has no messages."""
    session = chat.session
    window = chat.session.window
    if created_here and not window.conversation.total_messages and not window.base.rewinds:
        await session.store.delete(session.id)
    else:
        await session.close()


SESSION_PAGE_SIZE = 500
"""Sessions to list at a time."""
_ID_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"
"""Characters that are not easily mistaken for one another."""


def generate_session_id(
    now: datetime | None = None, pick_letter: Callable[[str], str] = secrets.choice
) -> str:
    """Return an id such as `2026-11-15-0844-k3f9`: it sorts by time and is easy to type."""
    at = now or datetime.now().astimezone()
    return f"{at:%Y-%m-%d-%H%M}-{''.join(pick_letter(_ID_ALPHABET) for _ in range(4))}"


async def find_newest_chat_session(store: Store) -> SessionListEntry | None:
    """Return the session with messages that was written to last, without served sessions. Served
    sessions belong to other users, so the user has to name one to open it."""
    newest: SessionListEntry | None = None
    after = ""
    while page := await store.sessions(after=after, limit=SESSION_PAGE_SIZE):
        for one in page:
            is_ours = one.messages and parse_session_address(one.session) is None
            if is_ours and (newest is None or one.updated > newest.updated):
                newest = one
        after = page[-1].session
        if len(page) < SESSION_PAGE_SIZE:
            break
    return newest
