"""What was said in Telegram, as a message to an agent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from telegram import Chat, Message, User

from trimtab.server.channels.telegram.access import GROUP_CHAT_TYPES, TelegramBotIdentity

EDITED_NOTICE = "[A message was edited. It now says:]"
"""Stands before what was edited."""
MAX_QUOTE_CHARS = 200
"""Characters of what is replied to that are told."""
UNKNOWN_SENDER_NAME = "somebody"


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramAttachment:
    """A file that Telegram keeps for us."""

    file_id: str
    """By what it is fetched."""
    kind: str
    """What it is, in plain words: `photo`, `voice message`, `document`."""
    mime: str | None
    """Its media type, where it is known."""
    name: str | None = None
    """What its sender calls it."""
    size: int | None = None
    """Bytes, where it is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedTelegramMessage:
    """What one message says."""

    text: str
    """In words, with whatever is no file; empty where there is none."""
    attachment: TelegramAttachment | None = None
    """What comes with it."""


def find_topic_id(message: Message) -> int | None:
    """The topic that a message stands in; None where there are none, or in the general one."""
    return message.message_thread_id if message.is_topic_message else None


def parse_telegram_message(
    message: Message, bot_identity: TelegramBotIdentity, *, edited: bool
) -> ParsedTelegramMessage | None:
    """What is said to the agent; None for what says nothing, such as that somebody has joined."""
    said, attachment = message.text or message.caption or "", find_telegram_attachment(message)
    told = _describe_other_content(message)
    if not said and attachment is None and not told:
        return None
    if edited and message.location is not None:
        return None  # somebody who moves while they share where they are
    lines = [line for line in (said, told) if line]
    if quote := _quote_replied_message(message, bot_identity):
        lines.insert(0, quote)
    if message.forward_origin is not None:
        lines.insert(0, "[forwarded]")
    text = "\n".join(lines)
    if message.chat.type in GROUP_CHAT_TYPES:
        text = f"{_sender_name(message)}: {text}"
    if edited:
        text = f"{EDITED_NOTICE}\n{text}"
    return ParsedTelegramMessage(text=text, attachment=attachment)


def find_telegram_attachment(message: Message) -> TelegramAttachment | None:
    """The file of a message; of a photo the largest size."""
    if message.photo:
        best = max(message.photo, key=lambda size: size.width * size.height)
        return _build_attachment(best, "photo", mime="image/jpeg")
    kinds = {
        "animation": message.animation,
        "audio": message.audio,
        "document": message.document,
        "voice message": message.voice,
        "video": message.video,
        "video message": message.video_note,
    }
    for kind, found in kinds.items():
        if found is not None:
            return _build_attachment(found, kind)
    return None


def _build_attachment(media: Any, kind: str, *, mime: str | None = None) -> TelegramAttachment:
    return TelegramAttachment(
        file_id=media.file_id,
        kind=kind,
        mime=mime or getattr(media, "mime_type", None),
        name=getattr(media, "file_name", None),
        size=media.file_size,
    )


def _describe_other_content(message: Message) -> str:
    """What is no text and no file."""
    if (sticker := message.sticker) is not None:
        return f"[sticker {sticker.emoji}]" if sticker.emoji else "[sticker]"
    if (venue := message.venue) is not None:
        place = venue.location
        return f"[place: {venue.title}, {venue.address}, {place.latitude}, {place.longitude}]"
    if (place := message.location) is not None:
        return f"[location: {place.latitude}, {place.longitude}]"
    if (contact := message.contact) is not None:
        name = " ".join(filter(None, (contact.first_name, contact.last_name)))
        return f"[contact: {name}, {contact.phone_number}]"
    if (poll := message.poll) is not None:
        options = "; ".join(option.text for option in poll.options)
        return f"[poll: {poll.question} ({options})]"
    if (dice := message.dice) is not None:
        return f"[{dice.emoji} shows {dice.value}]"
    return ""


def _quote_replied_message(message: Message, bot_identity: TelegramBotIdentity) -> str:
    """The beginning of what is replied to, or the part of it that was chosen."""
    to = message.reply_to_message
    if to is None or to.forum_topic_created is not None:
        return ""
    text = message.quote.text if message.quote is not None else to.text or to.caption or ""
    text = " ".join(text.split())
    if not text:
        return ""
    whose = (
        "you"
        if to.from_user is not None and to.from_user.id == bot_identity.user_id
        else _sender_name(to)
    )
    short = text if len(text) <= MAX_QUOTE_CHARS else f"{text[:MAX_QUOTE_CHARS]}…"
    return f"[in reply to {whose}: “{short}”]"


def _sender_name(message: Message) -> str:
    one: Chat | User | None = message.sender_chat or message.from_user
    if one is None:
        return UNKNOWN_SENDER_NAME
    name = one.title if isinstance(one, Chat) else one.full_name
    # In one line, or somebody's name could speak for somebody else.
    return " ".join((name or one.username or UNKNOWN_SENDER_NAME).split()) or UNKNOWN_SENDER_NAME
