"""Decide when a failed turn is retried, and what happens when it is not."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable

from trimtab.errors import (
    CannotFit,
    FailureKind,
    ProviderError,
    ProviderPaused,
    SessionLockedByOtherProcess,
    StaleOwner,
    StoreUnavailable,
)
from trimtab.providers.base import TRANSIENT_KINDS
from trimtab_serve.agent.secret_values import mask_secrets_of_process
from trimtab_serve.metrics.recording import count_dead_letters, count_turn_retry
from trimtab_serve.queue.protocol import MessageQueue
from trimtab_serve.service.replies import build_apology_reply
from trimtab_serve.service.service import AgentNotServed

_MAX_DOUBLINGS = 32


def compute_backoff_s(failures: int, *, first_s: float, max_s: float) -> float:
    """Return the seconds to wait after this number of failures in a row (at least one).

    The wait is `first_s` after the first failure and doubles each time, up to `max_s`.
    """
    return min(max_s, first_s * 2 ** min(max(0, failures - 1), _MAX_DOUBLINGS))


MAX_TURN_ATTEMPTS = 5
"""Attempts at a turn that fails because of an internal error."""
RETRY_FOR_S = 21_600.0
"""Default number of seconds for which a turn is retried while its provider cannot answer."""
FIRST_TURN_RETRY_S = 1.0
"""Seconds before the second attempt. The wait doubles with each further attempt."""
MAX_TURN_RETRY_S = 300.0
"""Maximum number of seconds between two attempts."""
PAUSED_JITTER_S = 15.0
"""Seconds over which the sessions that wait for one provider spread their next attempts."""
WAITING_NOTICE_AFTER_S = 60.0
"""Seconds without an answer from the provider before the users in a chat get a notice."""
WAITING_NOTICE_PERIOD_S = 2 * MAX_TURN_RETRY_S
"""Seconds during which the notice may be sent. At least one attempt is made in this time."""
WAITING_KINDS: frozenset[FailureKind] = frozenset({*TRANSIENT_KINDS, "auth"})
"""Provider failures that pass, or that an operator fixes, such as a rejected API key."""

APOLOGY_TEXT = "I could not answer this. The operator has been informed. Please try again later."
"""Sent if a turn is abandoned."""

log = logging.getLogger("trimtab.server")


class TurnRetries:
    """The attempts at one turn.

    If `single_process` is false, an unknown agent is retried, because a process of another release
    may serve it.
    """

    def __init__(
        self,
        attempts: int = 0,
        *,
        failing_since: float | None = None,
        retry_for_s: float = RETRY_FOR_S,
        single_process: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.attempts = attempts
        """Number of failed attempts."""
        self.failing_since = failing_since
        """Time of the first failure, in seconds since the epoch."""
        self._retry_for_s = retry_for_s
        self._single_process = single_process
        self._clock = clock
        self._blocked_attempts = 0

    def delay_after(self, error: Exception, *, paused_s: float | None = None) -> float | None:
        """Return the seconds until the next attempt. None if there is none.

        `paused_s` is how long the provider's circuit breaker still blocks calls, if it does.
        """
        if isinstance(error, StoreUnavailable | SessionLockedByOtherProcess | StaleOwner):
            # The turn itself is fine: it waits for the disk, the database or its owner.
            self._blocked_attempts += 1
            return _backoff_with_jitter(self._blocked_attempts)
        if isinstance(error, ProviderError) and error.failure.kind in WAITING_KINDS:
            return self._delay_for_provider(error, paused_s)
        self.attempts += 1
        unknown = self._single_process and isinstance(error, AgentNotServed)
        if self.attempts >= MAX_TURN_ATTEMPTS or unknown or is_permanent_failure(error):
            return None
        return _backoff_with_jitter(self.attempts)

    @property
    def is_waiting_notice_due(self) -> bool:
        """Whether to send the notice that the provider does not answer."""
        if self.failing_since is None:
            return False
        seconds_since_due = self._clock() - self.failing_since - WAITING_NOTICE_AFTER_S
        return 0 <= seconds_since_due < WAITING_NOTICE_PERIOD_S

    def _delay_for_provider(self, error: ProviderError, paused_s: float | None) -> float | None:
        now = self._clock()
        if self.failing_since is None:
            self.failing_since = now
        if now - self.failing_since >= self._retry_for_s:
            return None
        retry_after = error.failure.retry_after or 0.0
        if isinstance(error, ProviderPaused):
            paused_s = retry_after
        else:
            self.attempts += 1
        if paused_s is not None:
            # The breaker sends nothing until a probe succeeds, so an early attempt costs nothing.
            return paused_s + random.uniform(0.0, PAUSED_JITTER_S)  # noqa: S311 - jitter
        return min(MAX_TURN_RETRY_S, max(_backoff_with_jitter(self.attempts), retry_after))

    async def dead_letter(
        self, queue: MessageQueue, session: str, error: Exception, epoch: int | None
    ) -> bool:
        """Abandon a turn that knew this claim, as `dead_letter_with_apology` does."""
        log.error(
            "turn of session %s abandoned at attempt %d; its messages are dead letters: %s",
            session,
            self.attempts,
            reason := _describe_error(error),
        )
        return await dead_letter_with_apology(queue, session, reason, epoch=epoch)


def log_turn_retry(session: str, delay_s: float, error: Exception) -> None:
    """Log that a turn is retried. A turn that waits for a paused provider is logged as debug."""
    reason = _describe_error(error)
    if isinstance(error, ProviderPaused):
        log.debug("turn of session %s is waiting for its provider: %s", session, reason)
        return
    count_turn_retry()
    log.warning("turn of session %s failed; retrying in %.1f s: %s", session, delay_s, reason)


async def dead_letter_with_apology(
    queue: MessageQueue, session: str, why: str, *, epoch: int | None = None
) -> bool:
    """Turn the messages into dead letters and send an apology.

    Return False if there are no messages, or if another process has taken them over.
    """
    pending = await queue.pending(session)
    if not pending:
        return False
    newest = next((each for each in reversed(pending) if each.route is not None), pending[-1])
    sorry = (
        [build_apology_reply(session, newest.route, newest, APOLOGY_TEXT)]
        if newest.route is not None
        else []
    )
    is_dead = await queue.dead_letter_session(newest, epoch, why, sorry)
    if is_dead:
        count_dead_letters(len(pending))
    else:
        log.info("turn of session %s is not abandoned: another process has taken it over", session)
    return is_dead


async def abandon_interrupted_turn(queue: MessageQueue, session: str, times: int) -> None:
    """Abandon a turn whose process vanished or stalled this often in a row."""
    why = f"the process vanished or stalled {times} times in a row while this turn ran"
    log.error("turn of session %s abandoned; its messages are dead letters: %s", session, why)
    await dead_letter_with_apology(queue, session, why)


def is_permanent_failure(error: Exception) -> bool:
    """Whether another attempt would fail in the same way."""
    if isinstance(error, CannotFit):
        return True
    return isinstance(error, ProviderError) and error.failure.kind not in WAITING_KINDS


def _describe_error(error: Exception) -> str:
    """Return the error as operators and users may read it: tools and stores may quote a key."""
    return mask_secrets_of_process(f"{type(error).__name__}: {error}")


def _backoff_with_jitter(attempt: int) -> float:
    wait = compute_backoff_s(attempt, first_s=FIRST_TURN_RETRY_S, max_s=MAX_TURN_RETRY_S)
    return wait * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, nothing secret
