"""A chat as it stands: who answers, in which session, and what comes next.

Which session a chat is: a new one, the newest, or the one that was named.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from rich.console import Console

from trimtab.agent.agent import Agent
from trimtab.server.tenant_agent_session_ids import parse_session_address
from trimtab.session import Session
from trimtab.session.visibility_and_past_requests import HiddenTotals
from trimtab.stores.base import SessionListEntry, Store


@dataclass(slots=True, kw_only=True)
class ChatState:
    agent: Agent
    """Who answers."""
    session: Session
    """What is remembered."""
    console: Console
    """Where it is drawn."""
    agent_option: str = ""
    """What must be typed behind `trimtab chat` so that this agent is found again."""
    draft: str = ""
    """What the next input line begins with."""
    leaving: bool = False
    """Whether the chat ends here."""
    hidden: Sequence[HiddenTotals] = ()
    """What was hidden last, the newest kind last."""
    forget_lines: Callable[[Collection[str]], None] = field(default=lambda _: None)
    """Takes lines that were typed out of what is offered again."""

    def format_resume_command(self, session_id: str | None = None) -> str:
        """The command by which a session is taken up again."""
        return f"trimtab chat{self.agent_option} --session {session_id or self.session.id}"


async def close_chat_session(chat: ChatState, *, created_here: bool) -> None:
    """Give the session back; one that was made here and in which nothing was said is not kept."""
    session, window = chat.session, chat.session.window
    if created_here and not window.conversation.total_messages and not window.base.rewinds:
        await session.store.delete(session.id)
    else:
        await session.close()


SESSION_PAGE_SIZE = 500
"""Sessions that are listed at a time."""
_ID_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"
"""None of them is easily taken for another."""


def generate_session_id(
    now: datetime | None = None, pick_letter: Callable[[str], str] = secrets.choice
) -> str:
    """`2026-11-15-0844-k3f9`: ids are listed in the order of time, and typed by hand."""
    at = now or datetime.now().astimezone()
    return f"{at:%Y-%m-%d-%H%M}-{''.join(pick_letter(_ID_ALPHABET) for _ in range(4))}"


async def find_newest_chat_session(store: Store) -> SessionListEntry | None:
    """The session that was written to last, of those in which something was said. Served ones are
    somebody else's: whoever means one names it."""
    found: SessionListEntry | None = None
    after = ""
    while page := await store.sessions(after=after, limit=SESSION_PAGE_SIZE):
        for one in page:
            is_ours = one.messages and parse_session_address(one.session) is None
            if is_ours and (found is None or one.updated > found.updated):
                found = one
        after = page[-1].session
        if len(page) < SESSION_PAGE_SIZE:
            break
    return found
