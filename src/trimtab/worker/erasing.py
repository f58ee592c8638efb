"""One message is forgotten: in its log, and in all that is kept of it beside the log."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from trimtab.core.erase import Erasing
from trimtab.session import Session
from trimtab.session.tools import call_of
from trimtab.worker.mail import Letters


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """What is destroyed."""

    session: str
    """Whose messages."""
    handles: tuple[str, ...]
    """The messages and parts: those that were named, then answers that may have repeated them."""
    positions: frozenset[int]
    """Where these messages stand in the log."""
    keys: frozenset[str]
    """Under which they came."""
    tools: tuple[str, ...]
    """Idempotency keys of the tools that they had called."""
    said: tuple[str, ...]
    """What users had said in them."""
    forks: tuple[str, ...] = ()
    """Sessions that were forked from this one: their copies are not reached."""


Beside = Callable[[Erasure], Awaitable[None]]
"""Destroys what is kept of erased messages beside the log; the same again does no harm."""


async def erase(
    session: Session, handle: str, *, why: str = "", beside: Sequence[Beside] = ()
) -> Erasure:
    """Destroy a message or a part of it; the same again does no harm. Raises `LookupError`.

    What is beside the log is first: whoever is ended in between has acknowledged nothing, and the
    message is whole in the log. It is also last, for a turn of another process may have ended in
    between; from the log's change on that one can write no more.
    """
    gone: list[Erasure] = []

    async def clear(erasing: Erasing) -> None:
        gone.append(_erasure(session.id, erasing))
        for each in beside:
            await each(gone[-1])

    forks = await session.erase(handle, why=why, first=clear, alone=True)
    for each in beside:
        await each(gone[-1])
    return replace(gone[-1], forks=tuple(forks))


def from_mail(mail: Letters) -> Beside:
    """What of them is in a mail."""

    async def clear(gone: Erasure) -> None:
        await mail.erase(gone.session, gone.positions, gone.keys)

    return clear


def _erasure(session: str, erasing: Erasing) -> Erasure:
    parts = [(one.message, "" if one.part is None else f".{one.part}") for one in erasing.all]
    positions = frozenset(message for message, _ in parts)
    called = [(key, call_of(key)) for key in erasing.tools]
    return Erasure(
        session=session,
        handles=tuple(f"m{message}{part}" for message, part in parts),
        positions=positions,
        keys=frozenset(erasing.keys),
        tools=tuple(key for key, call in called if call is not None and call[0] in positions),
        said=tuple(erasing.said),
    )
