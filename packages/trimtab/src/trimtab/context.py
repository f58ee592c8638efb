"""`Context`: turns messages into requests, in memory and without any I/O."""

from __future__ import annotations

import logging
import time
from collections.abc import (
    AsyncIterable,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager, suppress
from copy import copy, deepcopy
from dataclasses import dataclass, replace
from functools import lru_cache, wraps
from inspect import iscoroutinefunction
from itertools import takewhile
from reprlib import repr as short
from threading import RLock
from typing import (
    Any,
    Generic,
    Literal,
    NoReturn,
    Self,
    TypeVar,
    Unpack,
    cast,
    get_args,
    overload,
)

from trimtab.dialects import DialectName, get_dialect
from trimtab.dialects.base import ModelReply, WireObject
from trimtab.dialects.caller_marks import has_marks, locate_marks
from trimtab.dialects.foreign_parameters import find_foreign_parameters
from trimtab.dialects.known_history import HistoryCheck, KnownHistory
from trimtab.dialects.outgoing import (
    build_request,
    continues_replies,
    create_rendering,
    create_view,
    find_rejected_texts,
    rebuild_request_from_events,
    render_blocks_as_sent,
    select_count_parameters,
)
from trimtab.dialects.reading import (
    convert_media_or_refuse,
    parse_any_system_and_history,
    parse_any_tool_call,
    read_history,
    read_message,
    read_whole_reply,
    require_message_list,
    to_plain_dict,
)
from trimtab.dialects.recall_result import build_recall_result
from trimtab.dialects.reply_recording import (
    ReplyRecordingStream,
    StreamEventT,
    build_reply_outcome,
)
from trimtab.engine.log.call_failure import build_error_outcome
from trimtab.engine.log.edits import parse_handle
from trimtab.engine.log.erase import ErasurePlanner, make_event_eraser
from trimtab.engine.log.event import (
    CallerMark,
    Edit,
    EditKind,
    Event,
    EventBody,
    MessageAdded,
    ModelCall,
    Pin,
    Rewind,
    Settings,
    ToolResultRepair,
    Usage,
    dump_event_line,
)
from trimtab.engine.log.fork import build_events_closing_fork_copy, resolve_fork_position
from trimtab.engine.log.message import Message, Part, ToolCall
from trimtab.engine.log.parser import parse_event_log
from trimtab.engine.log.redaction import Redact, redacted_message, redacted_text
from trimtab.engine.policy.budget import Budget, compute_budget
from trimtab.engine.policy.config import Goal, PolicyLimits, SummaryMode, parse_policy_config
from trimtab.engine.policy.guard import add_edits_to_fit
from trimtab.engine.policy.larger_window import decide_restored_user_words
from trimtab.engine.policy.on_demand import decide_on_demand_compaction
from trimtab.engine.policy.overflow import choose_policy_after_error
from trimtab.engine.policy.planning.plan import Decision, MessageSpan, Plan, Policy
from trimtab.engine.policy.presets import DEFAULT_POLICY_NAME, PolicyName
from trimtab.engine.policy.rejections import (
    decide_masks_at_next_message,
    find_first_entry_of_user_undo,
)
from trimtab.engine.policy.restored_edits import EditsInForce
from trimtab.engine.policy.summary_requests import (
    ResultSummaryRequest,
    SummaryRequest,
    build_result_summary_edits,
    build_summary_edits,
    build_summary_request,
    list_result_summary_requests,
)
from trimtab.engine.prompt.budget_note import add_budget_note
from trimtab.engine.prompt.call import build_call_event
from trimtab.engine.prompt.render import IncrementalRenderer
from trimtab.engine.prompt.report import (
    ContextReport,
    RequestPreview,
    build_context_report,
    build_request_preview,
    describe_usage_doubt,
)
from trimtab.engine.prompt.report_html import render_report_html
from trimtab.engine.prompt.shown_messages import IncrementalView, View
from trimtab.engine.recall.tools import (
    answer_recall_call,
    find_recalled_parts_in_window,
    parse_recall_arguments,
    recall_part,
    recall_text,
    require_known_handle,
    search_window,
)
from trimtab.engine.recall.transcript import LoggedMessage, build_logged_message
from trimtab.engine.recall.visibility import (
    VisibilityReason,
    add_event_time_and_reason,
    explain_message_visibility,
)
from trimtab.engine.text.arguments import check_idempotency_key, describe_wrong_value
from trimtab.engine.text.utf8 import replace_lone_surrogates
from trimtab.engine.tokens.counter import estimate_message_tokens, measure_message_parts
from trimtab.engine.window.checkpoint import Snapshot
from trimtab.engine.window.matching import (
    find_repeated_message,
    is_same_message,
    list_entries_after,
    match_prefix_and_rewind_point,
)
from trimtab.engine.window.open_calls import (
    build_repairs_for_open_calls,
    continues_open_assistant_reply,
    is_recall_answer,
)
from trimtab.engine.window.window import Window
from trimtab.errors import CannotFit, HistoryNotInMemory, NoReplyDue, UnusableSummary
from trimtab.models.catalog import CacheMarks, ModelInfoValues, describe_unlisted_model
from trimtab.models.families import is_openai_model, tag_thinking_family
from trimtab.options import (
    OptionChanges,
    Options,
    Tokenizer,
    build_options,
    build_settings_event,
    explain_unknown_options,
    has_option_values,
    merge_options,
    options_from_log,
    rebuild_options_from_changed_settings,
    require_logged_functions,
    split_system_prompt,
)
from trimtab.request import DialectT_co, MessagesStreamRequest, Request, ResponsesStreamRequest

_logger = logging.getLogger("trimtab.context")
MAX_LOGGED_HANDLES = 8
"""How many handles one log line names. For the rest it gives the number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EditNotice:
    """A notice that the model no longer sees something in full, from now on."""

    handle: str
    """What was edited: a part (`m12.0`), a message (`m12`) or a range (`m3-m50`). `recall` reads
    it."""
    op: EditKind
    """The kind of edit: `truncate`, `mask`, `summarise` or `drop`."""
    count: int
    """How many messages were edited; 1 for a part of a message."""
    tokens_before: int
    """Estimated tokens of the original."""
    tokens_after: int
    """Estimated tokens of its replacement."""
    reason: str
    """The rule that caused the edit, with its numbers."""


OnEdit = Callable[[EditNotice], object]
"""Hears of each edit. What it returns is ignored."""


def _build_notices(window: Window, events: Iterable[Event]) -> list[EditNotice]:
    """Build the notices of the edits among events that are already folded."""
    return [
        _build_notice(window, event.seq, event.body)
        for event in events
        if isinstance(event.body, Edit) and event.body.op != "reveal"
    ]


def _build_notice(window: Window, seq: int, edit: Edit) -> EditNotice:
    if edit.part is not None:
        count = 1
        tokens_before = window.entries[edit.first].sizes[edit.part].tokens
    else:
        groups = window.conversation.groups_hidden_by.get(seq, [])
        count = sum(group.message_count for group in groups)
        tokens_before = sum(group.tokens for group in groups)
        if (summary := window.conversation.summaries_replaced_by.get(seq)) is not None:
            tokens_before += summary.size.tokens
    return EditNotice(
        handle=edit.handle,
        op=edit.op,
        count=count,
        tokens_before=tokens_before,
        tokens_after=edit.size.tokens,
        reason=edit.why,
    )


def _report_notices(notices: Sequence[EditNotice], on_edit: OnEdit | None) -> None:
    """Log edits and pass each to the hook.

    An exception of the hook is logged and not raised: the edits are in the log, and the request
    must still be sent.
    """
    if notices and _logger.isEnabledFor(logging.INFO):
        _logger.info("%s", _format_log_line(notices))
    if on_edit is None:
        return
    for notice in notices:
        try:
            on_edit(notice)
        except Exception:
            _logger.warning("on_edit failed for %s %s", notice.op, notice.handle, exc_info=True)


def _format_log_line(notices: Sequence[EditNotice]) -> str:
    """Format one decision: what was edited, how much and why, without any content."""
    edits = ", ".join(f"{each.op} {each.handle}" for each in notices[:MAX_LOGGED_HANDLES])
    more = len(notices) - MAX_LOGGED_HANDLES
    before = sum(each.tokens_before for each in notices)
    after = sum(each.tokens_after for each in notices)
    reasons = "; ".join(dict.fromkeys(each.reason for each in notices[:MAX_LOGGED_HANDLES]))
    return (
        f"context edited: {edits}{f' and {more} more' if more > 0 else ''} "
        f"({before:,} tokens became {after:,}): {reasons}"
    )


STREAM_WITHOUT_USAGE = (
    "a watched stream ended without usage, so neither its cost nor its tokens are known; for Chat "
    'Completions send stream_options={"include_usage": True}, which request(stream=True) contains'
)
MAX_LOGGED_IDS = 10
"""Ids of calls that one line names."""
MAX_LOGGED_ID_CHARS = 100
"""Characters of an id. Those of providers have about thirty."""


def log_missing_reply(window: Window) -> None:
    """Warn if a new request is built although the last one has no recorded reply.

    This may be right, if the stream or the program was interrupted. Or somebody forgot `add`.
    """
    call = window.last_call
    user = window.newest_user_entry
    if call is None or user is None or not call.body.hash:
        return
    is_open = call.seq == window.accounting.open_call_seq
    if is_open and user.seq > call.seq > window.conversation.last_assistant_seq:
        _logger.warning(
            "the previous request got no reply, so two user messages follow each other; "
            "call add(reply) with the model's reply, or fail(kind) if the call failed"
        )


def log_result_of_unknown_call(window: Window, message: Message) -> None:
    """Warn if a message, before it is added, has a tool result whose id belongs to no call.

    A result that comes too late causes no warning: its call exists, and was answered before.
    """
    if message.role == "assistant" or not message.results:
        return
    open_ids = [call.id for call in window.conversation.open_calls()]
    unknown = [result.call_id for result in message.results if result.call_id not in open_ids]
    if unknown:
        call_ids = {call.id for round in window.conversation.rounds for call in round.calls}
        unknown = [call_id for call_id in unknown if call_id not in call_ids]
    if unknown:
        _logger.warning(
            "no call has the id of this tool result: %s (open calls: %s). The model sees the "
            "result as text. Set the id of the call that the result answers",
            _list_ids(unknown),
            _list_ids(open_ids) or "none",
        )


def _list_ids(call_ids: Sequence[str]) -> str:
    more = len(call_ids) - MAX_LOGGED_IDS
    ids = ", ".join(f"{call_id[:MAX_LOGGED_ID_CHARS]!r}" for call_id in call_ids[:MAX_LOGGED_IDS])
    return f"{ids} and {more:,} more" if more > 0 else ids


def log_changed_settings(before: Settings, after: Settings) -> None:
    """Log once what the settings cause, if a request would not show it."""
    names = list_left_out_params(after)
    if names and names != list_left_out_params(before):
        _logger.warning(
            "requests to %s leave out %s: the API does not have these parameters",
            after.model,
            ", ".join(names),
        )


@lru_cache(maxsize=256)
def _warn_once(text: str) -> None:
    """Log a warning once in a process: a server creates a context for each conversation."""
    _logger.warning("%s", text)


def warn_of_stream_without_usage(reply: ModelReply) -> None:
    """Warn once if the stream of a reply brought no usage."""
    if reply.usage is None:
        _warn_once(STREAM_WITHOUT_USAGE)


def _describe_model_doubt(options: Options) -> str:
    """Describe what is assumed for a model that may be misspelt; empty if the caller has described
    it."""
    return "" if options.model_info else describe_unlisted_model(options.model)


def require_usage_with_cached_tokens(usage: Usage) -> None:
    """Refuse a caller's usage whose input leaves out cached tokens, as Anthropic's does."""
    cached_tokens = usage.cache_read + usage.cache_write
    if usage.input < cached_tokens:
        raise ValueError(
            f"usage.input is {usage.input:,}, but it includes cache_read and cache_write, which "
            f"have {cached_tokens:,} together; of Anthropic's numbers pass "
            f"input={usage.input + cached_tokens}, or add the whole reply"
        )


def list_left_out_params(settings: Settings) -> list[str]:
    """List parameters that are stored but not sent, because only another provider's API has
    them."""
    is_known = settings.dialect != "openai_chat" or is_openai_model(settings.rules_model)
    return find_foreign_parameters(settings.dialect, settings.params) if is_known else []


MAX_UNBATCHED_WINDOWS = 4
"""If a replayed history would fill more windows, the policy does not run before each call."""
MAX_UNBATCHED_MESSAGES = 1_000
"""If a replayed history has more messages, the policy does not run before each call."""
DECISIONS_PER_WINDOW = 64
"""Near the end of such a history, how often the policy runs while one window is filled."""

_SECONDS_PER_DAY = 86_400


MethodT = TypeVar("MethodT", bound=Callable[..., Any])


def _in_one_thread(method: MethodT) -> MethodT:
    """Let one thread at a time run the method; other threads wait. When it ends, report the edits
    that it recorded."""

    @wraps(method)
    def run(self: Context, *args: Any, **kwargs: Any) -> Any:
        return self._run_in_one_thread(method, *args, **kwargs)  # pyright: ignore[reportPrivateUsage] - its own class

    return cast("MethodT", run)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """The result of `compact`."""

    tokens_before: int
    """Tokens in use before."""
    tokens_after: int
    """Tokens in use now."""
    edits: tuple[Edit, ...]
    """The edits that were made. Empty if nothing could be hidden."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoOutcome:
    """What `undo` removed."""

    position: int
    """The last position of the log that is still in force."""
    messages: int
    """How many messages were removed."""
    tool_results: int
    """How many of them were tool results. What a tool did outside the context is not undone."""
    text: str
    """The text of the user's newest message."""


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
            budget_note: Whether each request ends with a line that says how full the window is,
                what was hidden last, and how it is read back.
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
        self._initialise(options, clock, on_edit)
        self._record_options(options)

    def __repr__(self) -> str:
        window = self.window
        limit = self.budget().limit
        tokens = window.settings.head.tokens + window.tokens
        messages = (
            f"{window.visible_messages} of {window.conversation.total_messages} messages shown"
        )
        return f"<Context {window.settings.model}: {messages}, {tokens:,} of {limit:,} tokens>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the report."""
        return render_report_html(self.report())

    def _initialise(
        self,
        options: Options,
        clock: Callable[[], float],
        on_edit: OnEdit | None,
        snapshot: Snapshot | None = None,
        snapshot_events: Iterable[Event] = (),
    ) -> None:
        if not callable(clock):
            right = "a function that returns seconds, such as time.time"
            raise TypeError(describe_wrong_value("clock", clock, right))
        if on_edit is not None and (not callable(on_edit) or iscoroutinefunction(on_edit)):
            right = "a function that takes an EditNotice and is not async"
            raise TypeError(describe_wrong_value("on_edit", on_edit, right))
        self._clock = clock
        self._on_edit = on_edit
        self._is_silent = False
        """Whether nothing is reported or warned of, because what is recorded may not remain."""
        self._lock = RLock()
        self._is_running = False
        """Whether a method that records is running, which may call other ones."""
        self.events: list[Event] = []
        """The log: every event in order, since the last checkpoint if there was one."""
        self._draft: list[Event] | None = None
        """Events that are collected to be stored before they are folded; None outside a draft."""
        self._doubt_is_logged = False
        self._known_history = KnownHistory()
        self._synced_system: tuple[Message, ...] = ()
        self._marked_messages: dict[int, Message] | None = None
        """By position: each message with cache marks of the caller, as it was passed last. None if
        the log must be searched for them."""
        self._streamed_reply: tuple[Message, str] | None = None
        """The last reply that `watch` added, and its handle: its caller may add it once more."""
        self._answered_call: int | None = None
        """The call that the next reply answers. None for the last one."""
        counter = options.build_counter()
        self.window = Window({counter.name: counter}, snapshot, snapshot_events)
        """The state that the log adds up to."""
        self._adopted_settings = self.window.settings
        """The settings of the log that the current options belong to."""
        self._recorded_options = (self.window.settings, options)
        """The settings that this context recorded last, perhaps only in a draft, and their
        options."""
        self._recorded_day: tuple[Settings | None, float] = (None, 0.0)
        """The settings after options were recorded last, and the day: prices may change with it."""
        self._given_options: tuple[Settings | None, Options] = (None, options)
        """The options as a caller gave them, and the settings that record them."""
        self._use_options(options)

    def _use_options(self, options: Options) -> None:
        self._options = options
        self._policy = options.build_policy()
        self._decision = Decision()
        """What the policy decided last."""
        self._seq_after_decision = 0
        """The position of the log at which exactly the decided edits are made; -1 if the guard made
        others."""
        self._decided_budget: tuple[int, str | None, Budget] | None = None
        """The position and the volatile text at the last decision, and the budget for them."""
        self._renderer: IncrementalRenderer | None = None
        self._shown: IncrementalView | None = None

    def _run_in_one_thread(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        notices: list[EditNotice] = []
        try:
            with self._lock:
                if self._is_running:  # a method that calls another one reports the edits of both
                    return method(self, *args, **kwargs)
                seq_before = self.window.seq
                self._is_running = True
                try:
                    return method(self, *args, **kwargs)
                finally:
                    self._is_running = False
                    if self._reports_edits() and self.window.seq > seq_before:
                        notices = _build_notices(self.window, self._list_events_after(seq_before))
        finally:
            # Without the lock: the hook may wait for a thread that uses this context.
            if notices:
                _report_notices(notices, self._on_edit)

    def _list_events_after(self, seq: int) -> list[Event]:
        """Return the newest events, in order, without a search through the whole log."""
        return [*takewhile(lambda event: event.seq > seq, reversed(self.events))][::-1]

    def _reports_edits(self) -> bool:
        return not self._is_silent and (
            self._on_edit is not None or _logger.isEnabledFor(logging.INFO)
        )

    def _report_edits(self, events: Iterable[Event]) -> None:
        """Report the edits among events that are folded."""
        _report_notices(_build_notices(self.window, events), self._on_edit)

    def _begin_copy(self) -> tuple[Self, dict[str, Any]]:
        """Return an unfinished copy and the values that it still needs. It has its own lock, no
        renderer, and does not know the caller's objects."""
        fresh: dict[str, Any] = {
            "_lock": RLock(),
            "_known_history": KnownHistory(),
            "_renderer": None,
            "_shown": None,
            "_is_running": False,
        }
        twin = type(self).__new__(type(self))
        twin.__dict__.update(fresh)
        missing = {name: value for name, value in self.__dict__.items() if name not in fresh}
        return twin, missing

    def __copy__(self) -> Self:
        twin, values = self._begin_copy()
        twin.__dict__.update(values)
        return twin

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        twin, values = self._begin_copy()
        memo[id(self)] = twin  # an `on_edit` may belong to an object that has this context
        twin.__dict__.update(deepcopy(values, memo))
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
        self._adopt_logged_settings()
        return self._options

    @property
    def dialect(self) -> DialectName:
        """The wire format of its requests."""
        return cast("DialectName", self.window.settings.dialect)

    @property
    def open_calls(self) -> list[ToolCall]:
        """The calls of the newest reply that have no result yet, the same in every dialect and
        whether the reply was streamed or not."""
        pairs = self.window.conversation.open_calls()
        return [ToolCall(id=pair.id, name=pair.name, arguments=pair.arguments) for pair in pairs]

    def _adopt_logged_settings(self) -> None:
        settings = self.window.settings
        if settings is self._adopted_settings:
            return
        own_settings, own_options = self._recorded_options
        self._use_options(
            own_options
            if settings == own_settings
            else rebuild_options_from_changed_settings(settings, self._options)
        )
        self._adopted_settings = settings

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
        context = cls._load(
            events_or_lines, snapshot=snapshot, on_edit=on_edit, clock=clock, **functions
        )
        names = [name for name, function in functions.items() if function is not None]
        require_logged_functions(context.window.settings, names)
        return context

    @classmethod
    def _load(
        cls,
        events_or_lines: Iterable[Event | str | bytes],
        *,
        snapshot: Snapshot | None = None,
        on_edit: OnEdit | None = None,
        clock: Callable[[], float] = time.time,
        **functions: Any,
    ) -> Self:
        """Create a context from its log. Its caller may lack a function that the log was written
        with."""
        events = parse_event_log(events_or_lines)
        start = snapshot.seq if snapshot is not None else 0
        settings = [e.body for e in events if isinstance(e.body, Settings)]
        if not settings:
            raise ValueError("the log has no settings event, so it is not the log of a context")
        context = cls.__new__(cls)
        options = options_from_log(settings[-1], **functions)
        context._initialise(options, clock, on_edit, snapshot, events)  # noqa: SLF001 - its own class
        context._apply(event for event in events if event.seq > start)  # noqa: SLF001 - its own class
        context._adopted_settings = context.window.settings  # noqa: SLF001 - its own class
        context._recorded_options = (context.window.settings, options)  # noqa: SLF001 - its own class
        return context

    @_in_one_thread
    def dump(self) -> list[str]:
        """Return the log as lines of JSON, one event a line. `load` reads them."""
        return [dump_event_line(event) for event in self.events]

    @_in_one_thread
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
        check_idempotency_key(key)
        window = self.window
        if self._streamed_reply is not None and item is self._streamed_reply[0]:
            handle = self._streamed_reply[1]
            if parse_handle(handle).first_seq in window.entries:  # and was not undone since
                return handle
        if key is not None and key in window.base.seq_by_idempotency_key:
            return f"m{window.base.seq_by_idempotency_key[key]}"
        settings = window.settings
        message, reply = read_message(item, dialect=settings.dialect, model=settings.rules_model)
        reply = self._add_usage(message, reply, usage)
        if reply is not None and self._is_known_reply(reply):
            return f"m{window.conversation.last_reply_seq}"
        message = redacted_message(message, self.options.redact)
        if key is None and (seq := self._find_repeated_message(message, reply)) is not None:
            return f"m{seq}"
        log_result_of_unknown_call(window, message)
        return self._add_message(message, key=key, reply=reply)

    def _is_known_reply(self, reply: ModelReply) -> bool:
        """Whether this is the last reply once more."""
        conversation = self.window.conversation
        # Some servers give every reply the same id, so a reply to a later call is a new one.
        call = self._find_answered_call() or 0
        return (
            reply.id is not None
            and reply.id == conversation.last_reply_id
            and call <= conversation.last_reply_seq
        )

    def _find_repeated_message(self, message: Message, reply: ModelReply | None) -> int | None:
        """Return the position of the message that this one repeats, and record the usage that only
        this copy of a reply brings."""
        call = self._find_answered_call()
        seq = find_repeated_message(self.window, message, call_seq=call or 0)
        if seq is not None and reply is not None and call is not None:
            self._append(build_reply_outcome(call, reply))
        return seq

    def _find_answered_call(self) -> int | None:
        """Return the position of the call that a reply would answer; None if none is open."""
        return self._answered_call or self.window.accounting.open_call_seq

    def _add_usage(
        self, message: Message, reply: ModelReply | None, usage: Usage | None
    ) -> ModelReply | None:
        """Return what was read as a reply with the usage that its caller names."""
        if usage is None:
            return reply
        if not isinstance(usage, Usage):  # pyright: ignore[reportUnnecessaryIsInstance] - a caller's
            raise TypeError(describe_wrong_value("usage", usage, "a Usage, such as Usage(input=9)"))
        if message.role != "assistant":
            raise ValueError(
                f"usage belongs to a model's reply, and this message has the role {message.role!r}"
            )
        require_usage_with_cached_tokens(usage)
        if reply is None:
            return ModelReply(message=message, usage=usage)
        return reply if reply.usage is not None else replace(reply, usage=usage)

    @_in_one_thread
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
        config = parse_policy_config(self.options.limits)
        outcome = build_error_outcome(
            self.window.accounting.open_call_seq,
            kind,
            message=message,
            redact=self.options.redact,
            usage=usage,
            limit=limit,
            input=input,
            requested=requested,
        )
        if usage is not None:
            require_usage_with_cached_tokens(usage)
        texts = self._find_rejected_texts(message)
        self._append(outcome)
        policy = choose_policy_after_error(kind, config, texts)
        edits = policy(self.window, self.budget()).edits
        for edit in edits:
            self._append(edit)
        return kind == "overflow" or bool(edits)

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
            self._streamed_reply = (message, handle)
            return message

        gathering = dialect.create_reply_accumulator()
        return ReplyRecordingStream(stream, gathering, to_plain_dict, add_reply)

    @_in_one_thread
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
        messages = require_message_list(messages)
        if check not in get_args(HistoryCheck):
            raise ValueError(describe_wrong_value("check", check, '"newest" or "all"'))
        if ids is not None and (isinstance(ids, str) or len(ids) != len(messages)):
            raise ValueError(
                f"got {len(ids)} ids for {len(messages)} messages; pass a list with one id each"
            )
        redact = self.options.redact
        history = self._known_history if check == "newest" else KnownHistory()
        if redact is not None and history.redact is not redact:
            history = KnownHistory()  # what it knows was not redacted, or otherwise
        messages_before, first_item, after_seq = history.find_restart(
            messages, ids, self.window.entries
        )
        if after_seq < self.window.base.last_evicted_seq:
            raise HistoryNotInMemory(after_seq)
        settings = self.window.settings
        dialect = settings.dialect
        model = settings.rules_model
        read = read_history(messages, dialect=dialect, model=model, first_item=first_item)
        clean_messages = [redacted_message(message, redact) for message in read.messages]
        system = read.system if not first_item else self._synced_system
        self._use_listed_system(system)

        def may_keep(index: int, logged: Message) -> bool:
            is_clean = history.redact is redact or clean_messages[index] is read.messages[index]
            return is_clean or redacted_message(logged, redact) is logged

        prefix_length, rewind_to = match_prefix_and_rewind_point(
            self.window, clean_messages, after_seq=after_seq, may_keep=may_keep
        )
        new_messages = read.messages[prefix_length:]
        for message in new_messages:
            convert_media_or_refuse(message, dialect=dialect, model=model)
        if rewind_to is not None:
            self._rewind_and_replay(rewind_to, new_messages)
        else:
            reply = None
            if new_messages and self.window.accounting.open_call_seq is not None:
                first_new = read.starts[prefix_length]
                content = read.contents[first_new - first_item]
                reply = read_whole_reply(messages[first_new], content, dialect=dialect)
            self._replay(new_messages, reply=reply)
        entries = [e for e in list_entries_after(self.window, after_seq) if not e.is_repair]
        history.redact = redact
        self._known_history = history
        self._synced_system = system
        seqs = [entry.seq for entry in entries]
        changed_seqs = {
            entry.seq
            for entry, original, clean in zip(entries, read.messages, clean_messages, strict=False)
            if original is not clean or not is_same_message(entry.message, clean)
        }
        history.remember(
            messages,
            ids,
            messages_before,
            read.starts,
            seqs,
            contents=read.contents,
            changed_seqs=changed_seqs,
        )
        if self.window.settings.entry.get("cache_marks") == "caller":
            self._marked_messages = self._read_marked_messages(messages)

    def _read_marked_messages(self, items: Sequence[Any]) -> dict[int, Message]:
        """Read the messages with cache marks from the list that was passed last."""
        history = self._known_history
        dialect = self.window.settings.dialect
        messages: dict[int, Message] = {}
        for index, item in enumerate(items):
            seq = history.find_position(index) if has_marks(item) else None
            if seq is not None:
                span = history.find_positions(seq)
                system, conversation = parse_any_system_and_history(
                    items[span.start : span.stop], dialect
                )
                messages[seq] = [*system, *conversation][0]
        return messages

    def _use_listed_system(self, listed: tuple[Message, ...]) -> None:
        """Use the system messages of a caller's list after the prompt that was set."""
        prompt, _ = split_system_prompt(self.window.settings)
        # A list that was fitted before begins with the prompt, which must not be sent twice.
        begins_with_prompt = len(listed) >= len(prompt) and all(
            map(is_same_message, listed, prompt)
        )
        listed = listed[len(prompt) :] if begins_with_prompt else listed
        if listed != self.options.listed_system:
            self._record_options(replace(self.options, listed_system=listed))

    def _rewind_and_replay(self, position: int, messages: Sequence[Message]) -> None:
        """Rewind to a position and add other messages; hide unchanged ones as they were hidden
        before."""
        edits = EditsInForce(self.window, position)
        self._append(Rewind(to=position))
        self._replay(messages, decides=False)
        for body in edits.restore(self.window, self.budget()):
            self._append(body)

    @_in_one_thread
    def _replay(
        self,
        messages: Sequence[Message],
        *,
        decides: bool = True,
        reply: ModelReply | None = None,
    ) -> None:
        """Add messages from elsewhere, and before each reply the imported call that it answers.

        `reply` is the first message as a whole reply, if it answers the last request. The policy
        runs before each call. In a history that would fill the window many times it runs less
        often: once for every two windows of tokens, and more often near the end. So the time grows
        only with the length of the history.
        """
        budget = self.budget()
        limit = budget.limit
        sizes = [estimate_message_tokens(message) for message in messages]
        total = sum(sizes)
        fills_many_windows = total > MAX_UNBATCHED_WINDOWS * limit
        # The end begins at a multiple of a quarter of the window. If one message more moved it, the
        # decisions before it would change too.
        quarter = max(1, limit // 4)
        end_begins_at = (total // quarter - 1) * quarter if fills_many_windows else 0
        is_long = fills_many_windows or len(messages) > MAX_UNBATCHED_MESSAGES
        tokens_between_at_end = limit // DECISIONS_PER_WINDOW if is_long else 0
        tokens = tokens_at_decision = 0
        user_indexes = [index for index, message in enumerate(messages) if message.role == "user"]
        older_user_indexes = set(user_indexes[:-1])
        for index, (message, size) in enumerate(zip(messages, sizes, strict=True)):
            rounds = self.window.conversation.rounds
            last_seq = rounds[-1].entries[-1].seq if rounds else 0
            if message.role == "assistant" and last_seq > self.window.accounting.sent_through_seq:
                tokens_between = 2 * limit if tokens < end_begins_at else tokens_between_at_end
                is_due = decides and tokens - tokens_at_decision >= tokens_between
                self._record_external_call(budget, decides=is_due, imported=True)
                if is_due:
                    tokens_at_decision = tokens
                reply = None  # it answers another request
            # Of several user messages in one list, only the newest was written just now.
            self._add_message(
                redacted_message(message, self.options.redact),
                reply=reply,
                is_undated=index in older_user_indexes,
            )
            tokens += size
            reply = None

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
    @_in_one_thread
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
        if not self._is_silent:
            self._require_due_reply()
            log_missing_reply(self.window)
            self._log_doubted_usage()
        for events in self._request_steps(stream=stream, volatile=volatile):
            self._apply(events)
        return self._render_request()

    def _require_due_reply(self) -> None:
        """Raise `NoReplyDue` if the newest message is a reply that the model must not get again.

        A list that was passed to `sync` may end with a reply: its caller wants it continued.
        """
        window = self.window
        if window.is_reply_due or not window.visible_groups:
            return
        newest = window.conversation.rounds[-1].entries[-1]
        if self._known_history.find_positions(newest.seq):
            return
        if window.was_answered:
            raise NoReplyDue(
                f"no message waits for the model: m{newest.seq} is its reply to the last one. If a "
                "message came twice, it is answered, and there is nothing to do "
                "(window.is_reply_due says so); otherwise add a message, or rewind() to before the "
                "reply to get another one"
            )
        if not continues_replies(window.settings):
            raise NoReplyDue(
                f"the conversation ends with a reply, m{newest.seq}, and {window.settings.model} "
                "does not continue one; add a user message before request()"
            )

    def _request_steps(
        self,
        *,
        stream: bool = False,
        volatile: str | None = None,
        is_own_call: Callable[[int], bool] = lambda _seq: True,
    ) -> Generator[list[Event]]:
        """Yield the events of a request in steps; apply each step before taking the next.

        Yield nothing if the last call has the same request. `is_own_call` gets the position of that
        call and returns whether the caller itself was given its request. If somebody else was, both
        will send a request and be billed, so this one is recorded as well.
        """
        if not self.window.visible_groups:
            raise NoReplyDue("the conversation has no message yet; add one before request()")
        last = self.window.last_call
        volatile = self._read_volatile(volatile)
        if (
            last is not None
            and last.seq == self.window.seq
            and last.body.hash  # a call that was made elsewhere has none
            and is_own_call(last.seq)
            and last.body.stream == stream
            and last.body.volatile == add_budget_note(self.window, volatile, self.budget)
            and (
                self._marked_messages is None  # a loaded log whose caller has passed nothing yet
                or last.body.caller_marks == self._locate_caller_marks()
            )
        ):
            return
        yield self._build_repair_events()
        yield self._build_restoring_events(volatile=volatile)
        yield self._decide_edits(volatile=volatile)
        volatile = add_budget_note(self.window, volatile, self.budget)
        yield [self._build_call_event(stream=stream, volatile=volatile)]

    def _read_volatile(self, volatile: Any) -> str | None:
        """Check the volatile text of a call, make it valid UTF-8 and redact it, because the call is
        stored with it."""
        if volatile is None:
            return None
        if not isinstance(volatile, str):
            raise TypeError(describe_wrong_value("volatile", volatile, "a text, or None"))
        return replace_lone_surrogates(redacted_text(volatile, self.options.redact))

    def _record_external_call(
        self, budget: Budget | None = None, *, decides: bool = True, imported: bool = False
    ) -> int:
        """Record a call that was made elsewhere without rendering it, and return its position."""
        budget = budget or self.budget()
        self._apply(self._build_repair_events())
        if decides:
            # The call was made, so a request that does not fit is no error.
            with suppress(CannotFit):
                self._apply(self._build_restoring_events())
                self._apply(self._decide_edits())
        return self._append(
            ModelCall(
                position=self.window.seq,
                imported=imported,
                max_output=budget.max_output,
                tokens=budget.head.tokens + self.window.tokens,
                media=self.window.conversation.visible_media_tokens(),
                note=self._decision.note,
            )
        )

    def _build_repair_events(self) -> list[Event]:
        """Build results for open calls that never got one."""
        return self._build_events(build_repairs_for_open_calls(self.window))

    def _build_restoring_events(self, *, volatile: str | None = None) -> list[Event]:
        """Build the edits that show the user's words again that a smaller window had no room for.

        There are none while the provider's cache may hold the last request.
        """
        if self.window.last_call is None or not self.window.accounting.cache_is_cold:
            return []
        return self._build_events(decide_restored_user_words(self.window, self.budget(volatile)))

    def _decide_edits(self, *, volatile: str | None = None) -> list[Event]:
        """Return the edits that the policy and the guard want before the next call; change nothing.

        Raise `CannotFit` if no edit would make the request fit.
        """
        budget = self.budget(volatile)
        self._decision = self._run_policy(budget)
        self._decided_budget = (self.window.seq, volatile, budget)
        edits = add_edits_to_fit(self.window, budget, self._decision.edits)
        is_unchanged = edits == self._decision.edits
        self._seq_after_decision = self.window.seq + len(edits) if is_unchanged else -1
        return self._build_events(edits)

    def _run_policy(self, budget: Budget) -> Decision:
        self._adopt_logged_settings()
        decision = self._policy(self.window, budget)
        if not isinstance(decision, Decision):  # pyright: ignore[reportUnnecessaryIsInstance] - a caller's
            raise TypeError(
                f"policy {self.window.settings.policy!r} returned {short(decision)}; it must "
                "return a Decision (Decision() changes nothing)"
            )
        return decision

    def _build_call_event(self, *, stream: bool = False, volatile: str | None = None) -> Event:
        """Build the record of the call that the window would make now; change nothing."""
        match self._decided_budget:
            case (seq, text, budget) if (seq, text) == (self.window.seq, volatile):
                pass
            case _:
                budget = self.budget(volatile)
        if self.window.seq != self._seq_after_decision:
            # The guard has hidden more than the policy wanted, or somebody else has written
            # meanwhile. Either may have moved the frontier, so the policy is asked for it again.
            self._decision = replace(self._decision, frontier=self._run_policy(budget).frontier)
        call = build_call_event(
            self.window,
            budget,
            self._rendering,
            self._decision,
            stream=stream,
            volatile=volatile,
            caller_marks=self._locate_caller_marks(),
        )
        return self._build_event(call)

    def _locate_caller_marks(self) -> tuple[CallerMark, ...]:
        """Find where the next request has cache marks of the caller, if only those are sent."""
        if self.window.settings.entry.get("cache_marks") != "caller":
            return ()
        if self._marked_messages is None:
            self._marked_messages = {
                seq: entry.message
                for seq, entry in self.window.entries.items()
                if has_marks(entry.message)
            }
        return locate_marks(self._rendering, self.window, self._marked_messages)

    def _render_request(self) -> dict[str, Any]:
        """Render the request of the call that was just recorded."""
        if self.window.last_call is None:
            raise ValueError("no call is recorded yet; call request() first")
        return build_request(
            self.window.settings,
            self._rendering,
            self.window.last_call.body,
            last_reply_id=self.window.conversation.last_reply_id,
        )

    @_in_one_thread
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
        return rebuild_request_from_events(self.events, seq, self.window.counters_by_name)

    @_in_one_thread
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
        twin = copy(self)
        twin.window = self.window.copy()
        twin.events = []
        twin._draft = twin._renderer = None  # noqa: SLF001 - its own class
        twin._is_silent = True  # noqa: SLF001 - nothing is decided yet
        request = twin.request(stream=stream, volatile=volatile)
        edits = tuple(event.body for event in twin.events if isinstance(event.body, Edit))
        return build_request_preview(
            twin.window, request, twin.report(volatile), edits, at=self._clock()
        )

    @_in_one_thread
    def view(self) -> View:
        """Return what the last `request()` shows, message by message.

        Each message says its place in the list that you passed to `sync`. If your messages have a
        type of their own, you can send your own objects for all that were not edited. Each of your
        messages is one message of the view, unless the provider may refuse it beside what Trimtab
        shows before or after it: then they are joined, as `request()` joins them.
        """
        window = self.window
        rendering = self._rendering
        history = self._known_history
        if self._shown is None:
            self._shown = create_view(window.settings)
        self._shown.update(window, rendering, history)
        last = window.last_call
        max_output_tokens = self.budget().max_output if last is None else last.body.max_output
        blocks = render_blocks_as_sent(window, rendering)
        return self._shown.build_view(
            history,
            blocks,
            frontier_seq=self._decision.frontier,
            max_output_tokens=max_output_tokens,
        )

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

    def _load_kwargs(self, options: Options | None = None) -> dict[str, Any]:
        """Return the keyword arguments for `load` that are not in the log."""
        options = options or self.options
        return {
            "policy": options.policy,
            "tokenizer": options.tokenizer,
            "redact": options.redact,
            "on_edit": self._on_edit,
            "clock": self._clock,
        }

    @_in_one_thread
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
        return self._build_report(volatile)

    def _build_report(self, volatile: str | None = None) -> ContextReport:
        """Build the report without waiting for other threads."""
        budget = self.budget(volatile)
        report = build_context_report(self.window, budget, Plan(self.window, budget).bound())
        return replace(report, model_doubt=_describe_model_doubt(self.options))

    def budget(self, volatile: str | None = None) -> Budget:
        """Return the token budget of the next call: its limit and what is reserved.

        Args:
            volatile: A text for the next request only.
        """
        return compute_budget(self.window, volatile_text=volatile, now=self._clock())

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

    @_in_one_thread
    def _list_messages(self, after_seq: int) -> list[LoggedMessage]:
        window = self.window
        if after_seq < window.base.last_evicted_seq:
            raise HistoryNotInMemory(after_seq)
        messages = (
            build_logged_message(window, entry.seq, entry.message, entry.at)
            for entry in window.entries.values()
            if entry.seq > after_seq and not entry.is_repair
        )
        return [each for each in messages if each is not None]

    @_in_one_thread
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
        return recall_text(self.window, handle)

    @_in_one_thread
    def recall_part(self, handle: str) -> Part:
        """Return one part of a message, hidden or not, for example a picture with all its bytes.

        Args:
            handle: The handle of a part, such as `m12.0`.

        Raises:
            ErasedError: If the part was erased.
            LookupError: If nothing has this handle.
            ValueError: If it is not the handle of a part.
        """
        return recall_part(self.window, handle)

    @_in_one_thread
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
        window = self.window
        reference = parse_handle(handle)
        _, past_events = window.base.collect_refold_source(self.events)
        bodies = {event.seq: event.body for event in past_events}
        body = bodies.get(reference.first_seq)
        if body is None and window.base.was_evicted(reference.first_seq):
            raise HistoryNotInMemory(reference.first_seq - 1)
        message = body.message if isinstance(body, MessageAdded | ToolResultRepair) else None
        reason = explain_message_visibility(window, handle, message)
        decision = next((event for event in past_events if event.seq == reason.event), None)
        return add_event_time_and_reason(reason, decision)

    @_in_one_thread
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
        text = answer_recall_call(self.window, tool_call)
        parts = find_recalled_parts_in_window(self.window, tool_call)
        result, reveals = build_recall_result(
            tool_call, text, parts, self.window.settings, text_only=not add
        )
        if add:
            self._add_message(redacted_message(result, self.options.redact))
        if reveals:
            self.reveal(parse_recall_arguments(tool_call)["handle"])
        return result.results[0].text

    @_in_one_thread
    def search(self, query: str) -> str:
        """Search the whole conversation.

        Args:
            query: The words to search for. A word also matches longer words that begin with it.

        Returns:
            The best passages with their handles, as text.
        """
        return search_window(self.window, query)

    @_in_one_thread
    def pending_summary(self, *, forced: bool = False) -> SummaryRequest | None:
        """Return which messages should be summarised now, or None.

        Args:
            forced: Return the messages that the next call would replace by an extractive summary,
                if nobody summarises them before.

        Returns:
            The messages, the earlier summary that the new one must include, and the sizes.
        """
        return build_summary_request(
            self.window, self._run_policy(self.budget()), take_extractive_span=forced
        )

    @_in_one_thread
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
        decision = self._run_policy(self.budget())
        span = span or decision.span_to_summarise
        if span is None:
            raise UnusableSummary("no messages are waiting to be summarised")
        for edit in build_summary_edits(Plan(self.window, self.budget()), span, text, decision):
            self._append(edit)

    @_in_one_thread
    def pending_result_summaries(self) -> tuple[ResultSummaryRequest, ...]:
        """Return the tool results that should be summarised before the next call, which would cut
        them.

        Empty unless the limits ask for summaries of results.
        """
        config = parse_policy_config(self.options.limits)
        if not config.summarises_results:
            return ()
        return list_result_summary_requests(self.window, self._run_policy(self.budget()), config)

    @_in_one_thread
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
        for edit in build_result_summary_edits(
            Plan(self.window, self.budget()), request, text, written_by
        ):
            self._append(edit)

    @_in_one_thread
    def reveal(self, handle: str) -> None:
        """Show hidden content again, with its calls or results, until the model has replied.

        Args:
            handle: The handle of a part, a message or a range.

        Raises:
            LookupError: If nothing has this handle.
            ValueError: If it is not a handle.
        """
        reference = require_known_handle(self.window, handle)
        self._append(
            Edit(
                op="reveal",
                first=reference.first_seq,
                last=reference.last_seq,
                part=reference.part_index,
                why="asked",
            )
        )

    @_in_one_thread
    def pin(self, handle: str, *, pinned: bool = True) -> None:
        """Keep messages visible whatever the policy decides, or stop doing so.

        Args:
            handle: The handle of a message or a range.
            pinned: False removes the pin.

        Raises:
            LookupError: If nothing has this handle.
            ValueError: If it is not a handle.
        """
        reference = require_known_handle(self.window, handle)
        self._append(Pin(first=reference.first_seq, last=reference.last_seq, pinned=pinned))

    @_in_one_thread
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
        self._apply(self._build_events(erases))
        self.events[:] = map(make_event_eraser(erases), self.events)
        # All of these may still contain the erased text.
        self._known_history = KnownHistory()
        self._streamed_reply = None
        self._marked_messages = None
        self._renderer = None
        self._shown = None
        self._decision = Decision()
        self._seq_after_decision = -1

    @_in_one_thread
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
        at = self._clock()
        settings, options = self._given_options
        is_known = (
            settings is self.window.settings and self._recorded_day[1] == at // _SECONDS_PER_DAY
        )
        if not is_known or not has_option_values(options, changes):
            counters = self.window.counters_by_name
            self._record_options(merge_options(self.options, changes, counters), at=at)

    def _record_options(self, options: Options, *, at: float | None = None) -> None:
        at = self._clock() if at is None else at  # the prices are those of the event's own day
        settings, day = self._recorded_day
        if (
            settings is self.window.settings
            and day == at // _SECONDS_PER_DAY
            and options == self._options
        ):
            return
        policy = options.build_policy()
        counter = options.build_counter()
        self.window.register_counter(counter)
        settings = build_settings_event(options, counter, at=at)
        current = self.window.settings
        if replace(settings, renderer=current.renderer) == current:
            settings = current  # a newer renderer alone is no reason to change the cached prefix
        self._given_options = (settings, options)
        # From now on the options have parsed messages: a later change of the dialect would read the
        # blocks of the system prompt differently.
        system, listed_system = split_system_prompt(settings)
        options = replace(options, system=system, listed_system=listed_system)
        self._recorded_options = (settings, options)
        if settings is current:
            self._options = options
            self._policy = policy
        else:
            log_changed_settings(current, settings)
            if doubt := _describe_model_doubt(options):
                _warn_once(doubt)
            self._apply([self._build_event(settings, at=at)])
        self._recorded_day = (self.window.settings, at // _SECONDS_PER_DAY)

    @_in_one_thread
    def rewind(self, to: int | str) -> None:
        """Return to an earlier point. Everything after it is undone.

        Args:
            to: A position in the log, or the handle of the last message to keep.

        Raises:
            HistoryNotInMemory: If the position is no longer in memory.
            ValueError: If there is no such position, or it is not a handle.
        """
        position = to if isinstance(to, int) else parse_handle(to).last_seq
        if not 0 <= position <= self.window.seq:
            raise ValueError(f"cannot rewind to {position}; positions go up to {self.window.seq}")
        self._append(Rewind(to=position))

    @_in_one_thread
    def compact(self) -> Compaction:
        """Make the context smaller now, whatever its policy is.

        The newest messages stay. Hidden content can still be recalled by its handle.

        Returns:
            The tokens before and after, and the edits that were made.
        """
        before = self._build_report().used
        config = parse_policy_config(self.options.limits)
        edits = decide_on_demand_compaction(self.window, self.budget(), config=config).edits
        for edit in edits:
            self._append(edit)
        return Compaction(tokens_before=before, tokens_after=self._build_report().used, edits=edits)

    @_in_one_thread
    def undo(self) -> UndoOutcome | None:
        """Remove the user's newest message and everything after it.

        Returns:
            What was removed, or None if there is no such message.
        """
        user = self.window.newest_user_entry
        first = find_first_entry_of_user_undo(self.window)
        if user is None or first is None:
            return None
        after = [entry for seq, entry in self.window.entries.items() if seq > user.seq]
        before = self.window.conversation.total_messages
        self.rewind(first.seq - 1)
        return UndoOutcome(
            position=first.seq - 1,
            messages=before - self.window.conversation.total_messages,
            tool_results=sum(len(entry.message.results) for entry in after),
            text=user.message.text,
        )

    @_in_one_thread
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
        at = resolve_fork_position(at, self.window.base.snapshot.seq, self.window.seq)
        base, events = self.window.base.collect_refold_source(self.events)
        past = [event for event in events if event.seq <= at]
        settings = next(e.body for e in reversed(past) if isinstance(e.body, Settings))
        arguments = self._load_kwargs(
            rebuild_options_from_changed_settings(
                settings, self.options, past_counters=self.window.counters_by_name
            )
        )
        twin = self.load(past, snapshot=base, **arguments)
        for body in build_events_closing_fork_copy(
            events[len(past) :], parent_session=parent_name, fork_position=at
        ):
            twin._append(body)  # noqa: SLF001 - its own class
        return twin

    def _apply(self, events: Iterable[Event]) -> None:
        """Fold events, or only collect them while a draft is made."""
        events = [*events]
        if self._draft is not None:
            self._draft.extend(events)
            return
        try:
            self.window.apply(*events)
        finally:
            self.events.extend(event for event in events if event.seq <= self.window.seq)

    @contextmanager
    def _drafting(self) -> Generator[list[Event]]:
        """Collect events in the list that this yields, without folding them.

        A caller can then store them first, and apply them later.
        """
        self._draft = []
        try:
            yield self._draft
        finally:
            self._draft = None

    def _checkpoint(self) -> Snapshot:
        """Remove hidden messages and the log so far from memory. They must be stored elsewhere."""
        self.window.checkpoint()
        self.events.clear()
        return self.window.base.snapshot

    def _log_doubted_usage(self) -> None:
        """Warn once if the provider's usage is not believed, and again after it was believed."""
        doubt = describe_usage_doubt(self.window)
        if doubt and not self._doubt_is_logged:
            _logger.warning("%s", doubt)
        self._doubt_is_logged = bool(doubt)

    def _append(self, body: EventBody) -> int:
        """Add an event, and return its position."""
        event = self._build_event(body)
        self._apply([event])
        return event.seq

    def _build_event(self, body: EventBody, offset: int = 0, *, at: float | None = None) -> Event:
        """Build the event that could be applied next, or `offset` events later. Its time is `at`,
        by default now."""
        seq = self.window.seq + len(self._draft or ()) + 1 + offset
        return Event(seq=seq, at=self._clock() if at is None else at, body=body)

    def _build_events(self, bodies: Sequence[EventBody]) -> list[Event]:
        return [self._build_event(body, offset) for offset, body in enumerate(bodies)]

    def _add_message(
        self,
        message: Message,
        *,
        key: str | None = None,
        reply: ModelReply | None = None,
        is_undated: bool = False,
    ) -> str:
        """Check the order, measure and record a redacted message.

        Nothing is recorded if a step fails.
        """
        self._record_redaction()
        window = self.window
        earlier_bodies: list[EventBody] = []
        if reply is not None and (open_call := self._find_answered_call()) is not None:
            earlier_bodies.append(build_reply_outcome(open_call, reply))
        if message.role == "assistant" and not continues_open_assistant_reply(window, message):
            earlier_bodies += build_repairs_for_open_calls(window)
        is_recalled = message.role != "assistant" and is_recall_answer(window, message)
        has_users_words = message.role == "user" and not message.results
        masks = self._build_masks_of_rejected_content() if has_users_words else ()
        message = tag_thinking_family(message, window.settings.rules_model)
        sizes = measure_message_parts(message, window.counter)
        last_call = window.last_call.seq if window.last_call is not None else None
        addition = MessageAdded(
            message=message,
            sizes=sizes,
            counter=window.counter.name,
            call=self._answered_call or last_call if message.role == "assistant" else None,
            reply_id=reply.id if reply is not None else None,
            key=key,
            recalled=is_recalled,
            paused=reply is not None and reply.paused,
            undated=is_undated,
        )
        events = self._build_events([*earlier_bodies, addition, *masks])
        self._apply(events)
        seq = events[len(earlier_bodies)].seq
        if self._marked_messages is not None and has_marks(message):
            self._marked_messages[seq] = message
        return f"m{seq}"

    def _record_redaction(self) -> None:
        """Record that messages are redacted from now on, so that nobody continues the log without
        it."""
        if self.options.redact is not None and not self.window.settings.redacts:
            settings = replace(self.window.settings, redacts=True)
            self._recorded_options = (settings, self._options)
            self._apply([self._build_event(settings)])

    def _build_masks_of_rejected_content(self) -> tuple[Edit, ...]:
        """Build the edits that hide what the provider has rejected, so that it does not block the
        next message."""
        rejection = self.window.accounting.rejection
        if not rejection.last_sent_seq:
            return ()
        texts = self._find_rejected_texts(rejection.provider_message)
        return decide_masks_at_next_message(self.window, blamed_texts=texts).edits

    def _find_rejected_texts(self, provider_message: str) -> frozenset[str]:
        """Find the texts of the last request that a provider's error message points to."""
        return find_rejected_texts(self.window, lambda: self._rendering, provider_message)

    @property
    def _rendering(self) -> IncrementalRenderer:
        """The rendered window, up to date."""
        self._adopt_logged_settings()
        if self._renderer is None:
            self._renderer = create_rendering(self.window.settings)
        self._renderer.update(self.window)
        return self._renderer
