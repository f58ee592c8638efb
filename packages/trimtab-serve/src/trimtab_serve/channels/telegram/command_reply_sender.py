"""Send answers to commands and notices about files, in order and outside the outbox.

If one does not arrive, the user can send the command again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from telegram.error import RetryAfter, TelegramError

from trimtab_serve.channels.keyed_locks import KeyedLocks
from trimtab_serve.channels.telegram.message_splitting import (
    MAX_MESSAGE_UTF16_UNITS,
    split_telegram_message,
)
from trimtab_serve.channels.telegram.paced_sender import TelegramSender, TelegramTarget
from trimtab_serve.channels.telegram.styled_text import StyledText, StyleSpan
from trimtab_serve.channels.utf16 import count_utf16_units

MAX_CAPTION_UTF16_UNITS = 1_024
"""Maximum length of a picture's caption in UTF-16 units."""
MAX_SEND_ATTEMPTS = 3
"""Maximum number of attempts if Telegram asks to wait."""
MAX_RATE_LIMIT_WAIT_S = 120.0
"""Maximum number of seconds that an answer waits."""
CLOSE_TIMEOUT_S = 5.0
"""Seconds for running sends to end when the channel closes."""

log = logging.getLogger("trimtab.telegram")


class CommandReplySender:
    """Sends answers to commands in tasks of its own, so a slow one delays no others."""

    def __init__(self, sender: TelegramSender) -> None:
        self._sender = sender
        self._tasks: set[asyncio.Task[None]] = set()
        self._chat_locks = KeyedLocks()

    def send_text(self, target: TelegramTarget, text: str, *, monospace: bool = False) -> None:
        """Send a text, in a monospaced font if it has columns."""
        self._start_task(target, self._send_text(target, text, monospace=monospace))

    def send_image_or_text(self, target: TelegramTarget, png: bytes | None, text: str) -> None:
        """Send a picture with its text under it, or only the text."""
        self._start_task(target, self._send_image_or_text(target, png, text))

    async def close(self) -> None:
        """Wait a moment for the running sends to end."""
        if self._tasks:
            _, unfinished_tasks = await asyncio.wait(self._tasks, timeout=CLOSE_TIMEOUT_S)
            for task in unfinished_tasks:
                task.cancel()

    def _start_task(self, target: TelegramTarget, sending: Awaitable[None]) -> None:
        # Locks are fair and tasks begin in order, so the answers of a chat are sent in order.
        task = asyncio.create_task(self._send_in_order(target, sending))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send_in_order(self, target: TelegramTarget, sending: Awaitable[None]) -> None:
        async with self._chat_locks.hold(target.chat):
            try:
                await sending
            except TelegramError as error:
                log.warning("sending the reply to a command failed: %s", type(error).__name__)

    async def _send_text(self, target: TelegramTarget, text: str, *, monospace: bool) -> None:
        for part in split_telegram_message(
            _monospaced_text(text) if monospace else StyledText(text=text), MAX_MESSAGE_UTF16_UNITS
        ):
            await self._retry_rate_limited(target, partial(self._sender.send_message, target, part))

    async def _send_image_or_text(
        self, target: TelegramTarget, png: bytes | None, text: str
    ) -> None:
        if png is not None and count_utf16_units(text) <= MAX_CAPTION_UTF16_UNITS:
            try:
                caption = _monospaced_text(text)
                await self._retry_rate_limited(
                    target, partial(self._sender.send_photo, target, png, caption)
                )
            except RetryAfter:
                raise
            except TelegramError as error:
                log.warning("sending the context image failed: %s", type(error).__name__)
            else:
                return
        await self._send_text(target, text, monospace=True)

    async def _retry_rate_limited(
        self, target: TelegramTarget, send: Callable[[], Awaitable[object]]
    ) -> None:
        """Make a call, and repeat it if Telegram asks to wait."""
        for attempt in range(1, MAX_SEND_ATTEMPTS + 1):
            await asyncio.sleep(min(MAX_RATE_LIMIT_WAIT_S, self._sender.rate_limit_wait_s(target)))
            await self._sender.wait_for_slot(target)
            try:
                await send()
            except RetryAfter:
                if (
                    attempt == MAX_SEND_ATTEMPTS
                    or self._sender.rate_limit_wait_s(target) > MAX_RATE_LIMIT_WAIT_S
                ):
                    raise
            else:
                return


def _monospaced_text(text: str) -> StyledText:
    return StyledText(text=text, spans=(StyleSpan(kind="pre", start=0, end=len(text)),))
