"""A session as a stream of server-sent events that can be taken up anywhere.

An id is a place: the position of the last event of the log that was sent, and behind it how many
characters of the reply that is being written, text and then thinking: `12`, `12.57`, `12.57.310`.
What is durable comes from the log; pieces come from the hub while they are written, and from the
log when the reply is there. So whoever comes back with a place gets what follows it, once.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from trimtab.core.event import Event, Said
from trimtab.gateways.http.answers import dumped
from trimtab.gateways.http.hubs import Hub
from trimtab.gateways.http.projecting import Projector, reply_text
from trimtab.stores.errors import NoSession, StoreError
from trimtab.stores.store import Store

AGAIN = 1_000
"""Milliseconds after which a client connects again; it is told so."""
SILENCE = 15.0
"""Seconds without anything after which a stream says that it is alive."""
LOOK = 5.0
"""Seconds without news after which the log is looked at all the same."""
LOOK_TURN = 1.0
"""The same for whoever waits for an answer."""
DELETED = "the session was deleted"
"""Why a stream fails whose session is gone, or is another one of the same name by now."""

_PLACE = re.compile(r"([0-9]{1,18})(?:\.([0-9]{1,18}))?(?:\.([0-9]{1,18}))?")

Failed = Callable[[], Awaitable[str | None]]
"""Why the turn that is waited for was given up; None where it was not."""
Settled = Callable[[], Awaitable[bool]]
"""Whether the message has its answer, though nobody has said that its turn is over: a process that
ends between a reply and the end of its turn leaves it so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Up to where a follower has read."""

    position: int
    """The last event of the log."""
    text: int = 0
    """Characters of text of the reply that is being written."""
    thinking: int = 0
    """Characters of its thinking."""

    def __str__(self) -> str:
        if self.thinking:
            return f"{self.position}.{self.text}.{self.thinking}"
        return f"{self.position}.{self.text}" if self.text else str(self.position)


def place_of(text: str) -> Place | None:
    """The place that an id names; None where it is no id of ours."""
    found = _PLACE.fullmatch(text)
    if found is None:
        return None
    position, said, thinking = (int(digits or 0) for digits in found.groups())
    return Place(position=position, text=said, thinking=thinking)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Until when a stream goes on."""

    closing: Callable[[], bool]
    """Whether the server wants it to end."""
    key: str | None = None
    """The message whose answer ends it; None for never."""
    said: bool = False
    """Whether that message stands before the place to begin at."""
    failed: Failed | None = None
    """Looked at while nothing comes."""
    settled: Settled | None = None
    """Looked at while nothing comes and the message stands in the log."""
    exact: bool = True
    """Whether the log keeps replies as they were written: not where something is redacted."""


class Follower:
    """One who follows a session."""

    def __init__(self, store: Store, session: str, hub: Hub, place: Place, wanted: Wanted) -> None:
        self._store = store
        self._session = session
        self._hub = hub
        self._wanted = wanted
        self._place: Place = place
        self._at: float | None = None
        self._projector = Projector(store, session)
        self._said = wanted.said
        self._over = False
        self._quiet = 0.0

    async def run(self) -> AsyncIterator[bytes]:
        """The stream, as bytes; it ends with a turn that was waited for, else with the server."""
        yield f"retry: {AGAIN}\n\n".encode()
        try:
            await self._projector.before(self._place.position)
            read = -1
            while not self._over:
                version, log = self._hub.version, self._hub.log_version
                if log != read:
                    async for frame in self._from_log():
                        yield frame
                    read = log
                for frame in self._from_draft():
                    yield frame
                if not self._over and self._wanted.closing():
                    yield frame_of(None, "bye", {})
                    return
                if not self._over and self._hub.version == version:
                    frame, read = await self._wait(version, read)
                    if frame:
                        yield frame
        except NoSession:
            yield frame_of(None, "failed", {"why": DELETED})
        except StoreError:
            # Whoever comes again gets what follows, when the store is back.
            yield frame_of(None, "bye", {})

    async def _from_log(self) -> AsyncIterator[bytes]:
        read, found = self._place.position, False
        async for event in self._store.events(self._session, [(max(1, read), None)]):
            found = True
            if event.seq == read:
                self._recognise(event)
                continue
            before = self._projector.call
            if frame := self._rest(event, before):
                yield frame
            shown = await self._projector.show(event)
            self._place, self._at = replace(self._place, position=event.seq), event.at
            if self._projector.call != before:
                self._place = Place(position=event.seq)
            if shown is not None:
                self._quiet = 0.0
                self._end_with(event, shown.kind)
                yield frame_of(self._place, shown.kind, shown.data)
            if self._over:
                return
        if not found:
            raise NoSession(self._session)  # begun anew, and not as long yet as we have read

    def _recognise(self, event: Event) -> None:
        """Another event in the place of the one read last is another log: it was begun anew."""
        if self._at not in (None, event.at):
            raise NoSession(self._session)
        self._at = event.at

    def _rest(self, event: Event, call: int) -> bytes:
        """Of a reply that is there now: the piece that follows those that were sent."""
        body, place = event.body, self._place
        if not call or not isinstance(body, Said) or body.call != call:
            return b""
        if place.text:
            rest = reply_text(body.message)[place.text :] if self._wanted.exact else ""
        else:
            # Who waits for an answer gets all of it in pieces, however fast it came.
            rest = reply_text(body.message) if self._said else ""
        self._place = replace(place, text=place.text + len(rest))
        told = {"kind": "text", "text": rest}
        return frame_of(self._place, "piece", told) if rest else b""

    def _from_draft(self) -> list[bytes]:
        draft, frames = self._hub.draft, list[bytes]()
        if draft is None or draft.call != self._projector.call:
            return frames
        for kind, text in draft.after(self._place.text, self._place.thinking):
            place = self._place
            if kind == "thinking":
                self._place = replace(place, thinking=place.thinking + len(text))
            else:
                self._place = replace(place, text=place.text + len(text))
            self._quiet = 0.0
            frames.append(frame_of(self._place, "piece", {"kind": kind, "text": text}))
        return frames

    def _end_with(self, event: Event, kind: str) -> None:
        key, body = self._wanted.key, event.body
        if key is None:
            return
        if isinstance(body, Said) and body.key == key:
            self._said = True
        elif kind == "end" and self._said:
            self._over = True

    async def _wait(self, version: int, read: int) -> tuple[bytes, int]:
        """Wait for news; what is said meanwhile, and which state of the log was read."""
        look = LOOK if self._wanted.key is None else LOOK_TURN
        begun = asyncio.get_running_loop().time()
        await self._hub.changed(version, look)
        if self._hub.version != version:
            return b"", read
        self._quiet += asyncio.get_running_loop().time() - begun
        if await self._has_news():
            return b"", -1
        if self._wanted.failed is not None and (why := await self._wanted.failed()) is not None:
            self._over = True
            return frame_of(None, "failed", {"why": why}), read
        if self._said and self._wanted.settled is not None and await self._wanted.settled():
            # What was written while we looked comes first.
            self._over = not await self._has_news()
            return (frame_of(None, "end", {"why": "done"}), read) if self._over else (b"", -1)
        if self._quiet >= SILENCE:
            self._quiet = 0.0
            return b": still here\n\n", read
        return b"", read

    async def _has_news(self) -> bool:
        """Whether the log is not as it was read: it is longer, or begun anew, or gone."""
        return await self._store.position(self._session) != self._place.position


def frame_of(place: Place | None, kind: str, data: Mapping[str, Any]) -> bytes:
    """One server-sent event; without a place it moves nobody's."""
    head = f"id: {place}\n" if place is not None else ""
    return f"{head}event: {kind}\ndata: ".encode() + dumped(data) + b"\n\n"
