"""Stopping a turn in the middle: what is cut off, and what is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from trimtab.engine.log.message import Message, Text, ToolResult
from trimtab.engine.log.redaction import redacted_message
from trimtab.errors import ProviderError
from trimtab.session.events import AssistantReplied, ToolFinished
from trimtab.session.session import Session
from trimtab.session.tools import OnEvent, list_open_calls

NOT_RUN_TEXT = "[not run: the user stopped the turn]"
"""The result of a call that had not started."""
STOPPED_TEXT = "[stopped by the user while it ran; what it has done until then is unknown]"
"""The result of a tool that was running."""

T = TypeVar("T")


class TurnStopped(Exception):
    """The turn was stopped."""


class TurnInterruption:
    """Runs the steps of a turn, each until it ends or the turn is stopped."""

    def __init__(self, stop: asyncio.Event | None) -> None:
        self._stop = stop

    @property
    def is_requested(self) -> bool:
        """Whether the turn was asked to stop."""
        return self._stop is not None and self._stop.is_set()

    async def run(self, step: Coroutine[Any, Any, T]) -> T:
        """Return the result of the step; raise `TurnStopped` if it was cut off."""
        if self._stop is None:
            return await step
        if self._stop.is_set():
            step.close()
            raise TurnStopped
        task = asyncio.ensure_future(step)
        stop_wait = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait((task, stop_wait), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop_wait.cancel()
            if not task.done():
                task.cancel()
                await asyncio.wait((task,))
        if task.cancelled():
            if not self._stop.is_set():
                raise asyncio.CancelledError
            raise TurnStopped
        error = task.exception()
        if error is not None and self._stop.is_set() and isinstance(error, ProviderError):
            raise TurnStopped from error
        return task.result()


async def record_partial_reply(session: Session, text: str, on_event: OnEvent) -> None:
    """Record the reply so far when it was cut off, and the fact that it was."""
    await session.refresh()
    await session.recorder.record_stopped_call()
    if not text.strip():
        return
    # Only text: what else had begun, such as a tool call, is not whole.
    message = Message(role="assistant", parts=(Text(text=text.rstrip()),))
    message = redacted_message(message, session.options.redact)
    await session.add(message)
    on_event(AssistantReplied(message=message, usage=None))


async def close_stopped_tool_calls(session: Session, on_event: OnEvent) -> int:
    """Give every open call a result that says why there is none; return how many.

    Otherwise the next message would run them first. After a crash that is right, but a person who
    stops a turn does not want it.
    """
    # A result may have been stored just when its tool was cancelled.
    await session.refresh()
    call_count = 0
    while waiting := list_open_calls(session):
        call, _ = waiting[0]
        # Keys end with the call's own id; the two texts differ for the model's sake alone.
        began = any(
            key.endswith(f"/{call.id}") for key in session.window.accounting.started_tool_keys
        )
        text = STOPPED_TEXT if began else NOT_RUN_TEXT
        result = ToolResult(call_id=call.id, content=(Text(text=text),), is_error=True)
        await session.add(Message(role="tool", parts=(result,)))
        on_event(ToolFinished(call=call, text=text, is_error=True))
        call_count += 1
    return call_count
