"""Handle Discord messages until they are in the queue: access, session, order, no duplicates."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Literal

import aiohttp
import discord

from trimtab.engine.log.message import Message, Text
from trimtab.errors import StoreError
from trimtab_serve.agent.config.spec import DiscordSpec
from trimtab_serve.channels.access_list import is_allowed
from trimtab_serve.channels.chat_commands import CommandReply, run_chat_command
from trimtab_serve.channels.chat_files import FetchableChatFile, FileFetchFailed, build_user_message
from trimtab_serve.channels.discord import DiscordTiming
from trimtab_serve.channels.discord.command_reply_sender import (
    send_channel_notice,
    send_slash_command_reply,
)
from trimtab_serve.channels.discord.gateway_client import DiscordBot
from trimtab_serve.channels.discord.inbound_text import (
    build_thread_title,
    format_discord_message_for_agent,
    is_addressed_to_discord_bot,
    is_direct_message,
    is_written_by_person,
)
from trimtab_serve.channels.discord.missed_messages import (
    discord_message_key,
    fetch_discord_channel,
    iter_missed_discord_messages,
)
from trimtab_serve.channels.keyed_locks import KeyedLocks
from trimtab_serve.channels.pending_edits import PendingEdits
from trimtab_serve.channels.typing_indicator import TypingIndicator
from trimtab_serve.queue.address import DEFAULT_TENANT, SessionAddress
from trimtab_serve.queue.bounded_dict import BoundedDict
from trimtab_serve.queue.messages import InboundMessage, ReplyRoute
from trimtab_serve.service.retries import compute_backoff_s
from trimtab_serve.service.sender import with_sender
from trimtab_serve.service.service import AgentService

MAX_FILES_PER_MESSAGE = 10
"""Maximum number of files of one message. Discord sends no more."""
FETCH_TIMEOUT_S = 30.0
"""Seconds that fetching a file may take."""

FETCH_ERRORS = (discord.DiscordException, aiohttp.ClientError, OSError, ValueError, RuntimeError)


def list_discord_files(message: discord.Message) -> list[FetchableChatFile]:
    """Return the files of a message."""
    return [_build_chat_file(one) for one in message.attachments[:MAX_FILES_PER_MESSAGE]]


def _build_chat_file(attachment: discord.Attachment) -> FetchableChatFile:
    async def fetch() -> bytes:
        try:
            async with asyncio.timeout(FETCH_TIMEOUT_S):
                return await attachment.read()
        except FETCH_ERRORS as error:
            log.warning("fetching a file failed: %s", type(error).__name__)
            raise FileFetchFailed from error

    return FetchableChatFile(
        kind="file",
        fetch=fetch,
        mime=attachment.content_type,
        name=attachment.filename,
        size=attachment.size,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscordMessageOrigin:
    """A user, and the channel in which they write."""

    user_id: int
    """Who."""
    channel_id: int
    """The channel, thread or direct channel."""
    parent_channel_id: int | None = None
    """The channel to which a thread belongs."""
    guild_id: int | None = None
    """The server. None in direct messages."""

    def __str__(self) -> str:
        place = f"channel {self.channel_id}"
        if self.guild_id is not None:
            place = f"{place} of server {self.guild_id}"
        return f"user {self.user_id} in {place}"


def is_discord_origin_allowed(config: DiscordSpec, origin: DiscordMessageOrigin) -> bool:
    """Whether the user, channel or server is allowed, and none of them is denied."""
    ids = (origin.user_id, origin.channel_id, origin.parent_channel_id, origin.guild_id)
    names = {str(one) for one in ids if one is not None}
    return is_allowed(config, names)


MAX_INTAKE_ATTEMPTS = 10
"""Attempts to store a message."""
BACKFILL_TIMEOUT_S = 120.0
"""Seconds that fetching missed messages may take before new messages are handled."""
MAX_CACHED_THREADS = 1_000
"""Maximum number of cached threads that the library does not know."""
COMMAND_FAILED_TEXT = "This did not work. The operator can see why in the log."
THREAD_ARCHIVE_MINUTES: Literal[10080] = 10_080
"""Minutes without a message after which Discord archives a thread: a week, the longest."""
THREAD_EXISTS_CODE = 160004
"""Discord's code for a message that already has a thread."""

RETRYABLE_INTAKE_ERRORS = (
    StoreError,
    discord.DiscordException,
    aiohttp.ClientError,
    OSError,
    RuntimeError,
)
"""Errors that may pass, including a full queue and a connection that was closed meanwhile."""

log = logging.getLogger("trimtab.discord")


class DiscordMessageIntake:
    """Handles the messages and commands for one agent."""

    def __init__(
        self,
        service: AgentService,
        agent_name: str,
        config: DiscordSpec,
        typing_indicator: TypingIndicator[int],
        timing: DiscordTiming,
    ) -> None:
        self._service = service
        self._agent_name = agent_name
        self._config = config
        self._typing_indicator = typing_indicator
        self._timing = timing
        self._session_prefix = f"{DEFAULT_TENANT}/{agent_name}/discord:"
        self._channel_locks = KeyedLocks()
        self._threads = BoundedDict[int, discord.Thread](MAX_CACHED_THREADS)
        self._bot: DiscordBot | None = None
        self._edits = PendingEdits(timing.edit_pause_s)
        self._caught_up = asyncio.Event()
        self._backfill_lock = asyncio.Lock()
        self._intake_tasks: set[asyncio.Task[object]] = set()

    def pause_until_caught_up(self, bot: DiscordBot) -> None:
        """Let new messages wait for the missed ones."""
        self._bot = bot
        self._caught_up.clear()

    async def catch_up(self, bot: DiscordBot) -> None:
        """Post the missed messages, then release those that have arrived since."""
        async with self._backfill_lock:
            try:
                async with asyncio.timeout(BACKFILL_TIMEOUT_S):
                    async for message in iter_missed_discord_messages(
                        self._service, bot, self._session_prefix
                    ):
                        await self._accept(bot, message, edited=False)
            except Exception:
                log.exception("fetching missed messages failed")
            finally:
                self._caught_up.set()

    async def handle_message(
        self, bot: DiscordBot, message: discord.Message, *, edited: bool = False
    ) -> None:
        """Post a user's message. An edit is posted after a pause."""
        if edited:
            post_edit = partial(self._handle_in_order, bot, message, edited=True)
            self._edits.add(str(message.id), post_edit)
            return
        await self._handle_in_order(bot, message, edited=False)

    async def _handle_in_order(
        self, bot: DiscordBot, message: discord.Message, *, edited: bool
    ) -> None:
        # Await nothing before the lock: tasks begin in the order of Discord's events, and the lock
        # keeps that order.
        async with self._channel_locks.hold(message.channel.id):
            await self._caught_up.wait()
            await self._accept(bot, message, edited=edited)

    async def handle_command(
        self, interaction: discord.Interaction[DiscordBot], command: str, argument: str
    ) -> None:
        """Carry out a slash command. Only its user sees the answer."""
        channel = interaction.channel
        user = interaction.user
        place = await self._resolve_channel(interaction.client, channel)
        if channel is None or place is None:
            return
        sender = _build_origin(user.id, channel.id, place, interaction.guild_id)
        if user.bot or not is_discord_origin_allowed(self._config, sender):
            log.info(
                "the bot does not answer /%s from %s: `allow` and `deny` of discord do not permit "
                "it",
                command,
                sender,
            )
            return
        try:
            # Discord allows three seconds for this, however long the command takes.
            await interaction.response.defer(ephemeral=True, thinking=True)
        except discord.HTTPException as error:
            log.warning("/%s came too late or twice, so it is not answered: %s", command, error)
            return
        # After the messages that were written before it.
        async with self._channel_locks.hold(channel.id):
            try:
                reply = await run_chat_command(
                    self._service,
                    self._session_id_for(channel.id),
                    command,
                    argument,
                    idempotency_key=f"/{interaction.id}",
                )
            except Exception:
                log.exception("/%s failed in channel %d", command, channel.id)
                reply = CommandReply(text=COMMAND_FAILED_TEXT)
        await send_slash_command_reply(interaction, reply)

    async def wait_until_idle(self, timeout_s: float) -> None:
        """Wait until all received messages and edits are stored."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._edits.close(), timeout_s)
        if self._intake_tasks:
            await asyncio.wait(set(self._intake_tasks), timeout=timeout_s)

    def _session_id_for(self, channel_id: int) -> str:
        return str(
            SessionAddress(
                tenant=DEFAULT_TENANT, agent=self._agent_name, name=f"discord:{channel_id}"
            )
        )

    async def _accept(self, bot: DiscordBot, message: discord.Message, *, edited: bool) -> None:
        """Store a message that is meant for the agent, with retries."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - this is a coroutine
        is_outer = task not in self._intake_tasks
        self._intake_tasks.add(task)
        try:
            await self._accept_with_retries(bot, message, edited=edited)
        except Exception as error:  # noqa: BLE001 - whatever Discord sends, the bot goes on
            log.warning("unreadable message %s: %r", message.id, error)
        finally:
            if is_outer:
                self._intake_tasks.discard(task)

    async def _accept_with_retries(
        self, bot: DiscordBot, message: discord.Message, *, edited: bool
    ) -> None:
        for attempt in range(1, MAX_INTAKE_ATTEMPTS + 1):
            try:
                # A message from an ended connection continues on the next one.
                await self._post_message(self._bot or bot, message, edited=edited)
            except RETRYABLE_INTAKE_ERRORS as error:
                log.warning("message %d is not stored yet: %r", message.id, error)
                wait = compute_backoff_s(
                    attempt,
                    first_s=self._timing.first_intake_retry_s,
                    max_s=self._timing.max_retry_wait_s,
                )
                await asyncio.sleep(wait)
            else:
                return
        log.error(
            "message %d could not be stored after %d attempts", message.id, MAX_INTAKE_ATTEMPTS
        )

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
            log.info(
                "the bot does not answer %s: `allow` and `deny` of discord do not permit it", sender
            )
            return
        channel = await self._find_conversation_channel(bot, message, place)
        session = self._session_id_for(channel)
        key = discord_message_key(message.id)
        before = await self._service.find_message_by_key(session, key)
        if before is not None:
            redact = self._service.agent_for(session).redact or str
            text = redact(format_discord_message_for_agent(message, me))
            if not edited or _leading_text(before) == text:
                return  # a duplicate, or a preview was added to it
            key = f"{key}:{int((message.edited_at or message.created_at).timestamp() * 1_000)}"
        user_message, refusal = await build_user_message(
            format_discord_message_for_agent(message, me, edited=before is not None),
            list_discord_files(message),
            accepted_media=self._service.agent_for(session).accepted_media,
            max_bytes=self._config.max_file_bytes,
        )
        is_alone = (
            is_direct_message(message) or channel != message.channel.id or _is_own_thread(place, me)
        )
        address = {"channel": channel, "reply_to": None if is_alone else message.id}
        inbound = InboundMessage(
            session=session,
            message=with_sender(
                user_message, f"discord:{message.author.id}", is_private=is_direct_message(message)
            ),
            key=key,
            at=time.time(),
            route=ReplyRoute(channel="discord", address=address),
        )
        if await self._typing_indicator.post_message(inbound, channel) and refusal:
            await send_channel_notice(bot, channel, refusal)

    async def _resolve_channel(self, bot: DiscordBot, channel: object) -> object:
        """Return the channel with its parent. None if it is unknown."""
        if isinstance(channel, discord.DMChannel):
            # The library treats every message without a server as direct.
            own_channel = bot.get_channel(channel.id)
            return (
                channel
                if own_channel is None or isinstance(own_channel, discord.DMChannel)
                else None
            )
        if not isinstance(channel, discord.PartialMessageable):
            return channel
        # Without its parent, it is unknown whether a thread is allowed.
        if channel.id not in self._threads:
            thread = await fetch_discord_channel(bot, channel.id)
            if not isinstance(thread, discord.Thread):
                return thread
            self._threads[channel.id] = thread
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
        """Return the channel of the conversation: a new thread if `threads` is on and it is
        possible."""
        if not self._config.threads or not isinstance(resolved_channel, discord.TextChannel):
            return message.channel.id
        try:
            # A thread has the id of its first message, so a second attempt finds the thread of the
            # first.
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
            log.info("creating a thread in channel %d failed: %s", message.channel.id, error)
            return message.channel.id
        return message.id


def _bot_user_id(bot: DiscordBot) -> int:
    return bot.user.id if bot.user is not None else 0


def _leading_text(message: Message) -> str:
    """Return the text of one of our messages, which comes before its files."""
    parts = message.parts
    return parts[0].text if parts and isinstance(parts[0], Text) else ""


def _is_own_thread(channel: object, bot_user_id: int) -> bool:
    """Whether the bot opened this thread, so that all messages in it are for the bot."""
    return isinstance(channel, discord.Thread) and channel.owner_id == bot_user_id


def _build_origin(
    user_id: int, channel_id: int, resolved_channel: object, guild_id: int | None
) -> DiscordMessageOrigin:
    parent = resolved_channel.parent_id if isinstance(resolved_channel, discord.Thread) else None
    return DiscordMessageOrigin(
        user_id=user_id, channel_id=channel_id, parent_channel_id=parent, guild_id=guild_id
    )
