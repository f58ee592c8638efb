"""Slash commands: what a user has asked for, and whether it was answered in time."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from trimtab.testing.discord.options import Options
from trimtab.testing.discord.refusals import Refused, invalid, unknown
from trimtab.testing.discord.rules import checked
from trimtab.testing.discord.world import Payload, World

EPHEMERAL = 64
"""The flag of a message that only the one who asked sees."""
MESSAGE, DEFERRED = 4, 5
"""How an interaction is acknowledged: with a message, or with the promise of one."""


@dataclass(slots=True, kw_only=True)
class Interaction:
    """One use of a slash command."""

    id: int
    """Its own."""
    token: str
    """What an answer must name."""
    channel: int
    """Where."""
    at: float
    """When, in seconds since the epoch."""
    told: Payload
    """What the gateway tells of it."""
    acknowledged: int = 0
    """How: `MESSAGE` or `DEFERRED`; 0 while it is not."""
    ephemeral: bool = False
    """Whether only the one who asked sees the answer."""
    answer: Payload | None = None
    """The message that answers it."""
    more: list[Payload] = field(default_factory=list[Payload])
    """Messages behind it."""


class Interactions:
    """All of them, by token."""

    def __init__(self, options: Options, world: World) -> None:
        self.options = options
        self.world = world
        self.all: dict[str, Interaction] = {}
        """By token."""

    def begin(
        self, channel: int, user: Payload, name: str, options: Mapping[str, str], command: str
    ) -> Interaction:
        """Somebody uses a command."""
        number, token = self.world.snowflake(), secrets.token_urlsafe(32)
        place = self.world.known(channel)
        given = [{"name": key, "type": 3, "value": value} for key, value in options.items()]
        told: Payload = {
            "id": str(number),
            "application_id": self.world.bot["id"],
            "type": 2,
            "token": token,
            "version": 1,
            "channel_id": str(channel),
            "channel": place,
            "attachment_size_limit": 10_485_760,
            "app_permissions": "0",
            "locale": "en-US",
            "entitlements": [],
            "authorizing_integration_owners": {},
            "context": 0 if "guild_id" in place else 1,
            "data": {"id": command, "name": name, "type": 1, "options": given},
        }
        if "guild_id" in place:
            member = {**self.world.member(user), "permissions": "0"}
            told |= {"guild_id": place["guild_id"], "member": member}
        else:
            told["user"] = user
        now = self.world.clock()
        begun = Interaction(id=number, token=token, channel=channel, at=now, told=told)
        self.all[token] = begun
        return begun

    def acknowledge(self, number: int, token: str, body: Any) -> Payload:
        """The first response, within three seconds."""
        found = self.all.get(token)
        if found is None or found.id != number:
            raise unknown("Interaction")
        if found.acknowledged:
            raise Refused(400, 40060, "Interaction has already been acknowledged.")
        if self.world.clock() - found.at > self.options.acknowledge:
            raise unknown("Interaction")
        told = cast("Payload", body) if isinstance(body, dict) else {}
        kind = told.get("type")
        if kind not in (MESSAGE, DEFERRED):
            raise invalid("type", "BASE_TYPE_CHOICES", "Value must be one of {1, 4, 5, 6, 7}.")
        data = cast("Payload", told.get("data") or {})
        if kind == MESSAGE:
            found.answer = self._message(found, data)
        found.acknowledged = int(kind)
        found.ephemeral = bool(int(data.get("flags", 0)) & EPHEMERAL)
        answer = {"id": str(found.id), "type": 2, "response_message_ephemeral": found.ephemeral}
        return {"interaction": {**answer, "response_message_loading": kind == DEFERRED}}

    def edit(self, token: str, body: Any) -> Payload:
        """The promised message."""
        found = self._open(token)
        found.answer = self._message(found, body)
        return found.answer

    def follow(self, token: str, body: Any) -> Payload:
        """One more message."""
        found = self._open(token)
        message = self._message(found, body)
        found.more.append(message)
        return message

    def _open(self, token: str) -> Interaction:
        found = self.all.get(token)
        if found is None or not found.acknowledged:
            raise unknown("Webhook")
        if self.world.clock() - found.at > self.options.follow:
            raise Refused(401, 50027, "Invalid Webhook Token")
        return found

    def _message(self, found: Interaction, body: Any) -> Payload:
        told = checked(body, self.options.longest)
        flags = EPHEMERAL if found.ephemeral else 0
        return {
            "id": str(self.world.snowflake()),
            "channel_id": str(found.channel),
            "author": self.world.bot,
            "content": told.get("content") or "",
            "timestamp": self.world.moment(),
            "edited_timestamp": None,
            "tts": False,
            "mention_everyone": False,
            "mentions": [],
            "mention_roles": [],
            "attachments": [],
            "embeds": [],
            "pinned": False,
            "type": 20,
            "flags": flags,
            "components": [],
        }
