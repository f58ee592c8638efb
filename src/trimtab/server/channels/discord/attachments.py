"""Files from Discord as parts of a message."""

from __future__ import annotations

import asyncio
import logging

import aiohttp
import discord

from trimtab.dialects.media_validation import AcceptedMedia
from trimtab.server.channels.files import (
    ChatFile,
    FileConversion,
    FileFetchFailed,
    convert_file_to_message_part,
)

MAX_FILES_PER_MESSAGE = 10
"""Files of one message that are taken; Discord sends no more."""
FETCH_TIMEOUT_S = 30.0
"""Seconds that fetching a file may take."""

FETCH_ERRORS = (discord.DiscordException, aiohttp.ClientError, OSError, ValueError, RuntimeError)

log = logging.getLogger("trimtab.discord")


async def convert_discord_attachments(
    message: discord.Message, *, accepted_media: AcceptedMedia, max_bytes: int
) -> list[FileConversion]:
    """The files of a message; never fails: what cannot be taken is told in words."""
    return [
        await convert_file_to_message_part(
            _build_chat_file(one), accepted_media=accepted_media, max_bytes=max_bytes
        )
        for one in message.attachments[:MAX_FILES_PER_MESSAGE]
    ]


def _build_chat_file(attachment: discord.Attachment) -> ChatFile:
    async def fetch() -> bytes:
        try:
            async with asyncio.timeout(FETCH_TIMEOUT_S):
                return await attachment.read()
        except FETCH_ERRORS as error:
            log.warning("a file could not be fetched: %s", type(error).__name__)
            raise FileFetchFailed from error

    return ChatFile(
        kind="file",
        fetch=fetch,
        mime=attachment.content_type,
        name=attachment.filename,
        size=attachment.size,
    )
