"""When a turn that failed is tried again, and what happens when it is not."""

from __future__ import annotations

import logging
import random

from trimtab.core.guard import CannotFit
from trimtab.observe.serving import turn_given_up
from trimtab.providers.provider import TRANSIENT, ProviderError
from trimtab.stores.errors import SessionBusy, StaleOwner, StoreUnavailable
from trimtab.worker.replies import apology
from trimtab.worker.service import NoAgent, Service

TRIES = 5
"""Attempts at a turn before it is given up."""
FIRST = 1.0
"""Seconds before the second attempt; each further one waits twice as long."""
LONGEST = 60.0
"""Seconds that an attempt is put off at most: the session waits so long."""

APOLOGY = "I could not answer this. The operator has been told; please try again later."
"""What is sent where a turn was given up."""

log = logging.getLogger("trimtab.worker")


class Retries:
    """The attempts at one turn."""

    def __init__(self, made: int = 0) -> None:
        self._made = made
        self._held_up = 0

    def after(self, error: Exception) -> float | None:
        """Seconds until the next attempt; None where there should be none."""
        if isinstance(error, StoreUnavailable | SessionBusy | StaleOwner):
            # Nothing is wrong with the turn: it waits for the disk, the database or its owner.
            self._held_up += 1
            return _wait(self._held_up)
        self._made += 1
        if self._made >= TRIES or is_final(error):
            return None
        asked = error.failure.retry_after if isinstance(error, ProviderError) else None
        return min(LONGEST, max(_wait(self._made), asked or 0.0))

    async def give_up(self, service: Service, session: str, error: Exception) -> None:
        """Let the letters rest, say so to whoever waits, and tell the operator why."""
        log.error("turn of %s is given up after %d attempts: %r", session, self._made, error)
        pending = await service.mail.pending(session)
        routed = [(letter, letter.route) for letter in pending if letter.route is not None]
        sorry = [apology(session, route, letter, APOLOGY) for letter, route in routed[-1:]]
        await service.mail.give_up(session, f"{type(error).__name__}: {error}", sorry)
        turn_given_up(len(pending))


def is_final(error: Exception) -> bool:
    """Whether another attempt would end in the same."""
    if isinstance(error, CannotFit | NoAgent):
        return True
    return isinstance(error, ProviderError) and error.failure.kind not in TRANSIENT


def _wait(number: int) -> float:
    wait = min(LONGEST, FIRST * 2 ** min(number - 1, 16))
    return wait * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, nothing secret
