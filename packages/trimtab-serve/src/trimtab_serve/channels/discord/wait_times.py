"""Wait times of the Discord channel."""

from __future__ import annotations

from dataclasses import dataclass

from trimtab_serve.channels.pending_edits import EDIT_PAUSE_S


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
