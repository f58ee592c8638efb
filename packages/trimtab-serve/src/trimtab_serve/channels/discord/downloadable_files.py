"""Files that come with a Discord message."""

from __future__ import annotations

import asyncio
import logging

import aiohttp
import discord

from trimtab_serve.channels.chat_files import FetchableChatFile, FileFetchFailed

MAX_FILES_PER_MESSAGE = 10
"""Maximum number of files of one message. Discord sends no more."""
FETCH_TIMEOUT_S = 30.0
"""Seconds that fetching a file may take."""

FETCH_ERRORS = (discord.DiscordException, aiohttp.ClientError, OSError, ValueError, RuntimeError)

log = logging.getLogger("trimtab.discord")


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
