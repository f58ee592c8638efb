"""How long the bot waits for what."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Waits, in seconds. The defaults are what Discord asks for; tests take less."""

    identify: float = 5.0
    """Before a session is begun anew: Discord allows one in so many seconds."""
    servers: float = 2.0
    """For the next server to be told of at the start, before the bot looks for what it missed."""
    again: float = 1.0
    """Before the first attempt to connect anew after something unforeseen; then twice as long."""
    longest: float = 60.0
    """At most before any attempt."""
    typing: float = 8.0
    """Between two signs that the bot is writing; Discord shows one for ten."""
    limited: float = 10.0
    """That a request waits for a rate limit by itself; a longer one is put off."""
    keeping: float = 0.5
    """Before what came in is kept anew where that failed; then twice as long."""
