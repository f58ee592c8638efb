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

from trimtab.agent.doors import Telegram
from trimtab.core.message import Message as Spoken
from trimtab.core.message import Part, Text
from trimtab.gateways.telegram.answering import Answering
from trimtab.gateways.telegram.client import BadToken, bot_of
from trimtab.gateways.telegram.commands import COMMANDS, Commands, Given, command_in
from trimtab.gateways.telegram.delivering import Delivering, place_of
from trimtab.gateways.telegram.media import taken
from trimtab.gateways.telegram.reading import Words, topic_of, words_of
from trimtab.gateways.telegram.sending import PACE, Place, Sending
from trimtab.gateways.telegram.streaming import Streaming
from trimtab.gateways.telegram.who import (
    GROUPS,
    Allowed,
    Me,
    addressed,
    allowed,
    denied,
    identities,
    is_machine,
)
from trimtab.worker.delivery import Never
from trimtab.worker.letters import Inbound, Outbound, Route
from trimtab.worker.naming import TENANT, Address
from trimtab.worker.service import Service

NAME = "telegram"
ASKED_FOR = ("message", "edited_message")
"""Kinds of updates that Telegram is asked for."""
KNOWN = 1_024
"""People, albums and commands that are remembered."""
SECRET = re.compile(r"[A-Za-z0-9_-]{1,256}")

log = logging.getLogger("trimtab.telegram")


class TelegramDoor:
    """One bot of one agent. Made by `door`."""

    def __init__(
        self,
        service: Service,
        agent: str,
        block: Telegram,
        *,
        pace: float = PACE,
        poll: float = 30.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        service.agent_of(str(Address(tenant=TENANT, agent=agent, name=NAME)))
        if block.webhook is not None and not SECRET.fullmatch(block.secret or ""):
            raise ValueError(
                "telegram.webhook needs telegram.secret, 1 to 256 letters, digits, _ or -: without "
                "it anybody could speak for Telegram; make one with `openssl rand -hex 32`"
            )
        self._service = service
        self._agent = agent
        self._block = block
        self._poll = poll
        self._clock = clock
        self.bot: Bot = bot_of(block)
        """The library's own."""
        self.me: Me | None = None
        """Who the bot is; None before Telegram was reached."""
        self._sending = Sending(self.bot, pace=pace)
        self._streaming = Streaming(service.live, self._sending, show=block.stream)
        self._delivering = Delivering(self._sending, self._streaming)
        self._answering = Answering(self._sending)
        self._commands = Commands(service, self._answering)
        self._strangers: OrderedDict[str, None] = OrderedDict()
        self._obeyed: OrderedDict[str, None] = OrderedDict()
        self._albums: OrderedDict[str, None] = OrderedDict()
        self._ready = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<TelegramDoor of {self._agent}>"

    @property
    def name(self) -> str:
        """What its routes are called."""
        return NAME

    @property
    def routes(self) -> Sequence[Any]:
        """The webhook, where there is one."""
        if self._block.webhook is None:
            return ()
        from trimtab.gateways.telegram.webhook import webhook

        path = urlsplit(self._block.webhook).path or "/"
        return (webhook(path, self._block.secret or "", self.take),)

    async def run(self) -> None:
        """Take in what comes, until cancelled. Raises `BadToken`."""
        from trimtab.gateways.telegram.polling import patiently, poll

        await patiently(self.begin)
        if self._block.webhook is not None:
            await patiently(self._set_webhook)
            await asyncio.Event().wait()
        await patiently(self._no_webhook)
        await poll(self.bot, self.take, seconds=self._poll, kinds=ASKED_FOR)

    async def begin(self) -> None:
        """Find out who the bot is, and tell Telegram its commands; once."""
        async with self._ready:
            if self.me is not None:
                return
            try:
                await self.bot.initialize()
            except InvalidToken:
                raise BadToken from None
            user = self.bot.bot
            self.me = Me(id=user.id, name=user.username or "")
        log.info("Telegram bot @%s (%d) answers as %s", self.me.name, self.me.id, self._agent)
        try:
            await self.bot.set_my_commands(
                [BotCommand(name, command.help) for name, command in COMMANDS.items()]
            )
        except TelegramError as error:
            log.warning("the list of commands was not taken: %s", type(error).__name__)

    async def deliver(self, reply: Outbound) -> None:
        """Send one reply; raises as `delivery.Deliver` says."""
        place = place_of(reply.route.address)
        if denied(self._block, place.chat):
            raise Never("the chat is in telegram.deny")
        await self.begin()
        await self._delivering(reply)

    async def close(self) -> None:
        """Take back what is half written, and give back the connections."""
        await self._answering.close()
        await self._streaming.close()
        await self.bot.shutdown()

    async def take(self, update: Update) -> None:
        """Take in one update: when this returns it is kept, obeyed or of no concern.

        Raises what `Service.post` does; then it must be given again.
        """
        message = update.message or update.edited_message
        if message is None or message.chat.type not in ("private", *GROUPS):
            return
        await self.begin()
        if await self._moved(message):
            return
        sender = self._sender(message)
        if sender is None or not self._concerns(message, sender):
            return
        edited = update.edited_message is not None
        await self._heard(message, sender, edited=edited, number=update.update_id)

    async def _heard(self, message: Message, sender: Allowed, *, edited: bool, number: int) -> None:
        me = self._known()
        session, place = self._session(message.chat.id, topic_of(message)), self._place(message)
        key = f"{NAME}:{me.id}:{message.chat.id}:{message.message_id}"
        command = None if edited else command_in(message, me)
        if command is not None:
            may = sender.commands is None or command.name in sender.commands
            if may and key not in self._obeyed:
                given = Given(said=command, session=session, place=place, key=key)
                await self._commands.obey(given)
                _first_time(self._obeyed, key)
            return
        words = words_of(message, me, edited=edited)
        if words is None:
            return
        spoken, refusal = await self._spoken(words, sender)
        letter = Inbound(
            session=session,
            message=spoken,
            key=f"{key}:{number}" if edited else key,
            at=self._clock(),
            route=_route(place),
        )
        if await self._service.post(letter):
            if refusal:
                self._answering.say(place, refusal)
            self._streaming.begin(session, place)

    def _sender(self, message: Message) -> Allowed | None:
        """Under which rules the sender is answered. A stranger hears nothing, the operator does."""
        if is_machine(message):
            return None
        found = allowed(self._block, message)
        if found is None:
            who = ", ".join(sorted(identities(message)))
            if _first_time(self._strangers, who):
                log.warning("not in telegram.allow, so not answered: %s", who)
        return found

    def _concerns(self, message: Message, sender: Allowed) -> bool:
        """Whether a message is meant for the bot."""
        if message.chat.type not in GROUPS:
            return True
        if sender.groups != "mention":
            return sender.groups == "all"
        me, album = self._known(), message.media_group_id
        named = addressed(message, me) or command_in(message, me) is not None
        if album is not None and named:
            _first_time(self._albums, f"{message.chat.id}:{album}")
        # Of an album the first picture alone carries the words.
        return named or (album is not None and f"{message.chat.id}:{album}" in self._albums)

    async def _spoken(self, words: Words, sender: Allowed) -> tuple[Spoken, str]:
        """What is said to the agent, and what its sender is told of a file that was not taken."""
        parts: list[Part] = [Text(text=words.text)] if words.text else []
        refusal = ""
        if words.attachment is not None:
            if sender.media:
                takes, most = self._service.agents[self._agent].takes, self._block.max_file
                file = await taken(self.bot, words.attachment, takes=takes, most=most)
                parts.append(file.part)
                refusal = file.refusal
            else:
                parts.append(Text(text=f"[{words.attachment.kind}: not taken from this sender]"))
        return Spoken(role="user", parts=tuple(parts), plain=len(parts) == 1), refusal

    async def _moved(self, message: Message) -> bool:
        """Follow a group that has become a supergroup: its past goes along."""
        old, new = message.migrate_from_chat_id, message.chat.id
        if message.migrate_to_chat_id is not None:
            old, new = message.chat.id, message.migrate_to_chat_id
        if old is None:
            return False
        if old >= 0 or new >= 0:  # people do not become groups
            return True
        before, after = self._session(old, None), self._session(new, None)
        store = self._service.store
        if await store.position(before) and not await store.position(after):
            async with self._service.using(before) as opened:
                copy = await opened.fork(after)
                await copy.close()
            log.warning("the group %d is now %d; change telegram.allow and rules", old, new)
        return True

    def _session(self, chat: int, topic: int | None) -> str:
        name = f"{NAME}:{chat}" if topic is None else f"{NAME}:{chat}:{topic}"
        return str(Address(tenant=TENANT, agent=self._agent, name=name))

    def _place(self, message: Message) -> Place:
        reply_to = message.message_id if message.chat.type in GROUPS else None
        return Place(chat=message.chat.id, topic=topic_of(message), reply_to=reply_to)

    def _known(self) -> Me:
        assert self.me is not None  # noqa: S101 - take() begins
        return self.me

    async def _set_webhook(self) -> None:
        assert self._block.webhook is not None  # noqa: S101 - run() has looked
        await self.bot.set_webhook(
            self._block.webhook,
            secret_token=self._block.secret,
            allowed_updates=list(ASKED_FOR),
        )

    async def _no_webhook(self) -> None:
        await self.bot.delete_webhook()


def door(service: Service, agent_name: str, block: Telegram, **how: Any) -> TelegramDoor:
    """The door of one agent's bot. `how` is for tests: `pace`, `poll` and `clock`."""
    return TelegramDoor(service, agent_name, block, **how)


def _route(place: Place) -> Route:
    address: dict[str, Any] = {"chat": place.chat}
    if place.topic is not None:
        address["topic"] = place.topic
    if place.reply_to is not None:
        address["reply_to"] = place.reply_to
    return Route(door=NAME, address=address)


def _first_time(known: OrderedDict[str, None], one: str) -> bool:
    """Whether it was not known; the oldest are forgotten."""
    new = one not in known
    known[one] = None
    known.move_to_end(one)
    while len(known) > KNOWN:
        known.popitem(last=False)
    return new
