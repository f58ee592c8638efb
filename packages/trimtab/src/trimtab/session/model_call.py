"""One model call of a turn: build the request, send it, record the reply, recover from failures."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

from trimtab.dialects import get_dialect
from trimtab.dialects.base import WireObject
from trimtab.dialects.reply_recording import read_text_or_thinking_delta
from trimtab.engine.log.event import MessageAdded
from trimtab.engine.log.message import ToolCall
from trimtab.engine.log.redaction import Redact, StreamRedactor
from trimtab.engine.window.window import Window
from trimtab.errors import CostCeilingReached, ProviderError, ProviderFailureDetails
from trimtab.providers.base import STREAM_CUT_SHORT, Provider
from trimtab.providers.error_parser import parse_error_event
from trimtab.providers.retries import hear_retry_waits
from trimtab.session.awaited_summaries import summarise_then_build_request
from trimtab.session.events import AssistantReplied, ModelCallRetried, TextDelta
from trimtab.session.interruption import TurnInterruption, TurnStopped, record_partial_reply
from trimtab.session.model_call_recovery import ModelCallRecovery
from trimtab.session.session import Session
from trimtab.session.spending import CallCharge
from trimtab.session.summariser import Summariser
from trimtab.session.tools import OnEvent
from trimtab.session.turn_event_builders import ModelCallMeter

WROTE_DURING_REPLY_NOTE = "[the newest user message came while you were writing; reply to it now]"
"""Ends a request whose newest user message was added before the last reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCaller:
    """Makes the model calls of a turn."""

    session: Session
    """The session."""
    provider: Provider
    """The provider that the model is called through."""
    interruption: TurnInterruption
    """Cuts a call off when the turn is stopped."""
    on_event: OnEvent
    """The function that gets the turn's events."""
    summariser: Summariser | None
    """Writes a summary if the next call would otherwise use an extract; None for nobody."""
    volatile: str | None
    """A text after the last cache mark."""
    stream: bool
    """Whether replies are streamed."""
    ends_turn: bool
    """Whether a reply without tool calls ends the turn in the same append."""

    async def request_reply(self) -> bool:
        """Get one reply of the model and record it; recover from failures if possible.

        Returns whether the turn was ended with it. Raises `TurnStopped` if the turn was stopped;
        the text so far is then recorded.
        """
        session = self.session
        recovery = ModelCallRecovery(unstreamed=not self.stream)
        volatile = self._build_volatile_tail()
        while True:
            request = await self.interruption.run(
                summarise_then_build_request(
                    session,
                    stream=not recovery.unstreamed,
                    volatile=volatile,
                    summariser=self.summariser,
                    on_event=self.on_event,
                )
            )
            clock = ModelCallMeter(session)
            partial: list[str] = []
            try:
                async with CallCharge(session.window, streamed=not recovery.unstreamed) as charge:
                    reply = await self.interruption.run(
                        self._send(request, recovery, charge, partial)
                    )
                failure = recovery.find_failure(session, reply)
            except ProviderError as error:
                reply = None
                failure = error.failure
            except CostCeilingReached as refusal:
                clock.stop()
                await session.recorder.record_call_over_ceiling(refusal.ceiling)
                self.on_event(clock.build_finished_event("cost_ceiling"))
                raise
            except TurnStopped:
                clock.stop()
                await record_partial_reply(session, "".join(partial), self.on_event)
                self.on_event(clock.build_finished_event("stopped"))
                raise
            clock.stop()
            if reply is not None and failure is None:
                return await self._record(reply, clock)
            assert failure is not None  # noqa: S101 - there is one or the other
            self.on_event(clock.build_finished_event(failure.kind))
            await recovery.recover_from(session, failure)
            for pending_event in recovery.pending_events:
                self.on_event(pending_event)
            recovery.pending_events.clear()

    def _build_volatile_tail(self) -> str | None:
        window = self.session.window
        if is_last_reply_paused(window):
            return None  # what goes on with its own last word must end with it
        if not _user_wrote_during_reply(window):
            return self.volatile
        if self.volatile:
            return f"{self.volatile}\n\n{WROTE_DURING_REPLY_NOTE}"
        return WROTE_DURING_REPLY_NOTE

    async def _record(self, reply: WireObject, clock: ModelCallMeter) -> bool:
        """Record a reply; return whether the turn was ended with it."""

        def ends_turn(added: MessageAdded) -> bool:
            return self.ends_turn and _is_last(self.session.window, added)

        is_end = await self.session.recorder.add_reply(reply, ends_turn=ends_turn)
        self.on_event(clock.build_finished_event())
        window = self.session.window
        message = window.conversation.rounds[-1].entries[0].message
        self.on_event(AssistantReplied(message=message, usage=window.accounting.last_usage))
        return is_end

    async def _send(
        self,
        request: Mapping[str, Any],
        recovery: ModelCallRecovery,
        charge: CallCharge,
        partial: list[str],
    ) -> WireObject:
        """Return the whole reply and emit its pieces as they arrive, redacted. Its text is added to
        `partial` as it came."""
        deltas = _RedactedDeltas(self.on_event, self.session.options.redact)
        dialect = get_dialect(self.provider.dialect)
        gathering = dialect.create_reply_accumulator()
        recovery.reply_started = False
        reply: WireObject | None = None

        def tell_retry(failure: ProviderFailureDetails, wait_s: float) -> None:
            retry = ModelCallRetried(kind=failure.kind, reason=failure.message, wait_s=wait_s)
            self.on_event(retry)

        with hear_retry_waits(tell_retry):
            async with _closing_stream(self.provider.send(request)) as events:
                async for event in events:
                    if not request.get("stream"):
                        reply = event
                        break
                    if (failure := parse_error_event(event)) is not None:
                        raise ProviderError(failure)
                    recovery.reply_started = True
                    gathering.feed(event)
                    piece = read_text_or_thinking_delta(event)
                    charge.count_received(event if piece is None else piece[1])
                    if piece is not None:
                        deltas.feed(*piece)
                        if piece[0] == "text":
                            partial.append(piece[1])
        deltas.finish()
        reply = gathering.reply_body() if reply is None else reply
        if reply is None:
            raise ProviderError(STREAM_CUT_SHORT)
        if charge.is_charged:
            charge.record_usage(dialect.parse_reply(reply).usage)
        return reply


def _is_last(window: Window, reply: MessageAdded) -> bool:
    """Whether nothing is due after a reply that the window does not have yet."""
    return (
        not reply.paused
        and not any(isinstance(part, ToolCall) for part in reply.message.parts)
        and not is_last_reply_paused(window)
        and not window.user_wrote_since_call
    )


def is_last_reply_paused(window: Window) -> bool:
    """Whether the provider will continue the last reply when it is sent back."""
    return bool(window.conversation.rounds) and window.conversation.rounds[-1].paused


def _user_wrote_during_reply(window: Window) -> bool:
    """Whether the newest user message was added while the model was writing its last reply."""
    ends_with_reply = (
        bool(window.conversation.rounds)
        and window.conversation.rounds[-1].entries[-1].message.role == "assistant"
    )
    return ends_with_reply and window.user_wrote_since_call


class _RedactedDeltas:
    """Emits the pieces of a reply as they arrive, redacted."""

    def __init__(self, on_event: OnEvent, redact: Redact | None) -> None:
        self._on_event = on_event
        self._redact = redact
        self._redactors: dict[str, StreamRedactor] = {}

    def feed(self, kind: str, text: str) -> None:
        if self._redact is not None:
            self._redactors.setdefault(kind, StreamRedactor(self._redact))
            text = self._redactors[kind].feed(text)
        if text:
            self._on_event(TextDelta(kind=kind, text=text))

    def finish(self) -> None:
        for kind, redactor in self._redactors.items():
            if text := redactor.finish():
                self._on_event(TextDelta(kind=kind, text=text))


@asynccontextmanager
async def _closing_stream(
    events: AsyncIterator[WireObject],
) -> AsyncGenerator[AsyncIterator[WireObject]]:
    """Yield the events, and close their source at the end in any case."""
    try:
        yield events
    finally:
        if hasattr(events, "aclose"):
            await cast("Any", events).aclose()
