"""Send replies to Discord, once as far as Discord allows."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable

import aiohttp
import discord

from trimtab_serve.channels.discord.gateway_client import DiscordBot
from trimtab_serve.channels.discord.inbound_text import is_discord_snowflake
from trimtab_serve.channels.discord.message_splitting import (
    MAX_MESSAGE_UTF16_UNITS,
    split_discord_message,
)
from trimtab_serve.channels.reply_progress import ReplyProgress, ReplyProgressTracker
from trimtab_serve.queue.messages import OutboundMessage
from trimtab_serve.service.delivery import RetryDelivery, Undeliverable

RESENT_NOTICE = "-# Sent again: this message may already have arrived.\n"
"""Precedes a reply that is sent again after Discord has forgotten its nonce."""
NONCE_TTL_S = 120.0
"""Seconds for which Discord remembers a nonce. It documents "a few minutes", so we assume two."""
HTTP_UNAUTHORIZED = 401
HTTP_TOO_MANY_REQUESTS = 429


class DiscordReplySender:
    """Sends replies through the current connection."""

    def __init__(
        self, get_bot: Callable[[], DiscordBot | None], *, clock: Callable[[], float] = time.time
    ) -> None:
        self._get_bot = get_bot
        self._clock = clock
        self._progress_tracker = ReplyProgressTracker(clock=clock)

    async def send_reply(self, reply: OutboundMessage) -> None:
        """Send one reply. Raises the errors of `delivery.DeliverReply`."""
        bot = self._get_bot()
        if bot is None or not bot.logged_in:
            raise RetryDelivery(1.0, "Discord is not connected yet")
        channel, reply_to = _parse_channel_address(reply)
        pieces = split_discord_message(reply.text, MAX_MESSAGE_UTF16_UNITS - len(RESENT_NOTICE))
        async with self._progress_tracker.track_attempt(reply) as progress:
            for index in range(progress.sent_pieces, len(pieces)):
                text = pieces[index]
                if self._may_arrive_twice(progress):
                    text = f"{RESENT_NOTICE}{text}"
                nonce = compute_message_nonce(reply.key, index)
                with progress.sending_piece(index):
                    await self._send_piece(
                        bot, channel, text, nonce, reply_to if index == 0 else None
                    )

    def _may_arrive_twice(self, progress: ReplyProgress) -> bool:
        """Whether the next piece may already have arrived, and Discord may have forgotten its
        nonce."""
        since = progress.unconfirmed_since
        return since is not None and self._clock() - since > NONCE_TTL_S

    async def _send_piece(
        self, bot: DiscordBot, channel_id: int, text: str, nonce: str, reply_to: int | None
    ) -> None:
        place = bot.get_partial_messageable(channel_id)
        reference = None
        if reply_to is not None:
            reference = discord.MessageReference(
                message_id=reply_to, channel_id=channel_id, fail_if_not_exists=False
            )
        none = discord.AllowedMentions.none()
        try:
            if reference is None:
                await place.send(text, nonce=nonce, allowed_mentions=none)
            else:
                await place.send(
                    text,
                    nonce=nonce,
                    allowed_mentions=none,
                    reference=reference,
                    mention_author=False,
                )
        except discord.RateLimited as rate_limit:
            raise RetryDelivery(rate_limit.retry_after, "Discord asks to wait") from rate_limit
        except discord.HTTPException as error:
            raise _classify_http_error(error) from error
        except aiohttp.ClientConnectorError as error:
            raise RetryDelivery(5.0, f"Discord cannot be reached: {error}") from error


def compute_message_nonce(reply_key: str, piece_index: int) -> str:
    """Return the nonce of a piece of a reply. Discord allows 25 characters."""
    return hashlib.blake2b(f"{reply_key}#{piece_index}".encode(), digest_size=12).hexdigest()


def _classify_http_error(error: discord.HTTPException) -> Exception:
    """Return the delivery error for an HTTP error. If the outcome is unknown, return the error
    itself."""
    reason = f"{error.status}, Discord's code {error.code}: {error.text}"
    if error.status == HTTP_TOO_MANY_REQUESTS:
        return RetryDelivery(_read_retry_after(error), f"Discord asks to wait: {reason}")
    if error.status == HTTP_UNAUTHORIZED:
        return RetryDelivery(60.0, "Discord does not accept the token")
    if 400 <= error.status < 500:
        return Undeliverable(f"Discord rejected the message: {reason}")
    return error


def _read_retry_after(error: discord.HTTPException) -> float:
    try:
        return max(1.0, float(error.response.headers.get("Retry-After", "60")))
    except ValueError:
        return 60.0


def _parse_channel_address(reply: OutboundMessage) -> tuple[int, int | None]:
    address = reply.route.address
    try:
        channel = int(address["channel"])
        reply_to = address.get("reply_to")
        if is_discord_snowflake(channel):
            return channel, None if reply_to is None else int(reply_to)
    except (KeyError, TypeError, ValueError):
        pass
    raise Undeliverable(f"invalid Discord channel in the reply's address {dict(address)!r}")
