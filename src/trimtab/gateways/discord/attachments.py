"""Files from Discord as parts of a message."""

from __future__ import annotations

import asyncio
import logging

import aiohttp
import discord

from trimtab.dialects.media import Takes
from trimtab.gateways.files import File, NotFetched, Taken, taken

MANY = 10
"""Files of one message that are taken; Discord sends no more."""
PATIENCE = 30.0
"""Seconds that fetching a file may take."""

UNFETCHED = (discord.DiscordException, aiohttp.ClientError, OSError, ValueError, RuntimeError)

log = logging.getLogger("trimtab.discord")


async def all_taken(message: discord.Message, *, takes: Takes, most: int) -> list[Taken]:
    """The files of a message; never fails: what cannot be taken is told in words."""
    return [await taken(_file(one), takes=takes, most=most) for one in message.attachments[:MANY]]


def _file(found: discord.Attachment) -> File:
    async def fetch() -> bytes:
        try:
            async with asyncio.timeout(PATIENCE):
                return await found.read()
        except UNFETCHED as error:
            log.warning("a file could not be fetched: %s", type(error).__name__)
            raise NotFetched from error

    return File(
        kind="file", fetch=fetch, mime=found.content_type, name=found.filename, size=found.size
    )
