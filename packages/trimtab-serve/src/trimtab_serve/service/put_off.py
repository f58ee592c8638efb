"""Messages that a turn put off, because the provider rejected them together with others.

The log has such a message under its key, undone by a rewind. The queue still has it, and a later
turn adds it again under another key, because a log has each key once.
"""

from __future__ import annotations

import re

from trimtab.engine.log.event import Rewind
from trimtab.engine.log.rewind import find_undoing_rewind
from trimtab.session import Session

_REPEATED_KEY = re.compile(r"again [0-9]+ ")


async def find_log_key(session: Session, key: str) -> str:
    """Return the key under which the log has a waiting message, or is to have it."""
    log_key = key
    if not session.window.base.rewinds:
        return log_key
    while (position := await session.store.find_key(session.id, log_key)) is not None:
        if not await _was_put_off(session, position):
            break
        log_key = f"again {position} {key}"
    return log_key


def remove_repetition(log_key: str) -> str:
    """Return the key that the sender chose."""
    return _REPEATED_KEY.sub("", log_key, count=1) if log_key.startswith("again ") else log_key


async def _was_put_off(session: Session, position: int) -> bool:
    rewind = find_undoing_rewind(position, session.window.base.rewinds)
    if rewind is None:
        return False
    events = session.store.events(session.id, [(rewind[0], rewind[0])])
    return any([isinstance(event.body, Rewind) and event.body.puts_off async for event in events])
