"""A stream that is passed on as it comes, and kept as a reply when it ends."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from typing import Any, cast

from trimtab.dialects.dialect import Gathering, Wire


class Watch:
    """Iterate it as you would the stream itself, with `for` or `async for`.

    A stream that breaks off leaves nothing behind: the call's outcome stays unknown.
    """

    def __init__(
        self,
        stream: Iterable[Any] | AsyncIterable[Any],
        gathering: Gathering,
        to_wire: Callable[[Any], Wire],
        done: Callable[[Wire], object],
    ) -> None:
        self._stream = stream
        self._gathering = gathering
        self._to_wire = to_wire
        self._done = done

    def __iter__(self) -> Iterator[Any]:
        for event in cast("Iterable[Any]", self._stream):
            self._gathering.feed(self._to_wire(event))
            yield event
        self._finish()

    async def __aiter__(self) -> AsyncIterator[Any]:
        async for event in cast("AsyncIterable[Any]", self._stream):
            self._gathering.feed(self._to_wire(event))
            yield event
        self._finish()

    def _finish(self) -> None:
        reply = reply_of(self._gathering)
        if reply is not None:
            self._done(reply)


def reply_of(gathering: Gathering) -> Wire | None:
    """The reply of a stream that has ended; None for one that broke off.

    Raises ValueError where nothing of it was of the dialect: the reply would be lost unsaid.
    """
    if not gathering.begun:
        raise ValueError(
            "the stream ended without an event that could be read, and its reply is lost; "
            f"expected {gathering.expected}"
        )
    return gathering.reply()
