"""When a turn that failed is tried again, and what happens when it is not."""

from __future__ import annotations

import logging
import random

from trimtab.core.guard import CannotFit
from trimtab.observe.serving import turn_given_up
from trimtab.providers.provider import TRANSIENT, ProviderError
from trimtab.stores.errors import SessionBusy, StaleOwner, StoreUnavailable
from trimtab.worker.mail import Mail
from trimtab.worker.replies import apology
from trimtab.worker.service import NoAgent

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
    """The attempts at one turn. Whoever is not `alone` leaves an agent that he does not know to
    others, who may be of another release."""

    def __init__(self, made: int = 0, *, alone: bool = True) -> None:
        self._made = made
        self._alone = alone
        self._held_up = 0

    def after(self, error: Exception) -> float | None:
        """Seconds until the next attempt; None where there should be none."""
        if isinstance(error, StoreUnavailable | SessionBusy | StaleOwner):
            # Nothing is wrong with the turn: it waits for the disk, the database or its owner.
            self._held_up += 1
            return _wait(self._held_up)
        self._made += 1
        unknown = self._alone and isinstance(error, NoAgent)
        if self._made >= TRIES or unknown or is_final(error):
            return None
        asked = error.failure.retry_after if isinstance(error, ProviderError) else None
        return min(LONGEST, max(_wait(self._made), asked or 0.0))

    async def give_up(self, mail: Mail, session: str, error: Exception, epoch: int | None) -> bool:
        """Give up a turn that knew of this claim, as `give_up` does."""
        log.error("turn of %s is given up at attempt %d: %r", session, self._made, error)
        return await give_up(mail, session, f"{type(error).__name__}: {error}", epoch=epoch)


async def give_up(mail: Mail, session: str, why: str, *, epoch: int | None = None) -> bool:
    """Let the letters rest and say so to whoever waits; False where there are none, or another
    one has taken them up since."""
    pending = await mail.pending(session)
    if not pending:
        return False
    letter = next((each for each in reversed(pending) if each.route is not None), pending[-1])
    sorry = [apology(session, letter.route, letter, APOLOGY)] if letter.route is not None else []
    given = await mail.give_up(letter, epoch, why, sorry)
    if given:
        turn_given_up(len(pending))
    else:
        log.info("turn of %s is not given up: another one has taken it over", session)
    return given


def is_final(error: Exception) -> bool:
    """Whether another attempt would end in the same."""
    if isinstance(error, CannotFit):
        return True
    return isinstance(error, ProviderError) and error.failure.kind not in TRANSIENT


def _wait(number: int) -> float:
    wait = min(LONGEST, FIRST * 2 ** min(number - 1, 16))
    return wait * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, nothing secret
