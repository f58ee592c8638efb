"""discord.py's client: what the gateway tells goes to whoever hears, and nothing stops it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import discord
from discord import app_commands
from discord.webhook.async_ import async_context

from trimtab.gateways.discord.line import Answers, Line
from trimtab.gateways.discord.pace import Pace
from trimtab.gateways.verbs import VERBS, Verb

if TYPE_CHECKING:
    from discord.state import ConnectionState

log = logging.getLogger("trimtab.discord")

# Nothing is ever said by voice, so nobody needs to hear at each start that it cannot be.
discord.VoiceClient.warn_nacl = discord.VoiceClient.warn_dave = False


class Ear(Protocol):
    """Who hears."""

    def hold(self, bot: Bot) -> None:
        """A session begins: what comes now waits until `missed` has looked for what came before."""
        ...

    async def missed(self, bot: Bot) -> None:
        """All servers are known: look for what came while nobody listened."""
        ...

    async def message(self, bot: Bot, message: discord.Message, *, edited: bool = False) -> None:
        """Somebody has written, or written otherwise."""
        ...

    async def command(self, interaction: discord.Interaction[Bot], verb: str, words: str) -> None:
        """Somebody has used a slash command."""
        ...


def intents() -> discord.Intents:
    """What the bot hears: servers, messages and what they say."""
    wanted = discord.Intents.none()
    wanted.guilds = wanted.guild_messages = wanted.dm_messages = True
    wanted.message_content = True
    return wanted


class Bot(discord.Client):
    """One connection to Discord, and those that follow it."""

    def __init__(self, ear: Ear, *, api: str, pace: Pace) -> None:
        # Read by `_get_state`, which the library calls in its own beginning.
        self._api = api
        self._pace = pace
        super().__init__(
            intents=intents(),
            allowed_mentions=discord.AllowedMentions.none(),
            # What was said is in the log; nothing is looked up here.
            max_messages=None,
            member_cache_flags=discord.MemberCacheFlags.none(),
            chunk_guilds_at_startup=False,
            guild_ready_timeout=pace.servers,
        )
        self._ear = ear
        self._answers = Answers(api)
        self.logged_in = False
        """Whether messages can be sent."""
        self.tree = Tree(self)
        for name, verb in VERBS.items():
            self.tree.add_command(_command(name, verb, self._obey))

    def _get_state(self, **options: Any) -> ConnectionState[Any]:
        self.http = Line(self.http, self._api, limited=self._pace.limited)
        state = super()._get_state(**options)
        guard(state.parsers)
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
            await asyncio.sleep(self._pace.identify)

    async def on_connect(self) -> None:
        """A session begins."""
        self._ear.hold(self)

    async def on_ready(self) -> None:
        """All servers are known."""
        await self._ear.missed(self)

    async def on_message(self, message: discord.Message) -> None:
        """Somebody has written."""
        await self._ear.message(self, message)

    async def on_raw_message_edit(self, payload: discord.RawMessageUpdateEvent) -> None:
        """Somebody has written otherwise; also told where Discord has only found a preview."""
        if payload.message.edited_at is not None:
            await self._ear.message(self, payload.message, edited=True)

    async def on_error(self, event_method: str, /, *args: object, **kwargs: object) -> None:
        """Called by the library where one of the above fails."""
        del args, kwargs
        log.error("%s failed", event_method, exc_info=True)  # noqa: LOG014 - called in a handler

    async def _obey(self, interaction: discord.Interaction[Bot], verb: str, words: str) -> None:
        # Of this task alone: other clients of the process answer where they did.
        async_context.set(self._answers)
        await self._ear.command(interaction, verb, words)


class Tree(app_commands.CommandTree[Bot]):
    """Slash commands; one that cannot be read is passed over."""

    async def _call(self, interaction: discord.Interaction[Bot]) -> None:
        try:
            await super()._call(interaction)
        except Exception as error:  # noqa: BLE001 - whatever Discord sends, the bot goes on
            _log_command(error)

    async def on_error(
        self, interaction: discord.Interaction[Bot], error: app_commands.AppCommandError, /
    ) -> None:
        """Called by the library where a command fails."""
        del interaction
        _log_command(error)


def _log_command(error: Exception) -> None:
    log.warning("a command could not be read: %r", error)


Parser = Callable[[Any], None]


def guard(parsers: dict[str, Parser]) -> None:
    """Let an event that the library cannot read be passed over, and not end the connection."""

    def guarded(event: str, parse: Parser) -> Parser:
        def attempt(data: Any) -> None:
            try:
                parse(data)
            except Exception as error:  # noqa: BLE001 - whatever Discord sends, the bot goes on
                log.warning("an event %s could not be read: %r", event, error)

        return attempt

    parsers.update({event: guarded(event, parse) for event, parse in parsers.items()})


Obey = Callable[[discord.Interaction[Bot], str, str], Any]


def _command(name: str, verb: Verb, obey: Obey) -> app_commands.Command[Any, ..., Any]:
    async def plain(interaction: discord.Interaction[Bot]) -> None:
        await obey(interaction, name, "")

    @app_commands.describe(handle="A message by its number, such as m12, or a placeholder's handle")
    async def with_handle(interaction: discord.Interaction[Bot], handle: str) -> None:
        await obey(interaction, name, str(handle))

    callback: Any = with_handle if verb.takes else plain
    return app_commands.Command(
        name=name,
        description=f"{verb.help[:1].upper()}{verb.help[1:]}",
        callback=callback,
        allowed_contexts=app_commands.AppCommandContext(guild=True, dm_channel=True),
        allowed_installs=app_commands.AppInstallationType(guild=True),
    )
