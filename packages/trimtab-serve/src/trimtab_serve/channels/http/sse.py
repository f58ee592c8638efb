"""A session as a stream of server-sent events that can be resumed at any point.

An event id such as `12`, `12.57` or `12.57.310` is a position: the last log event that was sent,
then the characters of the partial reply's text and thinking. Durable events come from the log.
Pieces come from the hub while the reply is written, and from the log when it is complete. So a
reader that resumes with an id gets everything after it, once.

This module also has the response that streams until the end, or until the reader has gone.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from dataclasses import dataclass, replace
from typing import Any, cast

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from trimtab.engine.log.event import Event, MessageAdded, Rewind
from trimtab.errors import SessionNotFound, StoreError
from trimtab.session.events import TextDelta, TurnFailed, TurnFinished, join_text_parts
from trimtab.stores.base import Store
from trimtab_serve.channels.http.hub import SessionHub
from trimtab_serve.channels.http.projection import LogToStreamProjector, project_turn_event
from trimtab_serve.client.types import encode_json_bytes
from trimtab_serve.metrics.recording import track_open_stream
from trimtab_serve.service.put_off import remove_repetition

RECONNECT_DELAY_MS = 1_000
"""Milliseconds after which a client reconnects. The stream contains this number."""
KEEPALIVE_INTERVAL_S = 15.0
"""Seconds of silence after which a stream sends a keep-alive comment."""
LOG_POLL_INTERVAL_S = 5.0
"""Seconds without events after which the log is read anyway."""
TURN_LOG_POLL_INTERVAL_S = 1.0
"""The same for a caller that waits for an answer."""
CALLER_CHECK_INTERVAL_S = 1.0
"""Seconds for which a stream trusts its last check of the caller's key."""
SESSION_DELETED = {"reason": "deleted", "detail": "the session was deleted"}
"""Data of `turn.failed` if the session was deleted, even if it was created again."""

_EVENT_ID_PATTERN = re.compile(r"([0-9]{1,18})(?:\.([0-9]{1,18}))?(?:\.([0-9]{1,18}))?")

FindFailureReason = Callable[[], Awaitable[str | None]]
"""Returns why the awaited turn was abandoned. None if it was not."""
IsMessageAnswered = Callable[[], Awaitable[bool]]
"""Returns whether the message was answered although the log has no end of its turn.

A process that is killed between a reply and the end of its turn causes this.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPosition:
    """How far a follower has read."""

    log_position: int
    """Position of the last log event."""
    text_chars: int = 0
    """Number of characters of the partial reply's text."""
    thinking_chars: int = 0
    """Number of characters of its thinking."""

    def __str__(self) -> str:
        if self.thinking_chars:
            return f"{self.log_position}.{self.text_chars}.{self.thinking_chars}"
        return (
            f"{self.log_position}.{self.text_chars}" if self.text_chars else str(self.log_position)
        )


def parse_event_id(event_id: str) -> StreamPosition | None:
    """Return the position of an event id. None if the id is invalid."""
    match = _EVENT_ID_PATTERN.fullmatch(event_id)
    if match is None:
        return None
    position, text_chars, thinking = (int(digits or 0) for digits in match.groups())
    return StreamPosition(log_position=position, text_chars=text_chars, thinking_chars=thinking)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEndConditions:
    """When a stream ends."""

    is_closing: Callable[[], bool]
    """Whether the server wants it to end."""
    is_caller_valid: Callable[[], Awaitable[bool]]
    """Whether the reader still has access: keys expire and are revoked."""
    hold_read: Callable[[], AbstractAsyncContextManager[None]] = nullcontext
    """Called for each read of the log, to share reads with other requests of the tenant."""
    until_answered_key: str | None = None
    """The message whose answer ends the stream. None for never."""
    message_is_in_log: bool = False
    """Whether that message comes before the start position."""
    find_failure_reason: FindFailureReason | None = None
    """Called while there are no events."""
    is_message_answered: IsMessageAnswered | None = None
    """Called while there are no events and the message is in the log."""
    log_is_verbatim: bool = True
    """Whether the log has replies as they were written. Not if something is redacted."""


class CallerNoLongerValid(Exception):
    """The key of the reader has expired or was revoked."""


class SessionEventStream:
    """The stream of one follower of a session."""

    def __init__(
        self,
        store: Store,
        session_id: str,
        hub: SessionHub,
        start: StreamPosition,
        options: StreamEndConditions,
        *,
        unknown_position: StreamPosition | None = None,
    ) -> None:
        """Initialise the stream. `unknown_position` is the follower's position if the log is
        shorter."""
        self._store = store
        self._session_id = session_id
        self._hub = hub
        self._options = options
        self._position: StreamPosition = start
        self._unknown_position = unknown_position
        self._last_event_time: float | None = None
        self._projector = LogToStreamProjector(store, session_id)
        self._is_message_in_log = options.message_is_in_log
        self._message_position = 0
        self._is_finished = False
        self._quiet_s = 0.0
        self._caller_checked_at = asyncio.get_running_loop().time()

    async def iterate_frames(self) -> AsyncIterator[bytes]:
        """Yield the stream as bytes. It ends with the awaited turn, or with the server."""
        yield f"retry: {RECONNECT_DELAY_MS}\n\n".encode()
        if self._unknown_position is not None:
            reset_json = {"unknown_id": str(self._unknown_position)}
            yield encode_sse_frame(self._position, "stream.reset", reset_json)
        try:
            async with self._options.hold_read():
                await self._projector.replay_up_to(self._position.log_position)
            read = -1
            while not self._is_finished:
                # Asked before the log is read: turns end before the server closes, and the end of
                # one that was written during the read would be cut off.
                is_closing = self._options.is_closing()
                version = self._hub.version
                log = self._hub.log_version
                if log != read or is_closing:
                    await self._check_caller()
                    async for frame in self._frames_from_log():
                        yield frame
                        await self._check_caller()
                    read = log
                for frame in self._frames_from_partial_reply():
                    await self._check_caller()
                    yield frame
                if not self._is_finished and is_closing:
                    yield encode_sse_frame(None, "reconnect", {})
                    return
                if not self._is_finished and self._hub.version == version:
                    frame, read = await self._wait_for_news(version, read)
                    if frame:
                        await self._check_caller()
                        yield frame
        except SessionNotFound:
            yield encode_sse_frame(None, TurnFailed.type, SESSION_DELETED)
        except (StoreError, CallerNoLongerValid):
            # A reader that reconnects gets the rest when the store is available, or a 401.
            yield encode_sse_frame(None, "reconnect", {})

    async def _check_caller(self) -> None:
        """Check before something is sent whether the caller may still read it."""
        now = asyncio.get_running_loop().time()
        if now - self._caller_checked_at < CALLER_CHECK_INTERVAL_S:
            return
        if not await self._options.is_caller_valid():
            raise CallerNoLongerValid
        self._caller_checked_at = now

    async def _frames_from_log(self) -> AsyncIterator[bytes]:
        read = self._position.log_position
        has_events = False
        rewrites = self._hub.rewrite_version
        events = self._store.events(self._session_id, [(max(1, read), None)])
        while True:
            async with self._options.hold_read():
                event = await anext(events, None)
            if event is None:
                break
            has_events = True
            if self._hub.rewrite_version != rewrites:
                return  # what was read ahead for a slow reader may have been erased
            if event.seq == read:
                self._check_same_log(event)
                continue
            before = self._projector.open_call_position
            if frame := self._remaining_reply_frame(event, before):
                yield frame
            projection = await self._projector.project_event(event)
            self._position = replace(self._position, log_position=event.seq)
            self._last_event_time = event.at
            if self._projector.open_call_position != before:
                self._position = StreamPosition(log_position=event.seq)
            if projection is not None:
                self._quiet_s = 0.0
                self._note_turn_end(event, projection.kind)
                yield encode_sse_frame(self._position, projection.kind, projection.data)
            if self._is_finished:
                return
        if not has_events:
            # It was created again, and its log is shorter than what was read.
            raise SessionNotFound(self._session_id)

    def _check_same_log(self, event: Event) -> None:
        """Raise `SessionNotFound` if another event is at the last position: the session was created
        again."""
        if self._last_event_time not in (None, event.at):
            raise SessionNotFound(self._session_id)
        self._last_event_time = event.at

    def _remaining_reply_frame(self, event: Event, call: int) -> bytes:
        """Return the rest of a reply that is complete now, after the pieces that were sent."""
        body = event.body
        place = self._position
        if not call or not isinstance(body, MessageAdded) or body.call != call:
            return b""
        if place.text_chars:
            rest = (
                join_text_parts(body.message)[place.text_chars :]
                if self._options.log_is_verbatim
                else ""
            )
        else:
            # A caller that waits for an answer gets all of it as pieces, however fast it came.
            rest = join_text_parts(body.message) if self._is_message_in_log else ""
        self._position = replace(place, text_chars=place.text_chars + len(rest))
        return self._delta_frame("text", rest) if rest else b""

    def _frames_from_partial_reply(self) -> list[bytes]:
        draft = self._hub.partial_reply
        frames = list[bytes]()
        if draft is None or draft.call_position != self._projector.open_call_position:
            return frames
        for kind, text in draft.deltas_after(
            self._position.text_chars, self._position.thinking_chars
        ):
            place = self._position
            if kind == "thinking":
                self._position = replace(place, thinking_chars=place.thinking_chars + len(text))
            else:
                self._position = replace(place, text_chars=place.text_chars + len(text))
            self._quiet_s = 0.0
            frames.append(self._delta_frame(kind, text))
        return frames

    def _delta_frame(self, kind: str, text: str) -> bytes:
        delta = project_turn_event(TextDelta(kind=kind, text=text))
        return encode_sse_frame(self._position, delta.kind, delta.data)

    def _note_turn_end(self, event: Event, kind: str) -> None:
        key = self._options.until_answered_key
        body = event.body
        if key is None:
            return
        if isinstance(body, MessageAdded) and remove_repetition(body.key or "") == key:
            self._is_message_in_log = True
            self._message_position = event.seq
        elif isinstance(body, Rewind) and body.puts_off and self._message_position > body.to:
            self._is_message_in_log = False
        elif kind == TurnFinished.type and self._is_message_in_log:
            self._is_finished = True

    async def _wait_for_news(self, version: int, log_version_read: int) -> tuple[bytes, int]:
        """Wait for news. Return a frame to send, and the log version that was read."""
        look = (
            LOG_POLL_INTERVAL_S
            if self._options.until_answered_key is None
            else TURN_LOG_POLL_INTERVAL_S
        )
        start_time = asyncio.get_running_loop().time()
        await self._hub.wait_for_change(version, look)
        if self._hub.version != version:
            return b"", log_version_read
        self._quiet_s += asyncio.get_running_loop().time() - start_time
        if await self._has_news():
            return b"", -1
        if (
            self._options.find_failure_reason is not None
            and (reason := await self._options.find_failure_reason()) is not None
        ):
            self._is_finished = True
            data = {"reason": "dead_letter", "detail": reason}
            return encode_sse_frame(None, TurnFailed.type, data), log_version_read
        if (
            self._is_message_in_log
            and self._options.is_message_answered is not None
            and await self._options.is_message_answered()
        ):
            # Events that were written during the check come first.
            self._is_finished = not await self._has_news()
            return (
                (encode_sse_frame(None, TurnFinished.type, {"reason": "done"}), log_version_read)
                if self._is_finished
                else (b"", -1)
            )
        if self._quiet_s >= KEEPALIVE_INTERVAL_S:
            self._quiet_s = 0.0
            return b": keepalive\n\n", log_version_read
        return b"", log_version_read

    async def _has_news(self) -> bool:
        """Whether the log differs from what was read: longer, created again, or gone."""
        return await self._store.position(self._session_id) != self._position.log_position


def encode_sse_frame(
    position: StreamPosition | None, event_kind: str, data: Mapping[str, Any]
) -> bytes:
    """Return one server-sent event. Without a position, it has no id."""
    head = f"id: {position}\n" if position is not None else ""
    return f"{head}event: {event_kind}\ndata: ".encode() + encode_json_bytes(data) + b"\n\n"


EVENT_STREAM_MEDIA_TYPE = "text/event-stream"


class EventStreamResponse(Response):
    """A response of server-sent events."""

    media_type = EVENT_STREAM_MEDIA_TYPE

    def __init__(
        self,
        *,
        open_frames: Callable[[], AbstractAsyncContextManager[AsyncIterator[bytes]]],
        on_disconnect: Callable[[], Awaitable[None]] | None = None,
        status_code: int = 200,
    ) -> None:
        self.status_code = status_code
        self.background = None
        self.open_frames = open_frames
        """The frames to send. They are closed in any case."""
        self.on_disconnect = on_disconnect
        """Called if the reader has gone before the end."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send all frames, as fast as the reader takes them."""
        del scope
        start = [
            (b"content-type", EVENT_STREAM_MEDIA_TYPE.encode()),
            (b"x-accel-buffering", b"no"),
        ]
        await send({"type": "http.response.start", "status": self.status_code, "headers": start})
        pump = asyncio.create_task(self._send_frames(send))
        leave = asyncio.create_task(_wait_for_disconnect(receive))
        try:
            await asyncio.wait({pump, leave}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            has_ended = pump.done() and not pump.cancelled() and pump.exception() is None
            for task in (pump, leave):
                task.cancel()
            await asyncio.gather(pump, leave, return_exceptions=True)
        if not has_ended and self.on_disconnect is not None:
            await self.on_disconnect()
        error = None if pump.cancelled() else pump.exception()
        if error is not None and not isinstance(error, OSError):
            raise error

    async def _send_frames(self, send: Send) -> None:
        with track_open_stream():
            async with self.open_frames() as frames, aclosing(cast("Any", frames)):
                async for frame in frames:
                    await send({"type": "http.response.body", "body": frame, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def accepts_event_stream(scope: Scope) -> bool:
    """Whether the caller wants events instead of JSON."""
    accept = b"".join(value for name, value in scope["headers"] if name == b"accept")
    return EVENT_STREAM_MEDIA_TYPE in accept.decode("latin-1").lower()
