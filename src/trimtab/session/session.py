"""Session: a durable context.

Each verb is drafted from the window, put into the store, and folded only then. Whoever loses the
race for a position reads what is new and decides again; whoever lost a turn's ownership stops.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Sequence,
)
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar, Unpack, cast

from trimtab.context import UndoOutcome
from trimtab.dialects import get_dialect
from trimtab.dialects.base import WireObject
from trimtab.dialects.caller_message_reading import parse_any_tool_call, to_plain_dict
from trimtab.dialects.media_validation import AcceptedMedia, find_accepted_media
from trimtab.dialects.recall_result import build_recall_result
from trimtab.dialects.reply_recording import read_finished_reply_body
from trimtab.errors import (
    DuplicateIdempotencyKey,
    HistoryNotInMemory,
    PositionTaken,
    SessionExists,
    SessionNotFound,
    StaleOwner,
    StoreError,
)
from trimtab.log.call_failure import (
    build_error_outcome,
    build_over_ceiling_outcome,
    build_stopped_outcome,
)
from trimtab.log.edits import parse_handle
from trimtab.log.erase import ErasurePlanner, make_event_eraser
from trimtab.log.event import (
    Edit,
    Event,
    EventBody,
    MessageAdded,
    PayloadErasure,
    Settings,
    SummaryAttempt,
    TurnProgressRecord,
)
from trimtab.log.fork_position_and_closing_events import (
    build_events_closing_fork_copy,
    resolve_fork_position,
)
from trimtab.log.message import Part, ToolCall
from trimtab.options import (
    OptionChanges,
    Options,
    SessionOptions,
    Tokenizer,
    rebuild_options_from_changed_settings,
)
from trimtab.policy.budget import Budget
from trimtab.policy.config import parse_policy_config
from trimtab.policy.hiding_after_provider_error import choose_policy_after_error
from trimtab.policy.planning.plan import MessageSpan, Policy
from trimtab.policy.presets import PolicyName
from trimtab.policy.summary_requests import ResultSummaryRequest, SummaryRequest
from trimtab.prompt.context_report import ContextReport, RequestPreview
from trimtab.recall.tools import parse_recall_arguments
from trimtab.recall.visibility import VisibilityReason
from trimtab.redaction import Redact
from trimtab.session import store_recall, visibility_and_past_requests
from trimtab.session.loading import is_checkpoint_due, load_context
from trimtab.session.visibility_and_past_requests import HiddenTotals
from trimtab.stepwise_context import StepwiseContext
from trimtab.stores.base import Store
from trimtab.window.window import Window

T = TypeVar("T")

log = logging.getLogger("trimtab.session")

_UNLOGGED_OPTIONS = ("redact", "clock")
"""Options of `Context` that nothing in the log tells of."""
_REOPEN_OPTIONS = ("policy", "tokenizer", *_UNLOGGED_OPTIONS)
"""Options that `open` takes: they are not, or not whole, in the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """What `compact` did."""

    tokens_before: int
    """Tokens in use before."""
    tokens_after: int
    """Tokens in use now."""
    hidden: tuple[HiddenTotals, ...]
    """What was hidden, by kind."""


class Session:
    """A context whose events are in a store. Made by `create`, `open` or `open_or_create`."""

    def __init__(self, store: Store, session_id: str, context: StepwiseContext) -> None:
        self.store = store
        self.id = session_id
        self.epoch: int | None = None
        """Of the turn that this process has claimed; None where it owns none."""
        self._context = context
        self.turn_lock = asyncio.Lock()
        """Held by the turn that runs in this session, in this process."""
        self.summary_lock = asyncio.Lock()
        """Held by whoever makes a summary of this session, in this process."""
        self._lock = asyncio.Lock()
        self._last = _last_folded_event(context)
        """The event folded last: where another one stands in its place, it is another log."""
        self._unsure = False
        self._background: set[asyncio.Task[object]] = set()

    @classmethod
    async def create(
        cls, store: Store, session_id: str, **options: Unpack[SessionOptions]
    ) -> Session:
        """A new session. The options are those of `Context`."""
        context = StepwiseContext(**options)
        try:
            await store.append(session_id, context.events)
        except PositionTaken as taken:
            raise SessionExists(session_id, taken.position) from None
        return cls(store, session_id, context)

    @classmethod
    async def open_or_create(
        cls, store: Store, session_id: str, **options: Unpack[SessionOptions]
    ) -> Session:
        """The session as it was left, or a new one; what is given of `Context`'s options holds
        from now on."""
        if not await store.position(session_id):
            with suppress(SessionExists):  # somebody else was faster
                return await cls.create(store, session_id, **options)
        given = cast("dict[str, Any]", options)
        own = {name: given[name] for name in _REOPEN_OPTIONS if name in given}
        found = await cls.open(store, session_id, **own)
        await found.configure(
            **{name: given[name] for name in given if name not in _UNLOGGED_OPTIONS}
        )
        return found

    @classmethod
    async def open(
        cls,
        store: Store,
        session_id: str,
        *,
        policy: PolicyName | Policy | None = None,
        tokenizer: Tokenizer | None = None,
        redact: Redact | None = None,
        clock: Callable[[], float] = time.time,
    ) -> Session:
        """A session that is in the store; what is not in its log is given again."""
        own: dict[str, Any] = {"policy": policy, "tokenizer": tokenizer, "redact": redact}
        found = cls(store, session_id, await load_context(store, session_id, clock=clock, **own))
        if found._last is None:
            await found.refresh()
        return found

    async def close(self) -> None:
        """Leave the session to others; a summary that is being made is waited for."""
        await self.wait_for_background()
        await self.store.release(self.id)

    def run_in_background(self, coroutine: Coroutine[Any, Any, object]) -> None:
        """Let something run beside the turns; `settle` and `close` wait for it."""
        task = asyncio.create_task(coroutine)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def wait_for_background(self) -> None:
        """Wait for what runs in the background; whoever cancels this cancels it."""
        while self._background:
            await asyncio.gather(*self._background)

    def __repr__(self) -> str:
        return f"<Session {self.id}: {self._context!r}>"

    @property
    def options(self) -> Options:
        """What is set now."""
        return self._context.options

    @property
    def window(self) -> Window:
        """What the model sees now; only what is in the store is in it."""
        return self._context.window

    @property
    def media_support(self) -> AcceptedMedia:
        """Which pictures and files its model can be given."""
        settings = self.window.settings
        return find_accepted_media(settings.dialect, settings.rules_model)

    async def add(self, item: Any, *, key: str | None = None, in_turn: bool = True) -> str:
        """Append what was said; a key that the session knows is not added again.

        What is no part of a turn is not `in_turn`: it is added whoever runs the turn.
        """
        try:
            return await self._draft_and_store(
                lambda: self._context.add(item, key=key), check_epoch=in_turn
            )
        except DuplicateIdempotencyKey as known:
            if known.position > self.window.seq:
                await self.refresh()  # somebody else added it: the next request must hold it
            return f"m{known.position}"

    async def add_reply(
        self, reply: WireObject, *, ends_turn: Callable[[MessageAdded], bool]
    ) -> bool:
        """Append a model's reply, and in the same append the turn's end, if it `ends_turn`; returns
        whether it did.

        That is asked before the window has the reply, and again if somebody else was faster.
        """
        ended = False

        def follow(drafted: Sequence[Event]) -> Sequence[EventBody]:
            nonlocal ended
            added = [e.body for e in drafted if isinstance(e.body, MessageAdded)]
            ended = bool(added) and ends_turn(added[-1])
            return [self._build_turn_end()] if ended else []

        await self._draft_and_store(lambda: self._context.add(reply), follow=follow)
        if ended:
            self.epoch = None
        return ended

    async def request(self, *, stream: bool = False, volatile: str | None = None) -> dict[str, Any]:
        """Keyword arguments for the model's SDK; the call is in the store when it returns."""
        async with self._lock:
            while True:
                await self._catch_up_if_unsure()
                new = False
                try:
                    for events in self._context.request_steps(stream=stream, volatile=volatile):
                        new = True
                        await self._store_and_fold(events)
                except PositionTaken:
                    await self._catch_up()
                else:
                    # The last call stands for this one only where nobody has written since.
                    if new or await self.store.position(self.id) == self.window.seq:
                        return self._context.render_request()
                    await self._catch_up()

    async def fail(
        self,
        kind: str,
        *,
        limit: int | None = None,
        input: int | None = None,
        requested: int | None = None,
        message: str = "",
    ) -> bool:
        """Record that the last call ended in an error; whether to send the next request at once.

        It is as in a `Context`: after an `overflow` the next request is smaller, or CannotFit says
        why it cannot be; what was `rejected`, with the provider's `message`, is left out.
        """
        named, numbers = self.find_rejected_texts(message), {"limit": limit, "input": input}
        await self.record_failure(kind, message=message, requested=requested, **numbers)
        knobs = parse_policy_config(self.options.limits)
        return (
            bool(await self.apply_policy(choose_policy_after_error(kind, knobs, named)))
            or kind == "overflow"
        )

    async def record_failure(
        self, kind: str, *, message: str = "", **token_counts: int | None
    ) -> None:
        """Only record an error, for those who see to the next request themselves."""
        more: dict[str, Any] = {"message": message, "redact": self.options.redact, **token_counts}

        def record() -> None:
            call = self.window.accounting.open_call_seq
            self._context.append(build_error_outcome(call, kind, **more))

        await self._draft_and_store(record)

    async def record_stopped_call(self) -> None:
        """Record that the call that waits for its reply was cut off by a person."""

        def record() -> None:
            call = self.window.accounting.open_call_seq
            if call is not None:
                self._context.append(build_stopped_outcome(call))

        await self._draft_and_store(record)

    async def record_call_over_ceiling(self, ceiling: str) -> None:
        """Record that the call that waits for its reply is not made: it may cost too much."""

        def record() -> None:
            call = self.window.accounting.open_call_seq
            if call is not None:
                self._context.append(build_over_ceiling_outcome(call, ceiling))

        await self._draft_and_store(record)

    def find_rejected_texts(self, provider_message: str) -> frozenset[str]:
        """What stands where a provider's words say that the last request is at fault."""
        return self._context.find_rejected_texts(provider_message)

    async def watch(self, stream: AsyncIterable[Any]) -> AsyncIterator[Any]:
        """Pass a stream on and add its reply, with usage, when it ends."""
        gathering = get_dialect(self.window.settings.dialect).create_reply_accumulator()
        async for event in stream:
            gathering.feed(to_plain_dict(event))
            yield event
        if (reply := read_finished_reply_body(gathering)) is not None:
            await self.add(reply)

    def preview(self, *, stream: bool = False, volatile: str | None = None) -> RequestPreview:
        """What the next call would send and cost; changes nothing."""
        return self._context.preview(stream=stream, volatile=volatile)

    def report(self) -> ContextReport:
        """Where the tokens of the next call would go."""
        return self._context.report()

    def budget(self) -> Budget:
        """The terms of the next call's limit."""
        return self._context.budget()

    async def recall(self, handle: str) -> str:
        """The text behind a handle, exactly as it was said, however long ago.

        For a picture or a file it says what it is; `recall_part` returns the thing itself.
        """
        return await store_recall.recall_from_store(self.store, self.id, self.window, handle)

    async def recall_part(self, handle: str) -> Part:
        """One part of a message as it was said, however long ago: a picture with all its bytes."""
        return await store_recall.recall_part_from_store(self.store, self.id, self.window, handle)

    async def search(self, query: str) -> str:
        """The messages that hold most of the words, with their handles."""
        return await store_recall.search_session(self.store, self.id, self.window, query)

    async def answer(self, call: ToolCall | WireObject) -> str:
        """Answer a call of a recall tool and add the result; returns its text.

        A picture or a file is in the result itself, or revealed if no result can carry it.
        """
        asked = call if isinstance(call, ToolCall) else parse_any_tool_call(call)
        place = (self.store, self.id, self.window)
        text = await store_recall.answer_recall_from_store(*place, asked)
        recalled = await store_recall.find_recalled_parts_in_store(*place, asked)
        result, reveals = build_recall_result(asked, text, recalled, self.window.settings)
        await self.add(result)
        if reveals:
            await self.reveal(parse_recall_arguments(asked)["handle"])
        return result.results[0].text

    def pending_summary(self, *, forced: bool = False) -> SummaryRequest | None:
        """What should be summarised now, or what a stand-in is forced for; None for nothing."""
        return self._context.pending_summary(forced=forced)

    async def add_summary(self, text: str, *, span: MessageSpan | None = None) -> None:
        """Replace what `pending_summary` named; refused where that was undone or erased since."""
        await self._draft_and_store(lambda: self._context.add_summary(text, span=span))

    def pending_result_summaries(self) -> tuple[ResultSummaryRequest, ...]:
        """Tool results that the next call would cut and that are to be summarised instead."""
        return self._context.pending_result_summaries()

    async def record_summary_attempt(
        self,
        attempt: SummaryAttempt,
        text: str = "",
        *,
        span: MessageSpan | None = None,
        result: ResultSummaryRequest | None = None,
    ) -> None:
        """Record that a summary was asked for, and at once with it the summary, if one stands."""

        def record() -> None:
            if text and result is not None:
                self._context.add_result_summary(result, text, written_by=attempt.model)
            elif text:
                self._context.add_summary(text, span=span)
            self._context.append(attempt)

        await self._draft_and_store(record)

    async def reveal(self, handle: str) -> None:
        """Show again what an edit hid."""
        await self._draft_and_store(lambda: self._context.reveal(handle))

    async def pin(self, handle: str, *, pinned: bool = True) -> None:
        """Keep a message from being hidden, or no longer."""
        await self._draft_and_store(lambda: self._context.pin(handle, pinned=pinned))

    async def why(self, handle: str) -> VisibilityReason:
        """Why something is not in the context, since when, and by which edit."""
        return await visibility_and_past_requests.explain_visibility(self.store, self.id, handle)

    async def why_by_part(self, handle: str) -> list[VisibilityReason]:
        """The same; of a message with parts that differ, one for each part."""
        return await visibility_and_past_requests.explain_visibility_by_part(
            self.store, self.id, handle
        )

    async def rebuild_request(self, call_seq: int) -> dict[str, Any]:
        """The exact request of a past call, checked against its hash."""
        return await visibility_and_past_requests.rebuild_request_from_store(
            self.store, self.id, call_seq
        )

    async def configure(self, **changes: Unpack[OptionChanges]) -> None:
        """Change the model, the system prompt, the tools or any other option from now on.

        Nothing is written where all of it is set already.
        """
        await self._draft_and_store(lambda: self._context.configure(**changes))

    async def apply_policy(self, policy: Policy) -> tuple[Edit, ...]:
        """Make the edits that a policy wants now, whatever the session's own policy is."""

        def edit() -> tuple[Edit, ...]:
            edits = policy(self.window, self.budget()).edits
            for body in edits:
                self._context.append(body)
            return edits

        return await self._draft_and_store(edit)

    async def compact(self) -> Compaction:
        """Make the context smaller now, whatever the policy. Nothing is lost: it is only hidden."""
        before, position = self.report().used, self.window.seq
        covered = self.window.summary.last if self.window.summary is not None else 0
        await self._draft_and_store(self._context.compact)
        hidden = await visibility_and_past_requests.total_hidden_since_by_edit_kind(
            self.store, self.id, self.window, position, already_summarised_until=covered
        )
        return Compaction(
            tokens_before=before, tokens_after=self.report().used, hidden=tuple(hidden)
        )

    async def undo(self) -> UndoOutcome | None:
        """Take back the user's newest message and everything after it; None if there is none."""
        before = self.window.conversation.total_messages
        undone = await self._draft_and_store(self._context.undo)
        # A draft is not folded yet when it is made.
        return undone and replace(undone, messages=before - self.window.conversation.total_messages)

    async def rewind(self, to: int | str) -> None:
        """Go back to a position, or to just behind the message that a handle names."""
        await self._draft_and_store(lambda: self._context.rewind(to))

    async def fork(self, new_session_id: str, *, at: int | None = None) -> Session:
        """A new session that shares the past up to a position, and nothing after.

        Raises SessionExists if the store knows the new id.
        """
        at = self.window.seq if at is None else at
        clock = self._context.clock
        past = await fork_stored_session(self.store, self.id, new_session_id, at=at, clock=clock)
        settings = next(e.body for e in reversed(past) if isinstance(e.body, Settings))
        earlier = rebuild_options_from_changed_settings(
            settings, self._context.options, past_counters=self.window.counters_by_name
        )
        own = self._context.load_kwargs(earlier)
        context = await load_context(self.store, new_session_id, **own)
        return Session(self.store, new_session_id, context)

    async def erase(
        self,
        handle: str | Sequence[str],
        *,
        reason: str = "",
        before_rewrite: Callable[[ErasurePlanner], Awaitable[None]] | None = None,
        fence_open_turn: bool = False,
    ) -> list[str]:
        """Destroy the payload of a message or a part, or of several at once, in the store and in
        all made from it.

        `first` is told what is to go before the log is written anew. With `alone`, an open turn in
        any process can write no more: it may hold the text in memory. Returns the sessions that
        were forked from this one, whose copies are not reached.
        """
        named = [parse_handle(one) for one in ([handle] if isinstance(handle, str) else handle)]
        async with self._lock:
            while True:
                await self._catch_up_if_unsure()
                erasing = ErasurePlanner(named, reason)
                async for event in self.store.events(self.id):
                    erasing.add_event(event)
                erases = erasing.list_pending_erasures()
                if before_rewrite is not None:
                    await before_rewrite(erasing)
                claim = (
                    [self._build_claim()]
                    if fence_open_turn and erases and erasing.is_turn_open
                    else []
                )
                # Also if nothing is left to erase here: an attempt may have been cut off.
                bodies: list[EventBody] = [*claim, *erases]
                events = [self._context.build_event(body, n) for n, body in enumerate(bodies)]
                self._unsure = True
                try:
                    await self.store.rewrite(self.id, events, make_event_eraser(erases))
                except PositionTaken:
                    await self._catch_up()
                else:
                    await self._fold_stored(events)
                    self._unsure = False
                    return await self.store.forks(self.id)

    async def claim_turn(self, message: Any = None, *, key: str | None = None) -> int:
        """Begin a turn: whoever owned the last one can write no more.

        A `message` is added before it in the same append, once under its `key`.
        """

        def draft() -> None:
            if message is not None:
                self._context.add(message, key=key)
            self._context.append(self._build_claim())

        try:
            await self._draft_and_store(draft, check_epoch=False)
        except DuplicateIdempotencyKey as known:
            if known.position > self.window.seq:
                await self.refresh()  # somebody else added it: the next request must hold it
            return await self.claim_turn()
        self.epoch = self.window.accounting.epoch
        return self.epoch

    @asynccontextmanager
    async def hold_turn(self) -> AsyncGenerator[None]:
        """A turn for what is no conversation: a turn that was left open, and may still run in
        another process, can write no more."""
        epoch = await self.claim_turn()
        try:
            yield
            await self.end_turn()
        finally:
            # Where this failed, whoever else uses the session is not taken for the turn.
            if self.epoch == epoch:
                self.epoch = None

    def _build_claim(self) -> TurnProgressRecord:
        return TurnProgressRecord(state="claimed", epoch=self.window.accounting.epoch + 1)

    async def record_tool_start(self, key: str) -> None:
        """Record that a tool was started, by its idempotency key."""
        await self._append_body(
            TurnProgressRecord(state="tool_started", epoch=self.epoch or 0, key=key)
        )

    async def end_turn(self) -> None:
        """End the turn."""
        await self._append_body(self._build_turn_end())
        self.epoch = None

    def _build_turn_end(self) -> TurnProgressRecord:
        return TurnProgressRecord(state="ended", epoch=self.epoch or 0)

    async def refresh(self) -> None:
        """Fold what others have written; raises NoSession where the log was deleted meanwhile, also
        if another was begun in its place."""
        async with self._lock:
            await self._catch_up()

    async def reload(self) -> None:
        """Fold the session anew from the store."""
        async with self._lock:
            self._context = await load_context(self.store, self.id, **self._context.load_kwargs())
            self._last = _last_folded_event(self._context)

    async def checkpoint(self) -> None:
        """Let go of what is hidden and keep a snapshot, so that the next opening is short."""
        async with self._lock:
            await self._checkpoint()

    async def _append_body(self, body: EventBody) -> None:
        await self._draft_and_store(lambda: self._context.append(body))

    async def _draft_and_store(
        self,
        draft: Callable[[], T],
        *,
        check_epoch: bool = True,
        follow: Callable[[Sequence[Event]], Sequence[EventBody]] | None = None,
    ) -> T:
        """Draft, store, fold; again from the start where somebody else was faster.

        `follow` is shown the draft and says what is appended in one step with it.
        """
        async with self._lock:
            while True:
                await self._catch_up_if_unsure(check_epoch=check_epoch)
                with self._context.drafting() as events:
                    result = draft()
                    for body in () if follow is None else follow([*events]):
                        self._context.append(body)
                try:
                    await self._store_and_fold(events, check_epoch=check_epoch)
                except PositionTaken:
                    await self._catch_up(check_epoch=check_epoch)
                else:
                    return result

    async def _store_and_fold(self, events: list[Event], *, check_epoch: bool = True) -> None:
        if not events:
            return
        # Until it is folded nobody knows: it may land although we are cancelled or cut off.
        self._unsure = True
        try:
            await self.store.append(self.id, events, epoch=self.epoch if check_epoch else None)
        except (PositionTaken, StaleOwner, DuplicateIdempotencyKey):
            self._unsure = False
            raise
        await self._fold_stored(events)
        self._unsure = False
        if is_checkpoint_due(self.window):
            await self._checkpoint()

    async def _fold_stored(self, events: Sequence[Event]) -> None:
        """Fold what is in the store; from further back where it needs what has left memory."""
        if not events:
            return
        try:
            self._context.apply(events)
        except HistoryNotInMemory as error:
            own = self._context.load_kwargs()
            if own["policy"] == self.window.settings.policy:
                own["policy"] = None  # the log names it, and what follows may name another
            self._context = await load_context(
                self.store, self.id, max_snapshot_seq=error.position, keep_hidden=True, **own
            )
        if erases := [event.body for event in events if isinstance(event.body, PayloadErasure)]:
            self._context.events[:] = map(make_event_eraser(erases), self._context.events)
        self._last = _last_folded_event(self._context)

    async def _catch_up_if_unsure(self, *, check_epoch: bool = True) -> None:
        if self._unsure:
            await self._catch_up(check_epoch=check_epoch)

    async def _catch_up(self, *, check_epoch: bool = True) -> None:
        span = (self.window.seq, None)
        found = [event async for event in self.store.events(self.id, [span])]
        if not found or (self._last is not None and found[0].at != self._last.at):
            raise SessionNotFound(self.id)
        self._last = found[0]
        await self._fold_stored(found[1:])
        self._unsure = False
        if check_epoch and self.epoch is not None and self.window.accounting.epoch > self.epoch:
            raise StaleOwner(self.id, self.epoch, self.window.accounting.epoch)

    async def _checkpoint(self) -> None:
        snapshot = self._context.checkpoint()
        try:
            await self.store.checkpoint(self.id, snapshot)
        except StoreError as error:
            # The log has everything: without this snapshot the next opening only reads more.
            log.warning("session %s: no snapshot at %d: %s", self.id, snapshot.seq, error)


async def fork_stored_session(
    store: Store,
    session_id: str,
    new_session_id: str,
    *,
    at: int | None = None,
    clock: Callable[[], float] = time.time,
) -> list[Event]:
    """Copy a session's past up to a position, the last one for None, into a new session.

    For sessions that are not open: whoever opens one must have its policy, where that is a
    function. Returns the new log. Raises SessionExists if the store knows the new id.
    """
    if taken := await store.position(new_session_id):
        raise SessionExists(new_session_id, taken)
    events = [event async for event in store.events(session_id)]
    at = resolve_fork_position(at, 0, len(events))
    past = events[:at]
    for body in build_events_closing_fork_copy(
        events[at:], parent_session=session_id, fork_position=at
    ):
        past.append(Event(seq=len(past) + 1, at=clock(), body=body))
    try:
        await store.append(new_session_id, past)
    except PositionTaken as error:
        raise SessionExists(new_session_id, error.position) from None
    return past


def _last_folded_event(context: StepwiseContext) -> Event | None:
    """The event folded last; None where a snapshot stands for it."""
    events = context.events
    return events[-1] if events and events[-1].seq == context.window.seq else None
