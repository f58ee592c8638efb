"""`Session`: a durable context.

What each verb records is in `trimtab.verbs`. The session's recorder stores it, and folds it only
then.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import PurePath
from typing import Any, Generic, Literal, NoReturn, Self, Unpack, cast, overload

from trimtab.dialects import DialectName, get_dialect
from trimtab.dialects.known_history import HistoryCheck
from trimtab.dialects.media import AcceptedMedia, find_accepted_media
from trimtab.dialects.reading import parse_any_tool_call, to_plain_dict
from trimtab.dialects.reply_recording import read_finished_reply_body
from trimtab.engine.log.edits import parse_handle
from trimtab.engine.log.event import Event, Settings, Usage
from trimtab.engine.log.fork import build_events_closing_fork_copy, resolve_fork_position
from trimtab.engine.log.message import Part, ToolCall
from trimtab.engine.log.redaction import Redact
from trimtab.engine.policy.budget import Budget
from trimtab.engine.policy.planning.plan import Decision, MessageSpan, Policy
from trimtab.engine.policy.presets import PolicyName, decide_message_limit
from trimtab.engine.policy.summary_requests import ResultSummaryRequest, SummaryRequest
from trimtab.engine.prompt.report import ContextReport, RequestPreview
from trimtab.engine.prompt.shown_messages import View
from trimtab.engine.recall.transcript import LoggedMessage
from trimtab.engine.recall.visibility import VisibilityReason
from trimtab.engine.text.arguments import check_idempotency_key
from trimtab.engine.window.window import Window
from trimtab.errors import (
    DuplicateIdempotencyKey,
    PositionTaken,
    SessionExists,
    SessionLockedByOtherProcess,
    StaleOwner,
    StoreError,
)
from trimtab.options import (
    OptionChanges,
    Options,
    SessionOptions,
    Tokenizer,
    build_options,
    rebuild_options_from_changed_settings,
    reject_unknown_options,
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
from trimtab.session.loading import (
    exceeds_message_limit,
    load_session_state,
    load_state_to_read,
)
from trimtab.session.recorder import SessionRecorder, log
from trimtab.session.transcript import read_messages
from trimtab.stores.base import Store
from trimtab.verbs import (
    compacting,
    configuring,
    failing,
    reporting,
    revealing,
    rewinding,
    summarising,
)
from trimtab.verbs.compacting import Compaction
from trimtab.verbs.notices import OnEdit, check_on_edit
from trimtab.verbs.rewinding import UndoOutcome
from trimtab.verbs.state import apply_at_once, create_state
from trimtab.verbs.warnings import log_warnings, warn_of_stream_without_usage

TURN_WAIT_S = 30.0
"""Seconds that a request waits for the turn of another one: longer than most replies take, and
shorter than web servers wait for an answer."""
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

    def __init__(self, recorder: SessionRecorder) -> None:
        self.store = recorder.store
        """The store of its events."""
        self.id = recorder.id
        """The id of the session."""
        self.recorder = recorder
        """Stores what the methods record. Only the agentic loop and the server use it."""

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
        values = cast("dict[str, Any]", {**options})
        reject_unknown_options(values, [*SessionOptions.__annotations__], owner="Session.create")
        on_edit = values.pop("on_edit", None)
        check_on_edit(on_edit)
        clock = values.pop("clock", time.time)
        state = create_state(build_options(**values), clock)
        events: list[Event] = []
        apply_at_once(state, configuring.record_options(state, state.options), events)
        log_warnings(state.warnings)
        state.warnings.clear()
        try:
            await store.append(session_id, events)
        except PositionTaken as refusal:
            raise SessionExists(session_id, refusal.position) from None
        recorder = SessionRecorder(store, session_id, state, on_edit=on_edit, last_event=events[-1])
        return cast("Session[DialectT]", cls(recorder))

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
    async def _load(
        cls, store: Store, session_id: str, *, on_edit: OnEdit | None = None, **load_options: Any
    ) -> Session:
        """Open a session. Its caller may lack a function that its log was written with."""
        check_on_edit(on_edit)
        state, last_event = await load_session_state(store, session_id, **load_options)
        recorder = SessionRecorder(store, session_id, state, on_edit=on_edit, last_event=last_event)
        recorder.was_read = True
        if last_event is None:
            await recorder.refresh()
        return cls(recorder)

    async def close(self) -> None:
        """Release the session for other processes, after waiting for a summary that is being made.

        After that, nothing can be added.
        """
        await self.recorder.close()

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
        await self.recorder.wait_for_background()

    async def __aenter__(self) -> Self:
        """Return the session. It is closed at the end of the block."""
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<Session {self.id}: {reporting.describe_state(self.recorder.state)}>"

    @property
    def options(self) -> Options:
        """The current options."""
        return self.recorder.state.options

    @property
    def window(self) -> Window:
        """The state that the stored log adds up to: what the model sees now."""
        return self.recorder.state.window

    @property
    def dialect(self) -> DialectName:
        """The wire format of its requests."""
        return cast("DialectName", self.window.settings.dialect)

    @property
    def open_calls(self) -> list[ToolCall]:
        """The calls of the newest reply that have no result yet. See `Context.open_calls`."""
        return reporting.build_open_calls(self.window)

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
            handle = await self.recorder.add(item, key=key, usage=usage)
        except DuplicateIdempotencyKey as duplicate:
            handle = f"m{duplicate.position}"
            is_known = True
        if is_known:
            # Somebody else may have added it, or answered it.
            await self.recorder.refresh_if_behind()
        await self._hide_messages_over_limit()
        return handle

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
        await self.recorder.sync(messages, ids, check)

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
        return await self.recorder.request(stream=stream, volatile=volatile)

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
        return await self.recorder.run(
            lambda state: failing.fail(
                state,
                kind,
                message=message,
                usage=usage,
                limit=limit,
                input=input,
                requested=requested,
            ),
            text_bytes=self.window.bytes,
        )

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
        return await self.recorder.read(
            lambda state: reporting.build_preview(state, stream=stream, volatile=volatile)
        )

    def view(self) -> View:
        """Return what the last `request()` shows, like `Context.view`."""
        return reporting.build_view(self.recorder.state)

    def report(self) -> ContextReport:
        """Return how the next call would use its tokens."""
        return reporting.build_report(self.recorder.state)

    def budget(self) -> Budget:
        """Return the token budget of the next call: its limit and what is reserved."""
        return self.recorder.state.budget()

    async def messages(self, *, after: str | None = None) -> AsyncIterator[LoggedMessage]:
        """Read the conversation back: each message that was added, hidden from the model or not.

        The messages are read from the store page by page, so a long conversation needs no more
        memory than a short one. See `Context.messages`.
        """
        after_seq = 0 if after is None else parse_handle(after).last_seq
        await self.recorder.refresh_if_behind(check_epoch=False)

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
        answer = await self.recorder.run(
            lambda state: revealing.add_answer(state, tool_call, text, parts, adds=add)
        )
        await self._hide_messages_over_limit()
        return answer

    async def pending_summary(self, *, forced: bool = False) -> SummaryRequest | None:
        """Return which messages should be summarised now, or None.

        See `Context.pending_summary`.
        """
        return await self.recorder.read(
            lambda state: summarising.find_pending_summary(state, forced=forced)
        )

    async def add_summary(self, text: str, *, span: MessageSpan | None = None) -> None:
        """Replace the messages that `pending_summary` returned by a summary.

        See `Context.add_summary`.
        """
        await self.recorder.run(
            lambda state: summarising.add_summary(state, text, span=span),
            text_bytes=self.window.bytes,
        )

    async def pending_result_summaries(self) -> tuple[ResultSummaryRequest, ...]:
        """Return the tool results that should be summarised before the next call, which would cut
        them."""
        return await self.recorder.read(summarising.find_pending_result_summaries)

    async def reveal(self, handle: str) -> None:
        """Show hidden content again, until the model has replied. See `Context.reveal`."""
        await self.recorder.run(lambda state: revealing.reveal(state, handle))

    async def pin(self, handle: str, *, pinned: bool = True) -> None:
        """Keep messages visible whatever the policy decides, or stop doing so.

        See `Context.pin`.
        """
        await self.recorder.run(lambda state: revealing.pin(state, handle, pinned=pinned))

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
        await self.recorder.run(lambda state: configuring.configure(state, changes))

    async def compact(self) -> Compaction:
        """Make the context smaller now, whatever its policy is. See `Context.compact`."""
        return await self.recorder.run(compacting.compact, text_bytes=self.window.bytes)

    async def undo(self) -> UndoOutcome | None:
        """Remove the user's newest message and everything after it. See `Context.undo`."""
        return await self.recorder.run(rewinding.undo)

    async def rewind(self, to: int | str) -> None:
        """Return to an earlier point. Everything after it is undone. See `Context.rewind`."""
        await self.recorder.run(lambda state: rewinding.rewind(state, to))

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
        clock = self.recorder.state.clock
        past = await fork_stored_session(self.store, self.id, new_session_id, at=at, clock=clock)
        settings = next(e.body for e in reversed(past) if isinstance(e.body, Settings))
        options = rebuild_options_from_changed_settings(
            settings, self.options, past_counters=self.window.counters_by_name
        )
        state, last_event = await load_session_state(
            self.store,
            new_session_id,
            clock=clock,
            policy=options.policy,
            tokenizer=options.tokenizer,
            redact=options.redact,
        )
        recorder = SessionRecorder(
            self.store,
            new_session_id,
            state,
            on_edit=self.recorder.on_edit,
            last_event=last_event,
        )
        return cast("Session[DialectT_co]", Session(recorder))

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
        await self.recorder.erase(handle, reason=reason)

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
        recorder = self.recorder
        async with recorder.hold_turn(wait):
            await recorder.claim()
            try:
                yield
                if recorder.epoch is not None:
                    await recorder.end_turn()
            finally:
                # After a failure, another user of this session must not write as the turn.
                recorder.disown()

    async def refresh(self) -> None:
        """Fold the events that others have stored.

        Raises:
            SessionNotFound: If the log was deleted, even if a new one has the same id.
            StaleOwner: If another process has claimed the turn.
        """
        await self.recorder.refresh()

    async def _hide_messages_over_limit(self) -> None:
        """Hide the oldest messages, so that memory stays bounded although no request is made."""
        if not exceeds_message_limit(self.window):
            return
        try:
            await self.recorder.apply_policy(
                lambda window, budget: Decision(edits=decide_message_limit(window, budget))
            )
        except (StaleOwner, StoreError) as error:
            # The message itself is stored, and the next request hides what is above the limit.
            log.warning("session %s: hiding old messages failed: %s", self.id, error)


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


async def open_session_to_erase(store: Store, session_id: str) -> Session:
    """Open a session without the functions of its caller, which are not in the log.

    Erasing needs none of them. No message can be added.
    """
    recorder = SessionRecorder(store, session_id, await load_state_to_read(store, session_id))
    await recorder.refresh()
    return Session(recorder)
