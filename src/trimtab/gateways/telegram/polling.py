"""Asking Telegram for news: an update is confirmed when it is kept, and not before."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from telegram import Bot, Update
from telegram.error import BadRequest, Conflict, InvalidToken, RetryAfter, TelegramError

from trimtab.gateways.telegram.client import BadToken
from trimtab.gateways.telegram.sending import seconds_of
from trimtab.stores.errors import StoreError
from trimtab.worker.service import Crowded

FIRST, LONGEST = 0.5, 30.0
"""Seconds before the second attempt, and at most before any."""
TRIES = 5
"""Attempts at an update that fails for no reason that passes."""
RIVAL = 5.0
"""Seconds to wait where another process asks for the same bot's news."""

Take = Callable[[Update], Awaitable[None]]

log = logging.getLogger("trimtab.telegram")


async def poll(bot: Bot, take: Take, *, seconds: float, kinds: Sequence[str]) -> None:
    """Take in what comes, until cancelled. Raises `BadToken`."""
    offset: int | None = None
    failures = 0
    while True:
        try:
            updates = await bot.get_updates(
                offset=offset, timeout=int(seconds), allowed_updates=list(kinds)
            )
        except TelegramError as error:
            failures += 1
            await asyncio.sleep(_wait(error, failures))
            continue
        failures = 0
        if updates:
            await _all(updates, take)
            offset = max(update.update_id for update in updates) + 1


async def _all(updates: Sequence[Update], take: Take) -> None:
    """Chats side by side, each in order."""
    chats: dict[int, list[Update]] = {}
    for update in sorted(updates, key=lambda update: update.update_id):
        message = update.message or update.edited_message
        chats.setdefault(message.chat.id if message is not None else 0, []).append(update)
    await asyncio.gather(*(_one_chat(of, take) for of in chats.values()))


async def _one_chat(updates: Sequence[Update], take: Take) -> None:
    for update in updates:
        await insist(update, take)


async def insist(update: Update, take: Take) -> None:
    """Until it is kept: the store may be away, or too much may wait.

    What fails for no such reason is tried a few times: a fault of ours must not hold up all others.
    """
    failures = 0
    while True:
        try:
            await take(update)
        except (BadToken, asyncio.CancelledError):
            raise
        except Exception as error:
            failures += 1
            if failures >= TRIES and not passes(error):
                log.exception("update %d is given up", update.update_id)
                return
            wait = min(LONGEST, FIRST * 2 ** min(failures, 10))
            log.warning(
                "update %d could not be kept, again in %g s: %s",
                update.update_id,
                wait,
                type(error).__name__,
            )
            await asyncio.sleep(wait)
        else:
            return


def passes(error: Exception) -> bool:
    """Whether the same update may well be kept later."""
    return isinstance(error, StoreError | Crowded | TelegramError | OSError)


async def patiently(act: Callable[[], Awaitable[None]]) -> None:
    """Until Telegram has done it."""
    failures = 0
    while True:
        try:
            await act()
        except BadRequest as error:
            raise ValueError(f"Telegram refuses it: {error.message}") from None
        except TelegramError as error:
            failures += 1
            await asyncio.sleep(_wait(error, failures))
        else:
            return


def _wait(error: TelegramError, failures: int) -> float:
    if isinstance(error, InvalidToken):
        raise BadToken from None
    if isinstance(error, RetryAfter):
        return seconds_of(error)
    if isinstance(error, Conflict):
        log.error("another process asks for this bot's news, or a webhook is set; stop one of them")
        return RIVAL
    wait = min(LONGEST, FIRST * 2 ** min(failures, 10))
    log.warning("Telegram cannot be reached, again in %g s: %s", wait, error.message)
    return wait
