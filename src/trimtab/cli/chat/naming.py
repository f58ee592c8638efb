"""Which session a chat is: a new one, the newest, or the one that was named."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from datetime import datetime

from trimtab.stores.store import Store, Stored
from trimtab.worker.naming import address_of

PAGE = 500
"""Sessions that are listed at a time."""
_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"
"""None of them is easily taken for another."""


def new_id(now: datetime | None = None, chance: Callable[[str], str] = secrets.choice) -> str:
    """`2026-11-15-0844-k3f9`: ids are listed in the order of time, and typed by hand."""
    at = now or datetime.now().astimezone()
    return f"{at:%Y-%m-%d-%H%M}-{''.join(chance(_LETTERS) for _ in range(4))}"


async def newest(store: Store) -> Stored | None:
    """The session that was written to last, of those in which something was said. Served ones are
    somebody else's: whoever means one names it."""
    found: Stored | None = None
    after = ""
    while page := await store.sessions(after=after, limit=PAGE):
        for one in page:
            is_ours = one.messages and address_of(one.session) is None
            if is_ours and (found is None or one.updated > found.updated):
                found = one
        after = page[-1].session
        if len(page) < PAGE:
            break
    return found
