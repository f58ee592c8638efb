"""Sessions that stay open between two turns, the ones used last."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress

from trimtab.core.message import Media, Part, ToolResult
from trimtab.core.window import Window
from trimtab.session import Session
from trimtab.stores.errors import NoSession, StaleOwner

KEPT = 256
"""Sessions that stay open while nobody uses them."""
HELD = 32 << 20
"""Bytes of messages in memory up to which they stay open, all together. Memory takes twice that
where messages are long, and six times where they are short."""

log = logging.getLogger("trimtab.worker")


class Sessions:
    """Open sessions by id: one object each, shared by all who use it at the same time."""

    def __init__(
        self, opening: Callable[[str], Awaitable[Session]], *, kept: int = KEPT, held: int = HELD
    ) -> None:
        self._opening = opening
        self._kept = kept
        self._held = held
        self._open: OrderedDict[str, Session] = OrderedDict()
        self._sizes: dict[str, int] = {}
        self._users: dict[str, int] = {}
        self._gates: dict[str, asyncio.Lock] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        """How many are open."""
        return len(self._open)

    @asynccontextmanager
    async def using(self, session: str) -> AsyncGenerator[Session]:
        """The session as it stands in the store now; it stays open meanwhile."""
        self._users[session] = self._users.get(session, 0) + 1
        try:
            async with self._gates.setdefault(session, asyncio.Lock()):
                found = await self._current(session)
            yield found
        finally:
            self._leave(session)
            self._shrink()

    async def forget(self, session: str) -> None:
        """Close a session, for example because it is deleted."""
        found = self._open.pop(session, None)
        self._sizes.pop(session, None)
        if found is not None:
            await found.close()

    async def close(self) -> None:
        """Close all."""
        for session in list(self._open):
            await self.forget(session)
        while self._closing:
            await asyncio.wait(self._closing)

    async def _current(self, session: str) -> Session:
        found = self._open.get(session)
        if found is not None and not await _refreshed(found):
            # It was deleted meanwhile, and perhaps begun anew: nothing that is folded holds.
            await self.forget(session)
            found = None
        if found is None:
            found = self._open[session] = await self._opening(session)
        self._open.move_to_end(session)
        return found

    def _leave(self, session: str) -> None:
        self._users[session] -= 1
        if not self._users[session]:
            del self._users[session]
            self._gates.pop(session, None)
            if session in self._open:
                self._sizes[session] = bytes_in(self._open[session].window)

    def _shrink(self) -> None:
        held = sum(self._sizes.values())
        for name in [name for name in self._open if name not in self._users]:
            if len(self._open) <= self._kept and held <= self._held:
                break
            held -= self._sizes.pop(name)
            # Beside the turns: closing waits for a summary that is being made.
            task = asyncio.create_task(_closed(self._open.pop(name)))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)


def bytes_in(window: Window) -> int:
    """Bytes of all messages that a window has in memory, whole, whatever the model sees of them."""
    told = sum(size.bytes for entry in window.entries.values() for size in entry.sizes)
    return told + sum(
        len(part.data or "")
        for entry in window.entries.values()
        for part in _inside(entry.message.parts)
        if isinstance(part, Media)
    )


def _inside(parts: Sequence[Part]) -> Iterator[Part]:
    for part in parts:
        yield part
        if isinstance(part, ToolResult):
            yield from part.content


async def _refreshed(found: Session) -> bool:
    """Fold what others have written; False where the log is not the one that was folded."""
    # A turn that was taken over finds out when it writes; whoever only looks is not it.
    with suppress(StaleOwner):
        try:
            await found.refresh()
        except NoSession:
            return False
    return True


async def _closed(session: Session) -> None:
    try:
        await session.close()
    except Exception:
        # Nothing is lost: what is written is written, and the store takes the lock again.
        log.exception("session %s could not be closed", session.id)
