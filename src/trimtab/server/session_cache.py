"""Sessions that stay open between two turns, the ones used last."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress

from trimtab.errors import SessionNotFound, StaleOwner
from trimtab.log.message import Media, Part, ToolResult
from trimtab.session import Session
from trimtab.window.window import Window

MAX_OPEN_SESSIONS = 256
"""Sessions that stay open while nobody uses them."""
MAX_CACHED_MESSAGE_BYTES = 32 << 20
"""Bytes of messages in memory up to which they stay open, all together. Memory takes twice that
where messages are long, and six times where they are short."""

log = logging.getLogger("trimtab.server")


class SessionCache:
    """Open sessions by id: one object each, shared by all who use it at the same time."""

    def __init__(
        self,
        opener: Callable[[str], Awaitable[Session]],
        *,
        max_sessions: int = MAX_OPEN_SESSIONS,
        max_bytes: int = MAX_CACHED_MESSAGE_BYTES,
    ) -> None:
        self._opener = opener
        self._max_sessions = max_sessions
        self._max_bytes = max_bytes
        self._open: OrderedDict[str, Session] = OrderedDict()
        self._sizes: dict[str, int] = {}
        self._users: dict[str, int] = {}
        self._open_locks: dict[str, asyncio.Lock] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._outdated: set[str] = set()

    def __len__(self) -> int:
        """How many are open."""
        return len(self._open)

    @asynccontextmanager
    async def open_session(self, session: str) -> AsyncGenerator[Session]:
        """The session as it stands in the store now; it stays open meanwhile."""
        self._users[session] = self._users.get(session, 0) + 1
        try:
            async with self._open_locks.setdefault(session, asyncio.Lock()):
                found = await self._get_or_open(session)
            yield found
        finally:
            self._release(session)
            self._evict_idle()

    def reopen_at_next_use(self) -> None:
        """Open each session anew when it is used next: its agent has changed."""
        self._outdated.update(self._open)

    async def close_session(self, session: str) -> None:
        """Close a session, for example because it is deleted."""
        self._outdated.discard(session)
        found = self._open.pop(session, None)
        self._sizes.pop(session, None)
        if found is not None:
            await found.close()

    async def close(self) -> None:
        """Close all."""
        for session in list(self._open):
            await self.close_session(session)
        while self._closing:
            await asyncio.wait(self._closing)

    async def _get_or_open(self, session: str) -> Session:
        found = self._open.get(session)
        outdated = session in self._outdated and self._users[session] == 1
        if found is not None and (outdated or not await _refresh_session(found)):
            # Its agent has changed. Or it was deleted meanwhile, and perhaps begun anew: nothing
            # that is folded holds.
            await self.close_session(session)
            found = None
        if found is None:
            found = self._open[session] = await self._opener(session)
        self._open.move_to_end(session)
        return found

    def _release(self, session: str) -> None:
        self._users[session] -= 1
        if not self._users[session]:
            del self._users[session]
            self._open_locks.pop(session, None)
            if session in self._open:
                self._sizes[session] = count_message_bytes(self._open[session].window)

    def _evict_idle(self) -> None:
        held = sum(self._sizes.values())
        for name in [name for name in self._open if name not in self._users]:
            if len(self._open) <= self._max_sessions and held <= self._max_bytes:
                break
            held -= self._sizes.pop(name)
            self._outdated.discard(name)
            # Beside the turns: closing waits for a summary that is being made.
            task = asyncio.create_task(_close_session(self._open.pop(name)))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)


def count_message_bytes(window: Window) -> int:
    """Bytes of all messages that a window has in memory, whole, whatever the model sees of them."""
    told = sum(size.bytes for entry in window.entries.values() for size in entry.sizes)
    return told + sum(
        len(part.data or "")
        for entry in window.entries.values()
        for part in _walk_parts(entry.message.parts)
        if isinstance(part, Media)
    )


def _walk_parts(parts: Sequence[Part]) -> Iterator[Part]:
    for part in parts:
        yield part
        if isinstance(part, ToolResult):
            yield from part.content


async def _refresh_session(session: Session) -> bool:
    """Fold what others have written; False where the log is not the one that was folded."""
    # A turn that was taken over finds out when it writes; whoever only looks is not it.
    with suppress(StaleOwner):
        try:
            await session.refresh()
        except SessionNotFound:
            return False
    return True


async def _close_session(session: Session) -> None:
    try:
        await session.close()
    except Exception:
        # Nothing is lost: what is written is written, and the store takes the lock again.
        log.exception("session %s could not be closed", session.id)
