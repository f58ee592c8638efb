"""Files from Telegram as parts of a message."""

from __future__ import annotations

import logging

from telegram import Bot
from telegram.error import TelegramError

from trimtab.dialects.media_validation import AcceptedMedia
from trimtab.server.channels import files
from trimtab.server.channels.files import ChatFile, FileConversion, FileFetchFailed, FileTooLarge
from trimtab.server.channels.telegram.parsing import TelegramAttachment

log = logging.getLogger("trimtab.telegram")


async def convert_telegram_attachment(
    bot: Bot, attachment: TelegramAttachment, *, accepted_media: AcceptedMedia, max_bytes: int
) -> FileConversion:
    """The file as a part; never fails: what cannot be taken is told in words."""

    async def fetch() -> bytes:
        try:
            file = await bot.get_file(attachment.file_id)
            if file.file_size is not None and file.file_size > max_bytes:
                raise FileTooLarge(file.file_size)
            return bytes(await file.download_as_bytearray())
        except TelegramError as error:
            log.warning("a %s could not be fetched: %s", attachment.kind, type(error).__name__)
            raise FileFetchFailed from error

    file = ChatFile(
        kind=attachment.kind,
        fetch=fetch,
        mime=attachment.mime,
        name=attachment.name,
        size=attachment.size,
    )
    return await files.convert_file_to_message_part(
        file, accepted_media=accepted_media, max_bytes=max_bytes
    )
