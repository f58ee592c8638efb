"""Whether a session is being moved to another database, or has been.

While it is, the row of the session is closed: its epoch is higher than that of any writer.
"""

from __future__ import annotations

from uuid import UUID

from psycopg.types.numeric import Int8

from trimtab.errors import SessionMoved
from trimtab.stores.postgres.escaping import compute_lock_key, compute_session_uuid
from trimtab.stores.postgres.log_reader import FetchRows
from trimtab.stores.postgres.queries import QUERIES

CLOSED_EPOCH = 2**63 - 1
"""The epoch of a session that nobody may write to."""


def compute_tenant_uuid(session: str) -> UUID:
    """Return the key of the move of a session's tenant."""
    return compute_session_uuid(f"{session.partition('/')[0]}/")


def compute_move_lock_key(session: str) -> int:
    """Return the number of the lock that the process holds which moves a session."""
    return compute_lock_key("move", session)


async def find_move_refusal(fetch: FetchRows, session: str) -> SessionMoved | None:
    """Return the error for a session that is not served here; None if it is.

    A move whose process was killed before the session had left is undone.
    """
    key = compute_session_uuid(session)
    rows = await fetch(QUERIES["move"], [key, compute_tenant_uuid(session)])
    if not rows:
        return None
    state, shard = rows[0]
    if state == "leaving":
        lock = Int8(compute_move_lock_key(session))
        if await fetch(QUERIES["reopen"], [key, lock]):
            return None
    return SessionMoved(session, shard)
