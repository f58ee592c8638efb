"""Keeps the most recently used sessions open between turns."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress

from trimtab.engine.log.message import Media, Part, ToolResult
from trimtab.engine.window.window import Window
from trimtab.errors import SessionNotFound, StaleOwner
from trimtab.session import Session

MAX_OPEN_SESSIONS = 256
"""Maximum number of unused sessions that stay open."""
MAX_CACHED_MESSAGE_BYTES = 32 << 20
"""Maximum total size of the messages of unused open sessions, in bytes.

The process uses twice as much memory if messages are long, and six times as much if they are short.
"""

log = logging.getLogger("trimtab.server")


class SessionCache:
    """Open sessions by id. All concurrent users of a session share one object."""

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
        """Return the number of open sessions."""
        return len(self._open)

    @asynccontextmanager
    async def open_session(self, session: str) -> AsyncGenerator[Session]:
        """Yield the session in its current stored state. It stays open during the block."""
        self._users[session] = self._users.get(session, 0) + 1
        try:
            async with self._open_locks.setdefault(session, asyncio.Lock()):
                entry = await self._get_or_open(session)
            yield entry
        finally:
            self._release(session)
            self._evict_idle()

    def reopen_at_next_use(self) -> None:
        """Reopen each session at its next use, because its agent has changed."""
        self._outdated.update(self._open)

    async def close_session(self, session: str) -> None:
        """Close a session, for example because it is deleted."""
        self._outdated.discard(session)
        open_session = self._open.pop(session, None)
        self._sizes.pop(session, None)
        if open_session is not None:
            await open_session.close()

    async def close(self) -> None:
        """Close all sessions."""
        for session in list(self._open):
            await self.close_session(session)
        while self._closing:
            await asyncio.wait(self._closing)

    async def _get_or_open(self, session: str) -> Session:
        open_session = self._open.get(session)
        is_outdated = session in self._outdated and self._users[session] == 1
        if open_session is not None and (is_outdated or not await _refresh_session(open_session)):
            # Its agent has changed. Or it was deleted meanwhile and perhaps created again, so the
            # folded state is invalid.
            await self.close_session(session)
            open_session = None
        if open_session is None:
            open_session = self._open[session] = await self._opener(session)
        self._open.move_to_end(session)
        return open_session

    def _release(self, session: str) -> None:
        self._users[session] -= 1
        if not self._users[session]:
            del self._users[session]
            self._open_locks.pop(session, None)
            if session in self._open:
                self._sizes[session] = count_message_bytes(self._open[session].window)

    def _evict_idle(self) -> None:
        total_bytes = sum(self._sizes.values())
        for name in [name for name in self._open if name not in self._users]:
            if len(self._open) <= self._max_sessions and total_bytes <= self._max_bytes:
                break
            total_bytes -= self._sizes.pop(name)
            self._outdated.discard(name)
            # In the background, because closing waits for a summary that is being made.
            task = asyncio.create_task(_close_session(self._open.pop(name)))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)


def count_message_bytes(window: Window) -> int:
    """Return the size of all messages in memory, including what is hidden from the model."""
    part_bytes = sum(size.bytes for entry in window.entries.values() for size in entry.sizes)
    return part_bytes + sum(
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
    """Read what other processes have written. Return False if the log was replaced."""
    # A turn that was taken over finds out when it writes. A reader does not have to.
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
        # Nothing is lost: all writes are done, and the store takes the lock again.
        log.exception("closing session %s failed", session.id)
