"""A chat as it stands: who answers, in which session, and what comes next."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from rich.console import Console

from trimtab.agent.agent import Agent
from trimtab.session import Session
from trimtab.session.hiding import Hiding


@dataclass(slots=True, kw_only=True)
class Talk:
    agent: Agent
    """Who answers."""
    session: Session
    """What is remembered."""
    console: Console
    """Where it is drawn."""
    options: str = ""
    """What must be typed behind `trimtab chat` so that this agent is found again."""
    draft: str = ""
    """What the next input line begins with."""
    leaving: bool = False
    """Whether the chat ends here."""
    hidden: Sequence[Hiding] = ()
    """What was hidden last, the newest kind last."""
    forget: Callable[[Collection[str]], None] = field(default=lambda _: None)
    """Takes lines that were typed out of what is offered again."""

    def again(self, session: str | None = None) -> str:
        """The command by which a session is taken up again."""
        return f"trimtab chat{self.options} --session {session or self.session.id}"


async def leave(talk: Talk, *, made: bool) -> None:
    """Give the session back; one that was made here and in which nothing was said is not kept."""
    session, window = talk.session, talk.session.window
    if made and not window.said and not window.rewinds:
        await session.store.delete(session.id)
    else:
        await session.close()
