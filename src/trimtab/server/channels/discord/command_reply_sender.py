"""Sends what does not go through the outbox: answers to slash commands, notices about files."""

from __future__ import annotations

import io
import logging

import aiohttp
import discord

from trimtab.server.channels.chat_commands import CommandReply
from trimtab.server.channels.discord.gateway_client import DiscordBot
from trimtab.server.channels.discord.message_splitting import split_discord_message

MAX_ALT_TEXT_CHARS = 1_024
"""Characters that may tell of a picture to those who do not see it."""

log = logging.getLogger("trimtab.discord")


async def send_slash_command_reply(
    interaction: discord.Interaction[DiscordBot], reply: CommandReply
) -> None:
    """Tell it; if that fails the person asks again."""
    safe = reply.text.replace("```", "'''")
    first, *more = split_discord_message(
        f"```\n{safe}\n```" if reply.monospace else reply.text
    ) or ["Done."]
    try:
        await _send_first_piece(interaction, first, reply)
        for text in more:
            await interaction.followup.send(text, ephemeral=True)
    except (discord.DiscordException, aiohttp.ClientError, OSError) as error:
        log.warning("the reply to a command could not be sent: %r", error)


async def send_channel_notice(bot: DiscordBot, channel_id: int, text: str) -> None:
    """Say something in a channel; if it does not arrive, the model says it as well."""
    try:
        for piece in split_discord_message(text):
            await bot.get_partial_messageable(channel_id).send(piece)
    except (discord.DiscordException, aiohttp.ClientError, OSError) as error:
        log.warning("what was said of a file did not go out: %r", error)


async def _send_first_piece(
    interaction: discord.Interaction[DiscordBot], text: str, reply: CommandReply
) -> None:
    if reply.png is not None:
        about = reply.text[:MAX_ALT_TEXT_CHARS]
        drawn = discord.File(io.BytesIO(reply.png), "context.png", description=about)
        try:
            await interaction.edit_original_response(content=text, attachments=[drawn])
        except discord.HTTPException as error:
            log.warning("the image of the context could not be sent: %s", error)
        else:
            return
    await interaction.edit_original_response(content=text)
