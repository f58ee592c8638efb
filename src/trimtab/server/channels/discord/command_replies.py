"""What a slash command has to tell, to the one who used it and to nobody else."""

from __future__ import annotations

import io
import logging

import aiohttp
import discord

from trimtab.server.channels.commands import CommandReply
from trimtab.server.channels.discord.bot import DiscordBot
from trimtab.server.channels.discord.chunking import split_discord_message

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
        log.warning("the answer to a command did not go out: %r", error)


async def _send_first_piece(
    interaction: discord.Interaction[DiscordBot], text: str, reply: CommandReply
) -> None:
    if reply.png is not None:
        about = reply.text[:MAX_ALT_TEXT_CHARS]
        drawn = discord.File(io.BytesIO(reply.png), "context.png", description=about)
        try:
            await interaction.edit_original_response(content=text, attachments=[drawn])
        except discord.HTTPException as error:
            log.warning("the picture of a context did not go out: %s", error)
        else:
            return
    await interaction.edit_original_response(content=text)
