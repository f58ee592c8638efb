"""The agentic loop: call the model, run its tools, call it again, until it has finished.

The next step is always derived from the window. So a turn that was interrupted anywhere continues
at the end of the log. A recorded reply is never requested again, and a tool that was started never
runs again unless it allows that.
"""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
)
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Literal, cast

from trimtab.dialects import get_dialect
from trimtab.dialects.base import WireObject
from trimtab.dialects.reply_recording import read_text_or_thinking_delta
from trimtab.engine.log.event import MessageAdded
from trimtab.engine.log.message import Message, ToolCall, ToolResult
from trimtab.engine.log.redaction import Redact, StreamRedactor
from trimtab.engine.window.window import Window
from trimtab.errors import CannotFit, CostCeilingReached, ProviderError, ProviderFailureDetails
from trimtab.options import explain_unknown_options
from trimtab.providers.base import STREAM_CUT_SHORT, Provider, require_provider
from trimtab.providers.error_parser import parse_error_event
from trimtab.providers.retries import hear_retry_waits
from trimtab.session.awaited_summaries import TurnCallSettings, summarise_then_build_request
from trimtab.session.events import (
    AssistantReplied,
    ModelCallRetried,
    TextDelta,
    TurnEvent,
    TurnFinished,
)
from trimtab.session.function_tool import to_tool
from trimtab.session.interruption import (
    TurnInterruption,
    TurnStopped,
    close_stopped_tool_calls,
    record_partial_reply,
)
from trimtab.session.model_call_recovery import ModelCallRecovery
from trimtab.session.model_summaries import (
    configure_policy_for_summariser,
    summarise_session_logging_errors,
)
from trimtab.session.session import TURN_WAIT_S, Session
from trimtab.session.spending import CallCharge
from trimtab.session.summariser import Summariser
from trimtab.session.tools import (
    ConfirmRerun,
    OnEvent,
    Tool,
    find_tools_without_function,
    run_open_tool_calls,
    set_session_tools,
)
from trimtab.session.turn_event_builders import (
    ModelCallMeter,
    TurnMeter,
    emit_turn_start_and_failure,
)

MAX_TOOL_ITERATIONS = 25
"""How many replies with tool calls one turn may have."""

WROTE_DURING_REPLY_NOTE = "[the newest user message came while you were writing; reply to it now]"
"""Ends a request whose newest user message was added before the last reply."""


BeforeRequest = Callable[[], Awaitable[bool]]
"""Awaited before each request, so that you can add new messages. False ends the turn here. Nothing
is lost, because the next turn continues from the log."""

OnRejection = Callable[[ProviderError | CannotFit], Awaitable[bool]]
"""Awaited if the provider rejects the content of a request, or if it cannot fit, so that you can
change the session. True makes the request again."""

ScheduleSummary = Callable[[Session], Awaitable[None]]
"""Awaited after a turn whose session needs a summary, if it is made elsewhere."""


def _ignore_event(_: TurnEvent) -> None:
    pass


@explain_unknown_options
async def run_turn(
    session: Session,
    provider: Provider,
    tools: Iterable[Tool | Callable[..., Any]] | None = None,
    *,
    message: Any = None,
    key: str | None = None,
    on_event: OnEvent = _ignore_event,
    confirm_rerun: ConfirmRerun | None = None,
    stream: bool = True,
    volatile: str | None = None,
    max_tool_iterations: int = MAX_TOOL_ITERATIONS,
    turn_tools: Iterable[Tool | Callable[..., Any]] = (),
    summariser: Summariser | None = None,
    before_request: BeforeRequest | None = None,
    on_rejection: OnRejection | None = None,
    schedule_summary: ScheduleSummary | None = None,
    stop: asyncio.Event | None = None,
    wait: float | None = TURN_WAIT_S,
    end_with_reply: bool | None = None,
) -> TurnFinished:
    """Let the model answer, and run the tools that it calls, until it has finished.

    If a turn is already running in this session, it waits until that one has ended. A message that
    `session.add` adds meanwhile is answered by the running turn.

    Args:
        session: The session.
        provider: The provider that the model is called through.
        tools: The tools of the session from now on. None keeps the current ones. After an opening,
            pass them again: the log has their definitions only. A typed function becomes a tool as
            with `@tool`.
        message: A message to add first.
        key: An idempotency key of the message. A message with a known key is not added again.
        on_event: A function that gets each `TurnEvent`.
        confirm_rerun: Awaited with an interrupted call of a tool with `on_interrupt="ask"`. True
            runs it again.
        stream: Whether replies are streamed.
        volatile: A text for the requests of this turn only, placed after the last cache mark.
        max_tool_iterations: How many replies with tool calls, or paused replies, it may have.
        turn_tools: Tools for this turn only.
        summariser: Writes summaries: after the turn in the background, and before a call only if
            there is no other way.
        before_request: Awaited before each request. False ends the turn.
        on_rejection: Awaited if the provider rejects the content of a request, or if it cannot fit.
            True makes the request again, and without it the turn fails.
        schedule_summary: Awaited after the turn if a summary is needed, instead of writing it in
            the background.
        stop: An event that stops the turn. The reply so far is kept, and running tools are ended.
        wait: Seconds to wait for another request that has the turn of this session. None takes the
            turn over at once: then its owner can no longer write.
        end_with_reply: End the turn in the same append as a reply without tool calls, which saves
            one append. `before_request` is not awaited after it. None does so if there is no
            `before_request`.

    Returns:
        The answer as `text` and `message`, what the model calls used and cost, and why the turn
        ended. If a call might exceed a cost ceiling, it is not made, and the turn ends with
        `cost_ceiling`.

    Raises:
        CannotFit: If a request would not fit, whatever is hidden.
        ProviderError: If a call failed and could not be recovered.
        SessionBusy: If another request had the turn all the time. The message was not added.
        StaleOwner: If another process has claimed the turn.
        StoreError: If the store failed.
        TypeError: If an argument has a wrong type, such as a client of an SDK as the provider.
        ValueError: If the provider's dialect is not the session's, or a tool of a session that was
            opened again has no function.

    Example:
        Answer a message with one tool::

            message = {"role": "user", "content": "A hat today?"}
            finished = await run_turn(session, provider, [weather], message=message)
            print(finished.text)
    """
    _check_provider(session, provider)
    session_tools = None if tools is None else {each.name: each for each in map(to_tool, tools)}
    tools_of_turn = {each.name: each for each in map(to_tool, turn_tools)}
    recorder = session.recorder
    functions = {**tools_of_turn, **(recorder.tools if session_tools is None else session_tools)}
    if (
        session_tools is None
        and recorder.was_read
        and (missing := find_tools_without_function(session, functions))
    ):
        raise ValueError(
            f"session {session.id!r} has tools without a function: {', '.join(missing)}; the log "
            "has their definitions only: pass the functions as tools= after each opening, or "
            "tools=[] to have none"
        )
    meter = TurnMeter(on_event)
    async with (
        recorder.hold_turn(wait),
        recorder.turn_lock,
        emit_turn_start_and_failure(session, on_event),
        _hold_claimed_turn(session, message, key) as answer,
    ):
        await set_session_tools(session, session_tools, tools_of_turn)
        if session_tools is not None:
            recorder.keep_tools(session_tools)
        if summariser is not None:
            await configure_policy_for_summariser(session, summariser)
        calls = rounds = cut_off_tools = 0
        was_stopped = cut_off = ended_with_reply = False
        ceiling: str | None = None
        ends_turn = before_request is None if end_with_reply is None else end_with_reply
        interruption = TurnInterruption(stop)
        is_answered = answer is not None and before_request is None
        while not is_answered and not cut_off and not ended_with_reply:
            rounds += (
                1
                if session.window.conversation.open_calls() or is_last_reply_paused(session.window)
                else 0
            )
            try:
                await interruption.run(
                    run_open_tool_calls(session, functions, meter, confirm_rerun)
                )
            except TurnStopped:
                cut_off = True
                cut_off_tools = await close_stopped_tool_calls(session, meter)
                break
            if before_request is not None and (was_stopped := not await before_request()):
                break
            if not session.window.is_reply_due or rounds >= max_tool_iterations:
                break
            how = TurnCallSettings(
                stream=stream, summariser=summariser, on_event=meter, ends_turn=ends_turn
            )
            try:
                ended_with_reply = await _request_reply_unless_rejected(
                    session, provider, how, volatile, interruption, on_rejection=on_rejection
                )
            except TurnStopped:
                cut_off = True
            except CostCeilingReached as refusal:
                ceiling = refusal.ceiling
                break
            calls += 1
    finish_event = TurnFinished(
        reason="cost_ceiling"
        if ceiling is not None
        else _find_end_reason(session.window, stopped=was_stopped, cut_off=cut_off),
        calls=calls,
        message=meter.message or answer,
        usage=meter.usage,
        cost=meter.cost,
        cost_ceiling=ceiling,
        cut_off_tools=cut_off_tools,
    )
    on_event(finish_event)
    if summariser is not None:
        await _summarise_after_turn(
            session, summariser, on_event, schedule_summary, releases=wait is not None
        )
    return finish_event


def _is_rejection(error: ProviderError | CannotFit) -> bool:
    """Whether the cause is the content of the request."""
    return isinstance(error, CannotFit) or error.failure.kind == "rejected"


def _check_provider(session: Session, provider: Provider) -> None:
    """Raise if the provider cannot send the requests of the session."""
    require_provider(provider)
    dialect = session.window.settings.dialect
    if provider.dialect != dialect:
        raise ValueError(
            f"the provider sends requests of {provider.dialect}, and session {session.id!r} builds "
            f"requests of {dialect}; pass a provider of {dialect}, or first "
            f"session.configure(dialect={provider.dialect!r})"
        )


async def _find_answer(session: Session, position: int) -> Message | None:
    """Return the finished reply to a message in the log; None if it has none."""
    answer: Message | None = None
    async for entry in session.messages(after=f"m{position}"):
        message = entry.message
        if message.role == "assistant":
            answer = message
        elif answer is not None and any(not isinstance(p, ToolResult) for p in message.parts):
            break
    else:
        if session.window.is_reply_due:
            return None
    if answer is None or any(isinstance(part, ToolCall) for part in answer.parts):
        return None
    return answer


def _find_end_reason(
    window: Window, *, stopped: bool, cut_off: bool
) -> Literal["done", "stopped", "iterations"]:
    if cut_off:
        return "stopped"
    if not window.is_reply_due:
        return "done"
    return "stopped" if stopped else "iterations"


@asynccontextmanager
async def _hold_claimed_turn(
    session: Session, message: Any, key: str | None
) -> AsyncGenerator[Message | None]:
    """Claim a turn and end it in the log, unless it fails. A failed turn can be continued.

    Yield the reply to the message if it has one already.
    """
    recorder = session.recorder
    position = await recorder.claim_for(message, key)
    try:
        try:
            yield None if position is None else await _find_answer(session, position)
        except ProviderError as error:
            # If the turn stayed open, it would be resumed and send the same request again.
            if not _is_rejection(error):
                raise
            await recorder.end_turn()
            raise
        if recorder.epoch is not None:
            await recorder.end_turn()
    finally:
        # Later appends do not belong to this turn, so a newer turn must not make them fail.
        recorder.disown()


async def _summarise_after_turn(
    session: Session,
    summariser: Summariser,
    on_event: OnEvent,
    schedule_summary: ScheduleSummary | None,
    *,
    releases: bool,
) -> None:
    """Make a summary after a turn, here or elsewhere.

    `releases` is whether other processes may claim the turn, which need the session's files.
    """

    async def summarise() -> None:
        await summarise_session_logging_errors(session, summariser, on_event)
        if releases:
            await session.store.release(session.id)

    if schedule_summary is None:
        session.recorder.run_in_background(summarise())
    elif not summariser.only_results and await session.pending_summary() is not None:
        await schedule_summary(session)


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


def user_wrote_during_reply(window: Window) -> bool:
    """Whether the newest user message was added while the model was writing its last reply."""
    ends_with_reply = (
        bool(window.conversation.rounds)
        and window.conversation.rounds[-1].entries[-1].message.role == "assistant"
    )
    return ends_with_reply and window.user_wrote_since_call


async def _request_reply_unless_rejected(*arguments: Any, on_rejection: OnRejection | None) -> bool:
    """Return whether the turn was ended with a reply. It was not if the request is made again."""
    try:
        return await _request_reply(*arguments)
    except (ProviderError, CannotFit) as error:
        if on_rejection is None or not _is_rejection(error) or not await on_rejection(error):
            raise
        return False


async def _request_reply(
    session: Session,
    provider: Provider,
    call_options: TurnCallSettings,
    volatile: str | None,
    interruption: TurnInterruption,
) -> bool:
    """Get one reply of the model and record it; recover from failures if possible.

    Returns whether the turn was ended with it. Raises `TurnStopped` if the turn was stopped; the
    text so far is then recorded.
    """
    recovery = ModelCallRecovery(unstreamed=not call_options.stream)
    tell = call_options.on_event
    if is_last_reply_paused(session.window):
        volatile = None  # what goes on with its own last word must end with it
    elif user_wrote_during_reply(session.window):
        volatile = (
            f"{volatile}\n\n{WROTE_DURING_REPLY_NOTE}" if volatile else WROTE_DURING_REPLY_NOTE
        )
    may_end = call_options.ends_turn

    def ends_turn(added: MessageAdded) -> bool:
        return may_end and _is_last(session.window, added)

    while True:
        call_options = replace(call_options, stream=not recovery.unstreamed)
        request = await interruption.run(
            summarise_then_build_request(session, call_options, volatile)
        )
        clock = ModelCallMeter(session)
        partial: list[str] = []
        try:
            async with CallCharge(session.window, streamed=call_options.stream) as charge:
                reply = await interruption.run(
                    _send_request(
                        provider,
                        request,
                        tell,
                        recovery,
                        partial=partial,
                        charge=charge,
                        redact=session.options.redact,
                    )
                )
            failure = recovery.find_failure(session, reply)
        except ProviderError as error:
            reply = None
            failure = error.failure
        except CostCeilingReached as refusal:
            clock.stop()
            await session.recorder.record_call_over_ceiling(refusal.ceiling)
            tell(clock.build_finished_event("cost_ceiling"))
            raise
        except TurnStopped:
            clock.stop()
            await record_partial_reply(session, "".join(partial), tell)
            tell(clock.build_finished_event("stopped"))
            raise
        clock.stop()
        if reply is not None and failure is None:
            is_end = await session.recorder.add_reply(reply, ends_turn=ends_turn)
            tell(clock.build_finished_event())
            entry = session.window.conversation.rounds[-1].entries[0]
            tell(
                AssistantReplied(message=entry.message, usage=session.window.accounting.last_usage)
            )
            return is_end
        assert failure is not None  # noqa: S101 - there is one or the other
        tell(clock.build_finished_event(failure.kind))
        await recovery.recover_from(session, failure)
        for pending_event in recovery.pending_events:
            tell(pending_event)
        recovery.pending_events.clear()


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


async def _send_request(
    provider: Provider,
    request: Mapping[str, Any],
    on_event: OnEvent,
    recovery: ModelCallRecovery,
    *,
    partial: list[str],
    charge: CallCharge,
    redact: Redact | None,
) -> WireObject:
    """Return the whole reply and emit its pieces as they arrive, redacted. Its text is added to
    `partial` as it came."""
    deltas = _RedactedDeltas(on_event, redact)
    dialect = get_dialect(provider.dialect)
    gathering = dialect.create_reply_accumulator()
    recovery.reply_started = False
    reply: WireObject | None = None

    def tell_retry(failure: ProviderFailureDetails, wait_s: float) -> None:
        on_event(ModelCallRetried(kind=failure.kind, reason=failure.message, wait_s=wait_s))

    with hear_retry_waits(tell_retry):
        async with _closing_stream(provider.send(request)) as events:
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
