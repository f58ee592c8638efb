"""What commands say: at once and in order, beside whatever else is taken in.

It does not go through the outbox. If it does not arrive, the person asks again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from weakref import WeakValueDictionary

from telegram.error import RetryAfter, TelegramError

from trimtab.gateways.telegram.chunks import LIMIT, chunks
from trimtab.gateways.telegram.sending import Place, Sending
from trimtab.gateways.telegram.styled import Mark, Styled
from trimtab.gateways.utf16 import units

CAPTION = 1_024
"""Units under a picture."""
TRIES = 3
"""Attempts where Telegram asks to wait."""
LONGEST = 120.0
"""Seconds that an answer waits at most."""
PATIENCE = 5.0
"""Seconds that those under way have to end at the close."""

log = logging.getLogger("trimtab.telegram")


class Answering:
    """Sends answers to commands from tasks of its own: whoever waits holds nobody else up."""

    def __init__(self, sending: Sending) -> None:
        self._sending = sending
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()

    def say(self, place: Place, text: str, *, block: bool = False) -> None:
        """Tell the chat; a `block` is shown in letters of one width."""
        self._begin(place, self._said(place, text, block=block))

    def show(self, place: Place, png: bytes | None, text: str) -> None:
        """A picture with the same in letters under it, or the letters alone."""
        self._begin(place, self._shown(place, png, text))

    async def close(self) -> None:
        """Let what is under way end, for a moment."""
        if self._tasks:
            _, left = await asyncio.wait(self._tasks, timeout=PATIENCE)
            for task in left:
                task.cancel()

    def _begin(self, place: Place, sending: Awaitable[None]) -> None:
        # Locks are fair, and tasks begin in order: so the answers of a chat go out in order.
        turn = self._turns.setdefault(place.chat, asyncio.Lock())
        task = asyncio.create_task(self._in_turn(turn, sending))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _in_turn(self, turn: asyncio.Lock, sending: Awaitable[None]) -> None:
        async with turn:
            try:
                await sending
            except TelegramError as error:
                told = type(error).__name__
                log.warning("the answer to a command did not go out: %s", told)

    async def _said(self, place: Place, text: str, *, block: bool) -> None:
        for part in chunks(_block(text) if block else Styled(text=text), LIMIT):
            await self._patiently(place, partial(self._sending.send, place, part))

    async def _shown(self, place: Place, png: bytes | None, text: str) -> None:
        if png is not None and units(text) <= CAPTION:
            try:
                caption = _block(text)
                await self._patiently(place, partial(self._sending.photo, place, png, caption))
            except RetryAfter:
                raise
            except TelegramError as error:
                told = type(error).__name__
                log.warning("the picture of a context did not go out: %s", told)
            else:
                return
        await self._said(place, text, block=True)

    async def _patiently(self, place: Place, act: Callable[[], Awaitable[object]]) -> None:
        """Do it, and again where Telegram asks to wait."""
        for attempt in range(1, TRIES + 1):
            await asyncio.sleep(min(LONGEST, self._sending.wait(place)))
            await self._sending.slot(place)
            try:
                await act()
            except RetryAfter:
                if attempt == TRIES or self._sending.wait(place) > LONGEST:
                    raise
            else:
                return


def _block(text: str) -> Styled:
    return Styled(text=text, marks=(Mark(kind="pre", start=0, end=len(text)),))
