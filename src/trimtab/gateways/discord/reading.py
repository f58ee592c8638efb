"""What was said in Discord, as words to an agent."""

from __future__ import annotations

import re

import discord

from trimtab.core.utf8 import whole_pairs

EDITED = "[A message was edited. It now says:]"
"""Stands before what was edited."""
NOTHING = "[a message without words]"
"""Stands for a message that only names the bot."""
QUOTED = 200
"""Characters of what is replied to that are told."""
SPOKEN = (discord.MessageType.default, discord.MessageType.reply)
"""Kinds of messages that somebody has written."""
NOBODY = "somebody"


def is_id(number: int) -> bool:
    """Whether Discord could have given it: it counts in 64 bits."""
    return 0 < number < 1 << 63


def is_direct(message: discord.Message) -> bool:
    """Whether it was said to the bot alone."""
    return isinstance(message.channel, discord.DMChannel)


def is_spoken(message: discord.Message) -> bool:
    """Whether a person wrote it: two bots that answer each other would not end."""
    author = message.author
    if not all(map(is_id, (message.id, message.channel.id, author.id))):
        return False
    return message.type in SPOKEN and not author.bot and message.webhook_id is None


def is_addressed(message: discord.Message, me: int) -> bool:
    """Whether a message is meant for the bot: it is named, or replied to."""
    if any(user.id == me for user in message.mentions):
        return True
    replied = _replied(message)
    return replied is not None and replied.author.id == me


def words_of(message: discord.Message, me: int, *, edited: bool = False) -> str:
    """What is said to the agent; in a server with the name of who says it."""
    lines = [text] if (text := _text(message, me)) else []
    lines += [f"[sticker: {_line(sticker.name)}]" for sticker in message.stickers]
    if message.poll is not None:
        options = "; ".join(answer.text for answer in message.poll.answers)
        lines.append(f"[poll: {message.poll.question} ({options})]")
    lines += [f"[forwarded]\n{shot.content}" for shot in message.message_snapshots if shot.content]
    if quote := _quote(message, me):
        lines.insert(0, quote)
    if not lines and not message.attachments:
        lines.append(NOTHING)
    told = "\n".join(lines)
    if not is_direct(message):
        told = f"{name_of(message.author)}: {told}"
    return f"{EDITED}\n{told}" if edited else told


def title_of(message: discord.Message, me: int) -> str:
    """What a thread that begins with it is called: its first words."""
    words = " ".join(_text(message, me).split())
    short = words if len(words) <= 80 else f"{words[:79]}…"
    return short or f"With {name_of(message.author)}"[:80]


def name_of(user: discord.abc.User) -> str:
    """What somebody is called, in one line, or a name could speak for somebody else."""
    return _line(user.display_name)[:80] or NOBODY


def _line(text: object) -> str:
    return " ".join(str(text).split())


def _text(message: discord.Message, me: int) -> str:
    """The text without the bot's own name, and with the names of others instead of their ids."""
    text = re.sub(rf"<@!?{me}>", "", str(message.content))
    for user in message.mentions:
        text = re.sub(rf"<@!?{user.id}>", lambda _, user=user: f"@{name_of(user)}", text)
    return whole_pairs(text).strip()


def _replied(message: discord.Message) -> discord.Message | None:
    found = message.reference.resolved if message.reference is not None else None
    return found if isinstance(found, discord.Message) else None


def _quote(message: discord.Message, me: int) -> str:
    """The beginning of what is replied to."""
    replied = _replied(message)
    text = " ".join(_text(replied, me).split()) if replied is not None else ""
    if replied is None or not text:
        return ""
    whose = "you" if replied.author.id == me else name_of(replied.author)
    short = text if len(text) <= QUOTED else f"{text[:QUOTED]}…"
    return f"[in reply to {whose}: “{short}”]"
