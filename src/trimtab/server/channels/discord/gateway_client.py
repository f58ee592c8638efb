"""discord.py's client: passes on what the gateway says, and goes on after what it cannot read."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import discord
from discord import app_commands
from discord.webhook.async_ import async_context

from trimtab.server.channels.chat_commands import CHAT_COMMANDS, ChatCommand
from trimtab.server.channels.discord.api_url_override import (
    DiscordHttpClient,
    RedirectedWebhookAdapter,
)
from trimtab.server.channels.discord.wait_times import DiscordTiming

if TYPE_CHECKING:
    from discord.state import ConnectionState

log = logging.getLogger("trimtab.discord")

# Nothing is ever said by voice, so nobody needs to hear at each start that it cannot be.
discord.VoiceClient.warn_nacl = discord.VoiceClient.warn_dave = False


class DiscordEventHandler(Protocol):
    """What is called for each event."""

    def pause_until_caught_up(self, bot: DiscordBot) -> None:
        """A session begins: what comes now waits until `missed` has looked for what came before."""
        ...

    async def catch_up(self, bot: DiscordBot) -> None:
        """All servers are known: look for what came while nobody listened."""
        ...

    async def handle_message(
        self, bot: DiscordBot, message: discord.Message, *, edited: bool = False
    ) -> None:
        """Somebody has written, or written otherwise."""
        ...

    async def handle_command(
        self, interaction: discord.Interaction[DiscordBot], command: str, argument: str
    ) -> None:
        """Somebody has used a slash command."""
        ...


def build_discord_intents() -> discord.Intents:
    """What the bot hears: servers, messages and what they say."""
    wanted = discord.Intents.none()
    wanted.guilds = wanted.guild_messages = wanted.dm_messages = True
    wanted.message_content = True
    return wanted


class DiscordBot(discord.Client):
    """One connection to Discord, and those that follow it."""

    def __init__(
        self, event_handler: DiscordEventHandler, *, api_url: str, timing: DiscordTiming
    ) -> None:
        # Read by `_get_state`, which the library calls in its own beginning.
        self._api_url = api_url
        self._timing = timing
        super().__init__(
            intents=build_discord_intents(),
            allowed_mentions=discord.AllowedMentions.none(),
            # What was said is in the log; nothing is looked up here.
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
        """Called by the library for all that happens."""
        # What comes while the connection is given up is looked up by the next one.
        if not self.is_closed():
            super().dispatch(event, *args, **kwargs)

    async def setup_hook(self) -> None:
        """Called by the library when the token was accepted."""
        self.logged_in = True
        try:
            await self.tree.sync()
        except discord.DiscordException as error:
            log.warning("slash commands could not be registered: %s", error)

    async def before_identify_hook(self, shard_id: int | None, *, initial: bool = False) -> None:
        """Called by the library before a session is begun."""
        del shard_id
        if not initial:
            await asyncio.sleep(self._timing.identify_interval_s)

    async def on_connect(self) -> None:
        """A session begins."""
        self._event_handler.pause_until_caught_up(self)

    async def on_ready(self) -> None:
        """All servers are known."""
        await self._event_handler.catch_up(self)

    async def on_message(self, message: discord.Message) -> None:
        """Somebody has written."""
        await self._event_handler.handle_message(self, message)

    async def on_raw_message_edit(self, payload: discord.RawMessageUpdateEvent) -> None:
        """Somebody has edited a message; also called if Discord has only added a preview."""
        if payload.message.edited_at is not None:
            await self._event_handler.handle_message(self, payload.message, edited=True)

    async def on_error(self, event_method: str, /, *args: object, **kwargs: object) -> None:
        """Called by the library where one of the above fails."""
        del args, kwargs
        log.error("%s failed", event_method, exc_info=True)  # noqa: LOG014 - called in a handler

    async def _run_slash_command(
        self, interaction: discord.Interaction[DiscordBot], command: str, argument: str
    ) -> None:
        # Of this task alone: other clients of the process answer where they did.
        async_context.set(self._interaction_adapter)
        await self._event_handler.handle_command(interaction, command, argument)


class SlashCommandTree(app_commands.CommandTree[DiscordBot]):
    """Slash commands; one that cannot be read is passed over."""

    async def _call(self, interaction: discord.Interaction[DiscordBot]) -> None:
        try:
            await super()._call(interaction)
        except Exception as error:  # noqa: BLE001 - whatever Discord sends, the bot goes on
            _log_command_error(error)

    async def on_error(
        self, interaction: discord.Interaction[DiscordBot], error: app_commands.AppCommandError, /
    ) -> None:
        """Called by the library where a command fails."""
        del interaction
        _log_command_error(error)


def _log_command_error(error: Exception) -> None:
    log.warning("a command could not be read: %r", error)


GatewayEventParser = Callable[[Any], None]


def skip_unreadable_gateway_events(parsers: dict[str, GatewayEventParser]) -> None:
    """Let an event that the library cannot read be passed over, and not end the connection."""

    def guarded(event: str, parse: GatewayEventParser) -> GatewayEventParser:
        def attempt(data: Any) -> None:
            try:
                parse(data)
            except Exception as error:  # noqa: BLE001 - whatever Discord sends, the bot goes on
                log.warning("an event %s could not be read: %r", event, error)

        return attempt

    parsers.update({event: guarded(event, parse) for event, parse in parsers.items()})


SlashCommandHandler = Callable[[discord.Interaction[DiscordBot], str, str], Any]


def _build_slash_command(
    name: str, command: ChatCommand, handler: SlashCommandHandler
) -> app_commands.Command[Any, ..., Any]:
    async def plain(interaction: discord.Interaction[DiscordBot]) -> None:
        await handler(interaction, name, "")

    @app_commands.describe(handle="A message by its number, such as m12, or a placeholder's handle")
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
