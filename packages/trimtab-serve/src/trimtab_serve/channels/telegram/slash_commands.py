"""Parse and carry out slash commands."""

from __future__ import annotations

import re
from dataclasses import dataclass

from telegram import Message

from trimtab_serve.channels.chat_commands import (
    CHAT_COMMANDS,
    ChatCommand,
    CommandReply,
    format_command_help,
    run_chat_command,
)
from trimtab_serve.channels.telegram.access import TelegramBotIdentity
from trimtab_serve.channels.telegram.command_reply_sender import CommandReplySender
from trimtab_serve.channels.telegram.paced_sender import TelegramTarget
from trimtab_serve.channels.utf16 import slice_by_utf16_units
from trimtab_serve.queue.address import parse_session_address
from trimtab_serve.service.service import AgentService

_COMMAND_PATTERN = re.compile(r"/([A-Za-z0-9_]+)(?:@([A-Za-z0-9_]+))?")
TELEGRAM_COMMANDS = {"start": ChatCommand(help="who I am"), **CHAT_COMMANDS}
"""The commands by name, without the slash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedTelegramCommand:
    """A parsed command."""

    name: str
    """Name without the slash, in lower case."""
    argument: str
    """The text after the name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramCommandRequest:
    """A command with its session and destination."""

    command: ParsedTelegramCommand
    """The command to carry out."""
    session_id: str
    """Id of the session."""
    target: TelegramTarget
    """Destination of the answer."""
    idempotency_key: str
    """The key of the message. It is the same if the command arrives again."""


def parse_telegram_command(
    message: Message, bot_identity: TelegramBotIdentity
) -> ParsedTelegramCommand | None:
    """Return the command at the start of a message, if it is ours and not another bot's."""
    text = message.text or ""
    first = next((one for one in message.entities if one.offset == 0), None)
    if first is None or first.type != "bot_command":
        return None
    match = _COMMAND_PATTERN.fullmatch(slice_by_utf16_units(text, 0, first.length))
    if match is None or match[1].lower() not in TELEGRAM_COMMANDS:
        return None
    if match[2] is not None and match[2].casefold() != bot_identity.username.casefold():
        return None
    return ParsedTelegramCommand(name=match[1].lower(), argument=text[match.end() :].strip())


class TelegramCommandRunner:
    """Carries out commands. When `run` returns, the command is done, and the answer is sent
    later."""

    def __init__(self, service: AgentService, reply_sender: CommandReplySender) -> None:
        self._service = service
        self._reply_sender = reply_sender

    async def run(self, request: TelegramCommandRequest) -> None:
        """Carry out a command, and send the answer. Raises the errors of the store."""
        command = request.command
        session = request.session_id
        if command.name == "start":
            reply = CommandReply(text=_introduction_text(session))
        elif command.name == "help":
            reply = CommandReply(text=format_command_help(TELEGRAM_COMMANDS))
        else:
            reply = await run_chat_command(
                self._service,
                session,
                command.name,
                command.argument,
                idempotency_key=request.idempotency_key,
            )
        if reply.monospace:
            self._reply_sender.send_image_or_text(request.target, reply.png, reply.text)
        elif reply.text:
            self._reply_sender.send_text(request.target, reply.text)


def _introduction_text(session_id: str) -> str:
    address = parse_session_address(session_id)
    name = address.agent if address is not None else "an agent"
    return f"I am {name}. Send me a message; /help lists what else I can do."
