"""Who is answered, and when: allow-lists, deny-lists, rules for single senders, mentions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from telegram import Chat, Message, MessageEntity, User

from trimtab.agent.config.spec import TelegramRuleSpec, TelegramSpec
from trimtab.server.channels.access_list import is_allowed, matches_access_list
from trimtab.server.channels.utf16 import slice_by_utf16_units

GROUP_CHAT_TYPES = ("group", "supergroup")


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramBotIdentity:
    """The bot itself, as Telegram knows it."""

    user_id: int
    """Its id."""
    username: str
    """Its user name, without the `@`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramSenderPermissions:
    """Somebody who is answered, and under which rules."""

    groups: Literal["mention", "all", "off"]
    """When, in groups."""
    commands: tuple[str, ...] | None
    """Commands that are obeyed; None for all."""
    media: bool
    """Whether files are taken."""


def find_telegram_sender_permissions(
    config: TelegramSpec, message: Message
) -> TelegramSenderPermissions | None:
    """Under which rules the sender is answered; None where they are not."""
    who = list_sender_identities(message)
    if not is_allowed(config, who):
        return None
    for rule in config.rules:
        if matches_access_list((rule.who,), who):
            return _rules_from_config(config, rule)
    return TelegramSenderPermissions(groups=config.groups, commands=None, media=True)


def is_telegram_chat_denied(config: TelegramSpec, chat_id: int) -> bool:
    """Whether nothing may be sent to a chat, by its id."""
    return matches_access_list(config.deny, {str(chat_id)})


def list_sender_identities(message: Message) -> set[str]:
    """What a list may call the sender or the place: ids and names."""
    found: set[str] = set()
    # Who speaks as a chat, such as an administrator who hides, has a sender that is no person.
    speaker = message.sender_chat or message.from_user
    for one in (message.chat, speaker):
        if one is not None:
            found |= _identities_of(one)
    return found


def is_from_other_bot(message: Message) -> bool:
    """Whether another bot speaks: two that answer each other would not end."""
    sender = message.from_user
    return message.sender_chat is None and (sender is None or sender.is_bot)


def mentions_or_replies_to_bot(message: Message, bot_identity: TelegramBotIdentity) -> bool:
    """Whether a message in a group is meant for the bot: it is named, or replied to."""
    return _is_reply_to_bot(message, bot_identity) or any(
        _entity_names_bot(kind, covered, entity, bot_identity)
        for kind, covered, entity in _iterate_entities(message)
    )


def _entity_names_bot(
    kind: str, covered_text: str, entity: MessageEntity, bot_identity: TelegramBotIdentity
) -> bool:
    at = f"@{bot_identity.username}".casefold()
    match kind:
        case "mention":
            return covered_text.casefold() == at
        case "bot_command":
            return covered_text.casefold().endswith(at)
        case "text_mention":
            return entity.user is not None and entity.user.id == bot_identity.user_id
        case _:
            return False


def _iterate_entities(message: Message) -> Iterable[tuple[str, str, MessageEntity]]:
    for text, entities in (
        (message.text, message.entities),
        (message.caption, message.caption_entities),
    ):
        for entity in entities if text else ():
            yield (
                str(entity.type),
                slice_by_utf16_units(text or "", entity.offset, entity.length),
                entity,
            )


def _is_reply_to_bot(message: Message, bot_identity: TelegramBotIdentity) -> bool:
    to = message.reply_to_message
    # In a topic every message is a reply to the one that began it, which nobody has said.
    if to is None or to.from_user is None or to.forum_topic_created is not None:
        return False
    return to.from_user.id == bot_identity.user_id


def _rules_from_config(config: TelegramSpec, rule: TelegramRuleSpec) -> TelegramSenderPermissions:
    commands = None if rule.commands is None else tuple(c.lstrip("/") for c in rule.commands)
    return TelegramSenderPermissions(
        groups=rule.groups or config.groups, commands=commands, media=rule.media
    )


def _identities_of(chat_or_user: Chat | User) -> set[str]:
    found = {str(chat_or_user.id)}
    return found | {f"@{chat_or_user.username}".casefold()} if chat_or_user.username else found
