"""Erase messages in the log and everywhere else that stores a copy."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from trimtab.engine.log.erase import ErasurePlanner
from trimtab.session import Session
from trimtab.session.tools import parse_call_position_from_key
from trimtab_serve.queue.protocol import ErasableQueue
from trimtab_serve.service.put_off import remove_repetition


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasedMessagesRecord:
    """What an erasure destroys."""

    session: str
    """Id of the session."""
    handles: tuple[str, ...]
    """The erased messages and parts: the named ones first, then answers that may repeat them."""
    positions: frozenset[int]
    """Log positions of these messages."""
    keys: frozenset[str]
    """Idempotency keys of these messages."""
    tool_keys: tuple[str, ...]
    """Idempotency keys of the tools that they called."""
    user_texts: tuple[str, ...]
    """Texts of users in these messages."""
    forks: tuple[str, ...] = ()
    """Sessions that were forked from this one. Their copies are not erased."""


EraseHook = Callable[[ErasedMessagesRecord], Awaitable[None]]
"""Destroys the copies of erased messages outside the log. It is safe to repeat."""


async def erase_message_and_copies(
    session: Session, handle: str | Sequence[str], *, why: str = "", hooks: Sequence[EraseHook] = ()
) -> ErasedMessagesRecord:
    """Destroy messages or parts of them. It is safe to repeat. Raises `LookupError`.

    The copies outside the log are destroyed first. If the process is killed in between, the message
    is still in the log and nothing was acknowledged. They are destroyed again at the end, because a
    turn of another process may have ended meanwhile. After the change of the log, that turn can no
    longer write.
    """
    records: list[ErasedMessagesRecord] = []

    async def clear(erasing: ErasurePlanner) -> None:
        records.append(_describe_erasure(session.id, erasing))
        for each in hooks:
            await each(records[-1])

    forks = await session.recorder.erase(
        handle, reason=why, before_rewrite=clear, fence_open_turn=True
    )
    for each in hooks:
        await each(records[-1])
    return replace(records[-1], forks=tuple(forks))


def build_queue_erase_hook(queue: ErasableQueue) -> EraseHook:
    """Build the hook that erases messages in a queue."""

    async def clear(gone: ErasedMessagesRecord) -> None:
        await queue.erase_messages(gone.session, gone.positions, gone.keys)

    return clear


def _describe_erasure(session: str, erasing: ErasurePlanner) -> ErasedMessagesRecord:
    positions = frozenset(one.message for one in erasing.erasures)
    calls = [(key, parse_call_position_from_key(key)) for key in erasing.tool_keys]
    return ErasedMessagesRecord(
        session=session,
        handles=tuple(erasing.handles),
        positions=positions,
        keys=frozenset(map(remove_repetition, erasing.message_keys)),
        tool_keys=tuple(key for key, call in calls if call is not None and call[0] in positions),
        user_texts=tuple(erasing.user_texts),
    )
