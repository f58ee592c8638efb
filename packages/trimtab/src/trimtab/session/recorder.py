"""What only the agentic loop and the server do with a session.

It is a part of `Session` in a file of its own, so that `Session` shows what a program types.
"""

# pyright: reportPrivateUsage=false
from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from trimtab.context import Compaction
from trimtab.dialects.base import WireObject
from trimtab.engine.log.call_failure import build_over_ceiling_outcome, build_stopped_outcome
from trimtab.engine.log.erase import ErasurePlanner
from trimtab.engine.log.event import (
    CallOutcome,
    Edit,
    Event,
    EventBody,
    MessageAdded,
    Rewind,
    SummaryAttempt,
    TurnProgressRecord,
    Usage,
)
from trimtab.engine.policy.planning.plan import MessageSpan, Policy
from trimtab.engine.policy.summary_requests import ResultSummaryRequest
from trimtab.errors import StaleOwner
from trimtab.session.history import HiddenTotals, total_hidden_since_by_edit_kind
from trimtab.session.loading import load_context_to_read
from trimtab.session.session import Session
from trimtab.stores.base import Store
from trimtab.stores.shared_lock import SharedLock

TAKEN_OVER = "another request took the turn over"
"""Why a summary is not used that was made for a turn which has another owner by then."""


@dataclass(frozen=True, slots=True)
class SessionRecorder:
    """The door to a session for whoever runs its turns. Several doors of one session are the
    same."""

    session: Session
    """The session."""

    @property
    def turn_lock(self) -> SharedLock:
        """Held by the turn that runs in this session object."""
        return self.session._turn_lock

    @property
    def epoch(self) -> int | None:
        """The epoch of the turn that this process has claimed; None if it has claimed none."""
        return self.session._epoch

    @property
    def tools(self) -> Mapping[str, Any]:
        """The tools of the last turn that set any, with their functions, by name."""
        return self.session._tools

    @property
    def was_read(self) -> bool:
        """Whether the session was read from the store. Otherwise its object began the log."""
        return self.session._was_read

    def keep_tools(self, tools: Mapping[str, Any]) -> None:
        """Keep the functions of the session's tools for the next turn."""
        self.session._tools = tools

    def hold_turn(self, wait: float | None) -> AbstractAsyncContextManager[None]:
        """Hold the turn in the store; see `Session.claim_turn`. None holds nothing."""
        return self.session._hold_turn(wait)

    async def claim(self, message: Any = None, *, key: str | None = None) -> int:
        """Begin a turn and return its epoch. The owner of the previous turn can no longer write.

        A message is added before it, in the same append.
        """
        await self.session._claim(message, key=key)
        return self.session._epoch or 0

    async def claim_for(self, message: Any, key: str | None) -> int | None:
        """Claim the turn, and return the position of the message if it was in the log already."""
        return await self.session._claim(message, key=key)

    def disown(self) -> None:
        """Leave a claimed turn to whoever runs it next. What this process adds after that does not
        belong to it."""
        self.session._epoch = None

    async def add_reply(
        self, reply: WireObject, *, ends_turn: Callable[[MessageAdded], bool]
    ) -> bool:
        """Add a model's reply, and end the turn in the same append if `ends_turn` returns True.

        It is called before the window has the reply, and again if another process has stored events
        first. Return whether the turn was ended.
        """
        session = self.session
        is_end = False

        def follow(drafted: Sequence[Event]) -> Sequence[EventBody]:
            nonlocal is_end
            additions = [e.body for e in drafted if isinstance(e.body, MessageAdded)]
            is_end = bool(additions) and ends_turn(additions[-1])
            return [session._build_turn_end()] if is_end else []

        await session._add_item(reply, follow=follow)
        if is_end:
            session._epoch = None
        return is_end

    async def record_usage(self, usage: Usage) -> bool:
        """Record what the reply to the waiting call was billed, before its message is known.

        Return whether a call waited for its reply.
        """
        is_open = self.session.window.accounting.open_call_seq is not None
        await self._record_outcome(lambda call: CallOutcome(call=call, usage=usage))
        return is_open

    async def record_stopped_call(self) -> None:
        """Record that a person stopped the call that is waiting for its reply."""
        await self._record_outcome(build_stopped_outcome)

    async def record_call_over_ceiling(self, ceiling: str) -> None:
        """Record that the waiting call is not made, because it may exceed this cost ceiling."""
        await self._record_outcome(partial(build_over_ceiling_outcome, ceiling=ceiling))

    async def _record_outcome(self, build: Callable[[int], CallOutcome]) -> None:
        session = self.session

        def record() -> None:
            call = session.window.accounting.open_call_seq
            if call is not None:
                session._context.append(build(call))

        await session._draft_and_store(record)

    async def record_failure(
        self,
        kind: str,
        *,
        message: str = "",
        usage: Usage | None = None,
        **token_counts: int | None,
    ) -> None:
        """Record a failure like `Session.fail`, without preparing the next request.

        `token_counts` are `limit`, `input` and `requested`.
        """
        await self.session._record_failure(kind, message=message, usage=usage, **token_counts)

    def find_rejected_texts(self, provider_message: str) -> frozenset[str]:
        """Return the texts of the last request that a provider's error message points to."""
        return self.session._context.find_rejected_texts(provider_message)

    async def apply_policy(self, policy: Policy) -> tuple[Edit, ...]:
        """Make the edits that a policy wants now, whatever the session's own policy is. Return
        them."""
        return await self.session._apply_policy(policy)

    @property
    def summary_lock(self) -> SharedLock:
        """Held while a summary of this session is made in this process."""
        return self.session._summary_lock

    async def record_summary_attempt(
        self,
        attempt: SummaryAttempt,
        text: str = "",
        *,
        span: MessageSpan | None = None,
        result: ResultSummaryRequest | None = None,
    ) -> None:
        """Record that a summary was requested. A `text` is applied in the same append: to the
        messages of `span`, or to a tool result.

        Raises `UnusableSummary` if it cannot be applied. Nothing is recorded then.
        """
        session = self.session

        def record() -> None:
            if text and result is not None:
                session._context.add_result_summary(result, text, written_by=attempt.model)
            elif text:
                session._context.add_summary(text, span=span)
            session._context.append(attempt)

        try:
            await session._draft_and_store(record, text_bytes=session.window.bytes)
        except StaleOwner:
            late_attempt = replace(attempt, outcome="rejected", why=TAKEN_OVER, tokens=0, patched=0)
            await session._record_late(late_attempt)
            raise

    async def compact(self) -> tuple[Compaction, list[HiddenTotals]]:
        """Compact like `Session.compact`, and also return what was hidden, by kind of edit."""
        session = self.session
        position = session.window.seq
        summary = session.window.summary
        compaction = await session.compact()
        totals = await total_hidden_since_by_edit_kind(
            *(session.store, session.id, session.window, position),
            already_summarised_until=0 if summary is None else summary.last,
        )
        return compaction, totals

    def run_in_background(self, coroutine: Coroutine[Any, Any, object]) -> None:
        """Run a coroutine for which `Session.wait_for_background` and `Session.close` wait."""
        task = asyncio.create_task(coroutine)
        self.session._background.add(task)
        task.add_done_callback(self.session._background.discard)

    async def erase(
        self,
        handle: str | Sequence[str],
        *,
        reason: str = "",
        before_rewrite: Callable[[ErasurePlanner], Awaitable[None]] | None = None,
        fence_open_turn: bool = False,
    ) -> list[str]:
        """Erase like `Session.erase`, and return the forks of the session.

        Args:
            handle: The handle of a part, a message or a range, or several handles.
            reason: Why it is erased.
            before_rewrite: Called with the planned erasures before the log is rewritten.
            fence_open_turn: Whether to claim an open turn of any process, which may still have the
                text in memory. That process can then no longer write.
        """
        session = self.session
        await session._erase(
            handle, reason=reason, before_rewrite=before_rewrite, fence_open_turn=fence_open_turn
        )
        return await session.store.forks(session.id)

    async def reload(self) -> None:
        """Load the session from the store again."""
        async with self.session._lock:
            await self.session._load_again()

    async def checkpoint(self) -> None:
        """Remove hidden messages from memory and store a snapshot, so that the next opening is
        fast."""
        async with self.session._lock:
            await self.session._checkpoint()

    async def record_tool_start(self, key: str) -> None:
        """Record that a tool was started, with the idempotency key of its call."""
        body = TurnProgressRecord(state="tool_started", epoch=self.epoch or 0, key=key)
        await self.session._append_body(body)

    async def put_off(self, first_seq: int) -> None:
        """Undo the messages from a position on. The caller adds them again later."""
        await self.session._append_body(Rewind(to=first_seq - 1, puts_off=True))

    async def end_turn(self) -> None:
        """End the turn that this process has claimed."""
        await self.session._end_turn()


async def open_session_to_erase(store: Store, session_id: str) -> Session:
    """Open a session without the functions of its caller, which are not in the log.

    Erasing needs none of them. No message can be added.
    """
    session = Session(store, session_id, await load_context_to_read(store, session_id))
    await session.refresh()
    return session
