"""Run one turn that a person can stop, and return its outcome."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from trimtab.session.events import TurnFinished
from trimtab_serve.agent.config.spec import ModelSpec
from trimtab_serve.cli.chat.turn_errors import TurnProblem, describe_turn_error

TERMINATION_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
"""The signals that end the process, in order."""


@dataclass(slots=True)
class ChatSignalHandler:
    """Decides what Ctrl-C and the end of the terminal do at the moment."""

    turn: asyncio.Task[Any] | None = None
    """The turn that Ctrl-C stops."""
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    """Tells the turn to stop."""
    ignore_when_idle: bool = False
    """Whether Ctrl-C does nothing while no turn runs. Otherwise it ends the process."""
    ended_by_signal: int | None = None
    """The signal that ended the process."""
    main_task: asyncio.Task[Any] | None = None
    """The task to cancel when the process has to end."""

    def stop_turn(self) -> None:
        """Stop the turn but not the chat. A second call does not wait for the turn to end."""
        if self.turn is not None and self.stop.is_set():
            self.turn.cancel()
        elif self.turn is not None:
            self.stop.set()
        elif not self.ignore_when_idle:
            self.end_process(signal.SIGINT)

    def end_process(self, signal_number: int) -> None:
        """End the process, cleanly."""
        self.ended_by_signal = signal_number
        if self.main_task is not None:
            self.main_task.cancel()

    @contextmanager
    def handle_signals(self) -> Generator[None]:
        """Let signals stop the turn or end this task while the block runs, and never kill it."""
        loop, self.main_task = asyncio.get_running_loop(), asyncio.current_task()
        loop.add_signal_handler(signal.SIGINT, self.stop_turn)
        for number in TERMINATION_SIGNALS:
            loop.add_signal_handler(number, self.end_process, number)
        try:
            yield
        finally:
            for number in (signal.SIGINT, *TERMINATION_SIGNALS):
                loop.remove_signal_handler(number)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatTurnOutcome:
    ended: TurnFinished | None = None
    """How the turn ended. None if it did not."""
    stopped: bool = False
    """Whether a person stopped it."""
    problem: TurnProblem | None = None
    """What went wrong."""


async def run_interruptible_turn(
    interrupts: ChatSignalHandler,
    start_turn: Callable[[asyncio.Event], Coroutine[Any, Any, TurnFinished]],
    model: ModelSpec,
) -> ChatTurnOutcome:
    """Run a turn that Ctrl-C may stop. Errors in our own code are raised."""
    interrupts.stop = stop = asyncio.Event()
    interrupts.turn = task = asyncio.create_task(start_turn(stop))
    try:
        await asyncio.wait({task})
    finally:
        interrupts.turn = None
        if not task.done():
            # The process ends in the middle of it: what is open stays so, as after a crash.
            task.cancel()
            await asyncio.wait({task})
    if task.cancelled():
        return ChatTurnOutcome(stopped=True)
    error = task.exception()
    if error is None:
        finish_event = task.result()
        return ChatTurnOutcome(ended=finish_event, stopped=finish_event.reason == "stopped")
    trouble = describe_turn_error(error, model)
    if trouble is None:
        raise error
    return ChatTurnOutcome(problem=trouble)
