"""A mail in memory, for tests: it keeps every promise but the one to outlive the process."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from trimtab.errors import SessionNotFound, StaleOwner
from trimtab.log.event import TurnProgressRecord
from trimtab.server.queue.inbound_outbound import (
    InboundMessage,
    OutboundMessage,
    QueueRecord,
    inbound_to_record,
    outbound_to_record,
)
from trimtab.server.queue.protocol import DeadLetterSession
from trimtab.server.queue.state import QueueState, build_dead_letter_record, build_erasure_record
from trimtab.stores.base import Store


class MemoryQueue:
    """Letters in dictionaries. `due` is called with the session of each letter posted."""

    def __init__(
        self,
        store: Store,
        on_posted: Callable[[str], None] = lambda _: None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.on_posted = on_posted
        """Called with the session of each letter that was posted."""
        self.on_replies: Callable[[], None] = lambda: None
        """Called where replies were written: `ReplyDelivery.due`."""
        self.delivery_failures: dict[int, str] = {}
        """By a reply's number, why it was put off or refused the last time."""
        self._store = store
        self._clock = clock
        self._state = QueueState()
        self._number = 0

    async def post(self, inbound: InboundMessage) -> bool:
        name = (inbound.session, inbound.key)
        if not self._state.has_message(*name) and await self._store.find_key(*name) is not None:
            return False
        if self._state.has_message(*name):
            return False
        self._state.apply(inbound_to_record(replace(inbound, number=self._next())))
        self.on_posted(inbound.session)
        return True

    async def pending(
        self, session: str, *, after: int = 0, limit: int = 100
    ) -> list[InboundMessage]:
        return self._state.pending(session, after, limit)

    async def finish_turn(
        self,
        session: str,
        epoch: int,
        answered: Collection[int],
        replies: Sequence[OutboundMessage],
    ) -> None:
        newest = await self._epoch(session)
        if epoch < newest:
            raise StaleOwner(session, epoch, newest)
        kept = self._numbered(replies) if await self._store.position(session) else []
        made = {"session": session, "taken": list(answered), "replies": kept}
        self._state.apply({"kind": "finished", **made})
        if replies:
            self.on_replies()

    async def list_waiting_sessions(self) -> list[str]:
        return self._state.waiting_sessions()

    async def depth(self, prefix: str = "") -> int:
        return self._state.depth(prefix)

    async def oldest_waiting_at(self) -> float | None:
        return self._state.oldest_waiting_at()

    async def dead_letter_session(
        self,
        inbound: InboundMessage,
        epoch: int | None,
        why: str,
        replies: Sequence[OutboundMessage] = (),
    ) -> bool:
        session, made = inbound.session, self._numbered(replies)
        if epoch is not None and epoch < await self._epoch(session):
            return False
        self._state.apply(
            build_dead_letter_record(
                session, why, self._clock(), made, message_number=inbound.number
            )
        )
        if replies:
            self.on_replies()
        return self._state.dead_letter_reason(session) is not None

    async def list_dead_letters(
        self, *, prefix: str = "", limit: int = 100
    ) -> list[DeadLetterSession]:
        return self._state.dead_letters(prefix, limit)

    async def dead_letter_reason(self, session: str) -> str | None:
        return self._state.dead_letter_reason(session)

    async def revive(self, session: str) -> bool:
        if not self._state.has_dead_letters(session):
            return False
        self._state.apply({"kind": "revived", "session": session})
        if self._state.has_messages(session):
            self.on_posted(session)
        self.on_replies()
        return True

    async def lease_replies(
        self, channels: Collection[str], *, limit: int, lease_s: float
    ) -> list[OutboundMessage]:
        found = self._state.outbox.lease_due(
            channels, limit=limit, now=self._clock(), lease_s=lease_s
        )
        self._state.apply({"kind": "begun", "numbers": [reply.number for reply in found]})
        return found

    async def mark_delivered(self, number: int) -> None:
        self._state.apply({"kind": "delivered", "number": number})

    async def postpone_reply(
        self, number: int, *, delay_s: float, why: str, maybe_sent: bool
    ) -> None:
        self.delivery_failures[number] = why
        until = self._clock() + delay_s
        self._state.apply({"kind": "put_off", "number": number, "until": until, "sent": maybe_sent})

    async def mark_undeliverable(self, number: int, why: str) -> None:
        self.delivery_failures[number] = why
        self._state.apply({"kind": "refused", "number": number, "why": why, "at": self._clock()})

    async def forget_session(self, session: str) -> None:
        self._state.apply({"kind": "forgotten", "session": session})

    async def erase_messages(
        self, session: str, positions: Collection[int], keys: Collection[str]
    ) -> None:
        self._state.apply(build_erasure_record(session, positions, keys))

    async def check_writable(self) -> None:
        """It always is."""

    async def close(self) -> None:
        """Nothing is held; what waits stays, so that a test can open it again."""

    async def _epoch(self, session: str) -> int:
        newest = 0
        try:
            async for event in self._store.events(session):
                if isinstance(event.body, TurnProgressRecord):
                    newest = max(newest, event.body.epoch)
        except SessionNotFound:
            return 0
        return newest

    def _numbered(self, replies: Sequence[OutboundMessage]) -> list[QueueRecord]:
        return [outbound_to_record(replace(reply, number=self._next())) for reply in replies]

    def _next(self) -> int:
        self._number += 1
        return self._number
