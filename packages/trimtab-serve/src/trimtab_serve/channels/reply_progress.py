"""Track which pieces of a long reply have arrived, and handle interruptions between them.

A reply is sent at least once, and no piece of it twice as far as this process knows. The next
process finds what it needs in the queue: `delivery.ReplyDelivery` counts the first interruption.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from trimtab_serve.queue.bounded_dict import BoundedDict
from trimtab_serve.queue.messages import OutboundMessage
from trimtab_serve.service.delivery import (
    DELIVERY_LEASE_S,
    ReplyInterrupted,
    RetryDelivery,
    Undeliverable,
)

MAX_TRACKED_REPLIES = 10_000
"""Number of replies whose progress is remembered."""
SEND_TIMEOUT_S = DELIVERY_LEASE_S * 0.4
"""Seconds that one attempt may take.

This is a little less than `ReplyDelivery` allows, so that it learns how far the reply came.
"""


@dataclass(slots=True, kw_only=True)
class ReplyProgress:
    """How far a reply has come in this process."""

    clock: Callable[[], float]
    """Returns the time in seconds since the epoch."""
    sent_pieces: int = 0
    """Number of pieces that have arrived."""
    unconfirmed_since: float | None = None
    """When the next piece was first sent without an answer, in seconds since the epoch.

    None if it has certainly not arrived, and -inf if another process may have sent it.
    """

    @contextmanager
    def sending_piece(self, index: int) -> Generator[None]:
        """Record the outcome of a piece that the block sends as a new message.

        The block raises `RetryDelivery` or `Undeliverable` if the piece has certainly not arrived.
        """
        try:
            yield
        except (RetryDelivery, Undeliverable):
            raise
        except BaseException:
            if self.unconfirmed_since is None:
                self.unconfirmed_since = self.clock()
            raise
        self.confirm_piece(index)
        self.unconfirmed_since = None

    def confirm_piece(self, index: int) -> None:
        """Record that a piece and all before it have arrived."""
        self.sent_pieces = max(self.sent_pieces, index + 1)


class ReplyProgressTracker:
    """The progress of the replies that a channel has begun but not finished."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._progress_by_key = BoundedDict[str, ReplyProgress](MAX_TRACKED_REPLIES)

    @asynccontextmanager
    async def track_attempt(self, reply: OutboundMessage) -> AsyncGenerator[ReplyProgress]:
        """Let the block send the missing pieces, and translate its failure.

        Raises `ReplyInterrupted` if some pieces have arrived in this attempt and others have not.
        Otherwise raises the block's error; see `delivery.DeliverReply`.
        """
        progress = self._progress_by_key.get(reply.key) or ReplyProgress(
            clock=self._clock, unconfirmed_since=-math.inf if reply.attempts else None
        )
        self._progress_by_key[reply.key] = progress
        sent_before = progress.sent_pieces
        try:
            async with asyncio.timeout(SEND_TIMEOUT_S):
                yield progress
        except Undeliverable:
            self._progress_by_key.pop(reply.key, None)
            raise
        except Exception as error:
            if progress.sent_pieces == sent_before:
                raise
            is_wait = isinstance(error, RetryDelivery)
            why = str(error) if is_wait else f"{type(error).__name__}: {error}"
            raise ReplyInterrupted(
                f"messages that have arrived: {progress.sent_pieces}; {why}",
                delay_s=error.delay_s if is_wait else None,
            ) from error
        self._progress_by_key.pop(reply.key, None)
