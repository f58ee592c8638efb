"""What was said while nobody listened: the gateway does not tell it again, the history does."""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import AsyncIterator

import discord

from trimtab.core.event import Said
from trimtab.gateways.discord.bot import Bot
from trimtab.worker.service import Service

SESSIONS = 200
"""Conversations that are looked at, those used last."""
LISTED = 100_000
"""Sessions of the store among which these are looked for."""
MESSAGES = 100
"""Messages of one conversation that are made up for, the oldest."""
BACK = 10_000
"""Events from the end of a log among which the last message from Discord is looked for."""
_PAGE = 1_000

log = logging.getLogger("trimtab.discord")


def key_of(message: int) -> str:
    """By what a message is known in its session."""
    return f"discord:{message}"


async def missed(service: Service, bot: Bot, prefix: str) -> AsyncIterator[discord.Message]:
    """Messages behind the last one known, in each channel that is known, in order."""
    for number, last in (await _places(service, bot, prefix)).items():
        channel = await channel_of(bot, number)
        if not isinstance(channel, discord.abc.Messageable):
            continue
        count = 0
        try:
            after = discord.Object(last)
            async for message in channel.history(after=after, limit=MESSAGES, oldest_first=True):
                count += 1
                yield message
        except discord.DiscordException as error:
            log.warning("what was missed in channel %d is not known: %s", number, error)
        if count == MESSAGES:
            log.warning("channel %d: more than %d messages were missed", number, MESSAGES)


async def channel_of(bot: Bot, number: int) -> object:
    """A channel by its id; None where the bot does not see it."""
    found = bot.get_channel(number)
    if found is not None:
        return found
    for _ in range(3):
        try:
            return await bot.fetch_channel(number)
        except discord.RateLimited as limited:
            await asyncio.sleep(limited.retry_after)
        except (discord.DiscordException, KeyError, TypeError, ValueError) as error:
            log.debug("channel %d cannot be seen: %r", number, error)
            return None
    return None


async def _places(service: Service, bot: Bot, prefix: str) -> dict[int, int]:
    """By channel, the last message known; a thread is known in the channel it was opened in."""
    found: dict[int, int] = {}
    for session in await _sessions(service, prefix):
        name = session.removeprefix(prefix)
        if not name.isdecimal():
            continue
        number, last = int(name), await _last(service, session)
        found[number] = max(last, found.get(number, 0))
        channel = await channel_of(bot, number)
        me = bot.user.id if bot.user is not None else 0
        if isinstance(channel, discord.Thread) and channel.owner_id == me:
            # A thread has the id of the message that it began with.
            found[channel.parent_id] = max(number, found.get(channel.parent_id, 0))
    return {number: last for number, last in found.items() if last}


async def _sessions(service: Service, prefix: str) -> list[str]:
    """Those used last, and those that still wait for their first turn."""
    used: list[tuple[float, str]] = []
    after = prefix
    for _ in range(LISTED // _PAGE):
        page = await service.store.sessions(after=after, limit=_PAGE)
        mine = [one for one in page if one.session.startswith(prefix)]
        used = heapq.nlargest(SESSIONS, [*used, *((one.updated, one.session) for one in mine)])
        if len(mine) < _PAGE:
            break
        after = mine[-1].session
    waiting = [one for one in await service.mail.waiting() if one.startswith(prefix)]
    return list(dict.fromkeys([*(session for _, session in used), *waiting[:SESSIONS]]))


async def _last(service: Service, session: str) -> int:
    """The newest message from Discord that a session was told, or that waits in it; 0 for none."""
    newest, after = 0, 0
    while letters := await service.mail.pending(session, after=after, limit=100):
        newest = max(newest, *(_message(letter.key) for letter in letters))
        after = letters[-1].number
    high, step = await service.store.position(session), 64
    low = max(1, high - BACK)
    while not newest and high >= low:
        first = max(low, high - step + 1)
        async for event in service.store.events(session, [(first, high)]):
            if isinstance(event.body, Said) and event.body.key is not None:
                newest = max(newest, _message(event.body.key))
        high, step = first - 1, step * 2
    return newest


def _message(key: str) -> int:
    """The message's id in a key of ours, or of an edit of it; 0 in any other."""
    door, _, rest = key.partition(":")
    number = rest.partition(":")[0]
    return int(number) if door == "discord" and number.isdecimal() else 0
