"""What only the agentic loop and the server do with a session.

It is a part of `Session` in a file of its own, so that `Session` shows what a program types.
"""

# pyright: reportPrivateUsage=false
from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

from trimtab.engine.log.event import TurnProgressRecord
from trimtab.session.session import Session


@dataclass(frozen=True, slots=True)
class SessionRecorder:
    """The door to a session for whoever runs its turns. Several doors of one session are the
    same."""

    session: Session
    """The session."""

    @property
    def turn_lock(self) -> asyncio.Lock:
        """Held by the turn that runs in this session object."""
        return self.session._turn_lock

    @property
    def epoch(self) -> int | None:
        """The epoch of the turn that this process has claimed; None if it has claimed none."""
        return self.session._epoch

    def hold_turn(self, wait: float | None) -> AbstractAsyncContextManager[None]:
        """Hold the turn in the store; see `Session.claim_turn`. None holds nothing."""
        return self.session._hold_turn(wait)

    async def claim(self, message: Any = None, *, key: str | None = None) -> int:
        """Begin a turn and return its epoch. The owner of the previous turn can no longer write.

        A message is added before it, in the same append.
        """
        return await self.session._claim(message, key=key)

    def disown(self) -> None:
        """Leave a claimed turn to whoever runs it next. What this process adds after that does not
        belong to it."""
        self.session._epoch = None

    async def record_tool_start(self, key: str) -> None:
        """Record that a tool was started, with the idempotency key of its call."""
        body = TurnProgressRecord(state="tool_started", epoch=self.epoch or 0, key=key)
        await self.session._append_body(body)

    async def end_turn(self) -> None:
        """End the turn that this process has claimed."""
        await self.session._end_turn()
