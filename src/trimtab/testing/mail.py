"""A mail in memory, for tests: it keeps every promise but the one to outlive the process."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from trimtab.core.event import Turn
from trimtab.stores.errors import NoSession, StaleOwner
from trimtab.stores.store import Store
from trimtab.worker.box import Box, erased, given_up
from trimtab.worker.letters import Inbound, Outbound
from trimtab.worker.mail import Dead
from trimtab.worker.records import Record, from_letter, from_reply


class MemoryMail:
    """Letters in dictionaries. `due` is called with the session of each letter posted."""

    def __init__(
        self,
        store: Store,
        due: Callable[[str], None] = lambda _: None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.due = due
        """Called with the session of each letter that was posted."""
        self.replied: Callable[[], None] = lambda: None
        """Called where replies were written: `Delivery.due`."""
        self.said: dict[int, str] = {}
        """By a reply's number, why it was put off or refused the last time."""
        self._store = store
        self._clock = clock
        self._box = Box()
        self._number = 0

    async def post(self, letter: Inbound) -> bool:
        name = (letter.session, letter.key)
        if not self._box.waits(*name) and await self._store.find_key(*name) is not None:
            return False
        if self._box.waits(*name):
            return False
        self._box.apply(from_letter(replace(letter, number=self._next())))
        self.due(letter.session)
        return True

    async def pending(self, session: str, *, after: int = 0, limit: int = 100) -> list[Inbound]:
        return self._box.pending(session, after, limit)

    async def finish(
        self, session: str, epoch: int, taken: Collection[int], replies: Sequence[Outbound]
    ) -> None:
        newest = await self._epoch(session)
        if epoch < newest:
            raise StaleOwner(session, epoch, newest)
        kept = self._numbered(replies) if await self._store.position(session) else []
        made = {"session": session, "taken": list(taken), "replies": kept}
        self._box.apply({"kind": "finished", **made})
        if replies:
            self.replied()

    async def waiting(self) -> list[str]:
        return self._box.waiting()

    async def depth(self, prefix: str = "") -> int:
        return self._box.depth(prefix)

    async def give_up(
        self, letter: Inbound, epoch: int | None, why: str, replies: Sequence[Outbound] = ()
    ) -> bool:
        session, made = letter.session, self._numbered(replies)
        if epoch is not None and epoch < await self._epoch(session):
            return False
        self._box.apply(given_up(session, why, self._clock(), made, letter=letter.number))
        if replies:
            self.replied()
        return self._box.why_given_up(session) is not None

    async def dead(self, *, prefix: str = "", limit: int = 100) -> list[Dead]:
        return self._box.dead(prefix, limit)

    async def why_given_up(self, session: str) -> str | None:
        return self._box.why_given_up(session)

    async def revive(self, session: str) -> bool:
        if not self._box.is_dead(session):
            return False
        self._box.apply({"kind": "revived", "session": session})
        if self._box.has_letters(session):
            self.due(session)
        self.replied()
        return True

    async def outgoing(self, doors: Collection[str], *, limit: int, lease: float) -> list[Outbound]:
        found = self._box.outbox.lend(doors, limit=limit, now=self._clock(), lease=lease)
        self._box.apply({"kind": "begun", "numbers": [reply.number for reply in found]})
        return found

    async def delivered(self, number: int) -> None:
        self._box.apply({"kind": "delivered", "number": number})

    async def put_off(self, number: int, *, seconds: float, why: str, sent: bool) -> None:
        self.said[number] = why
        until = self._clock() + seconds
        self._box.apply({"kind": "put_off", "number": number, "until": until, "sent": sent})

    async def refused(self, number: int, why: str) -> None:
        self.said[number] = why
        self._box.apply({"kind": "refused", "number": number, "why": why, "at": self._clock()})

    async def forget(self, session: str) -> None:
        self._box.apply({"kind": "forgotten", "session": session})

    async def erase(self, session: str, positions: Collection[int], keys: Collection[str]) -> None:
        self._box.apply(erased(session, positions, keys))

    async def close(self) -> None:
        """Nothing is held; what waits stays, so that a test can open it again."""

    async def _epoch(self, session: str) -> int:
        newest = 0
        try:
            async for event in self._store.events(session):
                if isinstance(event.body, Turn):
                    newest = max(newest, event.body.epoch)
        except NoSession:
            return 0
        return newest

    def _numbered(self, replies: Sequence[Outbound]) -> list[Record]:
        return [from_reply(replace(reply, number=self._next())) for reply in replies]

    def _next(self) -> int:
        self._number += 1
        return self._number
