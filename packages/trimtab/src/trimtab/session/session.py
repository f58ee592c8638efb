"""`Session`: a durable context.

Each method drafts its events from the window, stores them, and folds them only then. If another
process has stored events first, the method reads them and decides again. If another process has
claimed the turn, the method raises.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from itertools import takewhile
from pathlib import PurePath
from typing import Any, Generic, Literal, NoReturn, Self, TypeVar, Unpack, cast, overload

from trimtab.context import Compaction, OnEdit, UndoOutcome, warn_of_stream_without_usage
from trimtab.dialects import DialectName, get_dialect
from trimtab.dialects.known_history import HistoryCheck, KnownHistory
from trimtab.dialects.media import AcceptedMedia, find_accepted_media
from trimtab.dialects.reading import parse_any_tool_call, to_plain_dict
from trimtab.dialects.recall_result import build_recall_result
from trimtab.dialects.reply_recording import build_reply_outcome, read_finished_reply_body
from trimtab.engine.log.call_failure import (
    build_error_outcome,
)
from trimtab.engine.log.edits import parse_handle
from trimtab.engine.log.erase import ErasurePlanner, make_event_eraser
from trimtab.engine.log.event import (
    CallOutcome,
    Edit,
    Event,
    EventBody,
    PayloadErasure,
    Settings,
    SummaryAttempt,
    TurnProgressRecord,
    Usage,
)
from trimtab.engine.log.fork import build_events_closing_fork_copy, resolve_fork_position
from trimtab.engine.log.message import Part, ToolCall
from trimtab.engine.log.redaction import Redact
from trimtab.engine.policy.budget import Budget
from trimtab.engine.policy.config import parse_policy_config
from trimtab.engine.policy.overflow import choose_policy_after_error
from trimtab.engine.policy.planning.plan import MessageSpan, Policy
from trimtab.engine.policy.presets import PolicyName, decide_message_limit
from trimtab.engine.policy.summary_requests import ResultSummaryRequest, SummaryRequest
from trimtab.engine.prompt.report import ContextReport, RequestPreview
from trimtab.engine.prompt.shown_messages import View
from trimtab.engine.recall.tools import parse_recall_arguments
from trimtab.engine.recall.transcript import LoggedMessage
from trimtab.engine.recall.visibility import VisibilityReason
from trimtab.engine.text.arguments import check_idempotency_key
from trimtab.engine.window.window import Window
from trimtab.errors import (
    DuplicateIdempotencyKey,
    HistoryNotInMemory,
    LogDamaged,
    PositionTaken,
    SessionClosed,
    SessionExists,
    SessionLockedByOtherProcess,
    SessionNotFound,
    StaleOwner,
    StoreError,
)
from trimtab.options import (
    OptionChanges,
    Options,
    SessionOptions,
    Tokenizer,
    rebuild_options_from_changed_settings,
    require_logged_functions,
)
from trimtab.request import (
    DialectT,
    DialectT_co,
    MessagesStreamRequest,
    Request,
    ResponsesStreamRequest,
)
from trimtab.session import history, store_recall
from trimtab.session.awaited_calls import AwaitedCalls
from trimtab.session.loading import (
    exceeds_message_limit,
    is_checkpoint_due,
    load_context,
)
from trimtab.session.stepwise import StepwiseContext
from trimtab.session.threads import (
    MESSAGE_BYTES,
    estimate_item_bytes,
    estimate_list_bytes,
    is_long_work,
    run_in_thread_if_long,
)
from trimtab.session.transcript import read_messages
from trimtab.stores.base import Store
from trimtab.stores.shared_lock import SharedLock

T = TypeVar("T")

log = logging.getLogger("trimtab.session")

TURN_WAIT_S = 30.0
"""Seconds that a request waits for the turn of another one: longer than most replies take, and
shorter than web servers wait for an answer."""
MAX_UNEXPLAINED_REFUSALS = 3
"""How often in a row a store may refuse an append as taken without having a new event."""
_CREATION_TRIES = 100
_CREATION_PAUSE_S = 0.05
_REOPEN_OPTIONS = ("policy", "tokenizer", "redact", "on_edit", "clock")
"""Options that `open` takes because they are not, or not completely, in the log."""


class Session(Generic[DialectT_co]):
    """A context whose events are in a store. Create it with `create`, `open` or `open_or_create`.

    A *handle* names a message (`m12`), a part of a message (`m12.0`) or a range of messages
    (`m3-m50`).

    A method that refers to `Context` has the same arguments, results and errors. Only
    `HistoryNotInMemory` is never raised: what is no longer in memory is read from the store.

    Methods that write raise `StaleOwner` if another process has claimed this session's turn, and
    `StoreError` if the store fails.

    Example:
        One exchange by hand; `run_turn` does the same with tools::

            session = await Session.open_or_create(store, "alice", model="claude-sonnet-5-5")
            await session.add({"role": "user", "content": "Hello"})
            reply = await client.messages.create(**await session.request())
            await session.add(reply)
    """

    def __init__(self, store: Store, session_id: str, context: StepwiseContext[Any]) -> None:
        self.store = store
        """The store of its events."""
        self.id = session_id
        """The id of the session."""
        self._epoch: int | None = None
        """The epoch of the turn that this process has claimed; None if it has claimed none."""
        self._turn_holder: asyncio.Task[object] | None = None
        """The task that holds the turn in the store through this object."""
        self._context = context
        self._turn_lock = SharedLock()
        """Held by the turn that runs in this session object."""
        self._summary_lock = SharedLock()
        """Held while a summary of this session is made in this process."""
        self._lock = SharedLock()
        """Held while events are drafted, stored and folded."""
        self._last_event = _last_folded_event(context)
        """The event folded last. If the store has another event at its position, the log was
        replaced by a new one."""
        self._requested_seq = 0
        """The position up to which a request of this object has read the messages."""
        self._may_differ_from_store = False
        """Whether an append may have been cut off, so that the window and the store may differ."""
        self._history_before_sync: KnownHistory | None = None
        """Set after a failed `sync`, if the window may have events that the store does not have:
        what was known of the caller's list before."""
        self._unexplained_refusals = 0
        """How often in a row the store refused an append as taken without having a new event."""
        self._background: set[asyncio.Task[object]] = set()
        self._tools: Mapping[str, Any] = {}
        """The tools of the last turn, with their functions."""
        self._was_read = False
        """Whether it was read from the store. Otherwise this object began the log."""
        self._is_closed = False
        self._pid = os.getpid()
        self._awaited_calls = AwaitedCalls()

    @classmethod
    async def create(
        cls, store: Store, session_id: str, **options: Unpack[SessionOptions[DialectT]]
    ) -> Session[DialectT]:
        """Create a new session in a store.

        Args:
            store: The store, for example from `open_store`.
            session_id: The id of the new session.
            **options: The model, and the other options of `Context`.

        Returns:
            The session.

        Raises:
            SessionExists: If the store already has a session with this id.
            TypeError: If an option has a wrong type.
            ValueError: If an option has an invalid value.

        Example:
            Start a session in a folder::

                store = await open_store("sessions")
                session = await Session.create(store, "alice", model="claude-sonnet-5-5")
        """
        _require_store_and_id(store, session_id)
        context = StepwiseContext(**options)
        try:
            await store.append(session_id, context.events)
        except PositionTaken as refusal:
            raise SessionExists(session_id, refusal.position) from None
        return cast("Session[DialectT]", cls(store, session_id, context))

    @classmethod
    async def open_or_create(
        cls, store: Store, session_id: str, **options: Unpack[SessionOptions[DialectT]]
    ) -> Session[DialectT]:
        """Open a session, or create it if the store does not have it.

        Args:
            store: The store, for example from `open_store`.
            session_id: The id of the session.
            **options: The model, and the other options of `Context`. They replace the options of an
                existing session from now on.

        Returns:
            The session.

        Raises:
            TypeError: If an option has a wrong type.
            ValueError: If an option has an invalid value.
        """
        _require_store_and_id(store, session_id)
        tries_left = _CREATION_TRIES
        while not await store.position(session_id):
            try:
                return await cls.create(store, session_id, **options)
            except SessionExists:
                break  # another process was faster
            except SessionLockedByOtherProcess:
                # Another process is creating it, and has its files.
                tries_left -= 1
                if not tries_left:
                    raise
                await asyncio.sleep(_CREATION_PAUSE_S)
        values = cast("dict[str, Any]", options)
        functions = {name: values[name] for name in _REOPEN_OPTIONS if name in values}
        session = await cls._load(store, session_id, **functions)
        # A function that is passed as None is not missing: its caller removes it.
        require_logged_functions(session.window.settings, values)
        changes = {name: values[name] for name in values if name not in ("on_edit", "clock")}
        await session.configure(**changes)
        return cast("Session[DialectT]", session)

    @classmethod
    async def open(
        cls,
        store: Store,
        session_id: str,
        *,
        policy: PolicyName | Policy | None = None,
        tokenizer: Tokenizer | None = None,
        redact: Redact | None = None,
        on_edit: OnEdit | None = None,
        clock: Callable[[], float] = time.time,
    ) -> Session:
        """Open an existing session. Pass again what is not in its log.

        Args:
            store: The store.
            session_id: The id of the session.
            policy: The policy, if it is a function; a preset's name replaces the logged one.
            tokenizer: The tokenizer of the session, if it had one.
            redact: The function that redacts new messages, if the session had one.
            on_edit: A function that gets an `EditNotice` whenever something is hidden.
            clock: A function that returns the time in seconds since the epoch.

        Returns:
            The session.

        Raises:
            SessionNotFound: If the store has no session with this id.
            ValueError: If a function that the session had is missing.
        """
        _require_store_and_id(store, session_id)
        functions: dict[str, Any] = {"policy": policy, "tokenizer": tokenizer, "redact": redact}
        session = await cls._load(store, session_id, on_edit=on_edit, clock=clock, **functions)
        names = [name for name, function in functions.items() if function is not None]
        require_logged_functions(session.window.settings, names)
        return session

    @classmethod
    async def _load(cls, store: Store, session_id: str, **load_kwargs: Any) -> Session:
        """Open a session. Its caller may lack a function that its log was written with."""
        session = cls(store, session_id, await load_context(store, session_id, **load_kwargs))
        session._was_read = True
        if session._last_event is None:
            await session.refresh()
        return session

    async def close(self) -> None:
        """Release the session for other processes, after waiting for a summary that is being made.

        After that, nothing can be added.
        """
        await self.wait_for_background()
        self._is_closed = True
        if self._pid == os.getpid():
            await self.store.release(self.id)

    def _require_open(self) -> None:
        if self._is_closed:
            raise SessionClosed(self.id, "is closed")
        if self._pid != os.getpid():
            raise SessionClosed(
                self.id, f"was opened in process {self._pid}, of which this one is a fork"
            )

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled: the store has open files or connections."""
        raise TypeError(
            "a Session cannot be pickled; pass the location of its store and its id, and open it "
            "there with Session.open"
        )

    async def wait_for_background(self) -> None:
        """Wait for everything that runs in the background.

        If this is cancelled, that is also cancelled.
        """
        loop = asyncio.get_running_loop()
        # Those of another loop end with that loop.
        while tasks := [task for task in self._background if task.get_loop() is loop]:
            await asyncio.gather(*tasks)

    async def __aenter__(self) -> Self:
        """Return the session. It is closed at the end of the block."""
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<Session {self.id}: {self._context!r}>"

    @property
    def options(self) -> Options:
        """The current options."""
        return self._context.options

    @property
    def window(self) -> Window:
        """The state that the stored log adds up to: what the model sees now."""
        return self._context.window

    @property
    def dialect(self) -> DialectName:
        """The wire format of its requests."""
        return self._context.dialect

    @property
    def open_calls(self) -> list[ToolCall]:
        """The calls of the newest reply that have no result yet. See `Context.open_calls`."""
        return self._context.open_calls

    @property
    def media_support(self) -> AcceptedMedia:
        """Which pictures and files the model accepts."""
        settings = self.window.settings
        return find_accepted_media(settings.dialect, settings.rules_model)

    async def add(
        self,
        item: Any,
        *,
        key: str | None = None,
        usage: Usage | None = None,
    ) -> str:
        """Add a message. A message with a known key is not added again. See `Context.add`."""
        check_idempotency_key(key)
        is_known = key is not None and key in self.window.base.seq_by_idempotency_key
        try:
            handle = await self._add_item(item, key=key, usage=usage)
        except DuplicateIdempotencyKey as duplicate:
            handle = f"m{duplicate.position}"
            is_known = True
        if is_known:
            # Somebody else may have added it, or answered it.
            async with self._lock:
                await self._catch_up_with_others()
        if exceeds_message_limit(self.window):
            await self._hide_messages_over_limit()
        return handle

    async def _add_item(
        self,
        item: Any,
        *,
        key: str | None = None,
        usage: Usage | None = None,
        follow: Callable[[Sequence[Event]], Sequence[EventBody]] | None = None,
    ) -> str:
        """Add a message. A reply answers the newest call of this object, whoever called since."""

        def draft() -> str:
            call = self._awaited_calls.newest
            if call is None and self._awaited_calls and self._context.read_new_reply(item, usage):
                call = self._context.record_external_call(decides=False)
            with self._context.answering(call):
                return self._context.add(item, key=key, usage=usage)

        try:
            return await self._draft_and_store(
                draft, follow=follow, text_bytes=estimate_item_bytes(item)
            )
        except StaleOwner:
            await self._record_late_usage(item, usage)
            raise

    async def _record_late_usage(self, item: Any, usage: Usage | None) -> None:
        """Record what a reply cost although its turn was taken over. It was billed, but its message
        is not part of the conversation."""
        call = self._awaited_calls.newest
        reply = self._context.read_new_reply(item, usage)
        if call is None or reply is None:
            return
        await self._record_late(build_reply_outcome(call, reply))

    async def _record_late(self, billed: CallOutcome | SummaryAttempt) -> None:
        try:
            await self._draft_and_store(lambda: self._context.append(billed), check_epoch=False)
        except StoreError as error:
            log.warning(
                "session %s: a model's reply came after its turn was taken over, and its usage was "
                "not recorded: %s: %s",
                self.id,
                billed.usage,
                error,
            )

    async def sync(
        self,
        messages: Sequence[Any],
        *,
        ids: Sequence[str] | None = None,
        check: HistoryCheck = "newest",
    ) -> None:
        """Update the session from your own list, which holds the whole history.

        Everything that it records is stored in one append, so what was hidden stays hidden after a
        restart. The first call after an opening, and `check="all"`, read messages that are no
        longer in memory from the store. See `Context.sync`.
        """
        async with self._lock:
            self._require_open()
            while True:
                # The caller may have passed its last list to another process.
                await self._catch_up_with_others()
                try:
                    return await self._sync_and_store(messages, ids, check)
                except HistoryNotInMemory as error:
                    await self._load_again(max_snapshot_seq=error.position, keep_hidden=True)
                except PositionTaken:
                    await self._catch_up_after_refusal()

    async def _sync_and_store(
        self, messages: Sequence[Any], ids: Sequence[str] | None, check: HistoryCheck
    ) -> None:
        """Fold a list, then store the new events.

        They cannot be drafted, because the policy decides on each message from a window in which
        all messages before it are folded. A long list is folded in a copy of the window, in a
        thread. A short list is folded in the window itself, because copying would take longer. If
        it then cannot be stored, the session is loaded again.
        """
        context = self._context
        seq_before = self.window.seq
        history_before = context.known_history.copy()
        text_bytes = estimate_list_bytes(messages, first=history_before.item_count)
        if is_long_work(text_bytes):
            context = context.copy_to_change()
        sync = partial(context.sync, messages, ids=ids, check=check)
        try:
            with context.silenced():
                await run_in_thread_if_long(sync, text_bytes)
            events = context.list_events_after(seq_before)
            if events:
                self._may_differ_from_store = True
                await self.store.append(self.id, events, epoch=self._epoch)
        except BaseException:
            if self.window.seq > seq_before:
                self._may_differ_from_store = True
                self._history_before_sync = history_before
            raise
        self._context = context
        self._may_differ_from_store = False
        if events:
            self._last_event = events[-1]
            self._unexplained_refusals = 0
            self._awaited_calls.remove_ended(events)
            self._context.tell_edits(events)
            if is_checkpoint_due(self.window):
                await self._checkpoint()

    @overload
    async def request(
        self, *, stream: Literal[False] = ..., volatile: str | None = ...
    ) -> Request: ...
    @overload
    async def request(
        self: Session[Literal["openai_responses"]],
        *,
        stream: Literal[True],
        volatile: str | None = ...,
    ) -> ResponsesStreamRequest: ...
    @overload
    async def request(
        self, *, stream: Literal[True], volatile: str | None = ...
    ) -> MessagesStreamRequest: ...
    @overload
    async def request(self, *, stream: bool, volatile: str | None = ...) -> dict[str, Any]: ...
    async def request(self, *, stream: bool = False, volatile: str | None = None) -> Any:
        """Return the next request, as keyword arguments for the model's SDK.

        The call is in the store when this returns. See `Context.request`.
        """
        async with self._lock:
            self._require_open()
            while True:
                await self._catch_up_if_needed()
                self._context.require_due_reply()
                is_new_call = False
                steps = self._context.request_steps(
                    stream=stream,
                    volatile=volatile,
                    is_own_call=self._awaited_calls.__contains__,
                )
                try:
                    while (
                        events := await self._read_window(partial(next, steps, None))
                    ) is not None:
                        is_new_call = True
                        await self._store_and_fold(events)
                except PositionTaken:
                    await self._catch_up_after_refusal()
                else:
                    # The request of the last call may be returned again only if the store has no
                    # later event.
                    if is_new_call or await self.store.position(self.id) == self.window.seq:
                        request = await self._read_window(self._context.render_request)
                        self._requested_seq = self.window.seq
                        self._awaited_calls.add(self.window.seq)
                        return request
                    await self._catch_up_after_refusal()

    async def _read_window(self, work: Callable[[], T]) -> T:
        """Run work that reads all visible messages, and those that no request has read yet."""
        unread = takewhile(
            lambda entry: entry.seq > self._requested_seq, reversed(self.window.entries.values())
        )
        new_bytes = sum(size.bytes for entry in unread for size in entry.sizes)
        message_bytes = MESSAGE_BYTES * len(self.window.entries)
        return await run_in_thread_if_long(work, self.window.bytes + new_bytes + message_bytes)

    async def fail(
        self,
        kind: str,
        *,
        limit: int | None = None,
        input: int | None = None,
        requested: int | None = None,
        message: str = "",
        usage: Usage | None = None,
    ) -> bool:
        """Record that the last call failed. See `Context.fail`."""
        texts = self._context.find_rejected_texts(message)
        await self._record_failure(
            kind, message=message, usage=usage, limit=limit, input=input, requested=requested
        )
        config = parse_policy_config(self.options.limits)
        edits = await self._apply_policy(choose_policy_after_error(kind, config, texts))
        return kind == "overflow" or bool(edits)

    async def _record_failure(
        self,
        kind: str,
        *,
        message: str = "",
        usage: Usage | None = None,
        **token_counts: int | None,
    ) -> None:
        """Record a failure without preparing the next request."""

        def record() -> None:
            outcome = build_error_outcome(
                self.window.accounting.open_call_seq,
                kind,
                message=message,
                redact=self.options.redact,
                usage=usage,
                **token_counts,
            )
            self._context.append(outcome)

        await self._draft_and_store(record)

    async def watch(self, stream: AsyncIterable[Any]) -> AsyncIterator[Any]:
        """Pass a stream through and add its reply, with usage, when the stream ends.

        Args:
            stream: The stream of an SDK.

        Yields:
            The events of the stream.

        Raises:
            ValueError: If no event of the stream could be read.
        """
        dialect = get_dialect(self.dialect)
        gathering = dialect.create_reply_accumulator()
        async for event in stream:
            gathering.feed(to_plain_dict(event))
            yield event
        if (reply := read_finished_reply_body(gathering)) is not None:
            warn_of_stream_without_usage(dialect.parse_reply(reply))
            await self.add(reply)

    async def preview(self, *, stream: bool = False, volatile: str | None = None) -> RequestPreview:
        """Return what the next call would send and cost, without changing anything.

        See `Context.preview`.
        """
        preview = partial(self._context.preview, stream=stream, volatile=volatile)
        async with self._lock:
            return await self._read_window(preview)

    def view(self) -> View:
        """Return what the last `request()` shows, like `Context.view`."""
        return self._context.view()

    def report(self) -> ContextReport:
        """Return how the next call would use its tokens."""
        return self._context.build_report()

    def budget(self) -> Budget:
        """Return the token budget of the next call: its limit and what is reserved."""
        return self._context.budget()

    async def messages(self, *, after: str | None = None) -> AsyncIterator[LoggedMessage]:
        """Read the conversation back: each message that was added, hidden from the model or not.

        The messages are read from the store page by page, so a long conversation needs no more
        memory than a short one. See `Context.messages`.
        """
        after_seq = 0 if after is None else parse_handle(after).last_seq
        async with self._lock:
            await self._catch_up_with_others(check_epoch=False)

        def get_window() -> Window:
            return self.window

        async for message in read_messages(self.store, self.id, get_window, after_seq):
            yield message

    async def recall(self, handle: str) -> str:
        """Return the text that a handle names, exactly as it was added, however long ago.

        See `Context.recall`.
        """
        return await store_recall.recall_from_store(self.store, self.id, self.window, handle)

    async def recall_part(self, handle: str) -> Part:
        """Return one part of a message, however long ago, for example a picture with all its bytes.

        See `Context.recall_part`.
        """
        return await store_recall.recall_part_from_store(self.store, self.id, self.window, handle)

    async def search(self, query: str) -> str:
        """Search the whole session. See `Context.search`."""
        return await store_recall.search_session(self.store, self.id, self.window, query)

    async def answer(self, call: object, *, add: bool = True) -> str:
        """Answer the model's call of a recall tool and add the result. See `Context.answer`."""
        tool_call = call if isinstance(call, ToolCall) else parse_any_tool_call(call)
        place = (self.store, self.id, self.window)
        text = await store_recall.answer_recall_from_store(*place, tool_call)
        parts = await store_recall.find_recalled_parts_in_store(*place, tool_call)
        result, reveals = build_recall_result(
            tool_call, text, parts, self.window.settings, text_only=not add
        )
        if add:
            await self.add(result)
        if reveals:
            await self.reveal(parse_recall_arguments(tool_call)["handle"])
        return result.results[0].text

    async def pending_summary(self, *, forced: bool = False) -> SummaryRequest | None:
        """Return which messages should be summarised now, or None.

        See `Context.pending_summary`.
        """
        async with self._lock:
            return await self._read_window(partial(self._context.pending_summary, forced=forced))

    async def add_summary(self, text: str, *, span: MessageSpan | None = None) -> None:
        """Replace the messages that `pending_summary` returned by a summary.

        See `Context.add_summary`.
        """
        await self._draft_and_store(
            lambda: self._context.add_summary(text, span=span), text_bytes=self.window.bytes
        )

    async def pending_result_summaries(self) -> tuple[ResultSummaryRequest, ...]:
        """Return the tool results that should be summarised before the next call, which would cut
        them."""
        async with self._lock:
            return await self._read_window(self._context.pending_result_summaries)

    async def reveal(self, handle: str) -> None:
        """Show hidden content again, until the model has replied. See `Context.reveal`."""
        await self._draft_and_store(lambda: self._context.reveal(handle))

    async def pin(self, handle: str, *, pinned: bool = True) -> None:
        """Keep messages visible whatever the policy decides, or stop doing so.

        See `Context.pin`.
        """
        await self._draft_and_store(lambda: self._context.pin(handle, pinned=pinned))

    async def why(self, handle: str) -> VisibilityReason:
        """Explain why the model does or does not see something. See `Context.why`."""
        return await history.explain_visibility(self.store, self.id, handle)

    async def why_by_part(self, handle: str) -> list[VisibilityReason]:
        """Explain the same, with one result for each part of a message whose parts differ.

        Args:
            handle: The handle of a part, a message or a range.
        """
        return await history.explain_visibility_by_part(self.store, self.id, handle)

    async def rebuild_request(self, seq: int) -> dict[str, Any]:
        """Rebuild the exact request of a past call, and check it against the recorded hash.

        See `Context.rebuild_request`.
        """
        return await history.rebuild_request_from_store(self.store, self.id, seq)

    async def configure(self, **changes: Unpack[OptionChanges]) -> None:
        """Change the model, the system prompt, the tools or any other option from now on.

        See `Context.configure`.
        """
        await self._draft_and_store(lambda: self._context.configure(**changes))

    async def _apply_policy(self, policy: Policy) -> tuple[Edit, ...]:
        """Make the edits that a policy wants now, whatever the session's own policy is."""

        def edit() -> tuple[Edit, ...]:
            edits = policy(self.window, self.budget()).edits
            for body in edits:
                self._context.append(body)
            return edits

        return await self._draft_and_store(edit, text_bytes=self.window.bytes)

    async def compact(self) -> Compaction:
        """Make the context smaller now, whatever its policy is. See `Context.compact`."""
        before = self.report().used
        compaction = await self._draft_and_store(
            self._context.compact, text_bytes=self.window.bytes
        )
        # The draft was made before its events were folded, so only now the totals are right.
        return replace(compaction, tokens_before=before, tokens_after=self.report().used)

    async def undo(self) -> UndoOutcome | None:
        """Remove the user's newest message and everything after it. See `Context.undo`."""
        before = self.window.conversation.total_messages
        undone = await self._draft_and_store(self._context.undo)
        # The draft was made before its events were folded, so only now the totals are right.
        return undone and replace(undone, messages=before - self.window.conversation.total_messages)

    async def rewind(self, to: int | str) -> None:
        """Return to an earlier point. Everything after it is undone. See `Context.rewind`."""
        await self._draft_and_store(lambda: self._context.rewind(to))

    async def fork(self, new_session_id: str, *, at: int | None = None) -> Session[DialectT_co]:
        """Create a new session with the same past up to a position.

        Args:
            new_session_id: The id of the new session.
            at: The last position to copy. None copies everything.

        Returns:
            The new session.

        Raises:
            SessionExists: If the store already has a session with the new id.
            ValueError: If there is no such position.
        """
        at = self.window.seq if at is None else at
        clock = self._context.clock
        past = await fork_stored_session(self.store, self.id, new_session_id, at=at, clock=clock)
        settings = next(e.body for e in reversed(past) if isinstance(e.body, Settings))
        earlier = rebuild_options_from_changed_settings(
            settings, self._context.options, past_counters=self.window.counters_by_name
        )
        arguments = self._context.load_kwargs(earlier)
        context = await load_context(self.store, new_session_id, **arguments)
        return cast("Session[DialectT_co]", Session(self.store, new_session_id, context))

    async def erase(self, handle: str | Sequence[str], *, reason: str = "") -> None:
        """Destroy the content of messages or parts, in the store and in everything made from it.

        It does not reach the copies in sessions that were forked from this one: `store.forks`
        returns their ids.

        Args:
            handle: The handle of a part, a message or a range, or several handles.
            reason: Why it is erased. The reason is recorded in the log.

        Raises:
            LookupError: If nothing has this handle.
            ValueError: If it is not a handle.
        """
        await self._erase(handle, reason=reason)

    async def _erase(
        self,
        handle: str | Sequence[str],
        *,
        reason: str,
        before_rewrite: Callable[[ErasurePlanner], Awaitable[None]] | None = None,
        fence_open_turn: bool = False,
    ) -> None:
        targets = [parse_handle(one) for one in ([handle] if isinstance(handle, str) else handle)]
        async with self._lock:
            self._require_open()
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
                    bodies.insert(0, self._build_claim())
                events = [self._context.build_event(body, n) for n, body in enumerate(bodies)]
                # The log is rewritten even without new events: an earlier attempt may have recorded
                # the erasure and then been cut off.
                self._may_differ_from_store = True
                try:
                    await self.store.rewrite(self.id, events, make_event_eraser(erases))
                except PositionTaken:
                    await self._catch_up_after_refusal()
                else:
                    await self._fold_stored(events)
                    self._may_differ_from_store = False
                    return

    @asynccontextmanager
    async def claim_turn(self, *, wait: float | None = TURN_WAIT_S) -> AsyncGenerator[None]:
        """Claim the turn for an `async with` block, so that requests for one session follow each
        other.

        It holds in all processes that share the store, and ends with the process however that ends.
        `run_turn` claims the turn itself, also within this block.

        Args:
            wait: Seconds to wait for a request that has the turn. None takes the turn over at once:
                then its owner can no longer write.

        Raises:
            SessionBusy: If another request had the turn all the time.

        Example:
            Answer one request of a web application after the other::

                async with session.claim_turn(wait=10):
                    await session.add({"role": "user", "content": "Hello"})
                    reply = await client.messages.create(**await session.request())
                    await session.add(reply)
        """
        async with self._hold_turn(wait):
            await self._claim()
            try:
                yield
                if self._epoch is not None:
                    await self._end_turn()
            finally:
                # After a failure, another user of this session must not write as the turn.
                self._epoch = None

    @asynccontextmanager
    async def _hold_turn(self, wait: float | None) -> AsyncGenerator[None]:
        """Make other requests wait. A task that holds the turn does not wait for itself."""
        task = asyncio.current_task()
        if wait is None or self._turn_holder is task:
            yield
            return
        self._require_open()
        async with self.store.hold_turn(self.id, wait=wait):
            self._turn_holder = task
            try:
                yield
            finally:
                self._turn_holder = None

    async def _claim(self, message: Any = None, *, key: str | None = None) -> int | None:
        """Begin a turn, perhaps with a message in the same append. The owner of the previous turn
        can no longer write.

        Return the position of the message if it was in the log already.
        """
        check_idempotency_key(key)

        def draft() -> int | None:
            position = None if key is None else self.window.base.seq_by_idempotency_key.get(key)
            if message is not None:
                self._context.add(message, key=key)
            self._context.append(self._build_claim())
            return position

        try:
            position = await self._draft_and_store(
                draft, check_epoch=False, text_bytes=estimate_item_bytes(message)
            )
        except DuplicateIdempotencyKey as duplicate:
            if duplicate.position > self.window.seq:
                await self.refresh()  # another process added it: the next request must contain it
            await self._claim()
            return duplicate.position
        self._epoch = self.window.accounting.epoch
        return position

    def _build_claim(self) -> TurnProgressRecord:
        return TurnProgressRecord(state="claimed", epoch=self.window.accounting.epoch + 1)

    async def _end_turn(self) -> None:
        await self._append_body(self._build_turn_end())
        self._epoch = None

    def _build_turn_end(self) -> TurnProgressRecord:
        return TurnProgressRecord(state="ended", epoch=self._epoch or 0)

    async def refresh(self) -> None:
        """Fold the events that others have stored.

        Raises:
            SessionNotFound: If the log was deleted, even if a new one has the same id.
            StaleOwner: If another process has claimed the turn.
        """
        async with self._lock:
            self._require_open()
            await self._catch_up()

    async def _hide_messages_over_limit(self) -> None:
        """Hide the oldest messages, so that memory stays bounded although no request is made."""

        def draft() -> None:
            for edit in decide_message_limit(self.window, self._context.budget()):
                self._context.append(edit)

        try:
            await self._draft_and_store(draft, text_bytes=self.window.bytes)
        except (StaleOwner, StoreError) as error:
            # The message itself is stored, and the next request hides what is above the limit.
            log.warning("session %s: hiding old messages failed: %s", self.id, error)

    async def _append_body(self, body: EventBody) -> None:
        await self._draft_and_store(lambda: self._context.append(body))

    async def _draft_and_store(
        self,
        draft: Callable[[], T],
        *,
        check_epoch: bool = True,
        follow: Callable[[Sequence[Event]], Sequence[EventBody]] | None = None,
        text_bytes: int = 0,
    ) -> T:
        """Draft events, store them and fold them. Start again if another process has stored events
        first.

        `draft` calls methods of the context. `follow` gets the events that they recorded, and
        returns what to append in the same step. `text_bytes` is about how much text the draft
        reads.
        """

        def make_draft() -> tuple[T, list[Event]]:
            with self._context.drafting() as events:
                result = draft()
                for body in () if follow is None else follow([*events]):
                    self._context.append(body)
            return result, events

        async with self._lock:
            self._require_open()
            while True:
                await self._catch_up_if_needed(check_epoch=check_epoch)
                result, events = await run_in_thread_if_long(make_draft, text_bytes)
                try:
                    await self._store_and_fold(events, check_epoch=check_epoch)
                except PositionTaken:
                    await self._catch_up_after_refusal(check_epoch=check_epoch)
                else:
                    return result

    async def _store_and_fold(self, events: list[Event], *, check_epoch: bool = True) -> None:
        if not events:
            return
        # If this task is cancelled or loses the connection, the events may be stored or not.
        self._may_differ_from_store = True
        try:
            await self.store.append(self.id, events, epoch=self._epoch if check_epoch else None)
        except (PositionTaken, StaleOwner, DuplicateIdempotencyKey):
            self._may_differ_from_store = False
            raise
        await self._fold_stored(events)
        self._may_differ_from_store = False
        self._awaited_calls.remove_ended(events)
        self._context.tell_edits(events)
        if is_checkpoint_due(self.window):
            await self._checkpoint()

    async def _fold_stored(self, events: Sequence[Event]) -> None:
        """Fold stored events; load from further back if they need what is no longer in memory."""
        if not events:
            return
        self._unexplained_refusals = 0
        try:
            self._context.apply(events)
        except HistoryNotInMemory as error:
            await self._load_again(max_snapshot_seq=error.position, keep_hidden=True)
        if erases := [event.body for event in events if isinstance(event.body, PayloadErasure)]:
            self._context.events[:] = map(make_event_eraser(erases), self._context.events)
            self._context.forget_known_history()  # it contains the erased text
        self._last_event = _last_folded_event(self._context)

    async def _load_again(
        self, *, max_snapshot_seq: int | None = None, keep_hidden: bool = False
    ) -> None:
        """Load the context from the store, perhaps from further back, and go on with the caller's
        list."""
        before = self._context
        arguments = self._context.load_kwargs()
        if arguments["policy"] == self.window.settings.policy:
            arguments["policy"] = None  # the log names it, and later events may name another one
        context = await load_context(
            self.store,
            self.id,
            max_snapshot_seq=max_snapshot_seq,
            keep_hidden=keep_hidden,
            **arguments,
        )
        context.take_known_history(before, self._history_before_sync)
        self._context = context
        self._history_before_sync = None
        self._last_event = _last_folded_event(context)

    async def _catch_up_if_needed(self, *, check_epoch: bool = True) -> None:
        if self._may_differ_from_store:
            await self._catch_up(check_epoch=check_epoch)

    async def _catch_up_with_others(self, *, check_epoch: bool = True) -> None:
        """Fold the events that others have stored, if there are any."""
        if self._may_differ_from_store or await self.store.position(self.id) != self.window.seq:
            await self._catch_up(check_epoch=check_epoch)

    async def _catch_up(self, *, check_epoch: bool = True) -> None:
        if self._history_before_sync is not None:
            await self._load_again()
        # From the event folded last, which shows whether this is still the same log.
        span = (self.window.seq, None)
        events = [event async for event in self.store.events(self.id, [span])]
        if not events or (self._last_event is not None and events[0].at != self._last_event.at):
            raise SessionNotFound(self.id)
        self._last_event = events[0]
        await self._fold_stored(events[1:])
        self._awaited_calls.remove_ended(events[1:])
        self._may_differ_from_store = False
        if check_epoch and self._epoch is not None and self.window.accounting.epoch > self._epoch:
            raise StaleOwner(self.id, self._epoch, self.window.accounting.epoch)

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
        context = self._context.copy_to_change() if is_long_work(message_bytes) else self._context
        snapshot = await run_in_thread_if_long(context.checkpoint, message_bytes)
        self._context = context
        try:
            await self.store.checkpoint(self.id, snapshot)
        except StoreError as error:
            # The log has everything: without this snapshot the next opening only reads more.
            log.warning(
                "session %s: storing the snapshot at %d failed: %s", self.id, snapshot.seq, error
            )


async def fork_stored_session(
    store: Store,
    session_id: str,
    new_session_id: str,
    *,
    at: int | None = None,
    clock: Callable[[], float] = time.time,
) -> list[Event]:
    """Copy a session's past up to a position into a new session. None is the last position.

    Use it for sessions that are not open: opening one needs its policy, if that is a function.
    Returns the new log. Raises `SessionExists` if the store already has the new id.
    """
    _require_store_and_id(store, new_session_id)
    if position := await store.position(new_session_id):
        raise SessionExists(new_session_id, position)
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


def _require_store_and_id(store: Any, session_id: Any) -> None:
    """Raise if this is not a store or not an id, with an error that says what to pass."""
    if isinstance(store, str | PurePath):
        # It is not quoted: an address may contain a password.
        raise TypeError(
            f"the store is a {type(store).__name__}; open it first: `store = await open_store(…)`"
        )
    if not isinstance(session_id, str):
        raise TypeError(f"the session id is {session_id!r}; it must be a text")
    if not session_id:
        raise ValueError("the session id is empty; it must have at least one character")


def _last_folded_event(context: StepwiseContext[Any]) -> Event | None:
    """Return the event folded last; None if it is only in a snapshot."""
    events = context.events
    return events[-1] if events and events[-1].seq == context.window.seq else None
