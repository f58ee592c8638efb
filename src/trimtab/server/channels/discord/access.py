"""Who is answered: ids of users, channels and servers, allowed and denied."""

from __future__ import annotations

from dataclasses import dataclass

from trimtab.agent.config.spec import DiscordSpec
from trimtab.server.channels.access_list import is_allowed


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscordMessageOrigin:
    """Somebody, and where they speak."""

    user_id: int
    """Who."""
    channel_id: int
    """The channel, the thread or the direct one."""
    parent_channel_id: int | None = None
    """The channel that a thread belongs to."""
    guild_id: int | None = None
    """The server; None in direct messages."""

    def __str__(self) -> str:
        place = f"channel {self.channel_id}"
        if self.guild_id is not None:
            place = f"{place} of server {self.guild_id}"
        return f"user {self.user_id} in {place}"


def is_discord_origin_allowed(config: DiscordSpec, origin: DiscordMessageOrigin) -> bool:
    """Whether they are answered: by themselves, or by where they speak, and not denied by any."""
    ids = (origin.user_id, origin.channel_id, origin.parent_channel_id, origin.guild_id)
    known = {str(one) for one in ids if one is not None}
    return is_allowed(config, known)
