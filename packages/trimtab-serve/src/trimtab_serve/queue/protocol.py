"""The interface of a message queue.

An incoming message is durable when `post` returns, and stays until its turn is finished.
`finish_turn` removes it and writes the replies in one step. After a crash, the turn runs again from
the log. No message is added twice, because the log has its key. No reply is requested again,
because the log has it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from trimtab_serve.queue.messages import InboundMessage, OutboundMessage
from trimtab_serve.queue.transactions import Transactions

MAX_INTERRUPTIONS = 3
"""How often in a row the process of a turn may vanish or stall. Then the turn is the likely cause,
and its messages become dead letters."""
MAX_COUNTED_MESSAGES = 100_000
"""Waiting messages after which a queue stops to count."""
ERASED_DETAILS_TEXT = "the details were erased together with a message"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterSession:
    """A session whose turn was abandoned. Its messages wait until an operator revives them."""

    session: str
    """Id of the session."""
    why: str
    """The last error."""
    messages: int
    """Number of messages."""
    at: float
    """When the turn was abandoned, in seconds since the epoch."""
    replies: int = 0
    """Number of replies that will never arrive: `MessageQueue.mark_undeliverable`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingTotals:
    """The waiting messages of one session, including dead letters."""

    messages: int
    """Number of messages."""
    bytes: int
    """Size of their records."""


def erase_failure_details(reason: str) -> str:
    """Return the kind of an error without its details, because these may quote a message."""
    kind = reason.partition(":")[0]
    return f"{kind}: {ERASED_DETAILS_TEXT}" if kind.isidentifier() else ERASED_DETAILS_TEXT


class ErasableQueue(Protocol):
    """The part of a queue that an erasure needs."""

    transactions: Transactions
    """Transactions of its database, for the schedules and the API keys."""

    async def pending(
        self, session: str, *, after: int = 0, limit: int = 100
    ) -> list[InboundMessage]:
        """Return the waiting messages of a session in order, after a number."""
        ...

    async def forget_session(self, session: str) -> None:
        """Remove all messages and replies of a session that is deleted.

        When this returns, no file has any part of them.
        """
        ...

    async def erase_messages(
        self, session: str, positions: Collection[int], keys: Collection[str]
    ) -> None:
        """Destroy the stored content of erased messages, as thoroughly as `forget_session`.

        Messages with these keys still wait, without their content: the log has it under their key.
        Replies at these positions are not sent. Error details are also erased, because they may
        quote a message.
        """
        ...


class MessageQueue(ErasableQueue, Protocol):
    """Stores messages by session. Every method may raise `StoreUnavailable`."""

    on_replies: Callable[[], None]
    """Called when there are replies to send. The delivery sets it."""

    async def post(self, inbound: InboundMessage) -> bool:
        """Store a message and request a turn.

        Return False if a message with its key waits or was answered, so that it is in the session's
        log.
        """
        ...

    async def find_waiting(self, session: str, key: str) -> InboundMessage | None:
        """Return the waiting message with this key. None if there is none."""
        ...

    async def finish_turn(
        self,
        session: str,
        epoch: int,
        answered: Collection[int],
        replies: Sequence[OutboundMessage],
    ) -> None:
        """Remove answered messages and store the replies to send: all or nothing.

        Raises `StaleOwner` if the epoch is older than the session's newest turn. A reply whose key
        is known is not stored again. Replies of a deleted session are not stored.
        """
        ...

    async def list_waiting_sessions(self) -> list[str]:
        """Return the sessions with waiting messages whose turn was not abandoned, for the start."""
        ...

    async def measure_waiting(self, session: str) -> WaitingTotals:
        """Count the waiting messages of a session without reading them."""
        ...

    async def search_waiting(self, prefix: str, text: str) -> list[str]:
        """Return the sessions with this prefix that have a message whose record contains a text.

        Dead letters count.
        """
        ...

    async def depth(self, prefix: str = "", *, limit: int = MAX_COUNTED_MESSAGES) -> int:
        """Return the number of waiting messages in sessions with this prefix. Dead letters do not
        count. A queue may stop to count at `limit`."""
        ...

    async def oldest_waiting_at(self) -> float | None:
        """Return when the oldest waiting message arrived, in seconds since the epoch.

        Return None if no message waits.
        """
        ...

    async def dead_letter_session(
        self,
        inbound: InboundMessage,
        epoch: int | None,
        why: str,
        replies: Sequence[OutboundMessage] = (),
    ) -> bool:
        """Turn all messages of a message's session into dead letters. New messages start a turn
        again.

        `epoch` is the newest turn that the caller knows. None if it knows none. Return False and
        store nothing if a newer turn has claimed the session, or the message is gone.
        """
        ...

    async def list_dead_letters(
        self, *, prefix: str = "", limit: int = 100
    ) -> list[DeadLetterSession]:
        """Return the sessions with dead letters, newest first."""
        ...

    async def dead_letter_reason(self, session: str) -> str | None:
        """Return why a session's messages are dead letters. None if there are none."""
        ...

    async def revive(self, session: str) -> bool:
        """Retry the dead letters of a session. Return False if there are none."""
        ...

    async def lease_replies(
        self, channels: Collection[str], *, limit: int, lease_s: float
    ) -> list[OutboundMessage]:
        """Lease the replies to send now: the oldest of each session, to keep their order.

        A lease lasts `lease_s` seconds. If it expires, the next lease has a higher `attempts`.
        """
        ...

    async def mark_delivered(self, number: int) -> None:
        """Record that a reply has arrived."""
        ...

    async def postpone_reply(
        self, number: int, *, delay_s: float, why: str, maybe_sent: bool
    ) -> None:
        """Postpone a reply for another attempt. `maybe_sent` means that it may have arrived
        anyway."""
        ...

    async def mark_undeliverable(self, number: int, why: str) -> None:
        """Record that a reply will never arrive. It stays as a dead letter and blocks no others."""
        ...

    async def check_writable(self) -> None:
        """Make a write that changes nothing. Raises the error that prevents it, such as
        `StoreFull`."""
        ...

    async def close(self) -> None:
        """Release all resources."""
        ...
