"""Decide which Discord users get an answer, by ids of users, channels and servers."""

from __future__ import annotations

from dataclasses import dataclass

from trimtab_serve.agent.config.spec import DiscordSpec
from trimtab_serve.channels.access_list import is_allowed


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscordMessageOrigin:
    """A user, and the channel in which they write."""

    user_id: int
    """Who."""
    channel_id: int
    """The channel, thread or direct channel."""
    parent_channel_id: int | None = None
    """The channel to which a thread belongs."""
    guild_id: int | None = None
    """The server. None in direct messages."""

    def __str__(self) -> str:
        place = f"channel {self.channel_id}"
        if self.guild_id is not None:
            place = f"{place} of server {self.guild_id}"
        return f"user {self.user_id} in {place}"


def is_discord_origin_allowed(config: DiscordSpec, origin: DiscordMessageOrigin) -> bool:
    """Whether the user, channel or server is allowed, and none of them is denied."""
    ids = (origin.user_id, origin.channel_id, origin.parent_channel_id, origin.guild_id)
    names = {str(one) for one in ids if one is not None}
    return is_allowed(config, names)
