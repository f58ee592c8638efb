"""Who is answered, and when: allow-lists, deny-lists, rules for single senders, mentions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from telegram import Chat, Message, MessageEntity, User

from trimtab.agent.doors import Telegram, TelegramRule
from trimtab.gateways.lists import is_listed
from trimtab.gateways.utf16 import piece

GROUPS = ("group", "supergroup")


@dataclass(frozen=True, slots=True, kw_only=True)
class Me:
    """The bot itself, as Telegram knows it."""

    id: int
    """Its id."""
    name: str
    """Its user name, without the `@`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """Somebody who is answered, and under which rules."""

    groups: Literal["mention", "all", "off"]
    """When, in groups."""
    commands: tuple[str, ...] | None
    """Commands that are obeyed; None for all."""
    media: bool
    """Whether files are taken."""


def allowed(block: Telegram, message: Message) -> Allowed | None:
    """Under which rules the sender is answered; None where they are not."""
    who = identities(message)
    if is_listed(block.deny, who) or not is_listed(block.allow, who):
        return None
    for rule in block.rules:
        if is_listed((rule.who,), who):
            return _under(block, rule)
    return Allowed(groups=block.groups, commands=None, media=True)


def denied(block: Telegram, chat: int) -> bool:
    """Whether nothing may be sent to a chat, by its id."""
    return is_listed(block.deny, {str(chat)})


def identities(message: Message) -> set[str]:
    """What a list may call the sender or the place: ids and names."""
    found: set[str] = set()
    # Who speaks as a chat, such as an administrator who hides, has a sender that is no person.
    speaker = message.sender_chat or message.from_user
    for one in (message.chat, speaker):
        if one is not None:
            found |= _names_of(one)
    return found


def is_machine(message: Message) -> bool:
    """Whether another bot speaks: two that answer each other would not end."""
    sender = message.from_user
    return message.sender_chat is None and (sender is None or sender.is_bot)


def addressed(message: Message, me: Me) -> bool:
    """Whether a message in a group is meant for the bot: it is named, or replied to."""
    return _is_reply_to(message, me) or any(
        _names_me(kind, covered, entity, me) for kind, covered, entity in _entities(message)
    )


def _names_me(kind: str, covered: str, entity: MessageEntity, me: Me) -> bool:
    at = f"@{me.name}".casefold()
    match kind:
        case "mention":
            return covered.casefold() == at
        case "bot_command":
            return covered.casefold().endswith(at)
        case "text_mention":
            return entity.user is not None and entity.user.id == me.id
        case _:
            return False


def _entities(message: Message) -> Iterable[tuple[str, str, MessageEntity]]:
    for text, entities in (
        (message.text, message.entities),
        (message.caption, message.caption_entities),
    ):
        for entity in entities if text else ():
            yield str(entity.type), piece(text or "", entity.offset, entity.length), entity


def _is_reply_to(message: Message, me: Me) -> bool:
    to = message.reply_to_message
    # In a topic every message is a reply to the one that began it, which nobody has said.
    if to is None or to.from_user is None or to.forum_topic_created is not None:
        return False
    return to.from_user.id == me.id


def _under(block: Telegram, rule: TelegramRule) -> Allowed:
    commands = None if rule.commands is None else tuple(c.lstrip("/") for c in rule.commands)
    return Allowed(groups=rule.groups or block.groups, commands=commands, media=rule.media)


def _names_of(one: Chat | User) -> set[str]:
    found = {str(one.id)}
    return found | {f"@{one.username}".casefold()} if one.username else found
