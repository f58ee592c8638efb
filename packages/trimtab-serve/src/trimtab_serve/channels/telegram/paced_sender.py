"""Send, edit and delete Telegram messages at the rate that Telegram allows per chat."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from datetime import timedelta

from telegram import Bot, LinkPreviewOptions, MessageEntity, ReplyParameters
from telegram.constants import ChatAction
from telegram.error import BadRequest, ChatMigrated, RetryAfter, TelegramError

from trimtab_serve.channels.telegram.styled_text import StyledText
from trimtab_serve.channels.utf16 import convert_to_utf16_offsets
from trimtab_serve.queue.bounded_dict import BoundedDict

NO_PREVIEW = LinkPreviewOptions(is_disabled=True)
MIN_SEND_INTERVAL_S = 1.0
"""Minimum number of seconds between two messages or edits in a chat."""
GROUP_INTERVAL_FACTOR = 3
"""Factor for groups, in which Telegram allows 20 messages a minute."""
MAX_TRACKED_CHATS = 4_096
"""Number of chats whose last message's time is remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramTarget:
    """The destination of a message."""

    chat: int
    """Id of the chat. Negative for groups."""
    topic: int | None = None
    """Id of the topic in the chat."""
    reply_to: int | None = None
    """The message to reply to."""


class TelegramSender:
    """Sends and edits messages."""

    def __init__(self, bot: Bot, *, min_interval_s: float = MIN_SEND_INTERVAL_S) -> None:
        self._bot = bot
        self._min_interval_s = min_interval_s
        self._migrated_chats: dict[int, int] = {}
        self._paused_until = BoundedDict[int, float](MAX_TRACKED_CHATS)
        self._last_sent_at = BoundedDict[int, float](MAX_TRACKED_CHATS)

    def draft_interval_s(self, target: TelegramTarget) -> float:
        """Return the seconds between two changes of a draft."""
        return self._min_interval_s * (GROUP_INTERVAL_FACTOR if target.chat < 0 else 1)

    async def wait_for_slot(self, target: TelegramTarget) -> None:
        """Wait until the last message or edit in a chat is long enough ago."""
        chat = self._current_chat_id(target)
        now = time.monotonic()
        at = max(now, self._last_sent_at.get(chat, 0.0) + self._min_interval_s)
        self._last_sent_at[chat] = at
        if at > now:
            await asyncio.sleep(at - now)

    def rate_limit_wait_s(self, target: TelegramTarget) -> float:
        """Return the seconds until Telegram accepts the next message in a chat."""
        return max(
            0.0, self._paused_until.get(self._current_chat_id(target), 0.0) - time.monotonic()
        )

    def pause_chat(self, target: TelegramTarget, seconds: float) -> None:
        """Send nothing to a chat for this time."""
        chat = self._current_chat_id(target)
        self._paused_until[chat] = max(
            self._paused_until.get(chat, 0.0), time.monotonic() + seconds
        )

    async def send_message(self, target: TelegramTarget, styled_text: StyledText) -> int:
        """Send a new message. Return its id. Raises the errors of the library."""
        try:
            return await self._send_once(target, styled_text)
        except ChatMigrated as migration:
            # The group has become a supergroup, in which its messages have other ids.
            self._migrated_chats[target.chat] = migration.new_chat_id
            return await self._send_once(TelegramTarget(chat=target.chat), styled_text)
        except BadRequest as error:
            if styled_text.spans and _is_entity_error(error):
                return await self._send_once(target, StyledText(text=styled_text.text))
            raise

    async def edit_message(
        self, target: TelegramTarget, message_id: int, styled_text: StyledText
    ) -> None:
        """Change the text of a message. The same text is not an error."""
        try:
            await self._bot.edit_message_text(
                styled_text.text,
                chat_id=self._current_chat_id(target),
                message_id=message_id,
                entities=build_telegram_entities(styled_text),
                link_preview_options=NO_PREVIEW,
            )
        except BadRequest as error:
            if "not modified" not in error.message.lower():
                raise
        except RetryAfter as error:
            self.pause_chat(target, read_retry_after_seconds(error))
            raise

    async def delete_message(self, target: TelegramTarget, message_id: int) -> None:
        """Delete a message, if that is still possible."""
        try:
            await self._bot.delete_message(self._current_chat_id(target), message_id)
        except TelegramError:
            return

    async def show_typing(self, target: TelegramTarget) -> None:
        """Show the typing indicator for five seconds. A failure is ignored."""
        try:
            await self._bot.send_chat_action(
                self._current_chat_id(target), ChatAction.TYPING, message_thread_id=target.topic
            )
        except RetryAfter as error:
            self.pause_chat(target, read_retry_after_seconds(error))
        except TelegramError:
            return

    async def send_photo(self, target: TelegramTarget, png: bytes, caption: StyledText) -> None:
        """Send a picture with a caption."""
        try:
            await self._bot.send_photo(
                self._current_chat_id(target),
                png,
                caption=caption.text,
                caption_entities=build_telegram_entities(caption),
                message_thread_id=target.topic,
                reply_parameters=_build_reply_parameters(target),
                filename="context.png",
            )
        except RetryAfter as error:
            self.pause_chat(target, read_retry_after_seconds(error))
            raise

    async def _send_once(self, target: TelegramTarget, styled_text: StyledText) -> int:
        try:
            message = await self._bot.send_message(
                self._current_chat_id(target),
                styled_text.text,
                entities=build_telegram_entities(styled_text),
                message_thread_id=target.topic,
                reply_parameters=_build_reply_parameters(target),
                link_preview_options=NO_PREVIEW,
            )
        except RetryAfter as error:
            self.pause_chat(target, read_retry_after_seconds(error))
            raise
        return message.message_id

    def _current_chat_id(self, target: TelegramTarget) -> int:
        return self._migrated_chats.get(target.chat, target.chat)


def build_telegram_entities(styled_text: StyledText) -> list[MessageEntity]:
    """Return the spans as Telegram entities."""
    at = convert_to_utf16_offsets(
        styled_text.text, [edge for mark in styled_text.spans for edge in (mark.start, mark.end)]
    )
    return [
        MessageEntity(
            mark.kind,
            offset=at[mark.start],
            length=at[mark.end] - at[mark.start],
            url=mark.url,
            language=mark.language,
        )
        for mark in styled_text.spans
    ]


def read_retry_after_seconds(error: RetryAfter) -> float:
    """Return how long Telegram asks to wait."""
    wait = error.retry_after
    return wait.total_seconds() if isinstance(wait, timedelta) else float(wait)


def _build_reply_parameters(target: TelegramTarget) -> ReplyParameters | None:
    if target.reply_to is None:
        return None
    return ReplyParameters(target.reply_to, allow_sending_without_reply=True)


def _is_entity_error(error: BadRequest) -> bool:
    reason = error.message.lower()
    return "entit" in reason or "url" in reason
