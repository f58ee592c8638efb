"""How long the bot waits for what."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscordTiming:
    """Waits, in seconds. The defaults are what Discord asks for; tests take less."""

    identify_interval_s: float = 5.0
    """Before a session is begun anew: Discord allows one in so many seconds."""
    guild_ready_timeout_s: float = 2.0
    """For the next server to be announced at the start, before missed messages are looked for."""
    first_reconnect_wait_s: float = 1.0
    """Before the first attempt to connect anew after something unforeseen; then twice as long."""
    max_retry_wait_s: float = 60.0
    """At most before any attempt."""
    typing_interval_s: float = 8.0
    """Between two signs that the bot is writing; Discord shows one for ten."""
    max_rate_limit_wait_s: float = 10.0
    """That a request waits for a rate limit by itself; a longer one is put off."""
    first_intake_retry_s: float = 0.5
    """Before a message that could not be queued is tried again; then twice as long."""
