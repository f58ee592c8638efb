"""The agentic loop: call the model, run its tools, call it again, until it has finished.

The next step is always derived from the window. So a turn that was interrupted anywhere continues
at the end of the log. A recorded reply is never requested again, and a tool that was started never
runs again unless it allows that.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal

from trimtab.engine.log.message import Message, ToolCall, ToolResult
from trimtab.errors import CannotFit, CostCeilingReached, ProviderError
from trimtab.options import explain_unknown_options
from trimtab.providers.base import Provider, require_provider
from trimtab.session.events import TurnEvent, TurnFinished
from trimtab.session.function_tool import to_tool
from trimtab.session.interruption import TurnInterruption, TurnStopped, close_stopped_tool_calls
from trimtab.session.model_call import ModelCaller, is_last_reply_paused
from trimtab.session.model_summaries import (
    configure_policy_for_summariser,
    summarise_session_logging_errors,
)
from trimtab.session.session import TURN_WAIT_S, Session
from trimtab.session.summariser import Summariser
from trimtab.session.tools import (
    ConfirmRerun,
    OnEvent,
    Tool,
    find_tools_without_function,
    run_open_tool_calls,
    set_session_tools,
)
from trimtab.session.turn_event_builders import TurnMeter, emit_turn_start_and_failure

MAX_TOOL_ITERATIONS = 25
"""How many replies with tool calls one turn may have."""

BeforeRequest = Callable[[], Awaitable[bool]]
"""Awaited before each request, so that you can add new messages. False ends the turn here. Nothing
is lost, because the next turn continues from the log."""

OnRejection = Callable[[ProviderError | CannotFit], Awaitable[bool]]
"""Awaited if the provider rejects the content of a request, or if it cannot fit, so that you can
change the session. True makes the request again."""

ScheduleSummary = Callable[[Session], Awaitable[None]]
"""Awaited after a turn whose session needs a summary, if it is made elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnHooks:
    """What a server does inside a turn that it runs."""

    before_request: BeforeRequest | None = None
    """Awaited before each request. False ends the turn."""
    on_rejection: OnRejection | None = None
    """Awaited if the provider rejects the content of a request, or if it cannot fit. True makes the
    request again, and without it the turn fails."""
    schedule_summary: ScheduleSummary | None = None
    """Awaited after the turn if a summary is needed, instead of writing it in the background."""
    end_with_reply: bool = False
    """End the turn in the same append as a reply without tool calls, although there is a
    `before_request`, which is then not awaited after it. This saves one append."""


NO_HOOKS = TurnHooks()


@dataclass(frozen=True, slots=True)
class RunTools:
    """The last reply has calls without a result."""


@dataclass(frozen=True, slots=True)
class CallModel:
    """A message, a result or a paused reply waits for the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The turn is over."""

    reason: Literal["done", "iterations", "stopped", "cost_ceiling"]
    """As in `TurnFinished`."""
    cut_off_tools: int = 0
    """How many tool calls a stop has cut off or not started."""
    cost_ceiling: str | None = None
    """The ceiling that was reached."""


NextStep = RunTools | CallModel | End
"""What a turn does next."""


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
    stop: asyncio.Event | None = None,
    wait: float | None = TURN_WAIT_S,
    hooks: TurnHooks = NO_HOOKS,
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
        stop: An event that stops the turn. The reply so far is kept, and running tools are ended.
        wait: Seconds to wait for another request that has the turn of this session. None takes the
            turn over at once: then its owner can no longer write.
        hooks: What a server does inside the turn.

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
    session_tools = None if tools is None else {tool.name: tool for tool in map(to_tool, tools)}
    tools_of_turn = {tool.name: tool for tool in map(to_tool, turn_tools)}
    recorder = session.recorder
    functions = {**tools_of_turn, **(recorder.tools if session_tools is None else session_tools)}
    if session_tools is None and recorder.was_read:
        _check_tool_functions(session, functions)
    meter = TurnMeter(on_event)
    turn = _RunningTurn(
        caller=ModelCaller(
            session=session,
            provider=provider,
            interruption=TurnInterruption(stop),
            on_event=meter,
            summariser=summariser,
            volatile=volatile,
            stream=stream,
            ends_turn=hooks.end_with_reply or hooks.before_request is None,
        ),
        functions=functions,
        confirm_rerun=confirm_rerun,
        hooks=hooks,
        max_tool_iterations=max_tool_iterations,
    )
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
        if answer is not None and hooks.before_request is None:
            end = End(reason="done")
        else:
            end = await turn.run()
    finish_event = TurnFinished(
        reason=end.reason,
        calls=turn.calls,
        message=meter.message or answer,
        usage=meter.usage,
        cost=meter.cost,
        cost_ceiling=end.cost_ceiling,
        cut_off_tools=end.cut_off_tools,
    )
    on_event(finish_event)
    if summariser is not None:
        await _summarise_after_turn(
            session, summariser, on_event, hooks.schedule_summary, releases=wait is not None
        )
    return finish_event


@dataclass(slots=True, kw_only=True)
class _RunningTurn:
    """The steps of one turn."""

    caller: ModelCaller
    functions: Mapping[str, Tool]
    confirm_rerun: ConfirmRerun | None
    hooks: TurnHooks
    max_tool_iterations: int
    calls: int = 0
    """Model calls so far."""
    iterations: int = 0
    """Replies so far that called tools or were paused."""

    async def run(self) -> End:
        """Take one step after the other until the turn ends."""
        self._count_iteration()
        step = await self._find_next_step()
        while True:
            match step:
                case RunTools():
                    step = await self._run_tools()
                case CallModel():
                    step = await self._call_model()
                case End():
                    return step

    async def _find_next_step(self) -> NextStep:
        session = self.caller.session
        if session.window.conversation.open_calls():
            return RunTools()
        if self.caller.interruption.is_requested:
            return End(reason="stopped")
        before_request = self.hooks.before_request
        may_request = before_request is None or await before_request()
        if not session.window.is_reply_due:
            return End(reason="done")
        if not may_request:
            return End(reason="stopped")
        if self.iterations >= self.max_tool_iterations:
            return End(reason="iterations")
        return CallModel()

    async def _run_tools(self) -> NextStep:
        session = self.caller.session
        on_event = self.caller.on_event
        try:
            await self.caller.interruption.run(
                run_open_tool_calls(session, self.functions, on_event, self.confirm_rerun)
            )
        except TurnStopped:
            cut_off_tools = await close_stopped_tool_calls(session, on_event)
            return End(reason="stopped", cut_off_tools=cut_off_tools)
        return await self._find_next_step()

    async def _call_model(self) -> NextStep:
        on_rejection = self.hooks.on_rejection
        try:
            has_ended = await self.caller.request_reply()
        except CostCeilingReached as refusal:
            return End(reason="cost_ceiling", cost_ceiling=refusal.ceiling)
        except TurnStopped:
            self.calls += 1
            return End(reason="stopped")
        except (ProviderError, CannotFit) as error:
            if on_rejection is None or not _is_rejection(error) or not await on_rejection(error):
                raise
            has_ended = False
        self.calls += 1
        self._count_iteration()
        return End(reason="done") if has_ended else await self._find_next_step()

    def _count_iteration(self) -> None:
        window = self.caller.session.window
        if window.conversation.open_calls() or is_last_reply_paused(window):
            self.iterations += 1


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


def _check_tool_functions(session: Session, functions: Mapping[str, Tool]) -> None:
    """Raise if the model could call a tool that nobody can run."""
    missing_names = find_tools_without_function(session, functions)
    if missing_names:
        raise ValueError(
            f"session {session.id!r} has tools without a function: {', '.join(missing_names)}; the "
            "log has their definitions only: pass the functions as tools= after each opening, or "
            "tools=[] to have none"
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
