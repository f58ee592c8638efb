"""The users, servers, channels and messages of a simulated Discord, in Discord's format."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tests.simulators.discord.api_errors import make_unknown_refusal

DISCORD_EPOCH_S = 1_420_070_400.0
"""The beginning of Discord's ids, in seconds since the epoch."""
CHANNEL_TEXT = 0
CHANNEL_DIRECT = 1
CHANNEL_THREAD = 11
"""Kinds of channels."""
MESSAGE_DEFAULT = 0
MESSAGE_REPLY = 19
"""Kinds of messages."""
DiscordObject = dict[str, Any]
"""A JSON object of the API of Discord."""


@dataclass(slots=True, kw_only=True)
class DiscordWorld:
    """Everything that exists, stored as the payloads that are sent."""

    clock: Callable[[], float] = time.time
    """Seconds since the epoch."""
    bot: DiscordObject = field(init=False)
    """The bot's own user."""
    guilds: dict[int, DiscordObject] = field(default_factory=dict[int, DiscordObject])
    """Servers by id."""
    channels: dict[int, DiscordObject] = field(default_factory=dict[int, DiscordObject])
    """Channels of servers, threads and direct channels, by id."""
    messages: dict[int, dict[int, DiscordObject]] = field(
        default_factory=dict[int, dict[int, DiscordObject]]
    )
    """Messages by channel and id, in the order in which they were posted."""
    forbidden: dict[int, set[str]] = field(default_factory=dict[int, set[str]])
    """What the bot may not do in a channel: `view`, `send`, `threads`, `history`."""
    files: dict[str, tuple[bytes, str]] = field(default_factory=dict[str, tuple[bytes, str]])
    """Attached files by path, with their types."""
    _made: int = 0

    def __post_init__(self) -> None:
        self.bot = self.make_user("trimtab", bot=True)

    def next_snowflake(self) -> int:
        """Return a new id. Later ids are larger."""
        self._made += 1
        milliseconds = int((self.clock() - DISCORD_EPOCH_S) * 1_000)
        return (milliseconds << 22) + self._made

    def make_user(self, name: str, *, bot: bool = False) -> DiscordObject:
        """Create a user."""
        identity = {"id": str(self.next_snowflake()), "username": name, "discriminator": "0"}
        return {**identity, "global_name": None, "avatar": None, "bot": bot}

    def add_guild(self, name: str = "a server") -> int:
        """Add a server with the bot in it."""
        number = self.next_snowflake()
        role = {"id": str(number), "name": "@everyone", "permissions": "0", "position": 0}
        role |= {"color": 0, "hoist": False, "managed": False, "mentionable": False}
        role |= {"colors": {"primary_color": 0, "secondary_color": None, "tertiary_color": None}}
        self.guilds[number] = {
            "id": str(number),
            "name": name,
            "owner_id": "1",
            "roles": [role],
            "emojis": [],
            "features": [],
            "member_count": 2,
            "members": [self.make_member(self.bot)],
            "large": False,
            "joined_at": self.format_now(),
        }
        return number

    def make_member(self, user: DiscordObject) -> DiscordObject:
        """Return a user as a member of a server."""
        return {"user": user, **self.make_membership()}

    def make_membership(self) -> DiscordObject:
        """Return what a message contains about its author as a member."""
        return {
            "roles": [],
            "joined_at": self.format_now(),
            "deaf": False,
            "mute": False,
            "flags": 0,
        }

    def add_channel(self, guild: int, name: str = "general") -> int:
        """Add a channel to a server."""
        number = self.next_snowflake()
        self.channels[number] = {
            "id": str(number),
            "type": CHANNEL_TEXT,
            "guild_id": str(guild),
            "name": name,
            "position": 0,
            "permission_overwrites": [],
            "nsfw": False,
            "parent_id": None,
            "topic": None,
        }
        self.messages[number] = {}
        return number

    def open_direct_channel(self, user: DiscordObject) -> int:
        """Return the direct channel between the bot and a user."""
        for channel in self.channels.values():
            if channel["type"] == CHANNEL_DIRECT and channel["recipients"][0]["id"] == user["id"]:
                return int(channel["id"])
        number = self.next_snowflake()
        new_channel = {
            "id": str(number),
            "type": CHANNEL_DIRECT,
            "recipients": [user],
            "last_message_id": None,
        }
        self.channels[number] = new_channel
        self.messages[number] = {}
        return number

    def add_thread(
        self, parent: int, name: str, owner: DiscordObject, number: int | None = None
    ) -> DiscordObject:
        """Add a thread. A thread that begins at a message has the id of the message."""
        number = number or self.next_snowflake()
        now = self.format_now()
        metadata = {"archived": False, "auto_archive_duration": 1440, "archive_timestamp": now}
        self.channels[number] = thread = {
            "id": str(number),
            "type": CHANNEL_THREAD,
            "guild_id": self.channels[parent]["guild_id"],
            "parent_id": str(parent),
            "owner_id": str(owner["id"]),
            "name": name,
            "message_count": 0,
            "member_count": 1,
            "rate_limit_per_user": 0,
            "thread_metadata": {**metadata, "locked": False},
        }
        self.messages[number] = {}
        return thread

    def add_message(
        self,
        channel: int,
        author: DiscordObject,
        text: str,
        *,
        mentions: Sequence[DiscordObject] = (),
        reply_to: int | None = None,
        attachments: Sequence[DiscordObject] = (),
        **more: Any,
    ) -> DiscordObject:
        """Add a message and return it as a client gets it."""
        number = self.next_snowflake()
        place = self.require_channel(channel)
        message: DiscordObject = {
            "id": str(number),
            "channel_id": str(channel),
            "author": author,
            "content": text,
            "timestamp": self.format_now(),
            "edited_timestamp": None,
            "tts": False,
            "mention_everyone": False,
            "mentions": list(mentions),
            "mention_roles": [],
            "attachments": list(attachments),
            "embeds": [],
            "pinned": False,
            "type": MESSAGE_DEFAULT if reply_to is None else MESSAGE_REPLY,
            "components": [],
            **more,
        }
        if reply_to is not None:
            message["message_reference"] = {"message_id": str(reply_to), "channel_id": str(channel)}
            message["referenced_message"] = self.messages[channel].get(reply_to)
        self.messages[channel][number] = message
        place["last_message_id"] = str(number)
        return message

    def to_gateway_message(self, message: DiscordObject) -> DiscordObject:
        """Return a message as the gateway sends it, with its server."""
        guild = self.require_channel(int(message["channel_id"])).get("guild_id")
        payload = message if guild is None else {**message, "guild_id": guild}
        return payload if guild is None else {**payload, "member": self.make_membership()}

    def require_channel(self, channel: int) -> DiscordObject:
        """Return a channel. Raises a refusal if it does not exist or the bot cannot see it."""
        place = self.channels.get(channel)
        if place is None:
            raise make_unknown_refusal("Channel")
        return place

    def build_guild_payload(self, guild: int) -> DiscordObject:
        """Return a server as the gateway sends it, with its channels and threads."""
        mine = [one for one in self.channels.values() if one.get("guild_id") == str(guild)]
        threads = [one for one in mine if one["type"] == CHANNEL_THREAD]
        channels = [one for one in mine if one["type"] != CHANNEL_THREAD]
        rest: DiscordObject = {"voice_states": [], "presences": [], "unavailable": False}
        return {**self.guilds[guild], "channels": channels, "threads": threads, **rest}

    def format_now(self) -> str:
        """Return the current time in Discord's format."""
        return datetime.fromtimestamp(self.clock(), UTC).isoformat()
