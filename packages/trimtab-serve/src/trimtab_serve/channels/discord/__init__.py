"""The channel for Discord. Needs the extra `discord`."""

from __future__ import annotations

import warnings

from trimtab_serve.agent.config.spec import DiscordSpec
from trimtab_serve.channels.base import Channel
from trimtab_serve.channels.discord.login_error import DiscordLoginRefused as DiscordLoginRefused
from trimtab_serve.channels.discord.wait_times import DiscordTiming as DiscordTiming
from trimtab_serve.service.service import AgentService

__all__ = ["DiscordLoginRefused", "DiscordTiming", "create_discord_channel"]


def create_discord_channel(
    service: AgentService,
    agent_name: str,
    config: DiscordSpec,
    *,
    timing: DiscordTiming | None = None,
) -> Channel:
    """Return the channel of one Discord bot. Raises `ImportError` if discord.py is missing."""
    try:
        with warnings.catch_warnings():
            # discord.py's voice support, which is not used here, loads modules that Python will
            # remove.
            warnings.filterwarnings("ignore", "'audioop'", DeprecationWarning)
            from trimtab_serve.channels.discord.channel import DiscordChannel
    except ImportError as error:
        raise ImportError(
            "Discord needs another package: pip install 'trimtab[discord]'"
        ) from error
    return DiscordChannel(service, agent_name, config, timing or DiscordTiming())
