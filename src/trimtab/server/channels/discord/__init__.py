"""Discord as a way to talk to an agent. Needs the extra `discord`."""

from __future__ import annotations

import warnings

from trimtab.agent.config.spec import DiscordSpec
from trimtab.server.channels.base import Channel
from trimtab.server.channels.discord.login_error import DiscordLoginRefused as DiscordLoginRefused
from trimtab.server.channels.discord.wait_times import DiscordTiming as DiscordTiming
from trimtab.server.service import AgentService

__all__ = ["DiscordLoginRefused", "DiscordTiming", "create_discord_channel"]


def create_discord_channel(
    service: AgentService,
    agent_name: str,
    config: DiscordSpec,
    *,
    timing: DiscordTiming | None = None,
) -> Channel:
    """Return the channel of one bot on Discord. Raises `ImportError` without discord.py."""
    try:
        with warnings.catch_warnings():
            # discord.py's part for voice, which nothing here uses, loads what Python is to drop.
            warnings.filterwarnings("ignore", "'audioop'", DeprecationWarning)
            from trimtab.server.channels.discord.channel import DiscordChannel
    except ImportError as error:
        raise ImportError("Discord needs its library: pip install 'trimtab[discord]'") from error
    return DiscordChannel(service, agent_name, config, timing or DiscordTiming())
