"""What a message that begins with a slash does."""

from __future__ import annotations

import re
from dataclasses import dataclass

from telegram import Message

from trimtab.gateways.telegram.answering import Answering
from trimtab.gateways.telegram.sending import Place
from trimtab.gateways.telegram.who import Me
from trimtab.gateways.utf16 import piece
from trimtab.gateways.verbs import VERBS, Told, Verb, help_of, obeyed
from trimtab.worker.naming import address_of
from trimtab.worker.service import Service

_COMMAND = re.compile(r"/([A-Za-z0-9_]+)(?:@([A-Za-z0-9_]+))?")
COMMANDS = {"start": Verb(help="who I am"), **VERBS}
"""By name, without the slash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A command as it was given."""

    name: str
    """Without the slash, in small letters."""
    rest: str
    """What stands behind it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A command, and where it was given."""

    said: Said
    """What is to be done."""
    session: str
    """In which session."""
    place: Place
    """Where the answer goes."""
    key: str
    """The message's own: one that is given again has the same."""


def command_in(message: Message, me: Me) -> Said | None:
    """The command that a message begins with, if it is one of ours and not another bot's."""
    text = message.text or ""
    first = next((one for one in message.entities if one.offset == 0), None)
    if first is None or first.type != "bot_command":
        return None
    found = _COMMAND.fullmatch(piece(text, 0, first.length))
    if found is None or found[1].lower() not in COMMANDS:
        return None
    if found[2] is not None and found[2].casefold() != me.name.casefold():
        return None
    return Said(name=found[1].lower(), rest=text[found.end() :].strip())


class Commands:
    """Obeys. What is to be done is done when `obey` returns; what is said goes out behind it."""

    def __init__(self, service: Service, answering: Answering) -> None:
        self._service = service
        self._answering = answering

    async def obey(self, given: Given) -> None:
        """Do it; what is wrong with it is told. Raises what the store does."""
        said, session = given.said, given.session
        if said.name == "start":
            told = Told(text=_start(session))
        elif said.name == "help":
            told = Told(text=help_of(COMMANDS))
        else:
            told = await obeyed(self._service, session, said.name, said.rest, key=given.key)
        if told.columns:
            self._answering.show(given.place, told.picture, told.text)
        elif told.text:
            self._answering.say(given.place, told.text)


def _start(session: str) -> str:
    address = address_of(session)
    name = address.agent if address is not None else "an agent"
    return f"I am {name}. Write to me; /help lists what else I can do."
