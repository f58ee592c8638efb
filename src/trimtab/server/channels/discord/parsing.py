"""What was said in Discord, as words to an agent."""

from __future__ import annotations

import re

import discord

from trimtab.text.utf8 import replace_lone_surrogates

EDITED_NOTICE = "[A message was edited. It now says:]"
"""Stands before what was edited."""
EMPTY_MESSAGE_TEXT = "[a message without words]"
"""Stands for a message that only names the bot."""
MAX_QUOTE_CHARS = 200
"""Characters of what is replied to that are told."""
USER_MESSAGE_TYPES = (discord.MessageType.default, discord.MessageType.reply)
"""Kinds of messages that somebody has written."""
UNKNOWN_SENDER_NAME = "somebody"


def is_discord_snowflake(value: int) -> bool:
    """Whether Discord could have given it: it counts in 64 bits."""
    return 0 < value < 1 << 63


def is_direct_message(message: discord.Message) -> bool:
    """Whether it was said to the bot alone."""
    return isinstance(message.channel, discord.DMChannel)


def is_written_by_person(message: discord.Message) -> bool:
    """Whether a person wrote it: two bots that answer each other would not end."""
    author = message.author
    if not all(map(is_discord_snowflake, (message.id, message.channel.id, author.id))):
        return False
    return message.type in USER_MESSAGE_TYPES and not author.bot and message.webhook_id is None


def is_addressed_to_discord_bot(message: discord.Message, bot_user_id: int) -> bool:
    """Whether a message is meant for the bot: it is named, or replied to."""
    if any(user.id == bot_user_id for user in message.mentions):
        return True
    replied = _find_replied_message(message)
    return replied is not None and replied.author.id == bot_user_id


def format_discord_message_for_agent(
    message: discord.Message, bot_user_id: int, *, edited: bool = False
) -> str:
    """What is said to the agent; in a server with the name of who says it."""
    lines = [text] if (text := _readable_text(message, bot_user_id)) else []
    lines += [f"[sticker: {_collapse_to_one_line(sticker.name)}]" for sticker in message.stickers]
    if message.poll is not None:
        options = "; ".join(answer.text for answer in message.poll.answers)
        lines.append(f"[poll: {message.poll.question} ({options})]")
    lines += [f"[forwarded]\n{shot.content}" for shot in message.message_snapshots if shot.content]
    if quote := _quote_replied_message(message, bot_user_id):
        lines.insert(0, quote)
    if not lines and not message.attachments:
        lines.append(EMPTY_MESSAGE_TEXT)
    told = "\n".join(lines)
    if not is_direct_message(message):
        told = f"{format_display_name(message.author)}: {told}"
    return f"{EDITED_NOTICE}\n{told}" if edited else told


def build_thread_title(message: discord.Message, bot_user_id: int) -> str:
    """What a thread that begins with it is called: its first words."""
    words = " ".join(_readable_text(message, bot_user_id).split())
    short = words if len(words) <= 80 else f"{words[:79]}…"
    return short or f"With {format_display_name(message.author)}"[:80]


def format_display_name(user: discord.abc.User) -> str:
    """What somebody is called, in one line, or a name could speak for somebody else."""
    return _collapse_to_one_line(user.display_name)[:80] or UNKNOWN_SENDER_NAME


def _collapse_to_one_line(text: object) -> str:
    return " ".join(str(text).split())


def _readable_text(message: discord.Message, bot_user_id: int) -> str:
    """The text without the bot's own name, and with the names of others instead of their ids."""
    text = re.sub(rf"<@!?{bot_user_id}>", "", str(message.content))
    for user in message.mentions:
        text = re.sub(
            rf"<@!?{user.id}>", lambda _, user=user: f"@{format_display_name(user)}", text
        )
    return replace_lone_surrogates(text).strip()


def _find_replied_message(message: discord.Message) -> discord.Message | None:
    found = message.reference.resolved if message.reference is not None else None
    return found if isinstance(found, discord.Message) else None


def _quote_replied_message(message: discord.Message, bot_user_id: int) -> str:
    """The beginning of what is replied to."""
    replied = _find_replied_message(message)
    text = " ".join(_readable_text(replied, bot_user_id).split()) if replied is not None else ""
    if replied is None or not text:
        return ""
    whose = "you" if replied.author.id == bot_user_id else format_display_name(replied.author)
    short = text if len(text) <= MAX_QUOTE_CHARS else f"{text[:MAX_QUOTE_CHARS]}…"
    return f"[in reply to {whose}: “{short}”]"
