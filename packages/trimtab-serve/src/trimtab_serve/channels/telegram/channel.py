"""The channel of a Telegram bot: posts updates as messages, and sends replies."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from telegram import Bot, BotCommand, Message, Update
from telegram.error import InvalidToken, TelegramError

from trimtab_serve.agent.config.spec import TelegramSpec
from trimtab_serve.channels.chat_files import (
    FetchableChatFile,
    FileFetchFailed,
    FileTooLarge,
    build_user_message,
)
from trimtab_serve.channels.pending_edits import EDIT_PAUSE_S, PendingEdits
from trimtab_serve.channels.telegram.access import (
    GROUP_CHAT_TYPES,
    TelegramBotIdentity,
    TelegramSenderPermissions,
    find_telegram_sender_permissions,
    is_from_other_bot,
    is_telegram_chat_denied,
    list_sender_identities,
    mentions_or_replies_to_bot,
)
from trimtab_serve.channels.telegram.bot_api_client import InvalidTelegramToken, create_telegram_bot
from trimtab_serve.channels.telegram.command_reply_sender import CommandReplySender
from trimtab_serve.channels.telegram.inbound_text import (
    find_speaker,
    find_topic_id,
    format_telegram_message_for_agent,
    is_group_message,
)
from trimtab_serve.channels.telegram.live_drafts import LiveDraftSender
from trimtab_serve.channels.telegram.paced_sender import (
    MIN_SEND_INTERVAL_S,
    TelegramSender,
    TelegramTarget,
)
from trimtab_serve.channels.telegram.reply_sender import TelegramReplySender, parse_telegram_target
from trimtab_serve.channels.telegram.slash_commands import (
    TELEGRAM_COMMANDS,
    TelegramCommandRequest,
    TelegramCommandRunner,
    parse_telegram_command,
)
from trimtab_serve.channels.typing_indicator import TypingIndicator
from trimtab_serve.queue.address import DEFAULT_TENANT, SessionAddress
from trimtab_serve.queue.bounded_dict import BoundedDict
from trimtab_serve.queue.messages import InboundMessage, OutboundMessage, ReplyRoute
from trimtab_serve.service.delivery import Undeliverable
from trimtab_serve.service.sender import with_sender
from trimtab_serve.service.service import AgentService


def find_telegram_file(bot: Bot, message: Message, *, max_bytes: int) -> FetchableChatFile | None:
    """Return the file of a message, for a photo in its largest size. None if there is none."""
    if message.photo:
        largest = max(message.photo, key=lambda size: size.width * size.height)
        return _build_chat_file(bot, largest, "photo", max_bytes, mime="image/jpeg")
    kinds = {
        "animation": message.animation,
        "audio": message.audio,
        "document": message.document,
        "voice message": message.voice,
        "video": message.video,
        "video message": message.video_note,
    }
    for kind, attachment in kinds.items():
        if attachment is not None:
            return _build_chat_file(bot, attachment, kind, max_bytes)
    return None


def _build_chat_file(
    bot: Bot, media: Any, kind: str, max_bytes: int, *, mime: str | None = None
) -> FetchableChatFile:
    async def fetch() -> bytes:
        try:
            file = await bot.get_file(media.file_id)
            if file.file_size is not None and file.file_size > max_bytes:
                raise FileTooLarge(file.file_size)
            return bytes(await file.download_as_bytearray())
        except TelegramError as error:
            log.warning("fetching a %s failed: %s", kind, type(error).__name__)
            raise FileFetchFailed from error

    return FetchableChatFile(
        kind=kind,
        fetch=fetch,
        mime=mime or getattr(media, "mime_type", None),
        name=getattr(media, "file_name", None),
        size=media.file_size,
    )


TELEGRAM_CHANNEL_NAME = "telegram"
ALLOWED_UPDATE_KINDS = ("message", "edited_message")
"""Kinds of updates to request from Telegram."""
MAX_REMEMBERED_KEYS = 1_024
"""Maximum number of remembered senders, albums and commands."""
TYPING_INTERVAL_S = 4.5
"""Seconds between two typing indicators. Telegram shows one for five seconds."""

log = logging.getLogger("trimtab.telegram")


class TelegramChannel:
    """The channel of one bot of one agent."""

    def __init__(
        self,
        service: AgentService,
        agent_name: str,
        config: TelegramSpec,
        *,
        min_interval_s: float = MIN_SEND_INTERVAL_S,
        poll_timeout_s: float = 30.0,
        edit_pause_s: float = EDIT_PAUSE_S,
    ) -> None:
        service.agent_for(
            str(SessionAddress(tenant=DEFAULT_TENANT, agent=agent_name, name=TELEGRAM_CHANNEL_NAME))
        )
        self._service = service
        self._agent_name = agent_name
        self._config = config
        self._poll_timeout_s = poll_timeout_s
        self.bot: Bot = create_telegram_bot(config)
        """The bot object of the library."""
        self.identity: TelegramBotIdentity | None = None
        """The account of the bot. None before Telegram was reached."""
        self._message_sender = TelegramSender(self.bot, min_interval_s=min_interval_s)
        self._drafts = LiveDraftSender(
            service.event_bus, self._message_sender, show_drafts=config.stream
        )
        self._reply_sender = TelegramReplySender(self._message_sender, self._drafts)
        self._command_reply_sender = CommandReplySender(self._message_sender)
        self._command_runner = TelegramCommandRunner(service, self._command_reply_sender)
        self._typing_indicator = TypingIndicator(
            service, self._message_sender.show_typing, interval_s=TYPING_INTERVAL_S
        )
        self._logged_strangers = BoundedDict[str, None](MAX_REMEMBERED_KEYS)
        self._handled_commands = BoundedDict[str, None](MAX_REMEMBERED_KEYS)
        self._addressed_albums = BoundedDict[str, None](MAX_REMEMBERED_KEYS)
        self._edits = PendingEdits(edit_pause_s)
        self._connect_lock = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<TelegramChannel of {self._agent_name}>"

    @property
    def name(self) -> str:
        """The channel name in its routes."""
        return TELEGRAM_CHANNEL_NAME

    @property
    def routes(self) -> Sequence[Any]:
        """The webhook, if there is one."""
        if self._config.webhook is None:
            return ()
        from trimtab_serve.channels.telegram.webhook import create_webhook_route

        path = urlsplit(self._config.webhook).path or "/"
        return (create_webhook_route(path, self._config.secret or "", self.handle_update),)

    async def run(self) -> None:
        """Receive updates until cancelled. Raises `InvalidTelegramToken`."""
        from trimtab_serve.channels.telegram.polling import (
            poll_telegram_updates,
            retry_telegram_call_until_done,
        )

        await retry_telegram_call_until_done(self.connect)
        if self._config.webhook is not None:
            await retry_telegram_call_until_done(self._set_webhook)
            await asyncio.Event().wait()
        await retry_telegram_call_until_done(self._delete_webhook)
        await poll_telegram_updates(
            self.bot,
            self.handle_update,
            poll_timeout_s=self._poll_timeout_s,
            update_kinds=ALLOWED_UPDATE_KINDS,
        )

    async def connect(self) -> None:
        """Fetch the bot's account, and register its commands, once."""
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
            log.warning("registering the commands failed: %s", type(error).__name__)

    async def deliver(self, reply: OutboundMessage) -> None:
        """Send one reply. Raises the errors of `delivery.DeliverReply`."""
        place = parse_telegram_target(reply.route.address)
        if is_telegram_chat_denied(self._config, place.chat):
            raise Undeliverable("the chat is in telegram.deny")
        await self.connect()
        await self._reply_sender.send_reply(reply)
        self._typing_indicator.on_reply_sent(reply.session)

    async def close(self) -> None:
        """Store the edits, delete unfinished drafts, and close the connections."""
        await self._edits.close()
        await self._command_reply_sender.close()
        await self._typing_indicator.close()
        await self._drafts.close()
        await self.bot.shutdown()

    async def handle_update(self, update: Update) -> None:
        """Handle one update: store it, carry out its command, or ignore it. An edit is stored after
        a pause.

        Raises the errors of `AgentService.post`. Then the update must be handled again.
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
        if update.edited_message is None:
            await self._accept_message(message, sender)
            return
        edit_key = f"{self._key_of(message)}:{update.update_id}"
        self._edits.add(
            self._key_of(message),
            lambda: self._accept_message(message, sender, edit_key=edit_key),
        )

    async def _accept_message(
        self,
        message: Message,
        sender_rules: TelegramSenderPermissions,
        *,
        edit_key: str | None = None,
    ) -> None:
        """Store a message. `edit_key` is the key of an edit, and None for a new message."""
        me = self._require_identity()
        session = self._session_id_for(message.chat.id, find_topic_id(message))
        place = self._reply_target(message)
        key = edit_key or self._key_of(message)
        command = None if edit_key else parse_telegram_command(message, me)
        if command is not None:
            may = sender_rules.commands is None or command.name in sender_rules.commands
            if may and key not in self._handled_commands:
                command_request = TelegramCommandRequest(
                    command=command, session_id=session, target=place, idempotency_key=key
                )
                await self._command_runner.run(command_request)
                self._handled_commands[key] = None
            return
        max_bytes = self._config.max_file_bytes
        file = find_telegram_file(self.bot, message, max_bytes=max_bytes)
        text = format_telegram_message_for_agent(
            message, me, edited=edit_key is not None, has_file=file is not None
        )
        if text is None:
            return
        user_message, refusal = await build_user_message(
            text,
            () if file is None else (file,),
            accepted_media=self._service.agents[self._agent_name].accepted_media,
            max_bytes=max_bytes,
            files_allowed=sender_rules.media,
        )
        inbound = InboundMessage(
            session=session,
            message=with_sender(
                user_message, _sender_id(message), is_private=message.chat.type == "private"
            ),
            key=key,
            at=time.time(),
            route=_build_reply_route(place),
        )
        if await self._typing_indicator.post_message(inbound, place):
            if refusal:
                self._command_reply_sender.send_text(place, refusal)
            self._drafts.watch_session(session, place)

    def _find_rules_or_log(self, message: Message) -> TelegramSenderPermissions | None:
        """Return the sender's permissions. A stranger gets no answer, but the operator gets a log
        line."""
        if is_from_other_bot(message):
            return None
        permissions = find_telegram_sender_permissions(self._config, message)
        if permissions is None:
            who = ", ".join(sorted(list_sender_identities(message)))
            if self._logged_strangers.add_if_missing(who, None):
                log.warning("not in telegram.allow, so not answered: %s", who)
        return permissions

    def _is_for_bot(self, message: Message, sender_rules: TelegramSenderPermissions) -> bool:
        """Whether a message is meant for the bot."""
        if not is_group_message(message):
            return True
        if sender_rules.groups != "mention":
            return sender_rules.groups == "all"
        me = self._require_identity()
        album = message.media_group_id
        is_addressed = (
            mentions_or_replies_to_bot(message, me)
            or parse_telegram_command(message, me) is not None
        )
        if album is not None and is_addressed:
            self._addressed_albums[f"{message.chat.id}:{album}"] = None
        # Only the first picture of an album has the text.
        return is_addressed or (
            album is not None and f"{message.chat.id}:{album}" in self._addressed_albums
        )

    async def _follow_group_migration(self, message: Message) -> bool:
        """Copy the session of a group that has become a supergroup."""
        old = message.migrate_from_chat_id
        new = message.chat.id
        if message.migrate_to_chat_id is not None:
            old = message.chat.id
            new = message.migrate_to_chat_id
        if old is None:
            return False
        if old >= 0 or new >= 0:  # users do not become groups
            return True
        before = self._session_id_for(old, None)
        after = self._session_id_for(new, None)
        store = self._service.store
        if await store.position(before) and not await store.position(after):
            async with self._service.open_session(before) as session:
                copy = await session.fork(after)
                await copy.close()
            log.warning(
                "Telegram changed the id of group %d to %d; write the new id into `allow` and "
                "`rules` of telegram",
                old,
                new,
            )
        return True

    def _key_of(self, message: Message) -> str:
        bot = self._require_identity().user_id
        return f"{TELEGRAM_CHANNEL_NAME}:{bot}:{message.chat.id}:{message.message_id}"

    def _session_id_for(self, chat_id: int, topic_id: int | None) -> str:
        name = (
            f"{TELEGRAM_CHANNEL_NAME}:{chat_id}"
            if topic_id is None
            else f"{TELEGRAM_CHANNEL_NAME}:{chat_id}:{topic_id}"
        )
        return str(SessionAddress(tenant=DEFAULT_TENANT, agent=self._agent_name, name=name))

    def _reply_target(self, message: Message) -> TelegramTarget:
        reply_to = message.message_id if is_group_message(message) else None
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


def _sender_id(message: Message) -> str:
    return f"{TELEGRAM_CHANNEL_NAME}:{find_speaker(message).id}"


def _build_reply_route(target: TelegramTarget) -> ReplyRoute:
    address: dict[str, Any] = {"chat": target.chat}
    if target.topic is not None:
        address["topic"] = target.topic
    if target.reply_to is not None:
        address["reply_to"] = target.reply_to
    return ReplyRoute(channel=TELEGRAM_CHANNEL_NAME, address=address)
