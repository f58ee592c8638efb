"""Build the text that the agent reads from a Telegram message."""

from __future__ import annotations

from telegram import Chat, Message, User

from trimtab_serve.channels.inbound_text import (
    format_inbound_text,
    format_poll,
    format_reply_quote,
    format_sender,
    quote_in_notice,
)
from trimtab_serve.channels.telegram.access import GROUP_CHAT_TYPES, TelegramBotIdentity


def find_topic_id(message: Message) -> int | None:
    """Return the topic of a message. None without topics, or in the general one."""
    return message.message_thread_id if message.is_topic_message else None


def is_group_message(message: Message) -> bool:
    """Whether several people read and write in the chat of a message."""
    return message.chat.type in GROUP_CHAT_TYPES


def format_telegram_message_for_agent(
    message: Message, bot_identity: TelegramBotIdentity, *, edited: bool, has_file: bool
) -> str | None:
    """Return the text for the agent. None for a message without content, such as a join."""
    own_text = message.text or message.caption or ""
    other = _describe_other_content(message)
    if not own_text and not has_file and not other:
        return None
    if edited and message.location is not None:
        return None  # an update of a live location
    quote = _quote_replied_message(message, bot_identity)
    return format_inbound_text(
        [line for line in (own_text, other) if line],
        notices=[quote] if quote else [],
        sender=_format_sender(message) if is_group_message(message) else None,
        edited=edited,
        forwarded=message.forward_origin is not None,
    )


def _describe_other_content(message: Message) -> str:
    """Describe content that is neither text nor a file."""
    if (sticker := message.sticker) is not None:
        return f"[sticker {sticker.emoji}]" if sticker.emoji else "[sticker]"
    if (venue := message.venue) is not None:
        place = venue.location
        name = quote_in_notice(f"{venue.title}, {venue.address}")
        return f"[place: {name}, {place.latitude}, {place.longitude}]"
    if (place := message.location) is not None:
        return f"[location: {place.latitude}, {place.longitude}]"
    if (contact := message.contact) is not None:
        name = " ".join(filter(None, (contact.first_name, contact.last_name)))
        return f"[contact: {quote_in_notice(f'{name}, {contact.phone_number}')}]"
    if (poll := message.poll) is not None:
        return format_poll(poll.question, (option.text for option in poll.options))
    if (dice := message.dice) is not None:
        return f"[{dice.emoji} shows {dice.value}]"
    return ""


def _quote_replied_message(message: Message, bot_identity: TelegramBotIdentity) -> str:
    """Return the beginning of the message replied to, or the part that the user selected."""
    to = message.reply_to_message
    if to is None or to.forum_topic_created is not None:
        return ""
    text = message.quote.text if message.quote is not None else to.text or to.caption or ""
    is_own = to.from_user is not None and to.from_user.id == bot_identity.user_id
    return format_reply_quote(text, None if is_own else _format_sender(to))


def find_speaker(message: Message) -> Chat | User:
    """Return who speaks: a person, or the chat in whose name they write."""
    return message.sender_chat or message.from_user or message.chat


def _format_sender(message: Message) -> str:
    sender = find_speaker(message)
    name = sender.title if isinstance(sender, Chat) else sender.full_name
    return format_sender(name or sender.username, sender.id)
