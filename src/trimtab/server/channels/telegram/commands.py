"""What a message that begins with a slash does."""

from __future__ import annotations

import re
from dataclasses import dataclass

from telegram import Message

from trimtab.server.channels.commands import (
    CHAT_COMMANDS,
    ChatCommand,
    CommandReply,
    format_command_help,
    run_chat_command,
)
from trimtab.server.channels.telegram.access import TelegramBotIdentity
from trimtab.server.channels.telegram.command_replies import CommandReplySender
from trimtab.server.channels.telegram.sender import TelegramTarget
from trimtab.server.channels.utf16 import slice_by_utf16_units
from trimtab.server.service import AgentService
from trimtab.server.session_ids import parse_session_id

_COMMAND_PATTERN = re.compile(r"/([A-Za-z0-9_]+)(?:@([A-Za-z0-9_]+))?")
TELEGRAM_COMMANDS = {"start": ChatCommand(help="who I am"), **CHAT_COMMANDS}
"""By name, without the slash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedTelegramCommand:
    """A command as it was given."""

    name: str
    """Without the slash, in small letters."""
    argument: str
    """What stands behind it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramCommandRequest:
    """A command, and where it was given."""

    command: ParsedTelegramCommand
    """What is to be done."""
    session_id: str
    """In which session."""
    target: TelegramTarget
    """Where the answer goes."""
    idempotency_key: str
    """The message's own: one that is given again has the same."""


def parse_telegram_command(
    message: Message, bot_identity: TelegramBotIdentity
) -> ParsedTelegramCommand | None:
    """The command that a message begins with, if it is one of ours and not another bot's."""
    text = message.text or ""
    first = next((one for one in message.entities if one.offset == 0), None)
    if first is None or first.type != "bot_command":
        return None
    found = _COMMAND_PATTERN.fullmatch(slice_by_utf16_units(text, 0, first.length))
    if found is None or found[1].lower() not in TELEGRAM_COMMANDS:
        return None
    if found[2] is not None and found[2].casefold() != bot_identity.username.casefold():
        return None
    return ParsedTelegramCommand(name=found[1].lower(), argument=text[found.end() :].strip())


class TelegramCommandRunner:
    """Obeys. What is to be done is done when `run_slash_command` returns; what is said goes out
    behind it."""

    def __init__(self, service: AgentService, reply_sender: CommandReplySender) -> None:
        self._service = service
        self._reply_sender = reply_sender

    async def run(self, request: TelegramCommandRequest) -> None:
        """Do it; what is wrong with it is told. Raises what the store does."""
        said, session = request.command, request.session_id
        if said.name == "start":
            told = CommandReply(text=_introduction_text(session))
        elif said.name == "help":
            told = CommandReply(text=format_command_help(TELEGRAM_COMMANDS))
        else:
            told = await run_chat_command(
                self._service,
                session,
                said.name,
                said.argument,
                idempotency_key=request.idempotency_key,
            )
        if told.monospace:
            self._reply_sender.send_image_or_text(request.target, told.png, told.text)
        elif told.text:
            self._reply_sender.send_text(request.target, told.text)


def _introduction_text(session_id: str) -> str:
    address = parse_session_id(session_id)
    name = address.agent if address is not None else "an agent"
    return f"I am {name}. Write to me; /help lists what else I can do."
