"""Slash commands: what a user has requested, and whether it was answered in time."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from tests.simulators.discord.api_errors import (
    DiscordRefusal,
    make_invalid_field_refusal,
    make_unknown_refusal,
)
from tests.simulators.discord.options import DiscordSimulatorOptions
from tests.simulators.discord.requests import validate_message_body
from tests.simulators.discord.world import DiscordObject, DiscordWorld

EPHEMERAL_FLAG = 64
"""The flag of a message that only the user of the command sees."""
RESPONSE_MESSAGE = 4
RESPONSE_DEFERRED = 5
"""How an interaction is acknowledged: with a message, or with a deferred message."""


@dataclass(slots=True, kw_only=True)
class SlashInteraction:
    """One use of a slash command."""

    id: int
    """The id of the interaction."""
    token: str
    """The token that an answer must name."""
    channel: int
    """The channel."""
    at: float
    """The time in seconds since the epoch."""
    payload: DiscordObject
    """The payload of the gateway event."""
    acknowledged: int = 0
    """The kind of acknowledgement: `RESPONSE_MESSAGE` or `RESPONSE_DEFERRED`. 0 before it."""
    ephemeral: bool = False
    """Whether only the user of the command sees the answer."""
    answer: DiscordObject | None = None
    """The message that answers it."""
    followups: list[DiscordObject] = field(default_factory=list[DiscordObject])
    """Further messages after the answer."""


class InteractionRegistry:
    """All interactions, by token."""

    def __init__(self, options: DiscordSimulatorOptions, world: DiscordWorld) -> None:
        self.options = options
        self.world = world
        self.all: dict[str, SlashInteraction] = {}
        """Interactions by token."""

    def start_interaction(
        self,
        channel: int,
        user: DiscordObject,
        name: str,
        options: Mapping[str, str],
        command_id: str,
    ) -> SlashInteraction:
        """Start an interaction: a user uses a command."""
        number = self.world.next_snowflake()
        token = secrets.token_urlsafe(32)
        place = self.world.require_channel(channel)
        option_list = [{"name": key, "type": 3, "value": value} for key, value in options.items()]
        payload: DiscordObject = {
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
            "data": {"id": command_id, "name": name, "type": 1, "options": option_list},
        }
        if "guild_id" in place:
            member = {**self.world.make_member(user), "permissions": "0"}
            payload |= {"guild_id": place["guild_id"], "member": member}
        else:
            payload["user"] = user
        now = self.world.clock()
        interaction = SlashInteraction(
            id=number, token=token, channel=channel, at=now, payload=payload
        )
        self.all[token] = interaction
        return interaction

    def acknowledge(self, interaction_id: int, token: str, body: Any) -> DiscordObject:
        """Store the first response, which must arrive within three seconds."""
        interaction = self.all.get(token)
        if interaction is None or interaction.id != interaction_id:
            raise make_unknown_refusal("Interaction")
        if interaction.acknowledged:
            raise DiscordRefusal(400, 40060, "Interaction has already been acknowledged.")
        if self.world.clock() - interaction.at > self.options.acknowledge:
            raise make_unknown_refusal("Interaction")
        response = cast("dict[str, Any]", body) if isinstance(body, dict) else {}
        kind = response.get("type")
        if kind not in (RESPONSE_MESSAGE, RESPONSE_DEFERRED):
            raise make_invalid_field_refusal(
                "type", "BASE_TYPE_CHOICES", "Value must be one of {1, 4, 5, 6, 7}."
            )
        data = cast("dict[str, Any]", response.get("data") or {})
        if kind == RESPONSE_MESSAGE:
            interaction.answer = self._build_message(interaction, data)
        interaction.acknowledged = int(kind)
        interaction.ephemeral = bool(int(data.get("flags", 0)) & EPHEMERAL_FLAG)
        answer = {
            "id": str(interaction.id),
            "type": 2,
            "response_message_ephemeral": interaction.ephemeral,
        }
        return {"interaction": {**answer, "response_message_loading": kind == RESPONSE_DEFERRED}}

    def edit_answer(self, token: str, body: Any) -> DiscordObject:
        """Store the deferred message."""
        interaction = self._require_open(token)
        interaction.answer = self._build_message(interaction, body)
        return interaction.answer

    def add_followup(self, token: str, body: Any) -> DiscordObject:
        """Add one more message."""
        interaction = self._require_open(token)
        message = self._build_message(interaction, body)
        interaction.followups.append(message)
        return message

    def _require_open(self, token: str) -> SlashInteraction:
        interaction = self.all.get(token)
        if interaction is None or not interaction.acknowledged:
            raise make_unknown_refusal("Webhook")
        if self.world.clock() - interaction.at > self.options.follow:
            raise DiscordRefusal(401, 50027, "Invalid Webhook Token")
        return interaction

    def _build_message(self, interaction: SlashInteraction, body: Any) -> DiscordObject:
        body_json = validate_message_body(body, self.options.longest)
        flags = EPHEMERAL_FLAG if interaction.ephemeral else 0
        return {
            "id": str(self.world.next_snowflake()),
            "channel_id": str(interaction.channel),
            "author": self.world.bot,
            "content": body_json.get("content") or "",
            "timestamp": self.world.format_now(),
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
