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

from trimtab.agent.config.spec import DiscordSpec
from trimtab.errors import StoreError
from trimtab.log.message import Message, Text, make_text_message
from trimtab.server.channels.commands import CommandReply, run_chat_command
from trimtab.server.channels.discord.access import DiscordMessageOrigin, is_discord_origin_allowed
from trimtab.server.channels.discord.attachments import convert_discord_attachments
from trimtab.server.channels.discord.backfill import (
    discord_message_key,
    fetch_discord_channel,
    fetch_missed_discord_messages,
)
from trimtab.server.channels.discord.bot import DiscordBot
from trimtab.server.channels.discord.chunking import split_discord_message
from trimtab.server.channels.discord.command_replies import send_slash_command_reply
from trimtab.server.channels.discord.parsing import (
    build_thread_title,
    format_discord_message_for_agent,
    is_addressed_to_discord_bot,
    is_direct_message,
    is_written_by_person,
)
from trimtab.server.channels.discord.timing import DiscordTiming
from trimtab.server.channels.discord.typing_indicator import TypingIndicator
from trimtab.server.queue.messages import InboundMessage, ReplyRoute
from trimtab.server.service import AgentService
from trimtab.server.session_ids import DEFAULT_TENANT, SessionAddress

MAX_INTAKE_ATTEMPTS = 10
"""Attempts to keep what came in."""
BACKFILL_TIMEOUT_S = 120.0
"""Seconds that looking for what was missed may take before what comes now is heard."""
MAX_CACHED_THREADS = 1_000
"""Threads that the library does not know of and that are kept in mind here."""
COMMAND_FAILED_TEXT = "This did not work. The operator can see why in the log."
THREAD_ARCHIVE_MINUTES: Literal[10080] = 10_080
"""Minutes without a word after which Discord puts a thread aside: a week, the longest."""
THREAD_EXISTS_CODE = 160004
"""Discord's code for a message that has a thread already."""

RETRYABLE_INTAKE_ERRORS = (
    StoreError,
    discord.DiscordException,
    aiohttp.ClientError,
    OSError,
    RuntimeError,
)
"""What may be over the next time: also a crowd, and a connection that was closed meanwhile."""

log = logging.getLogger("trimtab.discord")


class DiscordMessageIntake:
    """What one agent hears from Discord."""

    def __init__(
        self,
        service: AgentService,
        agent_name: str,
        config: DiscordSpec,
        typing_indicator: TypingIndicator,
        timing: DiscordTiming,
    ) -> None:
        self._service = service
        self._agent_name = agent_name
        self._config = config
        self._typing_indicator = typing_indicator
        self._timing = timing
        self._session_prefix = f"{DEFAULT_TENANT}/{agent_name}/discord:"
        self._channel_locks: dict[int, asyncio.Lock] = {}
        self._lock_users: dict[int, int] = {}
        self._threads: dict[int, discord.Thread] = {}
        self._bot: DiscordBot | None = None
        self._caught_up = asyncio.Event()
        self._backfill_lock = asyncio.Lock()
        self._intake_tasks: set[asyncio.Task[object]] = set()

    def pause_until_caught_up(self, bot: DiscordBot) -> None:
        """What comes now waits for what came before it."""
        self._bot = bot
        self._caught_up.clear()

    async def catch_up(self, bot: DiscordBot) -> None:
        """Hand in what was said while nobody listened, then let on what has come since."""
        async with self._backfill_lock:
            try:
                async with asyncio.timeout(BACKFILL_TIMEOUT_S):
                    async for message in fetch_missed_discord_messages(
                        self._service, bot, self._session_prefix
                    ):
                        await self._accept(bot, message, edited=False)
            except Exception:
                log.exception("what was missed could not be made up for")
            finally:
                self._caught_up.set()

    async def handle_message(
        self, bot: DiscordBot, message: discord.Message, *, edited: bool = False
    ) -> None:
        """Hand in what somebody has written."""
        # Nothing may be waited for before the lane is asked for: tasks begin in the order in which
        # Discord told of them, and the lane keeps it.
        async with self._hold_channel_lock(message.channel.id):
            await self._caught_up.wait()
            await self._accept(bot, message, edited=edited)

    async def handle_command(
        self, interaction: discord.Interaction[DiscordBot], command: str, argument: str
    ) -> None:
        """Do what a slash command says, and tell the one who asked, and nobody else."""
        channel, user = interaction.channel, interaction.user
        place = await self._resolve_channel(interaction.client, channel)
        if channel is None or place is None:
            return
        sender = _build_origin(user.id, channel.id, place, interaction.guild_id)
        if user.bot or not is_discord_origin_allowed(self._config, sender):
            log.info("not answered: /%s of %s", command, sender)
            return
        try:
            # Within three seconds, whatever comes behind it.
            await interaction.response.defer(ephemeral=True, thinking=True)
        except discord.HTTPException as error:
            log.warning("/%s came too late or again, and is not answered: %s", command, error)
            return
        # Behind what was written before it.
        async with self._hold_channel_lock(channel.id):
            try:
                told = await run_chat_command(
                    self._service,
                    self._session_id_for(channel.id),
                    command,
                    argument,
                    idempotency_key=f"/{interaction.id}",
                )
            except Exception:
                log.exception("/%s failed in channel %d", command, channel.id)
                told = CommandReply(text=COMMAND_FAILED_TEXT)
        await send_slash_command_reply(interaction, told)

    async def wait_until_idle(self, timeout_s: float) -> None:
        """Wait until all that has come is kept."""
        if self._intake_tasks:
            await asyncio.wait(set(self._intake_tasks), timeout=timeout_s)

    def _session_id_for(self, channel_id: int) -> str:
        return str(
            SessionAddress(
                tenant=DEFAULT_TENANT, agent=self._agent_name, name=f"discord:{channel_id}"
            )
        )

    async def _accept(self, bot: DiscordBot, message: discord.Message, *, edited: bool) -> None:
        """Keep what is meant for the agent, however often that must be tried."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - this is a coroutine
        is_outer = task not in self._intake_tasks
        self._intake_tasks.add(task)
        try:
            await self._accept_with_retries(bot, message, edited=edited)
        except Exception as error:  # noqa: BLE001 - whatever Discord sends, the bot goes on
            log.warning("message %s could not be read: %r", message.id, error)
        finally:
            if is_outer:
                self._intake_tasks.discard(task)

    async def _accept_with_retries(
        self, bot: DiscordBot, message: discord.Message, *, edited: bool
    ) -> None:
        for attempt in range(MAX_INTAKE_ATTEMPTS):
            try:
                # What came through a connection that has ended goes on through the next.
                await self._post_message(self._bot or bot, message, edited=edited)
            except RETRYABLE_INTAKE_ERRORS as error:
                log.warning("message %d is not kept yet: %r", message.id, error)
                wait = self._timing.first_intake_retry_s * 2**attempt
                await asyncio.sleep(min(wait, self._timing.max_retry_wait_s))
            else:
                return
        log.error("message %d is not kept, after %d attempts", message.id, MAX_INTAKE_ATTEMPTS)

    async def _post_message(
        self, bot: DiscordBot, message: discord.Message, *, edited: bool
    ) -> None:
        me = _bot_user_id(bot)
        if not is_written_by_person(message) or message.author.id == me:
            return
        place = await self._resolve_channel(bot, message.channel)
        if place is None or not self._is_for_bot(message, place, me):
            return
        guild = message.guild.id if message.guild is not None else None
        guild = guild or getattr(message.channel, "guild_id", None)
        sender = _build_origin(message.author.id, message.channel.id, place, guild)
        if not is_discord_origin_allowed(self._config, sender):
            log.info("not answered: %s", sender)
            return
        channel = await self._find_conversation_channel(bot, message, place)
        session, key = self._session_id_for(channel), discord_message_key(message.id)
        before = await self._service.find_message_by_key(session, key)
        if before is not None:
            if not edited or _leading_text(before) == format_discord_message_for_agent(message, me):
                return  # it came again, or a preview was added to it
            key = f"{key}:{int((message.edited_at or message.created_at).timestamp() * 1_000)}"
        said, refusals = await self._build_message(
            session,
            message,
            format_discord_message_for_agent(message, me, edited=before is not None),
        )
        is_alone = (
            is_direct_message(message) or channel != message.channel.id or _is_own_thread(place, me)
        )
        address = {"channel": channel, "reply_to": None if is_alone else message.id}
        letter = InboundMessage(
            session=session,
            message=said,
            key=key,
            at=time.time(),
            route=ReplyRoute(channel="discord", address=address),
        )
        self._typing_indicator.start(session, channel)
        if not await self._service.post(letter):
            self._typing_indicator.on_reply_sent(session)  # it is known already
        elif refusals:
            await _send_notice(bot, channel, "\n".join(refusals))

    async def _resolve_channel(self, bot: DiscordBot, channel: object) -> object:
        """The channel, with what it belongs to; None where that is not known."""
        if isinstance(channel, discord.DMChannel):
            # The library takes for direct whatever names no server.
            known = bot.get_channel(channel.id)
            return channel if known is None or isinstance(known, discord.DMChannel) else None
        if not isinstance(channel, discord.PartialMessageable):
            return channel
        # Without its parent nobody can say whether a thread is allowed.
        if channel.id not in self._threads:
            found = await fetch_discord_channel(bot, channel.id)
            if not isinstance(found, discord.Thread):
                return found
            self._threads[channel.id] = found
            while len(self._threads) > MAX_CACHED_THREADS:
                del self._threads[next(iter(self._threads))]
        return self._threads[channel.id]

    def _is_for_bot(
        self, message: discord.Message, resolved_channel: object, bot_user_id: int
    ) -> bool:
        return (
            is_direct_message(message)
            or _is_own_thread(resolved_channel, bot_user_id)
            or is_addressed_to_discord_bot(message, bot_user_id)
        )

    async def _find_conversation_channel(
        self, bot: DiscordBot, message: discord.Message, resolved_channel: object
    ) -> int:
        """Where the conversation is held: a thread of its own where that is wanted and may be."""
        if not self._config.threads or not isinstance(resolved_channel, discord.TextChannel):
            return message.channel.id
        try:
            # It has the id of the message it begins with, so a second attempt finds the first's.
            await bot.http.start_thread_with_message(
                message.channel.id,
                message.id,
                name=build_thread_title(message, _bot_user_id(bot)),
                auto_archive_duration=THREAD_ARCHIVE_MINUTES,
            )
        except discord.HTTPException as error:
            if error.code == THREAD_EXISTS_CODE:
                return message.id
            if error.status >= 500:
                raise
            log.info("no thread in channel %d: %s", message.channel.id, error)
            return message.channel.id
        return message.id

    async def _build_message(
        self, session_id: str, message: discord.Message, text: str
    ) -> tuple[Message, list[str]]:
        """What is said to the agent, and what its sender is told of files that were not taken."""
        if not message.attachments:
            return make_text_message("user", text), []
        takes = self._service.agent_for(session_id).accepted_media
        files = await convert_discord_attachments(
            message, accepted_media=takes, max_bytes=self._config.max_file
        )
        words = (Text(text=text),) if text else ()
        parts = (*words, *(file.part for file in files))
        refusals = [file.refusal for file in files if file.refusal]
        return Message(role="user", parts=parts, plain=False), refusals

    @asynccontextmanager
    async def _hold_channel_lock(self, channel_id: int) -> AsyncGenerator[None]:
        """One at a time in a channel, in the order in which they asked."""
        lane = self._channel_locks.setdefault(channel_id, asyncio.Lock())
        self._lock_users[channel_id] = self._lock_users.get(channel_id, 0) + 1
        try:
            async with lane:
                yield
        finally:
            self._lock_users[channel_id] -= 1
            if not self._lock_users[channel_id]:
                del self._lock_users[channel_id], self._channel_locks[channel_id]


async def _send_notice(bot: DiscordBot, channel_id: int, text: str) -> None:
    """Say something beside the outbox; where it does not arrive, the model tells it as well."""
    try:
        for piece in split_discord_message(text):
            await bot.get_partial_messageable(channel_id).send(piece)
    except (discord.DiscordException, aiohttp.ClientError, OSError) as error:
        log.warning("what was said of a file did not go out: %r", error)


def _bot_user_id(bot: DiscordBot) -> int:
    return bot.user.id if bot.user is not None else 0


def _leading_text(message: Message) -> str:
    """The words of a message of ours, which come before its files."""
    parts = message.parts
    return parts[0].text if parts and isinstance(parts[0], Text) else ""


def _is_own_thread(channel: object, bot_user_id: int) -> bool:
    """Whether it is a thread that the bot has opened: all that is said there is said to it."""
    return isinstance(channel, discord.Thread) and channel.owner_id == bot_user_id


def _build_origin(
    user_id: int, channel_id: int, resolved_channel: object, guild_id: int | None
) -> DiscordMessageOrigin:
    parent = resolved_channel.parent_id if isinstance(resolved_channel, discord.Thread) else None
    return DiscordMessageOrigin(
        user_id=user_id, channel_id=channel_id, parent_channel_id=parent, guild_id=guild_id
    )
