"""Messages out to Telegram: what it takes, at the pace it asks for."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from dataclasses import dataclass
from datetime import timedelta

from telegram import Bot, LinkPreviewOptions, MessageEntity, ReplyParameters
from telegram.constants import ChatAction
from telegram.error import BadRequest, ChatMigrated, RetryAfter, TelegramError

from trimtab.gateways.telegram.styled import Styled
from trimtab.gateways.utf16 import places

NO_PREVIEW = LinkPreviewOptions(is_disabled=True)
PACE = 1.0
"""Seconds between two messages or edits in a chat."""
GROUP = 3
"""Times as many in a group, where Telegram takes 20 a minute."""
KNOWN = 4_096
"""Chats whose last message's time is remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where messages go."""

    chat: int
    """The chat's id; below 0 for groups."""
    topic: int | None = None
    """The topic's id in it."""
    reply_to: int | None = None
    """The message that is replied to."""


class Sending:
    """Sends and edits messages."""

    def __init__(self, bot: Bot, *, pace: float = PACE) -> None:
        self._bot = bot
        self._pace = pace
        self._moved: dict[int, int] = {}
        self._free_at: OrderedDict[int, float] = OrderedDict()
        self._last: OrderedDict[int, float] = OrderedDict()

    def pace_of(self, place: Place) -> float:
        """Seconds between two changes of a draft."""
        return self._pace * (GROUP if place.chat < 0 else 1)

    async def slot(self, place: Place) -> None:
        """Wait until the last message or edit in a chat is long enough ago."""
        chat = self._chat(place)
        now = time.monotonic()
        at = max(now, self._last.get(chat, 0.0) + self._pace)
        self._touch(chat, at)
        if at > now:
            await asyncio.sleep(at - now)

    def _touch(self, chat: int, at: float) -> None:
        self._last.pop(chat, None)
        self._last[chat] = at
        while len(self._last) > KNOWN:
            self._last.popitem(last=False)

    def wait(self, place: Place) -> float:
        """Seconds until the next message may go to a chat, by what Telegram has asked for."""
        return max(0.0, self._free_at.get(self._chat(place), 0.0) - time.monotonic())

    def hold(self, place: Place, seconds: float) -> None:
        """Let nothing go to a chat for so long."""
        chat = self._chat(place)
        free = max(self._free_at.pop(chat, 0.0), time.monotonic() + seconds)
        self._free_at[chat] = free
        while len(self._free_at) > KNOWN:
            self._free_at.popitem(last=False)

    async def send(self, place: Place, what: Styled) -> int:
        """A new message; returns its id. Raises what the library does."""
        try:
            return await self._sent(place, what)
        except ChatMigrated as moved:
            # The group has become a supergroup: its messages have other ids there.
            self._moved[place.chat] = moved.new_chat_id
            return await self._sent(Place(chat=place.chat), what)
        except BadRequest as error:
            if what.marks and _about_marks(error):
                return await self._sent(place, Styled(text=what.text))
            raise

    async def edit(self, place: Place, message: int, what: Styled) -> None:
        """Another text for a message that was sent; the same is no error."""
        try:
            await self._bot.edit_message_text(
                what.text,
                chat_id=self._chat(place),
                message_id=message,
                entities=entities(what),
                link_preview_options=NO_PREVIEW,
            )
        except BadRequest as error:
            if "not modified" not in error.message.lower():
                raise
        except RetryAfter as error:
            self.hold(place, seconds_of(error))
            raise

    async def delete(self, place: Place, message: int) -> None:
        """Take a message back, if that is still possible."""
        try:
            await self._bot.delete_message(self._chat(place), message)
        except TelegramError:
            return

    async def typing(self, place: Place) -> None:
        """Show for five seconds that somebody writes; a courtesy that may fail."""
        try:
            await self._bot.send_chat_action(
                self._chat(place), ChatAction.TYPING, message_thread_id=place.topic
            )
        except RetryAfter as error:
            self.hold(place, seconds_of(error))
        except TelegramError:
            return

    async def photo(self, place: Place, png: bytes, caption: Styled) -> None:
        """A picture with a text under it."""
        try:
            await self._bot.send_photo(
                self._chat(place),
                png,
                caption=caption.text,
                caption_entities=entities(caption),
                message_thread_id=place.topic,
                reply_parameters=_reply(place),
                filename="context.png",
            )
        except RetryAfter as error:
            self.hold(place, seconds_of(error))
            raise

    async def _sent(self, place: Place, what: Styled) -> int:
        try:
            sent = await self._bot.send_message(
                self._chat(place),
                what.text,
                entities=entities(what),
                message_thread_id=place.topic,
                reply_parameters=_reply(place),
                link_preview_options=NO_PREVIEW,
            )
        except RetryAfter as error:
            self.hold(place, seconds_of(error))
            raise
        return sent.message_id

    def _chat(self, place: Place) -> int:
        return self._moved.get(place.chat, place.chat)


def entities(what: Styled) -> list[MessageEntity]:
    """The marks as Telegram counts them."""
    at = places(what.text, [edge for mark in what.marks for edge in (mark.start, mark.end)])
    return [
        MessageEntity(
            mark.kind,
            offset=at[mark.start],
            length=at[mark.end] - at[mark.start],
            url=mark.url,
            language=mark.language,
        )
        for mark in what.marks
    ]


def seconds_of(error: RetryAfter) -> float:
    """How long Telegram asks to wait."""
    wait = error.retry_after
    return wait.total_seconds() if isinstance(wait, timedelta) else float(wait)


def _reply(place: Place) -> ReplyParameters | None:
    if place.reply_to is None:
        return None
    return ReplyParameters(place.reply_to, allow_sending_without_reply=True)


def _about_marks(error: BadRequest) -> bool:
    told = error.message.lower()
    return "entit" in told or "url" in told
