"""One turn that a person can stop, and what came of it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from trimtab.agent.spec import Model
from trimtab.cli.chat.trouble import Trouble, trouble_of
from trimtab.session.happenings import Ended

SIGNALS = (signal.SIGTERM, signal.SIGHUP)
"""What ends the process, in order."""


@dataclass(slots=True)
class Interrupts:
    """What Ctrl-C and the end of the terminal mean at the moment."""

    turn: asyncio.Task[Any] | None = None
    """What Ctrl-C stops."""
    ignored: bool = False
    """Whether Ctrl-C means nothing where there is no turn; else it ends the process."""
    signal: int | None = None
    """What has ended the process."""
    main: asyncio.Task[Any] | None = None
    """The process, as far as we are concerned."""

    def stop(self) -> None:
        """Stop the turn, not the chat."""
        if self.turn is not None:
            self.turn.cancel()
        elif not self.ignored:
            self.end(signal.SIGINT)

    def end(self, number: int) -> None:
        """End the process, cleanly."""
        self.signal = number
        if self.main is not None:
            self.main.cancel()

    @contextmanager
    def installed(self) -> Generator[None]:
        """While it lasts, signals stop the turn or end this task; none of them kills."""
        loop, self.main = asyncio.get_running_loop(), asyncio.current_task()
        loop.add_signal_handler(signal.SIGINT, self.stop)
        for number in SIGNALS:
            loop.add_signal_handler(number, self.end, number)
        try:
            yield
        finally:
            for number in (signal.SIGINT, *SIGNALS):
                loop.remove_signal_handler(number)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    ended: Ended | None = None
    """How the turn ended; None where it did not."""
    stopped: bool = False
    """Whether a person stopped it."""
    trouble: Trouble | None = None
    """What went wrong."""


async def taken(
    interrupts: Interrupts, turn: Callable[[], Coroutine[Any, Any, Ended]], model: Model
) -> Outcome:
    """Take a turn of a model that Ctrl-C may stop; a mistake of ours is raised."""
    task = asyncio.create_task(turn())
    interrupts.turn = task
    try:
        await asyncio.wait({task})
    finally:
        interrupts.turn = None
        if not task.done():
            # The process ends in the middle of it: what is open stays so, as after a crash.
            task.cancel()
            await asyncio.wait({task})
    if task.cancelled():
        return Outcome(stopped=True)
    error = task.exception()
    if error is None:
        return Outcome(ended=task.result())
    trouble = trouble_of(error, model)
    if trouble is None:
        raise error
    return Outcome(trouble=trouble)
