"""The driver of a session's verbs: it stores what they record, and only then folds it.

A verb runs on the window of a session. Each batch that it yields is stored in one append with the
epoch of the turn, folded, and sent back. If another process has stored events first, the batch is
refused: the recorder folds what is new, throws the verb and its memory away, and starts it again.
If another process has claimed the turn, it raises. `sync` alone folds a whole list ahead, and
stores it in one append.

This module also has what only the agentic loop and the server do with a session.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Coroutine,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from typing import Any, TypeVar, cast

from trimtab.dialects.base import WireObject
from trimtab.dialects.known_history import HistoryCheck
from trimtab.dialects.reply_recording import build_reply_outcome
from trimtab.engine.log.call_failure import build_over_ceiling_outcome, build_stopped_outcome
from trimtab.engine.log.edits import parse_handle
from trimtab.engine.log.erase import ErasurePlanner, make_event_eraser
from trimtab.engine.log.event import (
    CallOutcome,
    Edit,
    Event,
    EventBody,
    MessageAdded,
    PayloadErasure,
    Rewind,
    SummaryAttempt,
    TurnProgressRecord,
    Usage,
)
from trimtab.engine.policy.planning.plan import MessageSpan, Policy
from trimtab.engine.policy.summary_requests import ResultSummaryRequest
from trimtab.engine.text.arguments import check_idempotency_key
from trimtab.engine.window.window import Window
from trimtab.errors import (
    DuplicateIdempotencyKey,
    HistoryNotInMemory,
    LogDamaged,
    PositionTaken,
    SessionClosed,
    SessionNotFound,
    StaleOwner,
    StoreError,
)
from trimtab.session.awaited_calls import AwaitedCalls
from trimtab.session.history import HiddenTotals, total_hidden_since_by_edit_kind
from trimtab.session.loading import is_checkpoint_due, load_session_state
from trimtab.session.threads import (
    MESSAGE_BYTES,
    estimate_item_bytes,
    estimate_list_bytes,
    is_long_work,
    run_in_thread_if_long,
)
from trimtab.stores.base import Store
from trimtab.stores.shared_lock import SharedLock
from trimtab.verbs import adding, compacting, failing, matching, requesting, summarising
from trimtab.verbs.compacting import Compaction
from trimtab.verbs.notices import (
    EditNotice,
    OnEdit,
    are_notices_heard,
    build_notices,
    report_notices,
)
from trimtab.verbs.state import State, Verb, apply_at_once, build_events, record
from trimtab.verbs.warnings import log_warnings

T = TypeVar("T")

log = logging.getLogger("trimtab.session")

TAKEN_OVER = "another request took the turn over"
"""Why a summary is not used that was made for a turn which has another owner by then."""
MAX_UNEXPLAINED_REFUSALS = 3
"""How often in a row a store may refuse an append as taken without having a new event."""


@dataclass(slots=True, kw_only=True)
class _VerbRun:
    """What is known of a verb from its first start to its end."""

    check_epoch: bool
    """Whether only the owner of the turn may store what it records."""
    text_bytes: int
    """About how much text it reads."""
    stored: list[Event] = field(default_factory=list[Event])
    """What it has stored, whatever was refused since."""
    notices: list[EditNotice] = field(default_factory=list[EditNotice])
    """The edits among them."""


class SessionRecorder:
    """Stores and folds the events of one session. Only one verb runs at a time."""

    def __init__(
        self,
        store: Store,
        session_id: str,
        state: State,
        *,
        on_edit: OnEdit | None = None,
        last_event: Event | None = None,
    ) -> None:
        self.store = store
        """The store of its events."""
        self.id = session_id
        """The id of the session."""
        self.state = state
        """What the stored log adds up to, and what verbs remember besides."""
        self.epoch: int | None = None
        """The epoch of the turn that this process has claimed; None if it has claimed none."""
        self.turn_lock = SharedLock()
        """Held by the turn that runs in this session object."""
        self.summary_lock = SharedLock()
        """Held while a summary of this session is made in this process."""
        self.tools: Mapping[str, Any] = {}
        """The tools of the last turn that set any, with their functions, by name."""
        self.was_read = False
        """Whether the session was read from the store. Otherwise its object began the log."""
        self.awaited_calls = AwaitedCalls()
        """The calls of this object whose replies have not come yet."""
        self.on_edit = on_edit
        """Hears of each edit when it is stored."""
        self._turn_holder: asyncio.Task[object] | None = None
        """The task that holds the turn in the store through this object."""
        self._lock = SharedLock()
        """Held while events are decided, stored and folded."""
        self._last_at = None if last_event is None else last_event.at
        """The time of the event folded last; None if it is not known. If the store has another
        event at its position, the log was replaced by a new one."""
        self._requested_seq = 0
        """The position up to which a request of this object has read the messages."""
        self._may_differ_from_store = False
        """Whether an append may have been cut off, so that the window and the store may differ."""
        self._has_unstored_events = False
        """Whether the window may have events that the store does not have."""
        self._unexplained_refusals = 0
        """How often in a row the store refused an append as taken without having a new event."""
        self._background: set[asyncio.Task[object]] = set()
        self._is_closed = False
        self._pid = os.getpid()

    @property
    def window(self) -> Window:
        """The state that the stored log adds up to: what the model sees now."""
        return self.state.window

    async def run(
        self,
        start: Callable[[State], Verb[T]],
        *,
        check_epoch: bool = True,
        checks_log: bool = False,
        text_bytes: int = 0,
    ) -> T:
        """Run a verb: store each batch that it yields, fold it, and send it back.

        Args:
            start: Starts the verb, each time with a new copy of the memory.
            check_epoch: Whether to raise `StaleOwner` if another process has claimed the turn.
            checks_log: Whether a verb that records nothing is started again if others have
                stored events.
            text_bytes: About how much text the verb reads.
        """
        run = _VerbRun(check_epoch=check_epoch, text_bytes=text_bytes)
        try:
            async with self._lock:
                self.require_open()
                while True:
                    await self._catch_up_if_needed(check_epoch=check_epoch)
                    state = self.state.with_own_memory(tuple(run.stored))
                    try:
                        result = await self._store_batches(state, start(state), run)
                    except PositionTaken:
                        await self._catch_up_after_refusal(check_epoch=check_epoch)
                        continue
                    if not checks_log or run.stored or not await self._is_behind():
                        await self._end_verb(state)
                        return result
                    await self._catch_up_after_refusal(check_epoch=check_epoch)
        finally:
            # Without the lock: the hook may wait for somebody who uses this session.
            report_notices(run.notices, self.on_edit)

    async def _store_batches(self, state: State, verb: Verb[T], run: _VerbRun) -> T:
        """Run a verb to its end, or until a batch is refused."""
        events: list[Event] | None = None
        while True:
            step = partial(_take_step, verb, events)
            bodies, result = await run_in_thread_if_long(step, run.text_bytes)
            if bodies is None:
                return cast("T", result)
            events = build_events(bodies, after=self.window.seq, at=state.clock())
            if not events:
                continue
            # If this task is cancelled or loses the connection, they may be stored or not.
            self._may_differ_from_store = True
            try:
                epoch = self.epoch if run.check_epoch else None
                await self.store.append(self.id, events, epoch=epoch)
            except (PositionTaken, StaleOwner, DuplicateIdempotencyKey):
                self._may_differ_from_store = False
                raise
            except BaseException:
                # They may be stored, and the log does not have the functions among the options.
                self.state.memory.recorded_options = state.memory.recorded_options
                raise
            await self._fold_stored(events)
            self._may_differ_from_store = False
            self.awaited_calls.remove_ended(events)
            run.stored += events
            if are_notices_heard(self.on_edit):
                run.notices += build_notices(self.window, events)
            if self.window is not state.window:  # it was loaded again
                state.window = self.window
                state.forget_rendering()

    async def _end_verb(self, state: State) -> None:
        """Keep what a verb remembers, and remove from memory what is hidden, if that is much."""
        log_warnings(state.warnings)
        state.warnings.clear()
        self.state = state
        if is_checkpoint_due(state.window):
            await self._checkpoint()

    async def read(self, work: Callable[[State], T]) -> T:
        """Run work that reads all visible messages and changes nothing, while no verb runs."""
        async with self._lock:
            return await run_in_thread_if_long(
                partial(work, self.state), self._estimate_unread_bytes()
            )

    def _estimate_unread_bytes(self) -> int:
        """Return the bytes of all visible messages, and of those that no request has read yet."""
        unread = takewhile(
            lambda entry: entry.seq > self._requested_seq, reversed(self.window.entries.values())
        )
        unread_bytes = sum(size.bytes for entry in unread for size in entry.sizes)
        return self.window.bytes + unread_bytes + MESSAGE_BYTES * len(self.window.entries)

    async def sync(
        self, messages: Sequence[Any], ids: Sequence[str] | None, check: HistoryCheck
    ) -> None:
        """Fold a caller's list, then store the new events in one append.

        The policy decides on each message from a window in which all messages before it are
        folded. A long list is folded in a copy of the window, in a thread. A short list is folded
        in the window itself, because copying would take longer. If it then cannot be stored, the
        session is loaded again.
        """
        async with self._lock:
            self.require_open()
            while True:
                # The caller may have passed its last list to another process.
                await self._catch_up_with_others()
                notices: list[EditNotice] | None = [] if are_notices_heard(self.on_edit) else None
                try:
                    state = await self._store_list(messages, ids, check, notices)
                except HistoryNotInMemory as error:
                    await self._load_again(max_snapshot_seq=error.position, keep_hidden=True)
                except PositionTaken:
                    await self._catch_up_after_refusal()
                else:
                    break
            await self._end_verb(state)
        report_notices(notices or (), self.on_edit)

    async def _store_list(
        self,
        messages: Sequence[Any],
        ids: Sequence[str] | None,
        check: HistoryCheck,
        notices: list[EditNotice] | None,
    ) -> State:
        state = self.state.with_own_memory()
        memory = state.memory
        memory.known_history = memory.known_history.copy()
        text_bytes = estimate_list_bytes(messages, first=memory.known_history.item_count)
        if is_long_work(text_bytes):
            state.use_copied_window()
        verb = matching.sync(state, messages, ids=ids, check=check)
        events: list[Event] = []
        fold = partial(apply_at_once, state, verb, events, notices)
        try:
            await run_in_thread_if_long(fold, text_bytes)
            if events:
                self._may_differ_from_store = True
                await self.store.append(self.id, events, epoch=self.epoch)
        except BaseException:
            if events and state.window is self.window:
                self._may_differ_from_store = self._has_unstored_events = True
            raise
        self._may_differ_from_store = False
        if events:
            self._last_at = events[-1].at
            self._unexplained_refusals = 0
            self.awaited_calls.remove_ended(events)
        return state

    async def request(self, *, stream: bool, volatile: str | None) -> dict[str, Any]:
        """Build the next request. Its call is in the store when this returns."""

        def start(state: State) -> Verb[tuple[dict[str, Any], int]]:
            request = yield from requesting.request(
                state, stream=stream, volatile=volatile, own_calls=self.awaited_calls
            )
            return request, state.window.seq

        # The request of the last call may be returned again only if the store has no later event.
        request, seq = await self.run(
            start, checks_log=True, text_bytes=self._estimate_unread_bytes()
        )
        self._requested_seq = seq
        self.awaited_calls.add(seq)
        return request

    def require_open(self) -> None:
        """Raise `SessionClosed` if nothing can be added here any more."""
        if self._is_closed:
            raise SessionClosed(self.id, "is closed")
        if self._pid != os.getpid():
            raise SessionClosed(
                self.id, f"was opened in process {self._pid}, of which this one is a fork"
            )

    async def close(self) -> None:
        """Release the session for other processes, after waiting for what runs in the
        background."""
        await self.wait_for_background()
        self._is_closed = True
        if self._pid == os.getpid():
            await self.store.release(self.id)

    def run_in_background(self, coroutine: Coroutine[Any, Any, object]) -> None:
        """Run a coroutine for which `wait_for_background` and `close` wait."""
        task = asyncio.create_task(coroutine)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def wait_for_background(self) -> None:
        """Wait for everything that runs in the background.

        If this is cancelled, that is also cancelled.
        """
        loop = asyncio.get_running_loop()
        # Those of another loop end with that loop.
        while tasks := [task for task in self._background if task.get_loop() is loop]:
            await asyncio.gather(*tasks)

    async def add(
        self,
        item: Any,
        *,
        key: str | None = None,
        usage: Usage | None = None,
        begin: Callable[[], adding.FollowMessage] | None = None,
    ) -> str:
        """Add a message. A reply answers the newest call of this object, whoever called since.

        `begin` is called at each attempt, and returns what `adding.add` gets as `follow`.
        """

        def start(state: State) -> Verb[str]:
            call = self.awaited_calls.newest
            return adding.add(
                state,
                item,
                key=key,
                usage=usage,
                call=call,
                needs_own_call=call is None and bool(self.awaited_calls),
                follow=None if begin is None else begin(),
            )

        try:
            return await self.run(start, text_bytes=estimate_item_bytes(item))
        except StaleOwner:
            await self._record_late_usage(item, usage)
            raise

    async def _record_late_usage(self, item: Any, usage: Usage | None) -> None:
        """Record what a reply cost although its turn was taken over. It was billed, but its message
        is not part of the conversation."""
        call = self.awaited_calls.newest
        _, reply = adding.read_item(self.window, item, usage)
        if call is None or reply is None or reply.usage is None:
            return
        answered_call = self.window.accounting.open_call_seq
        if not adding.is_known_reply(self.window, reply, answered_call):
            await self._record_late(build_reply_outcome(call, reply))

    async def _record_late(self, billed: CallOutcome | SummaryAttempt) -> None:
        try:
            await self.run(lambda _: record([billed]), check_epoch=False)
        except StoreError as error:
            log.warning(
                "session %s: a model's reply came after its turn was taken over, and its usage was "
                "not recorded: %s: %s",
                self.id,
                billed.usage,
                error,
            )

    async def add_reply(
        self, reply: WireObject, *, ends_turn: Callable[[MessageAdded], bool]
    ) -> bool:
        """Add a model's reply, and end the turn in the same append if `ends_turn` returns True.

        It is called before the window has the reply, and again if another process has stored events
        first. Return whether the turn was ended.
        """
        is_end = False

        def follow(addition: MessageAdded) -> Sequence[EventBody]:
            nonlocal is_end
            is_end = ends_turn(addition)
            return [self._build_turn_end()] if is_end else []

        def begin() -> adding.FollowMessage:
            nonlocal is_end
            is_end = False  # after a refusal somebody else may have added the reply
            return follow

        await self.add(reply, begin=begin)
        if is_end:
            self.epoch = None
        return is_end

    async def claim(self, message: Any = None, *, key: str | None = None) -> int:
        """Begin a turn and return its epoch. The owner of the previous turn can no longer write.

        A message is added before it, in the same append.
        """
        await self.claim_for(message, key)
        return self.epoch or 0

    async def claim_for(self, message: Any, key: str | None) -> int | None:
        """Claim the turn, and return the position of the message if it was in the log already."""
        check_idempotency_key(key)
        try:
            position = await self.run(
                lambda state: _claim(state, message, key),
                check_epoch=False,
                text_bytes=estimate_item_bytes(message),
            )
        except DuplicateIdempotencyKey as duplicate:
            if duplicate.position > self.window.seq:
                await self.refresh()  # another process added it: the next request must contain it
            await self.claim_for(None, None)
            return duplicate.position
        self.epoch = self.window.accounting.epoch
        return position

    def disown(self) -> None:
        """Leave a claimed turn to whoever runs it next. What this process adds after that does not
        belong to it."""
        self.epoch = None

    async def end_turn(self) -> None:
        """End the turn that this process has claimed."""
        await self._append(self._build_turn_end())
        self.epoch = None

    def _build_turn_end(self) -> TurnProgressRecord:
        return TurnProgressRecord(state="ended", epoch=self.epoch or 0)

    @asynccontextmanager
    async def hold_turn(self, wait: float | None) -> AsyncGenerator[None]:
        """Make other requests wait. A task that holds the turn does not wait for itself. With None
        nobody waits."""
        task = asyncio.current_task()
        if wait is None or self._turn_holder is task:
            yield
            return
        self.require_open()
        async with self.store.hold_turn(self.id, wait=wait):
            self._turn_holder = task
            try:
                yield
            finally:
                self._turn_holder = None

    async def record_usage(self, usage: Usage) -> bool:
        """Record what the reply to the waiting call was billed, before its message is known.

        Return whether a call waited for its reply.
        """
        return await self._record_outcome(lambda call: CallOutcome(call=call, usage=usage))

    async def record_stopped_call(self) -> None:
        """Record that a person stopped the call that is waiting for its reply."""
        await self._record_outcome(build_stopped_outcome)

    async def record_call_over_ceiling(self, ceiling: str) -> None:
        """Record that the waiting call is not made, because it may exceed this cost ceiling."""
        await self._record_outcome(partial(build_over_ceiling_outcome, ceiling=ceiling))

    async def _record_outcome(self, build: Callable[[int], CallOutcome]) -> bool:
        def start(state: State) -> Verb[bool]:
            call = state.window.accounting.open_call_seq
            yield [] if call is None else [build(call)]
            return call is not None

        return await self.run(start)

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

        def start(state: State) -> Verb[None]:
            yield [failing.build_outcome(state, kind, message=message, usage=usage, **token_counts)]

        await self.run(start)

    def keep_tools(self, tools: Mapping[str, Any]) -> None:
        """Keep the functions of the session's tools for the next turn."""
        self.tools = tools

    def find_rejected_texts(self, provider_message: str) -> frozenset[str]:
        """Return the texts of the last request that a provider's error message points to."""
        return adding.find_texts_of_last_request(self.state, provider_message)

    async def apply_policy(self, policy: Policy) -> tuple[Edit, ...]:
        """Make the edits that a policy wants now, whatever the session's own policy is. Return
        them."""
        return await self.run(
            lambda state: compacting.apply_policy(state, policy), text_bytes=self.window.bytes
        )

    async def compact(self) -> tuple[Compaction, list[HiddenTotals]]:
        """Compact like `Session.compact`, and also return what was hidden, by kind of edit."""
        position = self.window.seq
        summary = self.window.summary
        compaction = await self.run(compacting.compact, text_bytes=self.window.bytes)
        totals = await total_hidden_since_by_edit_kind(
            *(self.store, self.id, self.window, position),
            already_summarised_until=0 if summary is None else summary.last,
        )
        return compaction, totals

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

        def start(state: State) -> Verb[None]:
            attempts = [attempt]
            if text and result is not None:
                return summarising.add_result_summary(
                    state, result, text, written_by=attempt.model, attempts=attempts
                )
            if text:
                return summarising.add_summary(state, text, span=span, attempts=attempts)
            return record(attempts)

        try:
            await self.run(start, text_bytes=self.window.bytes)
        except StaleOwner:
            late_attempt = replace(attempt, outcome="rejected", why=TAKEN_OVER, tokens=0, patched=0)
            await self._record_late(late_attempt)
            raise

    async def record_tool_start(self, key: str) -> None:
        """Record that a tool was started, with the idempotency key of its call."""
        await self._append(TurnProgressRecord(state="tool_started", epoch=self.epoch or 0, key=key))

    async def put_off(self, first_seq: int) -> None:
        """Undo the messages from a position on. The caller adds them again later."""
        await self._append(Rewind(to=first_seq - 1, puts_off=True))

    async def _append(self, body: EventBody) -> None:
        await self.run(lambda _: record([body]))

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
        handles = [handle] if isinstance(handle, str) else handle
        targets = [parse_handle(each) for each in handles]
        async with self._lock:
            self.require_open()
            while True:
                await self._catch_up_if_needed()
                planner = ErasurePlanner(targets, reason)
                async for event in self.store.events(self.id):
                    planner.add_event(event)
                erases = planner.list_pending_erasures()
                if before_rewrite is not None:
                    await before_rewrite(planner)
                bodies: list[EventBody] = [*erases]
                if fence_open_turn and erases and planner.is_turn_open:
                    bodies.insert(0, _build_claim(self.window))
                events = build_events(bodies, after=self.window.seq, at=self.state.clock())
                # The log is rewritten even without new events: an earlier attempt may have recorded
                # the erasure and then been cut off.
                self._may_differ_from_store = True
                try:
                    await self.store.rewrite(self.id, events, make_event_eraser(erases))
                except PositionTaken:
                    await self._catch_up_after_refusal()
                else:
                    break
            await self._fold_stored(events)
            self._may_differ_from_store = False
        return await self.store.forks(self.id)

    async def refresh(self) -> None:
        """Fold the events that others have stored. See `Session.refresh`."""
        async with self._lock:
            self.require_open()
            await self._catch_up()

    async def refresh_if_behind(self, *, check_epoch: bool = True) -> None:
        """Fold the events that others have stored, if there are any."""
        async with self._lock:
            await self._catch_up_with_others(check_epoch=check_epoch)

    async def reload(self) -> None:
        """Load the session from the store again."""
        async with self._lock:
            await self._load_again()

    async def checkpoint(self) -> None:
        """Remove hidden messages from memory and store a snapshot, so that the next opening is
        fast."""
        async with self._lock:
            await self._checkpoint()

    async def _fold_stored(self, events: Sequence[Event]) -> None:
        """Fold stored events; load from further back if they need what is no longer in memory."""
        if not events:
            return
        self._unexplained_refusals = 0
        try:
            self.window.apply(*events)
        except HistoryNotInMemory as error:
            # By then the log may be longer than these events.
            await self._load_again(max_snapshot_seq=error.position, keep_hidden=True)
        else:
            self._last_at = events[-1].at
        if any(isinstance(event.body, PayloadErasure) for event in events):
            self.state.memory.forget_list()  # it contains the erased text

    async def _load_again(
        self, *, max_snapshot_seq: int | None = None, keep_hidden: bool = False
    ) -> None:
        """Load the state from the store, perhaps from further back, and go on with the caller's
        list."""
        options = self.state.options
        state, last_event = await load_session_state(
            self.store,
            self.id,
            max_snapshot_seq=max_snapshot_seq,
            keep_hidden=keep_hidden,
            clock=self.state.clock,
            # The log names a preset, and later events may name another one.
            policy=None if options.policy == self.window.settings.policy else options.policy,
            tokenizer=options.tokenizer,
            redact=options.redact,
        )
        state.memory.take_list(self.state.memory)
        self.state = state
        self._has_unstored_events = False
        self._last_at = None if last_event is None else last_event.at

    async def _catch_up_if_needed(self, *, check_epoch: bool = True) -> None:
        if self._may_differ_from_store:
            await self._catch_up(check_epoch=check_epoch)

    async def _catch_up_with_others(self, *, check_epoch: bool = True) -> None:
        """Fold the events that others have stored, if there are any."""
        if self._may_differ_from_store or await self._is_behind():
            await self._catch_up(check_epoch=check_epoch)

    async def _is_behind(self) -> bool:
        """Whether the log has other events than the window."""
        return await self.store.position(self.id) != self.window.seq

    async def _catch_up(self, *, check_epoch: bool = True) -> None:
        if self._has_unstored_events:
            await self._load_again()
        # From the event folded last, which shows whether this is still the same log.
        span = (self.window.seq, None)
        events = [event async for event in self.store.events(self.id, [span])]
        if not events or (self._last_at is not None and events[0].at != self._last_at):
            raise SessionNotFound(self.id)
        self._last_at = events[0].at
        await self._fold_stored(events[1:])
        self.awaited_calls.remove_ended(events[1:])
        self._may_differ_from_store = False
        if check_epoch and self.epoch is not None and self.window.accounting.epoch > self.epoch:
            raise StaleOwner(self.id, self.epoch, self.window.accounting.epoch)

    async def _catch_up_after_refusal(self, *, check_epoch: bool = True) -> None:
        """Fold the events that others have stored. If repeatedly there are none, raise
        `LogDamaged`."""
        before = self.window.seq
        await self._catch_up(check_epoch=check_epoch)
        if self.window.seq == before:
            self._unexplained_refusals += 1
        if self._unexplained_refusals < MAX_UNEXPLAINED_REFUSALS:
            return
        self._unexplained_refusals = 0
        raise LogDamaged(
            f"nothing can be added to session {self.id!r}: {MAX_UNEXPLAINED_REFUSALS} times the "
            f"store said that position {before + 1} is taken, but its log ends at {before}. The "
            "store is damaged, or somebody has deleted a part of it; restore a backup, or copy "
            "what is left with `trimtab session export`"
        )

    async def _checkpoint(self) -> None:
        message_bytes = MESSAGE_BYTES * len(self.window.entries)
        state = self.state
        if is_long_work(message_bytes):
            # Others may read the window meanwhile.
            state = state.with_own_memory()
            state.use_copied_window()
        snapshot = await run_in_thread_if_long(state.window.checkpoint, message_bytes)
        self.state = state
        try:
            await self.store.checkpoint(self.id, snapshot)
        except StoreError as error:
            # The log has everything: without this snapshot the next opening only reads more.
            log.warning(
                "session %s: storing the snapshot at %d failed: %s", self.id, snapshot.seq, error
            )


def _take_step(
    verb: Verb[T], events: list[Event] | None
) -> tuple[Sequence[EventBody] | None, T | None]:
    """Return the next batch of a verb, or None and its result."""
    try:
        # The first step of a generator takes None.
        return (next(verb) if events is None else verb.send(events)), None
    except StopIteration as end:
        return None, end.value


def _claim(state: State, message: Any, key: str | None) -> Verb[int | None]:
    """Add a message and claim the turn in one batch. Return the message's position if the log had
    it already."""
    epoch = state.window.accounting.epoch
    claim = _build_claim(state.window)
    position = None if key is None else state.window.base.seq_by_idempotency_key.get(key)
    if message is not None:
        yield from adding.add(state, message, key=key, follow=lambda _: [claim])
    if state.window.accounting.epoch == epoch:
        yield [claim]
    return position


def _build_claim(window: Window) -> TurnProgressRecord:
    return TurnProgressRecord(state="claimed", epoch=window.accounting.epoch + 1)
