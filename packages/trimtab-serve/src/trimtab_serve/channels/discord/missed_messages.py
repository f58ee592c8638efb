"""Find messages that were written while the bot was offline. The gateway does not repeat them."""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import AsyncIterator

import discord

from trimtab.engine.log.event import MessageAdded
from trimtab_serve.channels.discord.gateway_client import DiscordBot
from trimtab_serve.service.service import AgentService

MAX_BACKFILLED_SESSIONS = 200
"""Maximum number of conversations to check, the most recently used ones."""
MAX_LISTED_SESSIONS = 100_000
"""Maximum number of stored sessions among which these are searched."""
MAX_MESSAGES_PER_CHANNEL = 100
"""Maximum number of missed messages of one conversation, the oldest ones."""
MAX_EVENTS_SEARCHED = 10_000
"""Number of events at the end of a log that are searched for the last Discord message."""
_SESSIONS_PER_PAGE = 1_000

log = logging.getLogger("trimtab.discord")


def discord_message_key(message_id: int) -> str:
    """Return the key of a message in its session."""
    return f"discord:{message_id}"


async def iter_missed_discord_messages(
    service: AgentService, bot: DiscordBot, session_prefix: str
) -> AsyncIterator[discord.Message]:
    """Yield the messages after the last known one of each known channel, in order."""
    for number, last in (await _last_message_by_channel(service, bot, session_prefix)).items():
        channel = await fetch_discord_channel(bot, number)
        if not isinstance(channel, discord.abc.Messageable):
            continue
        count = 0
        try:
            after = discord.Object(last)
            async for message in channel.history(
                after=after, limit=MAX_MESSAGES_PER_CHANNEL, oldest_first=True
            ):
                count += 1
                yield message
        except discord.DiscordException as error:
            log.warning("reading missed messages of channel %d failed: %s", number, error)
        if count == MAX_MESSAGES_PER_CHANNEL:
            log.warning(
                "channel %d: more than %d messages were missed", number, MAX_MESSAGES_PER_CHANNEL
            )


async def fetch_discord_channel(bot: DiscordBot, channel_id: int) -> object:
    """Return a channel by its id. None if the bot cannot see it."""
    channel = bot.get_channel(channel_id)
    if channel is not None:
        return channel
    for _ in range(3):
        try:
            return await bot.fetch_channel(channel_id)
        except discord.RateLimited as rate_limit:
            await asyncio.sleep(rate_limit.retry_after)
        except (discord.DiscordException, KeyError, TypeError, ValueError) as error:
            log.debug("channel %d is not visible: %r", channel_id, error)
            return None
    return None


async def _last_message_by_channel(
    service: AgentService, bot: DiscordBot, session_prefix: str
) -> dict[int, int]:
    """Return the last known message by channel. A thread counts for its parent channel."""
    last_messages: dict[int, int] = {}
    for session in await _recent_sessions(service, session_prefix):
        name = session.removeprefix(session_prefix)
        if not name.isdecimal():
            continue
        number = int(name)
        last = await _find_last_message_id(service, session)
        last_messages[number] = max(last, last_messages.get(number, 0))
        channel = await fetch_discord_channel(bot, number)
        me = bot.user.id if bot.user is not None else 0
        if isinstance(channel, discord.Thread) and channel.owner_id == me:
            # A thread has the id of its first message.
            last_messages[channel.parent_id] = max(number, last_messages.get(channel.parent_id, 0))
    return {number: last for number, last in last_messages.items() if last}


async def _recent_sessions(service: AgentService, session_prefix: str) -> list[str]:
    """Return the most recently used sessions, and those that wait for their first turn."""
    recent: list[tuple[float, str]] = []
    after = session_prefix
    for _ in range(MAX_LISTED_SESSIONS // _SESSIONS_PER_PAGE):
        page = await service.store.sessions(after=after, limit=_SESSIONS_PER_PAGE)
        mine = [one for one in page if one.session.startswith(session_prefix)]
        recent = heapq.nlargest(
            MAX_BACKFILLED_SESSIONS, [*recent, *((one.updated, one.session) for one in mine)]
        )
        if len(mine) < _SESSIONS_PER_PAGE:
            break
        after = mine[-1].session
    waiting = [
        one for one in await service.queue.list_waiting_sessions() if one.startswith(session_prefix)
    ]
    return list(
        dict.fromkeys([*(session for _, session in recent), *waiting[:MAX_BACKFILLED_SESSIONS]])
    )


async def _find_last_message_id(service: AgentService, session_id: str) -> int:
    """Return the id of a session's newest Discord message, logged or waiting. 0 if there is
    none."""
    newest = 0
    after = 0
    while waiting := await service.queue.pending(session_id, after=after, limit=100):
        newest = max(newest, *(_parse_message_key(inbound.key) for inbound in waiting))
        after = waiting[-1].number
    high = await service.store.position(session_id)
    step = 64
    low = max(1, high - MAX_EVENTS_SEARCHED)
    while not newest and high >= low:
        first = max(low, high - step + 1)
        async for event in service.store.events(session_id, [(first, high)]):
            if isinstance(event.body, MessageAdded) and event.body.key is not None:
                newest = max(newest, _parse_message_key(event.body.key))
        high = first - 1
        step = step * 2
    return newest


def _parse_message_key(key: str) -> int:
    """Return the message id in one of our keys, or in that of an edit. 0 for any other key."""
    channel, _, rest = key.partition(":")
    number = rest.partition(":")[0]
    return int(number) if channel == "discord" and number.isdecimal() else 0
