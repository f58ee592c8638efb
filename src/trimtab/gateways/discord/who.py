"""Who is answered: ids of users, channels and servers, allowed and denied."""

from __future__ import annotations

from dataclasses import dataclass

from trimtab.agent.doors import Discord
from trimtab.gateways.lists import is_listed


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """Somebody, and where they speak."""

    user: int
    """Who."""
    channel: int
    """The channel, the thread or the direct one."""
    parent: int | None = None
    """The channel that a thread belongs to."""
    guild: int | None = None
    """The server; None in direct messages."""

    def __str__(self) -> str:
        place = f"channel {self.channel}"
        if self.guild is not None:
            place = f"{place} of server {self.guild}"
        return f"user {self.user} in {place}"


def is_allowed(block: Discord, sender: Sender) -> bool:
    """Whether they are answered: by themselves, or by where they speak, and not denied by any."""
    ids = (sender.user, sender.channel, sender.parent, sender.guild)
    known = {str(one) for one in ids if one is not None}
    return is_listed(block.allow, known) and not is_listed(block.deny, known)
