"""Files that come with a Telegram message."""

from __future__ import annotations

import logging
from typing import Any

from telegram import Bot, Message
from telegram.error import TelegramError

from trimtab_serve.channels.chat_files import FetchableChatFile, FileFetchFailed, FileTooLarge

log = logging.getLogger("trimtab.telegram")


def find_telegram_file(bot: Bot, message: Message, *, max_bytes: int) -> FetchableChatFile | None:
    """Return the file of a message, for a photo in its largest size. None if there is none."""
    if message.photo:
        largest = max(message.photo, key=lambda size: size.width * size.height)
        return _build_chat_file(bot, largest, "photo", max_bytes, mime="image/jpeg")
    kinds = {
        "animation": message.animation,
        "audio": message.audio,
        "document": message.document,
        "voice message": message.voice,
        "video": message.video,
        "video message": message.video_note,
    }
    for kind, attachment in kinds.items():
        if attachment is not None:
            return _build_chat_file(bot, attachment, kind, max_bytes)
    return None


def _build_chat_file(
    bot: Bot, media: Any, kind: str, max_bytes: int, *, mime: str | None = None
) -> FetchableChatFile:
    async def fetch() -> bytes:
        try:
            file = await bot.get_file(media.file_id)
            if file.file_size is not None and file.file_size > max_bytes:
                raise FileTooLarge(file.file_size)
            return bytes(await file.download_as_bytearray())
        except TelegramError as error:
            log.warning("fetching a %s failed: %s", kind, type(error).__name__)
            raise FileFetchFailed from error

    return FetchableChatFile(
        kind=kind,
        fetch=fetch,
        mime=mime or getattr(media, "mime_type", None),
        name=getattr(media, "file_name", None),
        size=media.file_size,
    )
