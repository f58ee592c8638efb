"""A stream that is passed through, and recorded as a reply when it ends.

Also reads the text or thinking that a stream event adds.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar, cast

from trimtab.dialects.base import ModelReply, ReplyAccumulator, WireObject
from trimtab.engine.log.event import CallOutcome
from trimtab.engine.log.message import Message

StreamEventT = TypeVar("StreamEventT")


class ReplyRecordingStream(Generic[StreamEventT]):
    """A stream that also records its reply. Iterate it with `for` or `async for`.

    After the end, `message` is the reply. If the stream ends early, nothing is added, and the
    outcome of the call stays unknown.
    """

    def __init__(
        self,
        stream: Iterable[StreamEventT] | AsyncIterable[StreamEventT],
        _accumulator: ReplyAccumulator,
        to_dict: Callable[[Any], WireObject],
        on_reply: Callable[[WireObject], Message],
    ) -> None:
        self._stream = stream
        self._gathering = _accumulator
        self._to_wire = to_dict
        self._done = on_reply
        self._message: Message | None = None

    @property
    def message(self) -> Message:
        """The reply, with its text and its tool `calls`.

        Raises:
            ValueError: If the stream has not ended, or ended early.
        """
        if self._message is None:
            raise ValueError(
                "the reply is incomplete: read the stream to its end before you use the "
                "message. If the stream ends early, no message is added"
            )
        return self._message

    def __iter__(self) -> Iterator[StreamEventT]:
        for event in cast("Iterable[StreamEventT]", self._stream):
            self._gathering.feed(self._to_wire(event))
            yield event
        self._finish()

    async def __aiter__(self) -> AsyncIterator[StreamEventT]:
        async for event in cast("AsyncIterable[StreamEventT]", self._stream):
            self._gathering.feed(self._to_wire(event))
            yield event
        self._finish()

    def _finish(self) -> None:
        reply = read_finished_reply_body(self._gathering)
        if reply is not None:
            self._message = self._done(reply)


def build_reply_outcome(call_seq: int, reply: ModelReply) -> CallOutcome:
    """Build the outcome of the call that a reply answers."""
    return CallOutcome(
        call=call_seq,
        usage=reply.usage,
        stop=reply.stop,
        counted=reply.counted,
        cache_diagnosis=reply.cache_diagnosis,
        server_edits=reply.server_edits,
    )


def read_finished_reply_body(accumulator: ReplyAccumulator) -> WireObject | None:
    """Return the reply of a stream that has ended; None if it ended early.

    Raises `ValueError` if no event belonged to the dialect, because the reply would be lost
    silently.
    """
    if not accumulator.has_started:
        raise ValueError(
            "the stream had no readable event, so its reply is lost; "
            f"expected {accumulator.expected_events}"
        )
    return accumulator.reply_body()


def read_text_or_thinking_delta(stream_event: WireObject) -> tuple[str, str] | None:
    """Return `text` or `thinking` and the piece; None for an event without either."""
    kind = stream_event.get("type")
    if kind == "content_block_delta":
        return _read_anthropic_delta(stream_event.get("delta") or {})
    if kind == "response.output_text.delta":
        return "text", str(stream_event.get("delta", ""))
    if kind == "response.reasoning_summary_text.delta":
        return "thinking", str(stream_event.get("delta", ""))
    choices: list[dict[str, Any]] = stream_event.get("choices") or []
    delta: dict[str, Any] = (choices[0].get("delta") if choices else None) or {}
    piece: Any = delta.get("content")
    return ("text", piece) if isinstance(piece, str) and piece else None


def _read_anthropic_delta(delta_body: WireObject) -> tuple[str, str] | None:
    match delta_body.get("type"):
        case "text_delta":
            return "text", str(delta_body.get("text", ""))
        case "thinking_delta":
            return "thinking", str(delta_body.get("thinking", ""))
        case _:
            return None
