"""The discord.py client: forwards gateway events, and continues after unreadable ones."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import discord
from discord import app_commands
from discord.webhook.async_ import async_context

from trimtab_serve.channels.chat_commands import CHAT_COMMANDS, ChatCommand
from trimtab_serve.channels.discord import DiscordTiming
from trimtab_serve.channels.discord.api_url_override import (
    DiscordHttpClient,
    RedirectedWebhookAdapter,
)

if TYPE_CHECKING:
    from discord.state import ConnectionState

log = logging.getLogger("trimtab.discord")

# Voice is never used, so disable the library's warnings about it at each start.
discord.VoiceClient.warn_nacl = discord.VoiceClient.warn_dave = False


class DiscordEventHandler(Protocol):
    """Handles the events of the gateway."""

    def pause_until_caught_up(self, bot: DiscordBot) -> None:
        """Let new messages wait until `catch_up` has fetched the missed ones. A session begins
        now."""
        ...

    async def catch_up(self, bot: DiscordBot) -> None:
        """Fetch the messages that were missed. All servers are known now."""
        ...

    async def handle_message(
        self, bot: DiscordBot, message: discord.Message, *, edited: bool = False
    ) -> None:
        """Handle a new or edited message."""
        ...

    async def handle_command(
        self, interaction: discord.Interaction[DiscordBot], command: str, argument: str
    ) -> None:
        """Handle a slash command."""
        ...


def build_discord_intents() -> discord.Intents:
    """Return the events that the bot receives: servers, messages and their content."""
    intents = discord.Intents.none()
    intents.guilds = intents.guild_messages = intents.dm_messages = True
    intents.message_content = True
    return intents


class DiscordBot(discord.Client):
    """One connection to Discord, and its reconnections."""

    def __init__(
        self, event_handler: DiscordEventHandler, *, api_url: str, timing: DiscordTiming
    ) -> None:
        # `_get_state` reads these, and the library calls it in its constructor.
        self._api_url = api_url
        self._timing = timing
        super().__init__(
            intents=build_discord_intents(),
            allowed_mentions=discord.AllowedMentions.none(),
            # The log has the messages, so no cache is needed here.
            max_messages=None,
            member_cache_flags=discord.MemberCacheFlags.none(),
            chunk_guilds_at_startup=False,
            guild_ready_timeout=timing.guild_ready_timeout_s,
        )
        self._event_handler = event_handler
        self._interaction_adapter = RedirectedWebhookAdapter(api_url)
        self.logged_in = False
        """Whether messages can be sent."""
        self.tree = SlashCommandTree(self)
        for name, verb in CHAT_COMMANDS.items():
            self.tree.add_command(_build_slash_command(name, verb, self._run_slash_command))

    def _get_state(self, **options: Any) -> ConnectionState[Any]:
        self.http = DiscordHttpClient(
            self.http, self._api_url, max_rate_limit_wait_s=self._timing.max_rate_limit_wait_s
        )
        state = super()._get_state(**options)
        skip_unreadable_gateway_events(state.parsers)
        return state

    def dispatch(self, event: str, /, *args: Any, **kwargs: Any) -> None:
        """Dispatch an event. The library calls this for every event."""
        # The next connection fetches what arrives while this one closes.
        if not self.is_closed():
            super().dispatch(event, *args, **kwargs)

    async def setup_hook(self) -> None:
        """Register the slash commands. The library calls this after the login."""
        self.logged_in = True
        try:
            await self.tree.sync()
        except discord.DiscordException as error:
            log.warning("registering slash commands failed: %s", error)

    async def before_identify_hook(self, shard_id: int | None, *, initial: bool = False) -> None:
        """Wait before a new session. The library calls this."""
        del shard_id
        if not initial:
            await asyncio.sleep(self._timing.identify_interval_s)

    async def on_connect(self) -> None:
        """Handle the start of a session."""
        self._event_handler.pause_until_caught_up(self)

    async def on_ready(self) -> None:
        """Handle the event that all servers are known."""
        await self._event_handler.catch_up(self)

    async def on_message(self, message: discord.Message) -> None:
        """Handle a new message."""
        await self._event_handler.handle_message(self, message)

    async def on_raw_message_edit(self, payload: discord.RawMessageUpdateEvent) -> None:
        """Handle an edited message. Discord also sends this if it only added a preview."""
        if payload.message.edited_at is not None:
            await self._event_handler.handle_message(self, payload.message, edited=True)

    async def on_error(self, event_method: str, /, *args: object, **kwargs: object) -> None:
        """Log the failure of an event handler. The library calls this."""
        del args, kwargs
        log.error("%s failed", event_method, exc_info=True)  # noqa: LOG014 - called in a handler

    async def _run_slash_command(
        self, interaction: discord.Interaction[DiscordBot], command: str, argument: str
    ) -> None:
        # Only for this task: other clients of the process keep their own adapter.
        async_context.set(self._interaction_adapter)
        await self._event_handler.handle_command(interaction, command, argument)


class SlashCommandTree(app_commands.CommandTree[DiscordBot]):
    """The slash commands. An unreadable one is skipped."""

    async def _call(self, interaction: discord.Interaction[DiscordBot]) -> None:
        try:
            await super()._call(interaction)
        except Exception as error:  # noqa: BLE001 - whatever Discord sends, the bot goes on
            _log_command_error(error)

    async def on_error(
        self, interaction: discord.Interaction[DiscordBot], error: app_commands.AppCommandError, /
    ) -> None:
        """Log the failure of a command. The library calls this."""
        del interaction
        _log_command_error(error)


def _log_command_error(error: Exception) -> None:
    log.warning("unreadable slash command: %r", error)


GatewayEventParser = Callable[[Any], None]


def skip_unreadable_gateway_events(parsers: dict[str, GatewayEventParser]) -> None:
    """Skip events that the library cannot read, so that they do not end the connection."""

    def guarded(event: str, parse: GatewayEventParser) -> GatewayEventParser:
        def attempt(data: Any) -> None:
            try:
                parse(data)
            except Exception as error:  # noqa: BLE001 - whatever Discord sends, the bot goes on
                log.warning("unreadable event %s: %r", event, error)

        return attempt

    parsers.update({event: guarded(event, parse) for event, parse in parsers.items()})


SlashCommandHandler = Callable[[discord.Interaction[DiscordBot], str, str], Any]


def _build_slash_command(
    name: str, command: ChatCommand, handler: SlashCommandHandler
) -> app_commands.Command[Any, ..., Any]:
    async def plain(interaction: discord.Interaction[DiscordBot]) -> None:
        await handler(interaction, name, "")

    @app_commands.describe(handle="A message number such as m12, or the handle in a placeholder")
    async def with_handle(interaction: discord.Interaction[DiscordBot], handle: str) -> None:
        await handler(interaction, name, str(handle))

    callback: Any = with_handle if command.argument else plain
    return app_commands.Command(
        name=name,
        description=f"{command.help[:1].upper()}{command.help[1:]}",
        callback=callback,
        allowed_contexts=app_commands.AppCommandContext(guild=True, dm_channel=True),
        allowed_installs=app_commands.AppInstallationType(guild=True),
    )
