"""What a slash command has to tell, to the one who used it and to nobody else."""

from __future__ import annotations

import io
import logging

import aiohttp
import discord

from trimtab.gateways.discord.bot import Bot
from trimtab.gateways.discord.chunks import chunks
from trimtab.gateways.verbs import Told

DESCRIBED = 1_024
"""Characters that may tell of a picture to those who do not see it."""

log = logging.getLogger("trimtab.discord")


async def answer(interaction: discord.Interaction[Bot], told: Told) -> None:
    """Tell it; if that fails the person asks again."""
    safe = told.text.replace("```", "'''")
    first, *more = chunks(f"```\n{safe}\n```" if told.columns else told.text) or ["Done."]
    try:
        await _first(interaction, first, told)
        for text in more:
            await interaction.followup.send(text, ephemeral=True)
    except (discord.DiscordException, aiohttp.ClientError, OSError) as error:
        log.warning("the answer to a command did not go out: %r", error)


async def _first(interaction: discord.Interaction[Bot], text: str, told: Told) -> None:
    if told.picture is not None:
        about = told.text[:DESCRIBED]
        drawn = discord.File(io.BytesIO(told.picture), "context.png", description=about)
        try:
            await interaction.edit_original_response(content=text, attachments=[drawn])
        except discord.HTTPException as error:
            log.warning("the picture of a context did not go out: %s", error)
        else:
            return
    await interaction.edit_original_response(content=text)
