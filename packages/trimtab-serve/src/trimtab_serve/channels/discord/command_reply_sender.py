"""Send messages outside the outbox: answers to slash commands, and notices about files."""

from __future__ import annotations

import io
import logging

import aiohttp
import discord

from trimtab_serve.channels.chat_commands import CommandReply
from trimtab_serve.channels.discord.gateway_client import DiscordBot
from trimtab_serve.channels.discord.message_splitting import split_discord_message

MAX_ALT_TEXT_CHARS = 1_024
"""Maximum number of characters of a picture's alternative text."""

log = logging.getLogger("trimtab.discord")


async def send_slash_command_reply(
    interaction: discord.Interaction[DiscordBot], reply: CommandReply
) -> None:
    """Send the answer to a slash command. If it fails, the user can send the command again."""
    safe = reply.text.replace("```", "'''")
    first, *more = split_discord_message(
        f"```\n{safe}\n```" if reply.monospace else reply.text
    ) or ["Done."]
    try:
        await _send_first_piece(interaction, first, reply)
        for text in more:
            await interaction.followup.send(text, ephemeral=True)
    except (discord.DiscordException, aiohttp.ClientError, OSError) as error:
        log.warning("sending the reply to a command failed: %r", error)


async def send_channel_notice(bot: DiscordBot, channel_id: int, text: str) -> None:
    """Send a notice to a channel. If it fails, the model still mentions the refused file."""
    try:
        for piece in split_discord_message(text):
            await bot.get_partial_messageable(channel_id).send(piece)
    except (discord.DiscordException, aiohttp.ClientError, OSError) as error:
        log.warning("sending the notice about a file failed: %r", error)


async def _send_first_piece(
    interaction: discord.Interaction[DiscordBot], text: str, reply: CommandReply
) -> None:
    if reply.png is not None:
        about = reply.text[:MAX_ALT_TEXT_CHARS]
        picture = discord.File(io.BytesIO(reply.png), "context.png", description=about)
        try:
            await interaction.edit_original_response(content=text, attachments=[picture])
        except discord.HTTPException as error:
            log.warning("sending the context image failed: %s", error)
        else:
            return
    await interaction.edit_original_response(content=text)
