"""Telegram as a door: updates become letters, replies become messages."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

from telegram import Bot, BotCommand, Message, Update
from telegram.error import InvalidToken, TelegramError

from trimtab.agent.config.spec import TelegramSpec
from trimtab.log.message import Message as Spoken
from trimtab.log.message import Part, Text
from trimtab.server.channels.telegram.access import (
    GROUP_CHAT_TYPES,
    TelegramBotIdentity,
    TelegramSenderRules,
    find_telegram_sender_rules,
    is_addressed_to_telegram_bot,
    is_from_other_bot,
    is_telegram_chat_denied,
    list_sender_identities,
)
from trimtab.server.channels.telegram.attachments import convert_telegram_attachment
from trimtab.server.channels.telegram.client import InvalidTelegramToken, create_telegram_bot
from trimtab.server.channels.telegram.command_replies import CommandReplySender
from trimtab.server.channels.telegram.commands import (
    TELEGRAM_COMMANDS,
    TelegramCommandRequest,
    TelegramCommandRunner,
    parse_telegram_command,
)
from trimtab.server.channels.telegram.live_drafts import LiveDraftSender
from trimtab.server.channels.telegram.outbound import TelegramReplySender, parse_telegram_target
from trimtab.server.channels.telegram.parsing import (
    ParsedTelegramMessage,
    find_topic_id,
    parse_telegram_message,
)
from trimtab.server.channels.telegram.sender import (
    MIN_SEND_INTERVAL_S,
    TelegramSender,
    TelegramTarget,
)
from trimtab.server.delivery import Undeliverable
from trimtab.server.queue.messages import InboundMessage, OutboundMessage, ReplyRoute
from trimtab.server.service import AgentService
from trimtab.server.session_ids import DEFAULT_TENANT, SessionAddress

TELEGRAM_CHANNEL_NAME = "telegram"
ALLOWED_UPDATE_KINDS = ("message", "edited_message")
"""Kinds of updates that Telegram is asked for."""
MAX_REMEMBERED_KEYS = 1_024
"""People, albums and commands that are remembered."""
WEBHOOK_SECRET_PATTERN = re.compile(r"[A-Za-z0-9_-]{1,256}")

log = logging.getLogger("trimtab.telegram")


class TelegramChannel:
    """One bot of one agent. Made by `door`."""

    def __init__(
        self,
        service: AgentService,
        agent_name: str,
        config: TelegramSpec,
        *,
        min_interval_s: float = MIN_SEND_INTERVAL_S,
        poll_timeout_s: float = 30.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        service.agent_for(
            str(SessionAddress(tenant=DEFAULT_TENANT, agent=agent_name, name=TELEGRAM_CHANNEL_NAME))
        )
        if config.webhook is not None and not WEBHOOK_SECRET_PATTERN.fullmatch(config.secret or ""):
            raise ValueError(
                "telegram.webhook needs telegram.secret, 1 to 256 letters, digits, _ or -: without "
                "it anybody could speak for Telegram; make one with `openssl rand -hex 32`"
            )
        self._service = service
        self._agent_name = agent_name
        self._config = config
        self._poll_timeout_s = poll_timeout_s
        self._clock = clock
        self.bot: Bot = create_telegram_bot(config)
        """The library's own."""
        self.identity: TelegramBotIdentity | None = None
        """Who the bot is; None before Telegram was reached."""
        self._message_sender = TelegramSender(self.bot, min_interval_s=min_interval_s)
        self._drafts = LiveDraftSender(
            service.event_bus, self._message_sender, show_drafts=config.stream
        )
        self._reply_sender = TelegramReplySender(self._message_sender, self._drafts)
        self._command_reply_sender = CommandReplySender(self._message_sender)
        self._command_runner = TelegramCommandRunner(service, self._command_reply_sender)
        self._logged_strangers: OrderedDict[str, None] = OrderedDict()
        self._handled_commands: OrderedDict[str, None] = OrderedDict()
        self._addressed_albums: OrderedDict[str, None] = OrderedDict()
        self._connect_lock = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<TelegramDoor of {self._agent_name}>"

    @property
    def name(self) -> str:
        """What its routes are called."""
        return TELEGRAM_CHANNEL_NAME

    @property
    def routes(self) -> Sequence[Any]:
        """The webhook, where there is one."""
        if self._config.webhook is None:
            return ()
        from trimtab.server.channels.telegram.webhook import create_webhook_route

        path = urlsplit(self._config.webhook).path or "/"
        return (create_webhook_route(path, self._config.secret or "", self.handle_update),)

    async def run(self) -> None:
        """Take in what comes, until cancelled. Raises `InvalidTelegramToken`."""
        from trimtab.server.channels.telegram.polling import (
            call_telegram_with_retries,
            poll_telegram_updates,
        )

        await call_telegram_with_retries(self.connect)
        if self._config.webhook is not None:
            await call_telegram_with_retries(self._set_webhook)
            await asyncio.Event().wait()
        await call_telegram_with_retries(self._delete_webhook)
        await poll_telegram_updates(
            self.bot,
            self.handle_update,
            poll_timeout_s=self._poll_timeout_s,
            update_kinds=ALLOWED_UPDATE_KINDS,
        )

    async def connect(self) -> None:
        """Find out who the bot is, and tell Telegram its commands; once."""
        async with self._connect_lock:
            if self.identity is not None:
                return
            try:
                await self.bot.initialize()
            except InvalidToken:
                raise InvalidTelegramToken from None
            user = self.bot.bot
            self.identity = TelegramBotIdentity(user_id=user.id, username=user.username or "")
        log.info(
            "Telegram bot @%s (%d) answers as %s",
            self.identity.username,
            self.identity.user_id,
            self._agent_name,
        )
        try:
            await self.bot.set_my_commands(
                [BotCommand(name, command.help) for name, command in TELEGRAM_COMMANDS.items()]
            )
        except TelegramError as error:
            log.warning("the list of commands was not taken: %s", type(error).__name__)

    async def deliver(self, reply: OutboundMessage) -> None:
        """Send one reply; raises as `delivery.DeliverReply` says."""
        place = parse_telegram_target(reply.route.address)
        if is_telegram_chat_denied(self._config, place.chat):
            raise Undeliverable("the chat is in telegram.deny")
        await self.connect()
        await self._reply_sender(reply)

    async def close(self) -> None:
        """Take back what is half written, and give back the connections."""
        await self._command_reply_sender.close()
        await self._drafts.close()
        await self.bot.shutdown()

    async def handle_update(self, update: Update) -> None:
        """Take in one update: when this returns it is kept, obeyed or of no concern.

        Raises what `AgentService.post` does; then it must be given again.
        """
        message = update.message or update.edited_message
        if message is None or message.chat.type not in ("private", *GROUP_CHAT_TYPES):
            return
        await self.connect()
        if await self._follow_group_migration(message):
            return
        sender = self._find_rules_or_log(message)
        if sender is None or not self._is_for_bot(message, sender):
            return
        edited = update.edited_message is not None
        await self._accept_message(message, sender, edited=edited, update_id=update.update_id)

    async def _accept_message(
        self, message: Message, sender_rules: TelegramSenderRules, *, edited: bool, update_id: int
    ) -> None:
        me = self._require_identity()
        session, place = (
            self._session_id_for(message.chat.id, find_topic_id(message)),
            self._reply_target(message),
        )
        key = f"{TELEGRAM_CHANNEL_NAME}:{me.user_id}:{message.chat.id}:{message.message_id}"
        command = None if edited else parse_telegram_command(message, me)
        if command is not None:
            may = sender_rules.commands is None or command.name in sender_rules.commands
            if may and key not in self._handled_commands:
                given = TelegramCommandRequest(
                    command=command, session_id=session, target=place, idempotency_key=key
                )
                await self._command_runner.run(given)
                _remember_if_new(self._handled_commands, key)
            return
        words = parse_telegram_message(message, me, edited=edited)
        if words is None:
            return
        spoken, refusal = await self._build_message(words, sender_rules)
        letter = InboundMessage(
            session=session,
            message=spoken,
            key=f"{key}:{update_id}" if edited else key,
            at=self._clock(),
            route=_build_reply_route(place),
        )
        if await self._service.post(letter):
            if refusal:
                self._command_reply_sender.send_text(place, refusal)
            self._drafts.watch_session(session, place)

    def _find_rules_or_log(self, message: Message) -> TelegramSenderRules | None:
        """Under which rules the sender is answered. A stranger hears nothing, the operator does."""
        if is_from_other_bot(message):
            return None
        found = find_telegram_sender_rules(self._config, message)
        if found is None:
            who = ", ".join(sorted(list_sender_identities(message)))
            if _remember_if_new(self._logged_strangers, who):
                log.warning("not in telegram.allow, so not answered: %s", who)
        return found

    def _is_for_bot(self, message: Message, sender_rules: TelegramSenderRules) -> bool:
        """Whether a message is meant for the bot."""
        if message.chat.type not in GROUP_CHAT_TYPES:
            return True
        if sender_rules.groups != "mention":
            return sender_rules.groups == "all"
        me, album = self._require_identity(), message.media_group_id
        named = (
            is_addressed_to_telegram_bot(message, me)
            or parse_telegram_command(message, me) is not None
        )
        if album is not None and named:
            _remember_if_new(self._addressed_albums, f"{message.chat.id}:{album}")
        # Of an album the first picture alone carries the words.
        return named or (
            album is not None and f"{message.chat.id}:{album}" in self._addressed_albums
        )

    async def _build_message(
        self, parsed: ParsedTelegramMessage, sender_rules: TelegramSenderRules
    ) -> tuple[Spoken, str]:
        """What is said to the agent, and what its sender is told of a file that was not taken."""
        parts: list[Part] = [Text(text=parsed.text)] if parsed.text else []
        refusal = ""
        if parsed.attachment is not None:
            if sender_rules.media:
                takes, most = (
                    self._service.agents[self._agent_name].accepted_media,
                    self._config.max_file,
                )
                file = await convert_telegram_attachment(
                    self.bot, parsed.attachment, accepted_media=takes, max_bytes=most
                )
                parts.append(file.part)
                refusal = file.refusal
            else:
                parts.append(Text(text=f"[{parsed.attachment.kind}: not taken from this sender]"))
        return Spoken(role="user", parts=tuple(parts), plain=len(parts) == 1), refusal

    async def _follow_group_migration(self, message: Message) -> bool:
        """Follow a group that has become a supergroup: its past goes along."""
        old, new = message.migrate_from_chat_id, message.chat.id
        if message.migrate_to_chat_id is not None:
            old, new = message.chat.id, message.migrate_to_chat_id
        if old is None:
            return False
        if old >= 0 or new >= 0:  # people do not become groups
            return True
        before, after = self._session_id_for(old, None), self._session_id_for(new, None)
        store = self._service.store
        if await store.position(before) and not await store.position(after):
            async with self._service.open_session(before) as opened:
                copy = await opened.fork(after)
                await copy.close()
            log.warning("the group %d is now %d; change telegram.allow and rules", old, new)
        return True

    def _session_id_for(self, chat_id: int, topic_id: int | None) -> str:
        name = (
            f"{TELEGRAM_CHANNEL_NAME}:{chat_id}"
            if topic_id is None
            else f"{TELEGRAM_CHANNEL_NAME}:{chat_id}:{topic_id}"
        )
        return str(SessionAddress(tenant=DEFAULT_TENANT, agent=self._agent_name, name=name))

    def _reply_target(self, message: Message) -> TelegramTarget:
        reply_to = message.message_id if message.chat.type in GROUP_CHAT_TYPES else None
        return TelegramTarget(chat=message.chat.id, topic=find_topic_id(message), reply_to=reply_to)

    def _require_identity(self) -> TelegramBotIdentity:
        assert self.identity is not None  # noqa: S101 - take() begins
        return self.identity

    async def _set_webhook(self) -> None:
        assert self._config.webhook is not None  # noqa: S101 - run() has looked
        await self.bot.set_webhook(
            self._config.webhook,
            secret_token=self._config.secret,
            allowed_updates=list(ALLOWED_UPDATE_KINDS),
        )

    async def _delete_webhook(self) -> None:
        await self.bot.delete_webhook()


def create_telegram_channel(
    service: AgentService, agent_name: str, config: TelegramSpec, **test_options: Any
) -> TelegramChannel:
    """The channel of one agent's bot. Tests give `min_interval_s`, `poll_timeout_s`, `clock`."""
    return TelegramChannel(service, agent_name, config, **test_options)


def _build_reply_route(target: TelegramTarget) -> ReplyRoute:
    address: dict[str, Any] = {"chat": target.chat}
    if target.topic is not None:
        address["topic"] = target.topic
    if target.reply_to is not None:
        address["reply_to"] = target.reply_to
    return ReplyRoute(channel=TELEGRAM_CHANNEL_NAME, address=address)


def _remember_if_new(remembered: OrderedDict[str, None], key: str) -> bool:
    """Whether it was not known; the oldest are forgotten."""
    new = key not in remembered
    remembered[key] = None
    remembered.move_to_end(key)
    while len(remembered) > MAX_REMEMBERED_KEYS:
        remembered.popitem(last=False)
    return new
