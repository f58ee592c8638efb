"""Build the text that the agent reads from a Discord message."""

from __future__ import annotations

import re

import discord

from trimtab.engine.text.quoting import collapse_whitespace
from trimtab.engine.text.utf8 import replace_lone_surrogates
from trimtab_serve.channels.inbound_text import (
    format_inbound_text,
    format_poll,
    format_reply_quote,
    format_sender,
    quote_in_notice,
)

EMPTY_MESSAGE_TEXT = "[a message without words]"
"""Replaces a message that only mentions the bot."""
USER_MESSAGE_TYPES = (discord.MessageType.default, discord.MessageType.reply)
"""Types of messages that a user wrote."""


def is_discord_snowflake(value: int) -> bool:
    """Whether Discord could have assigned this id, which has 64 bits."""
    return 0 < value < 1 << 63


def is_direct_message(message: discord.Message) -> bool:
    """Whether it was sent to the bot alone."""
    return isinstance(message.channel, discord.DMChannel)


def is_written_by_person(message: discord.Message) -> bool:
    """Whether a person wrote it. Two bots that answer each other would never stop."""
    author = message.author
    if not all(map(is_discord_snowflake, (message.id, message.channel.id, author.id))):
        return False
    return message.type in USER_MESSAGE_TYPES and not author.bot and message.webhook_id is None


def is_addressed_to_discord_bot(message: discord.Message, bot_user_id: int) -> bool:
    """Whether a message mentions the bot or replies to it."""
    if any(user.id == bot_user_id for user in message.mentions):
        return True
    replied_message = _find_replied_message(message)
    return replied_message is not None and replied_message.author.id == bot_user_id


def format_discord_message_for_agent(
    message: discord.Message, bot_user_id: int, *, edited: bool = False
) -> str:
    """Return the text for the agent. In a server, it includes the sender."""
    lines = [text] if (text := _readable_text(message, bot_user_id)) else []
    lines += [f"[sticker: {quote_in_notice(sticker.name)}]" for sticker in message.stickers]
    if message.poll is not None:
        answers = (answer.text for answer in message.poll.answers)
        lines.append(format_poll(str(message.poll.question), answers))
    forwarded_texts = [shot.content for shot in message.message_snapshots if shot.content]
    lines += forwarded_texts
    quote = _quote_replied_message(message, bot_user_id)
    if not lines and not message.attachments:
        lines.append(EMPTY_MESSAGE_TEXT)
    author = message.author
    sender = (
        None if is_direct_message(message) else format_sender(str(author.display_name), author.id)
    )
    return format_inbound_text(
        lines,
        notices=[quote] if quote else [],
        sender=sender,
        edited=edited,
        forwarded=bool(forwarded_texts),
    )


def build_thread_title(message: discord.Message, bot_user_id: int) -> str:
    """Return the title of a thread that begins with this message: its first words."""
    words = collapse_whitespace(_readable_text(message, bot_user_id))
    short = words if len(words) <= 80 else f"{words[:79]}…"
    return short or f"With {_sender_name(message.author)}"[:80]


def _sender_name(user: discord.abc.User) -> str:
    return format_sender(str(user.display_name), None)


def _readable_text(message: discord.Message, bot_user_id: int) -> str:
    """Return the text without the bot's mention, and with names in place of user ids."""
    text = re.sub(rf"<@!?{bot_user_id}>", "", str(message.content))
    for user in message.mentions:
        text = re.sub(rf"<@!?{user.id}>", lambda _, user=user: f"@{_sender_name(user)}", text)
    return replace_lone_surrogates(text).strip()


def _find_replied_message(message: discord.Message) -> discord.Message | None:
    resolved_message = message.reference.resolved if message.reference is not None else None
    return resolved_message if isinstance(resolved_message, discord.Message) else None


def _quote_replied_message(message: discord.Message, bot_user_id: int) -> str:
    """Return the beginning of the message that is replied to."""
    replied_message = _find_replied_message(message)
    if replied_message is None:
        return ""
    author = replied_message.author
    is_own = author.id == bot_user_id
    return format_reply_quote(
        _readable_text(replied_message, bot_user_id),
        None if is_own else format_sender(str(author.display_name), author.id),
    )
