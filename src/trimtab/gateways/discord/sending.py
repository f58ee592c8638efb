"""Replies into Discord: each once, as far as Discord lets us know."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import aiohttp
import discord

from trimtab.gateways.discord.bot import Bot
from trimtab.gateways.discord.chunks import LIMIT, chunks
from trimtab.gateways.discord.reading import is_id
from trimtab.worker.delivery import Later, Never
from trimtab.worker.letters import Outbound

MARK = "-# This may be there already: nobody knows whether it arrived.\n"
"""Stands before a reply that is sent again when Discord no longer knows its nonce."""
NONCES = 120.0
"""Seconds in which Discord knows a nonce again: "a few minutes", so we count on two."""
KEPT = 10_000
"""Replies of which it is remembered how far they came."""
UNKNOWN_TOKEN = 401
TOO_MANY = 429


class PartlySent(RuntimeError):
    """A long reply was interrupted behind some of its messages."""


@dataclass(slots=True)
class Begun:
    """How far a reply has come in this process."""

    at: float
    """When it was begun, in seconds since the epoch."""
    sent: int = 0
    """Pieces that are there."""


class Sending:
    """Sends replies through whichever connection there is."""

    def __init__(
        self, bot: Callable[[], Bot | None], *, clock: Callable[[], float] = time.time
    ) -> None:
        self._bot = bot
        self._clock = clock
        self._begun: OrderedDict[str, Begun] = OrderedDict()

    async def send(self, reply: Outbound) -> None:
        """Send one reply, or say when to come again; see `delivery.Deliver`."""
        bot = self._bot()
        if bot is None or not bot.logged_in:
            raise Later(1.0, "Discord is not connected yet")
        channel, reply_to = _address(reply)
        now = self._clock()
        known = self._begun.get(reply.key)
        is_marked = reply.attempts > 0 and (known is None or now - known.at > NONCES)
        begun = self._begun.setdefault(reply.key, Begun(at=now))
        while len(self._begun) > KEPT:
            self._begun.popitem(last=False)
        pieces = chunks(reply.text, LIMIT - len(MARK))
        for index in range(begun.sent, len(pieces)):
            text = f"{MARK}{pieces[index]}" if is_marked and index == 0 else pieces[index]
            nonce = nonce_of(reply.key, index)
            try:
                await self._one(bot, channel, text, nonce, reply_to if index == 0 else None)
            except Later as later:
                if begun.sent and not reply.attempts:
                    # Should this process end, the next must know that some of it was there before.
                    raise PartlySent(f"{begun.sent} of {len(pieces)} messages; {later}") from later
                raise
            begun.sent = index + 1
        self._begun.pop(reply.key, None)

    async def _one(
        self, bot: Bot, channel: int, text: str, nonce: str, reply_to: int | None
    ) -> None:
        place = bot.get_partial_messageable(channel)
        reference = None
        if reply_to is not None:
            reference = discord.MessageReference(
                message_id=reply_to, channel_id=channel, fail_if_not_exists=False
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
        except discord.RateLimited as limited:
            raise Later(limited.retry_after, "Discord asks to wait") from limited
        except discord.HTTPException as error:
            raise _meant(error) from error
        except aiohttp.ClientConnectorError as error:
            raise Later(5.0, f"Discord cannot be reached: {error}") from error


def nonce_of(key: str, index: int) -> str:
    """What Discord knows a piece of a reply by; it takes 25 characters."""
    return hashlib.blake2b(f"{key}#{index}".encode(), digest_size=12).hexdigest()


def _meant(error: discord.HTTPException) -> Exception:
    """What an error says about the reply; itself where nobody knows whether it arrived."""
    told = f"{error.status}, Discord's code {error.code}: {error.text}"
    if error.status == TOO_MANY:
        return Later(_retry_after(error), f"Discord asks to wait: {told}")
    if error.status == UNKNOWN_TOKEN:
        return Later(60.0, "Discord does not accept the token")
    if 400 <= error.status < 500:
        return Never(f"Discord does not take it: {told}")
    return error


def _retry_after(error: discord.HTTPException) -> float:
    try:
        return max(1.0, float(error.response.headers.get("Retry-After", "60")))
    except ValueError:
        return 60.0


def _address(reply: Outbound) -> tuple[int, int | None]:
    address = reply.route.address
    try:
        channel, reply_to = int(address["channel"]), address.get("reply_to")
        if is_id(channel):
            return channel, None if reply_to is None else int(reply_to)
    except (KeyError, TypeError, ValueError):
        pass
    raise Never(f"no channel of Discord is named by {dict(address)!r}")
