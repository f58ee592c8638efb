"""One message is forgotten: in its log, and in all that is kept of it beside the log."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from trimtab.log.erase import ErasurePlanner
from trimtab.server.queue.protocol import ErasableQueue
from trimtab.session import Session
from trimtab.session.tools import parse_call_position_from_key


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasedMessagesRecord:
    """What is destroyed."""

    session: str
    """Whose messages."""
    handles: tuple[str, ...]
    """The messages and parts: those that were named, then answers that may have repeated them."""
    positions: frozenset[int]
    """Where these messages stand in the log."""
    keys: frozenset[str]
    """Under which they came."""
    tool_keys: tuple[str, ...]
    """Idempotency keys of the tools that they had called."""
    user_texts: tuple[str, ...]
    """What users had said in them."""
    forks: tuple[str, ...] = ()
    """Sessions that were forked from this one: their copies are not reached."""


EraseHook = Callable[[ErasedMessagesRecord], Awaitable[None]]
"""Destroys what is kept of erased messages beside the log; the same again does no harm."""


async def erase_message_and_copies(
    session: Session, handle: str | Sequence[str], *, why: str = "", hooks: Sequence[EraseHook] = ()
) -> ErasedMessagesRecord:
    """Destroy messages or parts of them; the same again does no harm. Raises `LookupError`.

    What is beside the log is first: whoever is ended in between has acknowledged nothing, and the
    message is whole in the log. It is also last, for a turn of another process may have ended in
    between; from the log's change on that one can write no more.
    """
    gone: list[ErasedMessagesRecord] = []

    async def clear(erasing: ErasurePlanner) -> None:
        gone.append(_describe_erasure(session.id, erasing))
        for each in hooks:
            await each(gone[-1])

    forks = await session.erase(handle, reason=why, before_rewrite=clear, fence_open_turn=True)
    for each in hooks:
        await each(gone[-1])
    return replace(gone[-1], forks=tuple(forks))


def build_queue_erase_hook(queue: ErasableQueue) -> EraseHook:
    """What of them is in a queue."""

    async def clear(gone: ErasedMessagesRecord) -> None:
        await queue.erase_messages(gone.session, gone.positions, gone.keys)

    return clear


def _describe_erasure(session: str, erasing: ErasurePlanner) -> ErasedMessagesRecord:
    parts = [(one.message, "" if one.part is None else f".{one.part}") for one in erasing.erasures]
    positions = frozenset(message for message, _ in parts)
    called = [(key, parse_call_position_from_key(key)) for key in erasing.tool_keys]
    return ErasedMessagesRecord(
        session=session,
        handles=tuple(f"m{message}{part}" for message, part in parts),
        positions=positions,
        keys=frozenset(erasing.message_keys),
        tool_keys=tuple(key for key, call in called if call is not None and call[0] in positions),
        user_texts=tuple(erasing.user_texts),
    )
