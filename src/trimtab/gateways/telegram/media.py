"""Files from Telegram as parts of a message."""

from __future__ import annotations

import logging

from telegram import Bot
from telegram.error import TelegramError

from trimtab.dialects.media import Takes
from trimtab.gateways import files
from trimtab.gateways.files import File, NotFetched, Taken, TooLarge
from trimtab.gateways.telegram.reading import Attachment

log = logging.getLogger("trimtab.telegram")


async def taken(bot: Bot, found: Attachment, *, takes: Takes, most: int) -> Taken:
    """The file as a part; never fails: what cannot be taken is told in words."""

    async def fetch() -> bytes:
        try:
            file = await bot.get_file(found.file_id)
            if file.file_size is not None and file.file_size > most:
                raise TooLarge(file.file_size)
            return bytes(await file.download_as_bytearray())
        except TelegramError as error:
            log.warning("a %s could not be fetched: %s", found.kind, type(error).__name__)
            raise NotFetched from error

    file = File(kind=found.kind, fetch=fetch, mime=found.mime, name=found.name, size=found.size)
    return await files.taken(file, takes=takes, most=most)
