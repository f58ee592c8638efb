"""How a simulated Discord is set up."""

from __future__ import annotations

from dataclasses import dataclass

INTENT_GUILDS, INTENT_GUILD_MESSAGES, INTENT_DIRECT_MESSAGES, INTENT_MESSAGE_CONTENT = (
    1 << 0,
    1 << 9,
    1 << 12,
    1 << 15,
)
"""The intents that decide what a bot hears."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscordSimulatorOptions:
    """What holds until it is changed. The defaults are Discord's, but for the rate limits."""

    token: str = "a.bot.token"  # noqa: S105 - it opens nothing but this server
    """The bot's token."""
    heartbeat: float = 41.25
    """Seconds between two heartbeats of a client; one that is half as long late is cut off."""
    intents: int = (
        INTENT_GUILDS | INTENT_GUILD_MESSAGES | INTENT_DIRECT_MESSAGES | INTENT_MESSAGE_CONTENT
    )
    """What the developer portal allows the bot to hear; asking for more is refused with 4014."""
    kept: int = 1_000
    """Events that a session keeps for a resume; one that is further back begins anew."""
    messages: tuple[int, float] = (1_000, 1.0)
    """Messages that may be posted to one channel in so many seconds; Discord's are 5 in 5."""
    everything: tuple[int, float] = (10_000, 1.0)
    """Requests of all kinds that may be made in so many seconds; Discord's are 50 in 1."""
    nonces: float = 300.0
    """Seconds in which a nonce is known again."""
    acknowledge: float = 3.0
    """Seconds in which an interaction must be acknowledged."""
    follow: float = 900.0
    """Seconds in which an acknowledged interaction may be answered."""
    longest: int = 2_000
    """Characters that a message may have."""
