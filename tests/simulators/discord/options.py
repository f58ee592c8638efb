"""The options of a simulated Discord."""

from __future__ import annotations

from dataclasses import dataclass

INTENT_GUILDS = 1 << 0
INTENT_GUILD_MESSAGES = 1 << 9
INTENT_DIRECT_MESSAGES = 1 << 12
INTENT_MESSAGE_CONTENT = 1 << 15
"""The intents that decide which events a bot gets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscordSimulatorOptions:
    """Options of a simulated Discord. The defaults are Discord's, except for the rate limits."""

    token: str = "a.bot.token"  # noqa: S105 - it opens nothing but this server
    """The bot's token."""
    heartbeat: float = 41.25
    """Seconds between two heartbeats of a client. A client that is late by half of this is
    disconnected."""
    intents: int = (
        INTENT_GUILDS | INTENT_GUILD_MESSAGES | INTENT_DIRECT_MESSAGES | INTENT_MESSAGE_CONTENT
    )
    """The intents that the developer portal allows. A client that asks for more is refused with
    4014."""
    kept: int = 1_000
    """Number of events that a session keeps for a resume. A client that missed more starts
    again."""
    messages: tuple[int, float] = (1_000, 1.0)
    """Maximum number of messages to one channel, and the seconds that it applies to. Discord's
    limit is 5 in 5 seconds."""
    everything: tuple[int, float] = (10_000, 1.0)
    """Maximum number of requests of all kinds, and the seconds that it applies to. Discord's limit
    is 50 in 1 second."""
    nonces: float = 300.0
    """Seconds for which a nonce is recognised."""
    acknowledge: float = 3.0
    """Seconds within which an interaction must be acknowledged."""
    follow: float = 900.0
    """Seconds within which an acknowledged interaction may be answered."""
    longest: int = 2_000
    """Maximum number of characters in a message."""
