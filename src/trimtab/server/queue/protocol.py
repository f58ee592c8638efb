"""What a queue promises, whatever it is made of: what came in is answered, what is said goes out.

An inbound message is durable when `post` returns and stays until its turn is finished. `finish`
removes it and writes the replies in one step, so after a crash the turn is done again from the log,
where nothing is said twice (its key is there) and no reply is asked for again (it is there, too).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from trimtab.server.queue.inbound_outbound import InboundMessage, OutboundMessage

ERASED_DETAILS_TEXT = "the details were erased with a message"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterSession:
    """A session whose turn has failed for good; its messages wait for somebody to look."""

    session: str
    """Its id."""
    why: str
    """What went wrong the last time."""
    messages: int
    """Messages that wait."""
    at: float
    """When it was given up, in seconds since the epoch."""
    replies: int = 0
    """Replies that will never arrive: `MessageQueue.refused`."""


def erase_failure_details(reason: str) -> str:
    """Why something was given up, without the words of an error, which may quote a message."""
    kind = reason.partition(":")[0]
    return f"{kind}: {ERASED_DETAILS_TEXT}" if kind.isidentifier() else ERASED_DETAILS_TEXT


class ErasableQueue(Protocol):
    """As much of a queue as whoever forgets something needs."""

    async def pending(
        self, session: str, *, after: int = 0, limit: int = 100
    ) -> list[InboundMessage]:
        """The messages of a session that wait, in order, from behind a number."""
        ...

    async def forget_session(self, session: str) -> None:
        """Remove all messages and replies of a session that is deleted, from whatever they are
        written to: when this returns nothing of them is left."""
        ...

    async def erase_messages(
        self, session: str, positions: Collection[int], keys: Collection[str]
    ) -> None:
        """Destroy what is kept of messages that are erased, as `forget` does.

        Messages with these keys wait on, without what they say: it is in the log under its key.
        Replies that stand at these positions do not leave. What errors said goes as well, for they
        may quote a message.
        """
        ...


class MessageQueue(ErasableQueue, Protocol):
    """Messages by session. Every method may raise `StoreUnavailable`."""

    on_replies: Callable[[], None]
    """Called when there is something to send; set by whoever delivers."""

    async def post(self, inbound: InboundMessage) -> bool:
        """Keep a message and see to it that a turn follows; False where one with its key waits, or
        was answered: that is in the session's log."""
        ...

    async def finish_turn(
        self,
        session: str,
        epoch: int,
        answered: Collection[int],
        replies: Sequence[OutboundMessage],
    ) -> None:
        """Remove messages that were answered and keep the replies to be sent, all or none.

        An epoch older than the session's newest turn is refused with `StaleOwner`. A reply whose
        key is known is not kept again, and none is of a session that is gone.
        """
        ...

    async def list_waiting_sessions(self) -> list[str]:
        """Sessions with messages that no turn has been given up for: to be taken up at a start."""
        ...

    async def depth(self, prefix: str = "") -> int:
        """Messages that wait in sessions whose ids begin so; those given up rest, and do not."""
        ...

    async def oldest_waiting_at(self) -> float | None:
        """When the first of the messages that wait arrived, in seconds since the epoch; None where
        none waits."""
        ...

    async def dead_letter_session(
        self,
        inbound: InboundMessage,
        epoch: int | None,
        why: str,
        replies: Sequence[OutboundMessage] = (),
    ) -> bool:
        """Let a message's whole session rest until somebody looks; new ones begin a turn again.

        `epoch` is the newest turn that whoever gives up knew of; None where it knew of none. False,
        and nothing is kept, where a newer one has claimed the session, or the message is gone.
        """
        ...

    async def list_dead_letters(
        self, *, prefix: str = "", limit: int = 100
    ) -> list[DeadLetterSession]:
        """What was given up, the newest first."""
        ...

    async def dead_letter_reason(self, session: str) -> str | None:
        """Why a session's messages rest; None where none do."""
        ...

    async def revive(self, session: str) -> bool:
        """Try again what was given up; False where nothing was."""
        ...

    async def lease_replies(
        self, channels: Collection[str], *, limit: int, lease_s: float
    ) -> list[OutboundMessage]:
        """Replies to be sent now, at most one of each session, the oldest: theirs is an order.

        Each is lent for `lease_s` seconds; whoever comes back later for it finds `attempts` raised.
        """
        ...

    async def mark_delivered(self, number: int) -> None:
        """A reply has arrived."""
        ...

    async def postpone_reply(
        self, number: int, *, delay_s: float, why: str, maybe_sent: bool
    ) -> None:
        """A reply waits for another attempt; `sent` where it may have arrived nevertheless."""
        ...

    async def mark_undeliverable(self, number: int, why: str) -> None:
        """A reply will never arrive: kept for the dead-letter view, out of the way of others."""
        ...

    async def check_writable(self) -> None:
        """Write something that changes nothing; raises what is in the way, such as `StoreFull`."""
        ...

    async def close(self) -> None:
        """Give back whatever is held."""
        ...
