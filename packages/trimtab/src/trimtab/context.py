"""`Context`: turns messages into requests, in memory and without any I/O.

What each verb records is in `trimtab.verbs`. A context applies it at once.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from threading import RLock
from typing import Any, Generic, Literal, NoReturn, Self, TypeVar, Unpack, cast, overload

from trimtab.dialects import DialectName, get_dialect
from trimtab.dialects.base import WireObject
from trimtab.dialects.known_history import HistoryCheck, KnownHistory
from trimtab.dialects.outgoing import rebuild_request_from_events, select_count_parameters
from trimtab.dialects.reading import parse_any_tool_call, to_plain_dict
from trimtab.dialects.reply_recording import ReplyRecordingStream, StreamEventT
from trimtab.engine.log.edits import parse_handle
from trimtab.engine.log.erase import ErasurePlanner, make_event_eraser
from trimtab.engine.log.event import (
    Event,
    MessageAdded,
    Settings,
    ToolResultRepair,
    Usage,
    dump_event_line,
)
from trimtab.engine.log.fork import build_events_closing_fork_copy, resolve_fork_position
from trimtab.engine.log.message import Message, Part, ToolCall
from trimtab.engine.log.parser import parse_event_log
from trimtab.engine.log.redaction import Redact
from trimtab.engine.policy.budget import Budget
from trimtab.engine.policy.config import Goal, PolicyLimits, SummaryMode
from trimtab.engine.policy.planning.plan import MessageSpan, Policy
from trimtab.engine.policy.presets import DEFAULT_POLICY_NAME, PolicyName
from trimtab.engine.policy.summary_requests import ResultSummaryRequest, SummaryRequest
from trimtab.engine.prompt.report import ContextReport, RequestPreview
from trimtab.engine.prompt.report_html import render_report_html
from trimtab.engine.prompt.shown_messages import View
from trimtab.engine.recall.tools import recall_part, recall_text, search_window
from trimtab.engine.recall.transcript import LoggedMessage, build_logged_message
from trimtab.engine.recall.visibility import (
    VisibilityReason,
    add_event_time_and_reason,
    explain_message_visibility,
)
from trimtab.engine.window.checkpoint import Snapshot
from trimtab.errors import HistoryNotInMemory
from trimtab.models.catalog import CacheMarks, ModelInfoValues
from trimtab.options import (
    OptionChanges,
    Options,
    Tokenizer,
    build_options,
    explain_unknown_options,
    rebuild_options_from_changed_settings,
    require_logged_functions,
)
from trimtab.request import DialectT_co, MessagesStreamRequest, Request, ResponsesStreamRequest
from trimtab.verbs import (
    adding,
    compacting,
    configuring,
    failing,
    matching,
    reporting,
    requesting,
    revealing,
    rewinding,
    summarising,
)
from trimtab.verbs.compacting import Compaction
from trimtab.verbs.notices import (
    EditNotice,
    OnEdit,
    are_notices_heard,
    check_on_edit,
    report_notices,
)
from trimtab.verbs.rewinding import UndoOutcome
from trimtab.verbs.state import State, Verb, apply_at_once, build_events, create_state, load_state
from trimtab.verbs.warnings import log_warnings, warn_of_stream_without_usage

T = TypeVar("T")


class Context(Generic[DialectT_co]):
    """A conversation as a model sees it. Add messages to it, and take the next request from it.

    A context does no I/O and keeps everything in memory. A *handle* names a message (`m12`), a part
    of a message (`m12.0`) or a range of messages (`m3-m50`).

    Calls from several threads wait for each other. A policy, a tokenizer and a redaction run during
    a call, so they must not wait for another thread that uses the same context.

    Example:
        One exchange with Anthropic's SDK::

            context = Context(model="claude-sonnet-5-5", system="You are a careful engineer.")
            context.add({"role": "user", "content": "What does this repository do?"})
            reply = client.messages.create(**context.request())
            context.add(reply)
    """

    @explain_unknown_options
    def __init__(
        self,
        model: str,
        *,
        system: str | Sequence[WireObject] | tuple[Message, ...] = "",
        tools: Sequence[WireObject] = (),
        dialect: DialectT_co | None = None,
        policy: PolicyName | Policy = DEFAULT_POLICY_NAME,
        goal: Goal = "balanced",
        limits: PolicyLimits | None = None,
        summaries: SummaryMode = "extractive",
        context_window: int | None = None,
        max_input_tokens: int | None = None,
        max_output_tokens: int | None = None,
        params: Mapping[str, Any] | None = None,
        recall: bool | str | None = None,
        budget_note: bool = False,
        model_info: ModelInfoValues | str | None = None,
        cache: CacheMarks | None = None,
        tokenizer: Tokenizer | None = None,
        redact: Redact | None = None,
        on_edit: OnEdit | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Create a context for a model. Most defaults follow from the model's name.

        Args:
            model: The model's name as the provider knows it.
            system: The system prompt: a text, or blocks or messages in the form of the dialect.
            tools: Tool definitions, in the form of any supported dialect.
            dialect: The wire format: `anthropic`, `openai_chat` or `openai_responses`.
            policy: Decides what to hide: the name of a preset, or your own function.
            goal: The price of a line in `auto`: `cost`, `balanced`, `quality` or a number.
            limits: Limits on history, tool results and summaries. They apply in every preset.
            summaries: `extractive` needs no model. `manual` waits for `add_summary` if it can.
            context_window: Tokens of input and output together, if the catalog's value is wrong.
            max_input_tokens: Your own limit on input plus requested output, like `context_window`.
            max_output_tokens: Tokens of output to request and to reserve.
            params: Further request parameters. They are passed on unchanged.
            recall: Whether to add tools that look up hidden content; a text if you have your own.
                None leaves it to `run_turn`.
            budget_note: Whether each request ends with a line on how full the window is.
            model_info: Values for the model's catalog entry, or the name of a model in the catalog.
            cache: The cache marks to send: for `5m` or `1h`; `off` sends none, `caller` only yours.
            tokenizer: A function that counts the tokens of a text. It replaces the estimate.
            redact: A function that takes a text and returns it without what must not be stored.
            on_edit: A function that gets an `EditNotice` whenever something is hidden.
            clock: A function that returns the time in seconds since the epoch.

        Raises:
            TypeError: If an option has a wrong type.
            ValueError: If an option has an invalid value, or the model's dialect is unknown.
        """
        options = build_options(
            model=model,
            system=system,
            tools=tools,
            dialect=dialect,
            policy=policy,
            goal=goal,
            limits=limits,
            summaries=summaries,
            context_window=context_window,
            max_input_tokens=max_input_tokens,
            max_output_tokens=max_output_tokens,
            params=params,
            recall=recall,
            budget_note=budget_note,
            model_info=model_info,
            cache=cache,
            tokenizer=tokenizer,
            redact=redact,
        )
        check_on_edit(on_edit)
        self.__setstate__((create_state(options, clock), [], on_edit))
        self._run(configuring.record_options(self._state, options))

    def __repr__(self) -> str:
        return f"<Context {reporting.describe_state(self._state)}>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the report."""
        return render_report_html(self.report())

    def __setstate__(self, values: tuple[Any, ...]) -> None:
        """Take the state, the log and the hook of a context that is created, loaded or copied."""
        self._state: State
        self._on_edit: OnEdit | None
        self.events: list[Event]
        self._state, self.events, self._on_edit = values
        """The log: every event in order."""
        self._lock = RLock()
        self.window = self._state.window
        """The state that the log adds up to."""

    def _run(self, verb: Verb[T]) -> T:
        """Run a verb while other threads wait. Then report what it edited."""
        state = self._state
        notices: list[EditNotice] | None = [] if are_notices_heard(self._on_edit) else None
        try:
            with self._lock:
                return apply_at_once(state, verb, self.events, notices)
        finally:
            if state.warnings:
                log_warnings(state.warnings)
                state.warnings.clear()
            # Without the lock: the hook may wait for a thread that uses this context.
            if notices:
                report_notices(notices, self._on_edit)

    def _copy_state(self) -> State:
        """Return a state of the same window that has not rendered it, and does not know the
        caller's list."""
        state = self._state.with_own_memory()
        state.forget_rendering()
        state.memory.known_history = KnownHistory()
        return state

    def __copy__(self) -> Self:
        twin = type(self).__new__(type(self))
        twin.__setstate__((self._copy_state(), self.events, self._on_edit))
        return twin

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        twin = type(self).__new__(type(self))
        memo[id(self)] = twin  # an `on_edit` may belong to an object that has this context
        twin.__setstate__(deepcopy((self._copy_state(), self.events, self._on_edit), memo))
        return twin

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled: a policy, a tokenizer and hooks are functions."""
        raise TypeError(
            "a Context cannot be pickled, because it has functions; pickle context.dump(), and "
            "make a context of it with Context.load(lines)"
        )

    @property
    def options(self) -> Options:
        """The current options. They also reflect changes that others have written to the log."""
        return self._state.options

    @property
    def dialect(self) -> DialectName:
        """The wire format of its requests."""
        return cast("DialectName", self.window.settings.dialect)

    @property
    def open_calls(self) -> list[ToolCall]:
        """The calls of the newest reply that have no result yet, the same in every dialect and
        whether the reply was streamed or not."""
        return reporting.build_open_calls(self.window)

    @classmethod
    def load(
        cls,
        events_or_lines: Iterable[Event | str | bytes],
        *,
        snapshot: Snapshot | None = None,
        policy: PolicyName | Policy | None = None,
        tokenizer: Tokenizer | None = None,
        redact: Redact | None = None,
        on_edit: OnEdit | None = None,
        clock: Callable[[], float] = time.time,
    ) -> Self:
        """Create a context from its log, as `dump` wrote it.

        Your own policy, tokenizer, redaction or hook is not in the log. Pass it again.

        Args:
            events_or_lines: The events, or their lines of JSON, in order.
            snapshot: A snapshot to start from. The log then needs only the events that the snapshot
                names and the events after it.
            policy: The policy, if it is a function; a preset's name replaces the logged one.
            tokenizer: The tokenizer that the log was counted with, if it had one.
            redact: The function that redacts new messages, if the log had one.
            on_edit: A function that gets an `EditNotice` whenever something is hidden.
            clock: A function that returns the time in seconds since the epoch.

        Returns:
            The context.

        Raises:
            ValueError: If the log is not that of a context, or a function of its caller is
                missing.

        Example:
            Save a context and load it again::

                lines = context.dump()
                context = Context.load(lines)
        """
        functions: dict[str, Any] = {"policy": policy, "tokenizer": tokenizer, "redact": redact}
        events = parse_event_log(events_or_lines)
        check_on_edit(on_edit)
        context = cls.__new__(cls)
        state = load_state(events, clock, snapshot=snapshot, **functions)
        start = snapshot.seq if snapshot is not None else 0
        context.__setstate__((state, [e for e in events if e.seq > start], on_edit))
        names = [name for name, function in functions.items() if function is not None]
        require_logged_functions(context.window.settings, names)
        return context

    def dump(self) -> list[str]:
        """Return the log as lines of JSON, one event a line. `load` reads them."""
        with self._lock:
            return [dump_event_line(event) for event in self.events]

    def add(self, item: Any, *, key: str | None = None, usage: Usage | None = None) -> str:
        """Add a message to the conversation.

        If the item is a whole reply, its usage is also recorded. The same reply in any form, the
        same result of a call, or another message with a known key, is not added again.

        Args:
            item: A dict in the form of any supported dialect, an SDK's reply or message, or a
                `Message`.
            key: An idempotency key of your own.
            usage: The usage of the last request, if the item is the reply to it and does not carry
                its usage.

        Returns:
            The handle of the message, such as `m12`.

        Raises:
            TypeError: If the item is not a message.
            ValueError: If a value in it is invalid.
            UnsupportedMedia: If the model cannot take a picture or file in it.

        Example:
            Add a user message once, although its sender may repeat it. If it was answered before,
            `window.is_reply_due` is false, and `request()` raises `NoReplyDue`::

                context.add({"role": "user", "content": "Hello"}, key="telegram-4711")
        """
        return self._run(adding.add(self._state, item, key=key, usage=usage))

    def fail(
        self,
        kind: str,
        *,
        limit: int | None = None,
        input: int | None = None,
        requested: int | None = None,
        message: str = "",
        usage: Usage | None = None,
    ) -> bool:
        """Record that the last call failed.

        After an `overflow` the next request is smaller. After `rejected`, a refusal of content such
        as a picture, the next request leaves that content out. If the user's newest message was
        rejected, it is left out as soon as another message is added.

        Args:
            kind: The kind of failure, such as `overflow`, `rejected` or `rate_limit`.
            limit: The token limit that the provider named.
            input: The input tokens that the provider counted.
            requested: The output tokens that were requested, as the provider counted them.
            message: The provider's error text.
            usage: What was billed, if the call failed with a reply that you do not keep.

        Returns:
            Whether to send the next request at once.

        Raises:
            CannotFit: If nothing can be made smaller after an `overflow`.
            ValueError: If the kind is unknown, or no call is waiting for its outcome.

        Example:
            Retry after a refusal for length::

                failure = parse_error_response(error.status_code, error.body)
                if context.fail(failure.kind, limit=failure.limit, message=failure.message):
                    reply = client.messages.create(**context.request())
        """
        return self._run(
            failing.fail(
                self._state,
                kind,
                message=message,
                usage=usage,
                limit=limit,
                input=input,
                requested=requested,
            )
        )

    def watch(
        self, stream: Iterable[StreamEventT] | AsyncIterable[StreamEventT]
    ) -> ReplyRecordingStream[StreamEventT]:
        """Pass a stream through and add its reply, with usage, when the stream ends.

        Nothing is added if the stream ends early.

        Args:
            stream: The stream of an SDK, synchronous or not.

        Returns:
            The same events, for `for` or `async for`. After the end, its `message` is the reply.

        Raises:
            ValueError: While iterating, if no event of the stream could be read.

        Example:
            Print a reply while it is written::

                stream = client.messages.create(**context.request(stream=True))
                for event in context.watch(stream):
                    print(event)
        """
        dialect = get_dialect(self.window.settings.dialect)

        def add_reply(reply_body: WireObject) -> Message:
            handle = self.add(reply_body)
            reply = dialect.parse_reply(reply_body)
            warn_of_stream_without_usage(reply)
            message = reply.message
            self._state.memory.streamed_reply = (message, handle)
            return message

        gathering = dialect.create_reply_accumulator()
        return ReplyRecordingStream(stream, gathering, to_plain_dict, add_reply)

    def sync(
        self,
        messages: Sequence[object],
        *,
        ids: Sequence[str] | None = None,
        check: HistoryCheck = "newest",
    ) -> None:
        """Update the context from your own list, which holds the whole history.

        Known messages are matched and new ones are added. If the list differs from the known
        history, a rewind is recorded first. Messages that follow unchanged stay hidden as they
        were. System messages at the start of the list are added after `system`, unless they begin
        with it. If the first new message is the reply to the last request and brings its usage, as
        LangChain's messages and Anthropic's replies do, the usage is recorded.

        Args:
            messages: The whole history: dicts in the form of any supported dialect, an SDK's
                messages, LangChain's messages or instances of `Message`.
            ids: Your id of each message. Without ids, a message is known as the same object or by
                its content.
            check: `newest` compares the newest 64 messages that are known as objects or by their
                ids with their recorded content; `all` compares every message.

        Raises:
            HistoryNotInMemory: If hidden messages are no longer in memory and must be compared.
            TypeError: If the messages are not a list of messages, or an id is not a text.
            ValueError: If a message is invalid, or if the ids are not one different id a message.

        Example:
            Keep your own list, and send what fits of it::

                context.sync(messages)
                reply = client.messages.create(**context.request())
        """
        self._run(matching.sync(self._state, messages, ids=ids, check=check))

    @overload
    def request(self, *, stream: Literal[False] = ..., volatile: str | None = ...) -> Request: ...
    @overload
    def request(
        self: Context[Literal["openai_responses"]],
        *,
        stream: Literal[True],
        volatile: str | None = ...,
    ) -> ResponsesStreamRequest: ...
    @overload
    def request(  # pyright: ignore[reportOverlappingOverload] - of a bool it is not known which
        self, *, stream: Literal[True], volatile: str | None = ...
    ) -> MessagesStreamRequest: ...
    @overload
    def request(self, *, stream: bool, volatile: str | None = ...) -> dict[str, Any]: ...
    @explain_unknown_options
    def request(self, *, stream: bool = False, volatile: str | None = None) -> Any:
        """Return the next request, as keyword arguments for the model's SDK.

        This adds results for calls that have none, applies the policy and records the call. If
        nothing has been added since the last request, it returns the same request and records
        nothing. Parameters that the model is known to refuse are corrected. For example, thinking
        is switched off in a tool loop that began without it.

        Args:
            stream: Whether the reply will be streamed.
            volatile: A text for this request only. It is placed after the last cache mark.

        Returns:
            A new dict with a new message list. The messages in it are shared: do not modify them.

        Raises:
            CannotFit: If the request would not fit, whatever is hidden.
            NoReplyDue: If there is no message yet, if the last one has its reply, or if it is a
                reply that the model would refuse to continue. A list that was passed to `sync` may
                end with a reply.

        Example:
            Send the next request with the current time::

                request = context.request(volatile="It is 12:30.")
                reply = client.messages.create(**request)
        """
        return self._run(
            requesting.request(self._state, stream=stream, volatile=volatile, warns=True)
        )

    def rebuild_request(self, seq: int) -> dict[str, Any]:
        """Rebuild the exact request of a past call, and check it against the recorded hash.

        Args:
            seq: The position of the call in the log.

        Returns:
            The request as it was sent.

        Raises:
            LookupError: If there is no call at the position.
            RequestChangedError: If the request does not match its hash.
        """
        with self._lock:
            return rebuild_request_from_events(self.events, seq, self.window.counters_by_name)

    def preview(self, *, stream: bool = False, volatile: str | None = None) -> RequestPreview:
        """Return what the next call would send and cost, without changing anything.

        Args:
            stream: Whether the reply would be streamed.
            volatile: A text for this request only.

        Returns:
            The request, its report, its cost and the edits that it would make.

        Raises:
            CannotFit: If the request would not fit, whatever is hidden.
            NoReplyDue: If the conversation has no message yet.
        """
        with self._lock:
            return reporting.build_preview(self._state, stream=stream, volatile=volatile)

    def view(self) -> View:
        """Return what the last `request()` shows, message by message.

        Each message says its place in the list that you passed to `sync`. If your messages have a
        type of their own, you can send your own objects for all that were not edited. Each of your
        messages is one message of the view, unless the provider may refuse it beside what Trimtab
        shows before or after it: then they are joined, as `request()` joins them.
        """
        with self._lock:
            return reporting.build_view(self._state)

    def count_request(self, *, volatile: str | None = None) -> Request:
        """Return keyword arguments for the provider's count endpoint, without changing anything.

        They describe what the next call would send. The endpoints are Anthropic's
        `messages.count_tokens` and OpenAI's `responses.input_tokens.count`.

        Args:
            volatile: A text for the next request only.

        Raises:
            ValueError: If the dialect is Chat Completions, which has no such endpoint.
        """
        preview = self.preview(volatile=volatile)
        return select_count_parameters(self.window.settings.dialect, preview.request)

    def report(self, volatile: str | None = None) -> ContextReport:
        """Return how the next call would use its tokens.

        Args:
            volatile: A text for the next request only.

        Returns:
            The report. Print it, or call `to_dict()`.

        Example:
            See how full the window is::

                report = context.report()
                print(report.used, report.limit)
        """
        with self._lock:
            return reporting.build_report(self._state, volatile)

    def budget(self, volatile: str | None = None) -> Budget:
        """Return the token budget of the next call: its limit and what is reserved.

        Args:
            volatile: A text for the next request only.
        """
        return self._state.budget(volatile)

    def messages(self, *, after: str | None = None) -> Iterator[LoggedMessage]:
        """Read the conversation back: each message that was added, hidden from the model or not.

        Messages that were undone or erased are left out.

        Args:
            after: The handle of a message. Only later ones are read.

        Returns:
            The messages in order, each with its handle, its time and how the model sees it now.

        Raises:
            HistoryNotInMemory: If some of the messages are no longer in memory.
            ValueError: If `after` is not a handle.

        Example:
            Show a chat::

                for logged in context.messages():
                    print(logged.handle, logged.message.role, logged.message.text)
        """
        return iter(self._list_messages(0 if after is None else parse_handle(after).last_seq))

    def _list_messages(self, after_seq: int) -> list[LoggedMessage]:
        with self._lock:
            window = self.window
            if after_seq < window.base.last_evicted_seq:
                raise HistoryNotInMemory(after_seq)
            messages = (
                build_logged_message(window, entry.seq, entry.message, entry.at)
                for entry in window.entries.values()
                if entry.seq > after_seq and not entry.is_repair
            )
            return [each for each in messages if each is not None]

    def recall(self, handle: str) -> str:
        """Return the text that a handle names, exactly as it was added, hidden or not.

        The text of a whole message begins with a line that names its role. A picture or a file is
        only described; `recall_part` returns the original.

        Args:
            handle: The handle of a part, a message or a range.

        Raises:
            ErasedError: If the text was erased.
            LookupError: If nothing has this handle.
            ValueError: If it is not a handle.

        Example:
            Read a hidden result::

                text = context.recall("m12.0")
        """
        with self._lock:
            return recall_text(self.window, handle)

    def recall_part(self, handle: str) -> Part:
        """Return one part of a message, hidden or not, for example a picture with all its bytes.

        Args:
            handle: The handle of a part, such as `m12.0`.

        Raises:
            ErasedError: If the part was erased.
            LookupError: If nothing has this handle.
            ValueError: If it is not the handle of a part.
        """
        with self._lock:
            return recall_part(self.window, handle)

    def why(self, handle: str) -> VisibilityReason:
        """Explain why the model does or does not see something.

        Args:
            handle: The handle of a part, a message or a range.

        Returns:
            Its state, the time and the position of the edit that caused it, and the reason.

        Raises:
            HistoryNotInMemory: If the message is no longer in memory.
            LookupError: If nothing has this handle.
            ValueError: If it is not a handle.
        """
        reference = parse_handle(handle)
        with self._lock:
            return self._explain(handle, reference.first_seq)

    def _explain(self, handle: str, first_seq: int) -> VisibilityReason:
        window = self.window
        _, past_events = window.base.collect_refold_source(self.events)
        bodies = {event.seq: event.body for event in past_events}
        body = bodies.get(first_seq)
        if body is None and window.base.was_evicted(first_seq):
            raise HistoryNotInMemory(first_seq - 1)
        message = body.message if isinstance(body, MessageAdded | ToolResultRepair) else None
        reason = explain_message_visibility(window, handle, message)
        decision = next((event for event in past_events if event.seq == reason.event), None)
        return add_event_time_and_reason(reason, decision)

    def answer(self, call: object, *, add: bool = True) -> str:
        """Answer the model's call of a recall tool and add the result.

        A picture or a file is put into the result. If no result can carry it, it is revealed.

        Args:
            call: The tool call, as the model made it: a dict, an SDK's object, or a `ToolCall`.
            add: False only returns the text, for a framework that adds results itself. A picture or
                a file is then revealed.

        Returns:
            The text of the result.

        Raises:
            ValueError: If the call is not one of a recall tool.
        """
        tool_call = call if isinstance(call, ToolCall) else parse_any_tool_call(call)
        return self._run(revealing.answer(self._state, tool_call, adds=add))

    def search(self, query: str) -> str:
        """Search the whole conversation.

        Args:
            query: The words to search for. A word also matches longer words that begin with it.

        Returns:
            The best passages with their handles, as text.
        """
        with self._lock:
            return search_window(self.window, query)

    def pending_summary(self, *, forced: bool = False) -> SummaryRequest | None:
        """Return which messages should be summarised now, or None.

        Args:
            forced: Return the messages that the next call would replace by an extractive summary,
                if nobody summarises them before.

        Returns:
            The messages, the earlier summary that the new one must include, and the sizes.
        """
        with self._lock:
            return summarising.find_pending_summary(self._state, forced=forced)

    def add_summary(self, text: str, *, span: MessageSpan | None = None) -> None:
        """Replace the messages that `pending_summary` returned by a summary.

        Pass the span if writing the summary took time. Messages that were added since stay.

        Args:
            text: The summary.
            span: The span of the `SummaryRequest` that the summary was written for.

        Raises:
            UnusableSummary: If no summary is needed, if it is empty or not smaller than the
                messages, or if some of them were undone or erased since.
        """
        self._run(summarising.add_summary(self._state, text, span=span))

    def pending_result_summaries(self) -> tuple[ResultSummaryRequest, ...]:
        """Return the tool results that should be summarised before the next call, which would cut
        them.

        Empty unless the limits ask for summaries of results.
        """
        with self._lock:
            return summarising.find_pending_result_summaries(self._state)

    def add_result_summary(
        self, request: ResultSummaryRequest, text: str, *, written_by: str = ""
    ) -> None:
        """Send a summary instead of a tool result that `pending_result_summaries` returned.

        Args:
            request: The request that the summary was written for.
            text: The summary.
            written_by: The name of the model or program that wrote it.

        Raises:
            UnusableSummary: If it is empty, larger than the cut result would be, or too late.
        """
        self._run(summarising.add_result_summary(self._state, request, text, written_by=written_by))

    def reveal(self, handle: str) -> None:
        """Show hidden content again, with its calls or results, until the model has replied.

        Args:
            handle: The handle of a part, a message or a range.

        Raises:
            LookupError: If nothing has this handle.
            ValueError: If it is not a handle.
        """
        self._run(revealing.reveal(self._state, handle))

    def pin(self, handle: str, *, pinned: bool = True) -> None:
        """Keep messages visible whatever the policy decides, or stop doing so.

        Args:
            handle: The handle of a message or a range.
            pinned: False removes the pin.

        Raises:
            LookupError: If nothing has this handle.
            ValueError: If it is not a handle.
        """
        self._run(revealing.pin(self._state, handle, pinned=pinned))

    def erase(self, handle: str, *, reason: str = "") -> None:
        """Destroy the content of a message or a part, here and in everything made from it.

        Args:
            handle: The handle of a part, a message or a range.
            reason: Why it is erased. The reason is recorded in the log.

        Raises:
            HistoryNotInMemory: If something made from it is no longer in memory.
            LookupError: If nothing has this handle.
            ValueError: If it is not a handle.
        """
        self._run(self._erase(handle, reason))

    def _erase(self, handle: str, reason: str) -> Verb[None]:
        window = self.window
        reference = parse_handle(handle)
        _, events = window.base.collect_refold_source(self.events)
        erases = ErasurePlanner(reference, reason, events).list_pending_erasures(
            is_evicted=window.base.was_evicted
        )
        for erase in erases:
            window.base.require_targets_in_memory(
                erase, window.conversation.entries, window.conversation.groups
            )  # all or nothing
        yield erases
        self.events[:] = map(make_event_eraser(erases), self.events)
        # All of these may still contain the erased text.
        self._state.forget_rendering()
        self._state.memory.forget_list()
        self._state.memory.streamed_reply = None
        self._state.memory.forget_decision()

    def configure(self, **changes: Unpack[OptionChanges]) -> None:
        """Change the model, the system prompt, the tools or any other option from now on.

        Nothing is recorded if the options have these values already.

        Args:
            **changes: Options of `Context` by name, and their new values.

        Raises:
            TypeError: If an option is unknown or has a wrong type.
            ValueError: If an option has an invalid value.

        Example:
            Continue with another model::

                context.configure(model="gpt-4o", system="Be brief.")
        """
        self._run(configuring.configure(self._state, changes))

    def rewind(self, to: int | str) -> None:
        """Return to an earlier point. Everything after it is undone.

        Args:
            to: A position in the log, or the handle of the last message to keep.

        Raises:
            HistoryNotInMemory: If the position is no longer in memory.
            ValueError: If there is no such position, or it is not a handle.
        """
        self._run(rewinding.rewind(self._state, to))

    def compact(self) -> Compaction:
        """Make the context smaller now, whatever its policy is.

        The newest messages stay. Hidden content can still be recalled by its handle.

        Returns:
            The tokens before and after, and the edits that were made.
        """
        return self._run(compacting.compact(self._state))

    def undo(self) -> UndoOutcome | None:
        """Remove the user's newest message and everything after it.

        Returns:
            What was removed, or None if there is no such message.
        """
        return self._run(rewinding.undo(self._state))

    def fork(self, *, parent_name: str = "", at: int | None = None) -> Self:
        """Create a new context with the same past up to a position.

        Args:
            parent_name: A name for this context, recorded in the new log.
            at: The last position to copy. None copies everything.

        Returns:
            The new context.

        Raises:
            ValueError: If there is no such position, or it is no longer in memory.
        """
        with self._lock:
            return self._fork(parent_name, at)

    def _fork(self, parent_name: str, at: int | None) -> Self:
        window = self.window
        at = resolve_fork_position(at, window.base.snapshot.seq, window.seq)
        base, events = window.base.collect_refold_source(self.events)
        past = [event for event in events if event.seq <= at]
        settings = next(e.body for e in reversed(past) if isinstance(e.body, Settings))
        options = rebuild_options_from_changed_settings(
            settings, self.options, past_counters=window.counters_by_name
        )
        closing = build_events_closing_fork_copy(
            events[len(past) :], parent_session=parent_name, fork_position=at
        )
        return self.load(
            [*past, *build_events(closing, after=at, at=self._state.clock())],
            snapshot=base,
            policy=cast("PolicyName | Policy", options.policy),
            tokenizer=options.tokenizer,
            redact=options.redact,
            on_edit=self._on_edit,
            clock=self._state.clock,
        )
