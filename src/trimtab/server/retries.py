"""When a turn that failed is tried again, and what happens when it is not."""

from __future__ import annotations

import logging
import random

from trimtab.errors import SessionLockedByOtherProcess, StaleOwner, StoreUnavailable
from trimtab.observe.server_metrics import count_dead_letters
from trimtab.policy.guard import CannotFit
from trimtab.providers.protocol_and_failures import TRANSIENT_KINDS, ProviderError
from trimtab.server.backoff import compute_backoff_s
from trimtab.server.queue.protocol import MessageQueue
from trimtab.server.replies import build_apology_reply
from trimtab.server.service import AgentNotServed

MAX_TURN_ATTEMPTS = 5
"""Attempts at a turn before it is given up."""
FIRST_TURN_RETRY_S = 1.0
"""Seconds before the second attempt; each further one waits twice as long."""
MAX_TURN_RETRY_S = 60.0
"""Seconds that an attempt is put off at most: the session waits so long."""

APOLOGY_TEXT = "I could not answer this. The operator has been told; please try again later."
"""What is sent where a turn was given up."""

log = logging.getLogger("trimtab.server")


class TurnRetries:
    """The attempts at one turn. Whoever is not `alone` leaves an agent that he does not know to
    others, who may be of another release."""

    def __init__(self, attempts: int = 0, *, single_process: bool = True) -> None:
        self._attempts = attempts
        self._single_process = single_process
        self._blocked_attempts = 0

    def delay_after(self, error: Exception) -> float | None:
        """Seconds until the next attempt; None where there should be none."""
        if isinstance(error, StoreUnavailable | SessionLockedByOtherProcess | StaleOwner):
            # Nothing is wrong with the turn: it waits for the disk, the database or its owner.
            self._blocked_attempts += 1
            return _backoff_with_jitter(self._blocked_attempts)
        self._attempts += 1
        unknown = self._single_process and isinstance(error, AgentNotServed)
        if self._attempts >= MAX_TURN_ATTEMPTS or unknown or is_permanent_failure(error):
            return None
        asked = error.failure.retry_after if isinstance(error, ProviderError) else None
        return min(MAX_TURN_RETRY_S, max(_backoff_with_jitter(self._attempts), asked or 0.0))

    async def dead_letter(
        self, queue: MessageQueue, session: str, error: Exception, epoch: int | None
    ) -> bool:
        """Give up a turn that knew of this claim, as `give_up` does."""
        log.error(
            "turn of session %s failed for good at attempt %d; its messages are dead letters: %r",
            session,
            self._attempts,
            error,
        )
        return await dead_letter_with_apology(
            queue, session, f"{type(error).__name__}: {error}", epoch=epoch
        )


async def dead_letter_with_apology(
    queue: MessageQueue, session: str, why: str, *, epoch: int | None = None
) -> bool:
    """Let the letters rest and say so to whoever waits; False where there are none, or another
    one has taken them up since."""
    pending = await queue.pending(session)
    if not pending:
        return False
    letter = next((each for each in reversed(pending) if each.route is not None), pending[-1])
    sorry = (
        [build_apology_reply(session, letter.route, letter, APOLOGY_TEXT)]
        if letter.route is not None
        else []
    )
    given = await queue.dead_letter_session(letter, epoch, why, sorry)
    if given:
        count_dead_letters(len(pending))
    else:
        log.info(
            "turn of session %s is not a dead letter: another process has taken it over", session
        )
    return given


def is_permanent_failure(error: Exception) -> bool:
    """Whether another attempt would end in the same."""
    if isinstance(error, CannotFit):
        return True
    return isinstance(error, ProviderError) and error.failure.kind not in TRANSIENT_KINDS


def _backoff_with_jitter(attempt: int) -> float:
    wait = compute_backoff_s(attempt, first_s=FIRST_TURN_RETRY_S, max_s=MAX_TURN_RETRY_S)
    return wait * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, nothing secret
