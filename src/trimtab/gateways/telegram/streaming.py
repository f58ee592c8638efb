"""What a chat sees while a turn runs: that somebody writes, and the reply as it grows.

What is shown here is a draft. The reply leaves through the outbox, and makes the draft its own.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field

from telegram.error import RetryAfter, TelegramError

from trimtab.gateways.telegram.chunks import ROOM, chunks
from trimtab.gateways.telegram.markdown import from_markdown
from trimtab.gateways.telegram.sending import Place, Sending
from trimtab.gateways.telegram.styled import Styled
from trimtab.session.happenings import Ended, Piece, Replied, Restarted
from trimtab.worker.live import Heard, Live, Missed
from trimtab.worker.turns import said_to_user

TYPING = 4.5
"""Seconds after which it is shown again that somebody writes; it fades after five."""
QUIET = 600.0
"""Seconds without a happening after which a turn is not waited for any more."""
LINGER = 30.0
"""Seconds that a chat is watched for the next turn."""
KEPT = 900.0
"""Seconds that a draft waits for the reply that it belongs to."""
CLOSING = 5.0
"""Seconds that watches have to end by themselves."""
MORE = " …"
"""Ends a draft."""

log = logging.getLogger("trimtab.telegram")


@dataclass(slots=True, kw_only=True)
class Shown:
    """A message that a chat sees."""

    message: int
    """Its id."""
    what: Styled
    """What it says."""


@dataclass(slots=True, kw_only=True)
class Draft:
    """A reply while it is being written."""

    text: str = ""
    """What has come of it."""
    done: str | None = None
    """All of it, once it is there."""
    dirty: bool = False
    """Whether there is more than is shown."""
    muted: bool = False
    """Whether it is not shown any further."""
    shown: list[Shown] = field(default_factory=list[Shown])
    """What the chat sees of it."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by whoever changes what is shown."""

    def is_of(self, reply: str) -> bool:
        """Whether a reply is what this became, or what it was becoming."""
        if self.done is not None:
            return self.done == reply
        return bool(self.text.strip()) and reply.startswith(self.text.strip())


class Streaming:
    """Watches the sessions in which something was said lately."""

    def __init__(self, live: Live, sending: Sending, *, show: bool) -> None:
        self._live = live
        self._sending = sending
        self._show = show
        self._watches: dict[str, _Watch] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, session: str, place: Place) -> None:
        """Something was said: a turn will follow."""
        watch = self._watches.get(session)
        if watch is not None:
            watch.more(place)
            return
        watch = self._watches[session] = _Watch(self._sending, place, show=self._show)
        held = ExitStack()
        # Here and not in the task: the turn may begin to speak before the task does.
        watch.queue = held.enter_context(self._live.watch(session))
        task = asyncio.create_task(self._run(session, watch), name=f"telegram watch {session}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: held.close())

    @asynccontextmanager
    async def finished(self, session: str, reply: str) -> AsyncGenerator[list[Shown]]:
        """What the chat sees of a reply already, to be made whole; nobody else touches it."""
        watch = self._watches.get(session)
        draft = None if watch is None else watch.draft_of(reply)
        if watch is None or draft is None:
            yield []
            return
        async with draft.lock:
            draft.done = reply
            yield draft.shown
            watch.drafts.remove(draft)

    async def close(self) -> None:
        """Watch no more; what was half written is taken back, for it will be sent whole."""
        for watch in self._watches.values():
            watch.end()
        if self._tasks:
            # What is being sent has no number yet by which it could be taken back.
            await asyncio.wait(self._tasks, timeout=CLOSING)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self, session: str, watch: _Watch) -> None:
        try:
            await watch.run()
        finally:
            if self._watches.get(session) is watch:
                del self._watches[session]
            await watch.take_back()


class _Watch:
    """One session while something happens in it."""

    def __init__(self, sending: Sending, place: Place, *, show: bool) -> None:
        self._sending = sending
        self._show = show
        self._place = place
        self.queue: asyncio.Queue[Heard] = asyncio.Queue()
        self.drafts: list[Draft] = []
        self._current: Draft | None = None
        self._busy = True
        self._heard_at = self._typing_at = time.monotonic()
        self._flush_at = 0.0
        self._woken = asyncio.Event()
        self._over = False

    def more(self, place: Place) -> None:
        """Something else was said."""
        self._place, self._heard_at = place, time.monotonic()
        if not self._busy:
            self._busy, self._typing_at = True, self._heard_at
            self._woken.set()

    def draft_of(self, reply: str) -> Draft | None:
        """The oldest draft of a reply; what was told and not heard yet is heard first."""
        while not self.queue.empty():
            self._hear(self.queue.get_nowait())
        return next((draft for draft in self.drafts if draft.is_of(reply)), None)

    def end(self) -> None:
        """Stop after this step."""
        self._over = True
        self._woken.set()

    async def run(self) -> None:
        while not self._over:
            now = time.monotonic()
            if self._busy and now - self._heard_at > QUIET:
                self._busy = False
            if not self._busy and now - self._heard_at > (KEPT if self.drafts else LINGER):
                return
            if self._busy and now >= self._typing_at:
                self._typing_at = now + TYPING
                await self._sending.typing(self._place)
            draft = self._current
            if draft is not None and draft.dirty and now >= self._flush_at:
                await self._flush(draft)
                self._flush_at = time.monotonic() + self._sending.pace_of(self._place)
            await self._next(self._due())

    def _due(self) -> float:
        """When there is something to do again, whatever is heard."""
        due = self._heard_at + (QUIET if self._busy else KEPT if self.drafts else LINGER)
        if self._busy:
            due = min(due, self._typing_at)
        if self._current is not None and self._current.dirty:
            due = min(due, max(self._flush_at, time.monotonic() + 0.01))
        return due

    async def _next(self, due: float) -> None:
        """Hear what there is, or wait for it until then."""
        self._woken.clear()
        getting = asyncio.ensure_future(self.queue.get())
        waking = asyncio.ensure_future(self._woken.wait())
        try:
            wait = max(0.0, due - time.monotonic()) + 0.001
            await asyncio.wait({getting, waking}, timeout=wait, return_when="FIRST_COMPLETED")
        finally:
            waking.cancel()
            if not getting.cancel():
                self._hear(getting.result())
        while not self.queue.empty():
            self._hear(self.queue.get_nowait())

    def _hear(self, heard: Heard) -> None:
        self._heard_at = time.monotonic()
        self._busy = not isinstance(heard, Ended)
        if not self._show:
            return
        match heard:
            case Piece(kind="text"):
                self._grow(heard.text)
            case Restarted():
                if self._current is not None:
                    self._current.text, self._current.dirty = "", False
            case Replied():
                self._replied(said_to_user(heard.message))
            case Missed():
                if self._current is not None:
                    self._current.muted, self._current.dirty = True, False
            case _:
                pass

    def _grow(self, text: str) -> None:
        draft = self._current
        if draft is None:
            draft = self._current = Draft()
            self.drafts.append(draft)
            # What is there within a moment is not worth a draft.
            self._flush_at = time.monotonic() + self._sending.pace_of(self._place)
        draft.text += text
        draft.dirty = not draft.muted and bool(draft.text.strip())

    def _replied(self, reply: str) -> None:
        draft, self._current = self._current, None
        if draft is None:
            return
        draft.done, draft.dirty = reply, False
        if not draft.shown and not draft.lock.locked():
            self.drafts.remove(draft)

    async def _flush(self, draft: Draft) -> None:
        """Show what has come: one message is sent or changed at a time."""
        if self._sending.wait(self._place) > 0:
            return
        async with draft.lock:
            if draft.done is not None:
                return
            pieces = chunks(from_markdown(draft.text.rstrip() + MORE), ROOM)
            for number, piece in enumerate(pieces):
                if number >= len(draft.shown) or draft.shown[number].what != piece:
                    await self._show_piece(draft, number, piece)
                    break
            else:
                draft.dirty = False

    async def _show_piece(self, draft: Draft, number: int, piece: Styled) -> None:
        await self._sending.slot(self._place)
        try:
            if number < len(draft.shown):
                shown = draft.shown[number]
                await self._sending.edit(self._place, shown.message, piece)
                shown.what = piece
            else:
                place = self._place
                to = place if number == 0 else Place(chat=place.chat, topic=place.topic)
                message = await self._sending.send(to, piece)
                draft.shown.append(Shown(message=message, what=piece))
        except RetryAfter:
            return
        except TelegramError as error:
            log.info("a draft is not shown any further: %s", type(error).__name__)
            draft.muted, draft.dirty = True, False

    async def take_back(self) -> None:
        """Remove what no reply has made its own."""
        for draft in self.drafts:
            for shown in draft.shown:
                await self._sending.delete(self._place, shown.message)
