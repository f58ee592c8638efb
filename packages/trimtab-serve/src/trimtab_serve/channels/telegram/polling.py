"""Poll Telegram for updates. An update is confirmed only after it is stored."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from telegram import Bot, Update
from telegram.error import BadRequest, Conflict, InvalidToken, RetryAfter, TelegramError

from trimtab.errors import StoreError
from trimtab_serve.channels.telegram.bot_api_client import InvalidTelegramToken
from trimtab_serve.channels.telegram.paced_sender import read_retry_after_seconds
from trimtab_serve.service.retries import compute_backoff_s
from trimtab_serve.service.service import QueueFull
from trimtab_serve.usage.tenant_limits import MessageRateExceeded

FIRST_RETRY_S = 1.0
MAX_RETRY_S = 30.0
"""Seconds before the second attempt, and the maximum before any attempt."""
MAX_UPDATE_ATTEMPTS = 5
"""Maximum number of attempts at an update that fails for a permanent reason."""
CONFLICT_RETRY_S = 5.0
"""Seconds to wait if another process polls the same bot."""

UpdateHandler = Callable[[Update], Awaitable[None]]

log = logging.getLogger("trimtab.telegram")


async def poll_telegram_updates(
    bot: Bot, handle_update: UpdateHandler, *, poll_timeout_s: float, update_kinds: Sequence[str]
) -> None:
    """Handle updates until cancelled. Raises `InvalidTelegramToken`."""
    offset: int | None = None
    failures = 0
    while True:
        try:
            updates = await bot.get_updates(
                offset=offset, timeout=int(poll_timeout_s), allowed_updates=list(update_kinds)
            )
        except TelegramError as error:
            failures += 1
            await asyncio.sleep(_retry_delay(error, failures))
            continue
        failures = 0
        if updates:
            await _handle_updates(updates, handle_update)
            offset = max(update.update_id for update in updates) + 1


async def _handle_updates(updates: Sequence[Update], handle_update: UpdateHandler) -> None:
    """Handle the updates of several chats concurrently, and those of one chat in order."""
    chats: dict[int, list[Update]] = {}
    for update in sorted(updates, key=lambda update: update.update_id):
        message = update.message or update.edited_message
        chats.setdefault(message.chat.id if message is not None else 0, []).append(update)
    await asyncio.gather(*(_handle_chat_updates(of, handle_update) for of in chats.values()))


async def _handle_chat_updates(updates: Sequence[Update], handle_update: UpdateHandler) -> None:
    for update in updates:
        await handle_update_with_retries(update, handle_update)


async def handle_update_with_retries(update: Update, handle_update: UpdateHandler) -> None:
    """Handle an update until it is stored. The store may be unavailable, or the queue full.

    Other errors are retried only a few times, so that a bug does not block all other updates.
    """
    failures = 0
    while True:
        try:
            await handle_update(update)
        except (InvalidTelegramToken, asyncio.CancelledError):
            raise
        except Exception as error:
            failures += 1
            if failures >= MAX_UPDATE_ATTEMPTS and not is_transient_intake_error(error):
                log.exception("update %d failed and was skipped", update.update_id)
                return
            wait = compute_backoff_s(failures, first_s=FIRST_RETRY_S, max_s=MAX_RETRY_S)
            log.warning(
                "update %d could not be stored; retrying in %g s: %s",
                update.update_id,
                wait,
                type(error).__name__,
            )
            await asyncio.sleep(wait)
        else:
            return


def is_transient_intake_error(error: Exception) -> bool:
    """Whether the same update may be stored later."""
    return isinstance(error, StoreError | QueueFull | MessageRateExceeded | TelegramError | OSError)


async def retry_telegram_call_until_done(call: Callable[[], Awaitable[None]]) -> None:
    """Repeat a call until Telegram accepts it."""
    failures = 0
    while True:
        try:
            await call()
        except BadRequest as error:
            raise ValueError(f"Telegram rejected the request: {error.message}") from None
        except TelegramError as error:
            failures += 1
            await asyncio.sleep(_retry_delay(error, failures))
        else:
            return


def _retry_delay(error: TelegramError, failures: int) -> float:
    if isinstance(error, InvalidToken):
        raise InvalidTelegramToken from None
    if isinstance(error, RetryAfter):
        return read_retry_after_seconds(error)
    if isinstance(error, Conflict):
        log.error("another process polls this bot, or a webhook is set; stop one of them")
        return CONFLICT_RETRY_S
    wait = compute_backoff_s(failures, first_s=FIRST_RETRY_S, max_s=MAX_RETRY_S)
    log.warning("Telegram cannot be reached; retrying in %g s: %s", wait, error.message)
    return wait
