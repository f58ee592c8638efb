"""Decide which Telegram messages get an answer: allow and deny lists, sender rules, mentions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from telegram import Chat, Message, MessageEntity, User

from trimtab_serve.agent.config.spec import TelegramRuleSpec, TelegramSpec
from trimtab_serve.channels.access_list import (
    EVERYONE_WILDCARD,
    is_allowed,
    matches_access_list,
)
from trimtab_serve.channels.utf16 import slice_by_utf16_units

GROUP_CHAT_TYPES = ("group", "supergroup")


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramBotIdentity:
    """The bot's own account."""

    user_id: int
    """Id of the bot."""
    username: str
    """User name of the bot, without the `@`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramSenderPermissions:
    """The permissions of a sender who gets answers."""

    groups: Literal["mention", "all", "off"]
    """Which messages in groups get an answer."""
    commands: tuple[str, ...] | None
    """Allowed commands. None for all."""
    media: bool
    """Whether files are accepted."""


def find_telegram_sender_permissions(
    config: TelegramSpec, message: Message
) -> TelegramSenderPermissions | None:
    """Return the permissions of a message's sender. None if they get no answer."""
    who = list_sender_identities(message)
    if not is_allowed(config, who) or not _may_speak_as_chat(config, message):
        return None
    for rule in config.rules:
        if matches_access_list((rule.who,), who):
            return _rules_from_config(config, rule)
    return TelegramSenderPermissions(groups=config.groups, commands=None, media=True)


def _may_speak_as_chat(config: TelegramSpec, message: Message) -> bool:
    """Return whether `allow` names the channel in whose name a message is written.

    Telegram does not say which person writes. If the group or `*` were enough, a person in `deny`
    could write in the name of a channel. An anonymous administrator writes as the group itself.
    """
    chat = message.sender_chat
    if chat is None or chat.id == message.chat.id:
        return True
    names = [one for one in config.allow if str(one) != EVERYONE_WILDCARD]
    return matches_access_list(names, _identities_of(chat))


def is_telegram_chat_denied(config: TelegramSpec, chat_id: int) -> bool:
    """Whether nothing may be sent to a chat, by its id."""
    return matches_access_list(config.deny, {str(chat_id)})


def list_sender_identities(message: Message) -> set[str]:
    """Return the ids and names by which a list may refer to the sender or the chat."""
    identities: set[str] = set()
    # If a message is sent as a chat, as by an anonymous administrator, its sender is not a person.
    speaker = message.sender_chat or message.from_user
    for one in (message.chat, speaker):
        if one is not None:
            identities |= _identities_of(one)
    return identities


def is_from_other_bot(message: Message) -> bool:
    """Whether another bot wrote it. Two bots that answer each other would never stop."""
    sender = message.from_user
    return message.sender_chat is None and (sender is None or sender.is_bot)


def mentions_or_replies_to_bot(message: Message, bot_identity: TelegramBotIdentity) -> bool:
    """Whether a message in a group mentions the bot or replies to it."""
    return _is_reply_to_bot(message, bot_identity) or any(
        _entity_names_bot(kind, entity_text, entity, bot_identity)
        for kind, entity_text, entity in _iterate_entities(message)
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
    # In a topic, every message replies to the one that created it, which no user wrote.
    if to is None or to.from_user is None or to.forum_topic_created is not None:
        return False
    return to.from_user.id == bot_identity.user_id


def _rules_from_config(config: TelegramSpec, rule: TelegramRuleSpec) -> TelegramSenderPermissions:
    commands = None if rule.commands is None else tuple(c.lstrip("/") for c in rule.commands)
    return TelegramSenderPermissions(
        groups=rule.groups or config.groups, commands=commands, media=rule.media
    )


def _identities_of(chat_or_user: Chat | User) -> set[str]:
    identities = {str(chat_or_user.id)}
    return (
        identities | {f"@{chat_or_user.username}".casefold()}
        if chat_or_user.username
        else identities
    )
