"""What comes from Discord, handed in: who may, where it belongs, in order, once."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Literal

import aiohttp
import discord

from trimtab.agent.doors import Discord
from trimtab.core.message import Message, Text, text_message
from trimtab.gateways.discord.answering import answer
from trimtab.gateways.discord.attachments import all_taken
from trimtab.gateways.discord.bot import Bot
from trimtab.gateways.discord.chunks import chunks
from trimtab.gateways.discord.indicator import Indicator
from trimtab.gateways.discord.missed import channel_of, key_of, missed
from trimtab.gateways.discord.pace import Pace
from trimtab.gateways.discord.reading import (
    is_addressed,
    is_direct,
    is_spoken,
    title_of,
    words_of,
)
from trimtab.gateways.discord.who import Sender, is_allowed
from trimtab.gateways.verbs import Told, obeyed
from trimtab.stores.errors import StoreError
from trimtab.worker.letters import Inbound, Route
from trimtab.worker.naming import TENANT, Address
from trimtab.worker.service import Service

TRIES = 10
"""Attempts to keep what came in."""
MISSED = 120.0
"""Seconds that looking for what was missed may take before what comes now is heard."""
THREADS = 1_000
"""Threads that the library does not know of and that are kept in mind here."""
FAILED = "This did not work. The operator can see why in the log."
ARCHIVED: Literal[10080] = 10_080
"""Minutes without a word after which Discord puts a thread aside: a week, the longest."""
HAS_THREAD = 160004
"""Discord's code for a message that has a thread already."""

UNKEPT = (StoreError, discord.DiscordException, aiohttp.ClientError, OSError, RuntimeError)
"""What may be over the next time: also a crowd, and a connection that was closed meanwhile."""

log = logging.getLogger("trimtab.discord")


class Hearing:
    """What one agent hears from Discord."""

    def __init__(
        self, service: Service, agent: str, block: Discord, indicator: Indicator, pace: Pace
    ) -> None:
        self._service = service
        self._agent = agent
        self._block = block
        self._indicator = indicator
        self._pace = pace
        self._prefix = f"{TENANT}/{agent}/discord:"
        self._lanes: dict[int, asyncio.Lock] = {}
        self._users: dict[int, int] = {}
        self._threads: dict[int, discord.Thread] = {}
        self._bot: Bot | None = None
        self._caught_up = asyncio.Event()
        self._catching = asyncio.Lock()
        self._working: set[asyncio.Task[object]] = set()

    def hold(self, bot: Bot) -> None:
        """What comes now waits for what came before it."""
        self._bot = bot
        self._caught_up.clear()

    async def missed(self, bot: Bot) -> None:
        """Hand in what was said while nobody listened, then let on what has come since."""
        async with self._catching:
            try:
                async with asyncio.timeout(MISSED):
                    async for message in missed(self._service, bot, self._prefix):
                        await self._taken(bot, message, edited=False)
            except Exception:
                log.exception("what was missed could not be made up for")
            finally:
                self._caught_up.set()

    async def message(self, bot: Bot, message: discord.Message, *, edited: bool = False) -> None:
        """Hand in what somebody has written."""
        # Nothing may be waited for before the lane is asked for: tasks begin in the order in which
        # Discord told of them, and the lane keeps it.
        async with self._lane(message.channel.id):
            await self._caught_up.wait()
            await self._taken(bot, message, edited=edited)

    async def command(self, interaction: discord.Interaction[Bot], verb: str, words: str) -> None:
        """Do what a slash command says, and tell the one who asked, and nobody else."""
        channel, user = interaction.channel, interaction.user
        place = await self._place(interaction.client, channel)
        if channel is None or place is None:
            return
        sender = _sender(user.id, channel.id, place, interaction.guild_id)
        if user.bot or not is_allowed(self._block, sender):
            log.info("not answered: /%s of %s", verb, sender)
            return
        try:
            # Within three seconds, whatever comes behind it.
            await interaction.response.defer(ephemeral=True, thinking=True)
        except discord.HTTPException as error:
            log.warning("/%s came too late or again, and is not answered: %s", verb, error)
            return
        # Behind what was written before it.
        async with self._lane(channel.id):
            try:
                told = await obeyed(
                    self._service, self._session(channel.id), verb, words, key=f"/{interaction.id}"
                )
            except Exception:
                log.exception("/%s failed in channel %d", verb, channel.id)
                told = Told(text=FAILED)
        await answer(interaction, told)

    async def settle(self, seconds: float) -> None:
        """Wait until all that has come is kept."""
        if self._working:
            await asyncio.wait(set(self._working), timeout=seconds)

    def _session(self, channel: int) -> str:
        return str(Address(tenant=TENANT, agent=self._agent, name=f"discord:{channel}"))

    async def _taken(self, bot: Bot, message: discord.Message, *, edited: bool) -> None:
        """Keep what is meant for the agent, however often that must be tried."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - this is a coroutine
        is_outer = task not in self._working
        self._working.add(task)
        try:
            await self._kept(bot, message, edited=edited)
        except Exception as error:  # noqa: BLE001 - whatever Discord sends, the bot goes on
            log.warning("message %s could not be read: %r", message.id, error)
        finally:
            if is_outer:
                self._working.discard(task)

    async def _kept(self, bot: Bot, message: discord.Message, *, edited: bool) -> None:
        for attempt in range(TRIES):
            try:
                # What came through a connection that has ended goes on through the next.
                await self._take(self._bot or bot, message, edited=edited)
            except UNKEPT as error:
                log.warning("message %d is not kept yet: %r", message.id, error)
                wait = self._pace.keeping * 2**attempt
                await asyncio.sleep(min(wait, self._pace.longest))
            else:
                return
        log.error("message %d is not kept, after %d attempts", message.id, TRIES)

    async def _take(self, bot: Bot, message: discord.Message, *, edited: bool) -> None:
        me = _me(bot)
        if not is_spoken(message) or message.author.id == me:
            return
        place = await self._place(bot, message.channel)
        if place is None or not self._is_meant(message, place, me):
            return
        guild = message.guild.id if message.guild is not None else None
        guild = guild or getattr(message.channel, "guild_id", None)
        sender = _sender(message.author.id, message.channel.id, place, guild)
        if not is_allowed(self._block, sender):
            log.info("not answered: %s", sender)
            return
        channel = await self._room(bot, message, place)
        session, key = self._session(channel), key_of(message.id)
        before = await self._service.said_under(session, key)
        if before is not None:
            if not edited or _first(before) == words_of(message, me):
                return  # it came again, or a preview was added to it
            key = f"{key}:{int((message.edited_at or message.created_at).timestamp() * 1_000)}"
        said, refusals = await self._message(
            session, message, words_of(message, me, edited=before is not None)
        )
        is_alone = is_direct(message) or channel != message.channel.id or _is_own(place, me)
        address = {"channel": channel, "reply_to": None if is_alone else message.id}
        letter = Inbound(
            session=session,
            message=said,
            key=key,
            at=time.time(),
            route=Route(door="discord", address=address),
        )
        self._indicator.begin(session, channel)
        if not await self._service.post(letter):
            self._indicator.replied(session)  # it is known already
        elif refusals:
            await _tell(bot, channel, "\n".join(refusals))

    async def _place(self, bot: Bot, channel: object) -> object:
        """The channel, with what it belongs to; None where that is not known."""
        if isinstance(channel, discord.DMChannel):
            # The library takes for direct whatever names no server.
            known = bot.get_channel(channel.id)
            return channel if known is None or isinstance(known, discord.DMChannel) else None
        if not isinstance(channel, discord.PartialMessageable):
            return channel
        # Without its parent nobody can say whether a thread is allowed.
        if channel.id not in self._threads:
            found = await channel_of(bot, channel.id)
            if not isinstance(found, discord.Thread):
                return found
            self._threads[channel.id] = found
            while len(self._threads) > THREADS:
                del self._threads[next(iter(self._threads))]
        return self._threads[channel.id]

    def _is_meant(self, message: discord.Message, place: object, me: int) -> bool:
        return is_direct(message) or _is_own(place, me) or is_addressed(message, me)

    async def _room(self, bot: Bot, message: discord.Message, place: object) -> int:
        """Where the conversation is held: a thread of its own where that is wanted and may be."""
        if not self._block.threads or not isinstance(place, discord.TextChannel):
            return message.channel.id
        try:
            # It has the id of the message it begins with, so a second attempt finds the first's.
            await bot.http.start_thread_with_message(
                message.channel.id,
                message.id,
                name=title_of(message, _me(bot)),
                auto_archive_duration=ARCHIVED,
            )
        except discord.HTTPException as error:
            if error.code == HAS_THREAD:
                return message.id
            if error.status >= 500:
                raise
            log.info("no thread in channel %d: %s", message.channel.id, error)
            return message.channel.id
        return message.id

    async def _message(
        self, session: str, message: discord.Message, text: str
    ) -> tuple[Message, list[str]]:
        """What is said to the agent, and what its sender is told of files that were not taken."""
        if not message.attachments:
            return text_message("user", text), []
        takes = self._service.agent_of(session).takes
        files = await all_taken(message, takes=takes, most=self._block.max_file)
        words = (Text(text=text),) if text else ()
        parts = (*words, *(file.part for file in files))
        refusals = [file.refusal for file in files if file.refusal]
        return Message(role="user", parts=parts, plain=False), refusals

    @asynccontextmanager
    async def _lane(self, channel: int) -> AsyncGenerator[None]:
        """One at a time in a channel, in the order in which they asked."""
        lane = self._lanes.setdefault(channel, asyncio.Lock())
        self._users[channel] = self._users.get(channel, 0) + 1
        try:
            async with lane:
                yield
        finally:
            self._users[channel] -= 1
            if not self._users[channel]:
                del self._users[channel], self._lanes[channel]


async def _tell(bot: Bot, channel: int, text: str) -> None:
    """Say something beside the outbox; where it does not arrive, the model tells it as well."""
    try:
        for piece in chunks(text):
            await bot.get_partial_messageable(channel).send(piece)
    except (discord.DiscordException, aiohttp.ClientError, OSError) as error:
        log.warning("what was said of a file did not go out: %r", error)


def _me(bot: Bot) -> int:
    return bot.user.id if bot.user is not None else 0


def _first(message: Message) -> str:
    """The words of a message of ours, which come before its files."""
    parts = message.parts
    return parts[0].text if parts and isinstance(parts[0], Text) else ""


def _is_own(place: object, me: int) -> bool:
    """Whether it is a thread that the bot has opened: all that is said there is said to it."""
    return isinstance(place, discord.Thread) and place.owner_id == me


def _sender(user: int, channel: int, place: object, guild: int | None) -> Sender:
    parent = place.parent_id if isinstance(place, discord.Thread) else None
    return Sender(user=user, channel=channel, parent=parent, guild=guild)
