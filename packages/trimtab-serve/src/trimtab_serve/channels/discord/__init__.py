"""The channel for Discord. Needs the extra `discord`."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

from trimtab_serve.agent.config.spec import DiscordSpec
from trimtab_serve.channels.base import Channel
from trimtab_serve.channels.pending_edits import EDIT_PAUSE_S
from trimtab_serve.service.service import AgentService

__all__ = ["DiscordLoginRefused", "DiscordTiming", "create_discord_channel"]


class DiscordLoginRefused(RuntimeError):
    """Discord refuses the login, and will do so until an operator changes the configuration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscordTiming:
    """Waits in seconds. The defaults are what Discord asks for. Tests use shorter ones."""

    identify_interval_s: float = 5.0
    """Before a new session. Discord allows one session in this time."""
    guild_ready_timeout_s: float = 2.0
    """For the next server to be announced at the start, before missed messages are fetched."""
    first_reconnect_wait_s: float = 1.0
    """Before the first reconnection after an unexpected failure. It doubles each time."""
    max_retry_wait_s: float = 60.0
    """Maximum before any attempt."""
    typing_interval_s: float = 8.0
    """Between two typing indicators. Discord shows one for ten seconds."""
    max_rate_limit_wait_s: float = 10.0
    """Maximum wait for a rate limit. With a longer limit, the request is postponed."""
    first_intake_retry_s: float = 0.5
    """Before storing a message is retried. It doubles each time."""
    edit_pause_s: float = EDIT_PAUSE_S
    """Without a further edit of a message before the agent reads the last one."""


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
