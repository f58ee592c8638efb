"""Context: the line from a message to a request, in memory, without any I/O."""

from __future__ import annotations

import time
from collections.abc import AsyncIterable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass, replace
from functools import wraps
from inspect import iscoroutinefunction
from itertools import takewhile
from reprlib import repr as short
from threading import RLock
from typing import Any, Generic, Literal, Self, TypeVar, Unpack, cast, get_args, overload

from trimtab.catalog import CacheMarks, ModelInfoValues
from trimtab.context_log_lines import log_changed_settings, log_missing_reply
from trimtab.dialects import get_dialect
from trimtab.dialects.base import ModelReply, WireObject
from trimtab.dialects.caller_message_reading import (
    convert_media_or_refuse,
    parse_any_tool_call,
    read_history,
    read_message,
    require_message_list,
    to_plain_dict,
)
from trimtab.dialects.known_history import HistoryCheck, KnownHistory
from trimtab.dialects.outgoing import (
    build_request,
    create_rendering,
    find_rejected_texts,
    rebuild_request_from_events,
    select_count_parameters,
)
from trimtab.dialects.recall_result import build_recall_result
from trimtab.dialects.reply_recording import (
    ReplyRecordingStream,
    StreamEventT,
    build_reply_outcome,
)
from trimtab.edit_notices import OnEdit, tell_edits
from trimtab.errors import ContextInUse, HistoryNotInMemory, UnusableSummary
from trimtab.log.call_failure import build_error_outcome
from trimtab.log.edits import parse_handle
from trimtab.log.erase import ErasurePlanner, make_event_eraser
from trimtab.log.event import (
    CallOutcome,
    Edit,
    Event,
    EventBody,
    MessageAdded,
    ModelCall,
    Pin,
    Rewind,
    Settings,
    ToolResultRepair,
    dump_event_line,
)
from trimtab.log.event_log_parser import parse_event_log
from trimtab.log.fork_position_and_closing_events import (
    build_events_closing_fork_copy,
    resolve_fork_position,
)
from trimtab.log.message import Message, Part, ToolCall
from trimtab.model_families import tag_thinking_family
from trimtab.options import (
    OptionChanges,
    Options,
    Tokenizer,
    build_options,
    build_settings_event,
    merge_options,
    options_from_log,
    rebuild_options_from_changed_settings,
    split_system_prompt,
)
from trimtab.policy.budget import Budget, compute_budget
from trimtab.policy.config import Goal, PolicyLimits, SummaryMode, parse_policy_config
from trimtab.policy.guard import CannotFit, add_edits_to_fit
from trimtab.policy.hiding_after_provider_error import choose_policy_after_error
from trimtab.policy.on_demand import decide_on_demand_compaction
from trimtab.policy.planning.plan import Decision, MessageSpan, Plan, Policy
from trimtab.policy.presets import DEFAULT_POLICY_NAME, PolicyName
from trimtab.policy.provider_rejections import (
    decide_masks_at_next_message,
    find_first_entry_of_user_undo,
)
from trimtab.policy.restored_edits import EditsInForce
from trimtab.policy.summary_requests import (
    ResultSummaryRequest,
    SummaryRequest,
    build_result_summary_edits,
    build_summary_edits,
    build_summary_request,
    list_result_summary_requests,
)
from trimtab.prompt.call_event import build_call_event
from trimtab.prompt.context_report import (
    ContextReport,
    RequestPreview,
    build_context_report,
    build_request_preview,
)
from trimtab.prompt.render import IncrementalRenderer
from trimtab.prompt.shown_messages import ShownMessage, list_shown_messages
from trimtab.recall.tools import (
    answer_recall_call,
    find_recalled_parts_in_window,
    parse_recall_arguments,
    recall_part,
    recall_text,
    require_known_handle,
)
from trimtab.recall.visibility import (
    VisibilityReason,
    add_event_time_and_reason,
    explain_message_visibility,
)
from trimtab.redaction import Redact, redacted_message
from trimtab.request_types import (
    DialectT_co,
    MessagesStreamRequest,
    Request,
    ResponsesStreamRequest,
)
from trimtab.text.arguments import describe_wrong_value
from trimtab.text.utf8 import replace_lone_surrogates
from trimtab.tokens.counter import estimate_message_tokens, measure_message_parts
from trimtab.window.checkpoint import Snapshot
from trimtab.window.message_history_matching import (
    is_same_message,
    list_entries_after,
    match_prefix_and_rewind_point,
)
from trimtab.window.open_calls import (
    build_repairs_for_open_calls,
    continues_open_assistant_reply,
    is_recall_answer,
)
from trimtab.window.window import Window

MAX_UNBATCHED_WINDOWS = 4
"""Windows that a history may fill before a replay of it is decided upon in batches."""
MAX_UNBATCHED_MESSAGES = 1_000
"""Messages that a history may have before a replay of it is decided upon in batches."""
DECISIONS_PER_WINDOW = 64
"""How many batches make a window near the end of such a history."""


VerbT = TypeVar("VerbT", bound=Callable[..., Any])


def _changes_context(verb: VerbT) -> VerbT:
    """For one thread at a time; the edits that it records are told when it is done."""

    @wraps(verb)
    def run(self: Context, *args: Any, **kwargs: Any) -> Any:
        return self._run_verb(verb, *args, **kwargs)  # pyright: ignore[reportPrivateUsage] - its own class

    return cast("VerbT", run)


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoOutcome:
    """What `undo` took back."""

    position: int
    """The last position of the log that is still in force."""
    messages: int
    """How many messages were taken back."""
    tool_results: int
    """How many results of tools are among them. What a tool did outside is not undone."""
    text: str
    """What the user's newest message said."""


class Context(Generic[DialectT_co]):
    """What a model sees of a conversation: add what is said, ask for the next request."""

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
        recall: bool = False,
        model_info: ModelInfoValues | str | None = None,
        cache: CacheMarks | None = None,
        tokenizer: Tokenizer | None = None,
        redact: Redact | None = None,
        on_edit: OnEdit | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Begin a conversation with a model. What is left out follows from the model's name.

        model: The model's name as the provider knows it.
        system: The system prompt: a text, or the dialect's own blocks or messages.
        tools: Tool definitions, in the form of any supported dialect.
        dialect: The wire format: `anthropic`, `openai_chat` or `openai_responses`.
        policy: What decides what is hidden: a preset's name, or a function of your own.
        goal: What the policy is tuned for: `cost`, `balanced` or `quality`.
        limits: How much of history, tool results and summaries stays; it binds in every preset.
        summaries: `extractive` needs no model; `manual` waits for `add_summary` until it cannot.
        context_window: Tokens of input and output together, if the catalog is wrong about them.
        max_input_tokens: Your own limit for input and output together.
        max_output_tokens: Tokens of output to ask for and to reserve.
        params: Further request parameters, passed on as they are.
        recall: Whether the model gets tools to look up what is hidden.
        model_info: Values for the model's catalog entry, or the name of the model that it is.
        cache: How long the provider caches a marked prefix: `5m`, `1h`, or `off` for no marks.
        tokenizer: A function from a text to the number of its tokens, in place of the estimate.
        redact: A function from text to text that takes out what must not be kept.
        on_edit: A function that gets an `EditNotice` of whatever is hidden, and why.
        clock: A function that returns the time in seconds since the epoch.
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
            model_info=model_info,
            cache=cache,
            tokenizer=tokenizer,
            redact=redact,
        )
        self._initialise(options, clock, on_edit)
        self._record_options(options)

    def __repr__(self) -> str:
        window, limit = self.window, self.budget().limit
        used = window.settings.head.tokens + window.tokens
        said = f"{window.visible_messages} of {window.conversation.total_messages} messages shown"
        return f"<Context {window.settings.model}: {said}, {used:,} of {limit:,} tokens>"

    def _initialise(
        self,
        options: Options,
        clock: Callable[[], float],
        on_edit: OnEdit | None,
        snapshot: Snapshot | None = None,
        snapshot_events: Iterable[Event] = (),
    ) -> None:
        if not callable(clock):
            right = "a function that returns seconds, as time.time"
            raise TypeError(describe_wrong_value("clock", clock, right))
        if on_edit is not None and (not callable(on_edit) or iscoroutinefunction(on_edit)):
            right = "a function of an EditNotice that is not async"
            raise TypeError(describe_wrong_value("on_edit", on_edit, right))
        self._clock, self._on_edit, self._is_silent = clock, on_edit, False
        self._lock, self._is_changing = RLock(), False
        self.events: list[Event] = []
        """The log: all that happened, in order; since the last checkpoint, if there was one."""
        self._draft: list[Event] | None = None
        self._known_history, self._synced_system = KnownHistory(), ()
        self._streamed_reply: tuple[Message, str] | None = None
        counter = options.build_counter()
        self.window = Window({counter.name: counter}, snapshot, snapshot_events)
        """The log folded."""
        self._settings, self._next = self.window.settings, (self.window.settings, options)
        self._use_options(options)

    def _use_options(self, options: Options) -> None:
        self._options = options
        self._policy = options.build_policy()
        self._decision, self._decided = Decision(), 0
        self._renderer: IncrementalRenderer | None = None

    def _run_verb(self, verb: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if not self._lock.acquire(blocking=False):
            raise ContextInUse(verb.__name__)
        try:
            if self._is_changing:  # a part of another verb
                return verb(self, *args, **kwargs)
            before, self._is_changing = self.window.seq, True
            try:
                return verb(self, *args, **kwargs)
            finally:
                self._is_changing = False
                if not self._is_silent and self.window.seq > before:
                    new = takewhile(lambda event: event.seq > before, reversed(self.events))
                    tell_edits(self.window, [*new][::-1], self._on_edit)
        finally:
            self._lock.release()

    def __getstate__(self) -> dict[str, Any]:
        """What a copy begins with. The rest is made again: its own lock, the rendering, and what is
        known of a caller's list by its objects."""
        state = dict(self.__dict__)
        for name in ("_lock", "_renderer", "_known_history"):
            del state[name]
        return state | {"_is_changing": False}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock, self._renderer, self._known_history = RLock(), None, KnownHistory()

    @property
    def options(self) -> Options:
        """What is set now, by us or by whoever else has written to the log."""
        self._adopt_logged_settings()
        return self._options

    def _adopt_logged_settings(self) -> None:
        settings, (ours, chosen) = self.window.settings, self._next
        if settings is not self._settings:
            self._use_options(
                chosen
                if settings == ours
                else rebuild_options_from_changed_settings(settings, self._options)
            )
            self._settings = settings

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
        """A context folded from its log, whose lines `dump` wrote.

        With a snapshot, the log need hold no more than the events that it names and those behind
        it. A policy, a tokenizer, a redaction or a hook of one's own is not in the log and is given
        again.
        """
        events = parse_event_log(events_or_lines)
        start = snapshot.seq if snapshot is not None else 0
        settings = [e.body for e in events if isinstance(e.body, Settings)]
        if not settings:
            raise ValueError("the log holds no settings event; it is not the log of a context")
        made = cls.__new__(cls)
        options = options_from_log(settings[-1], policy=policy, tokenizer=tokenizer, redact=redact)
        made._initialise(options, clock, on_edit, snapshot, events)  # noqa: SLF001 - its own class
        made._apply(event for event in events if event.seq > start)  # noqa: SLF001 - its own class
        made._settings = made.window.settings  # noqa: SLF001 - its own class
        made._next = (made.window.settings, options)  # noqa: SLF001 - its own class
        return made

    def dump(self) -> list[str]:
        """The log as lines of JSON."""
        return [dump_event_line(event) for event in self.events]

    @_changes_context
    def add(self, item: Any, *, key: str | None = None) -> str:
        """Append what was said: a dict of any supported dialect, an SDK's reply, or a Message.

        From a whole reply the usage is read too. What comes again under a key that is known, or
        the same reply, is not added twice. Returns the handle of the message.
        """
        window = self.window
        if self._streamed_reply is not None and item is self._streamed_reply[0]:
            handle = self._streamed_reply[1]
            if parse_handle(handle).first_seq in window.entries:  # not taken back since
                return handle
        if key is not None and key in window.base.seq_by_idempotency_key:
            return f"m{window.base.seq_by_idempotency_key[key]}"
        settings = window.settings
        message, reply = read_message(item, dialect=settings.dialect, model=settings.rules_model)
        # Some servers give every reply the same id: after another call it is another reply.
        known_id, open_call = window.conversation.last_reply_id, window.accounting.open_call_seq
        is_new = reply is None or reply.id is None or reply.id != known_id
        if not is_new and open_call is None:
            return f"m{window.conversation.last_reply_seq}"
        return self._add_message(message, key=key, reply=reply)

    @_changes_context
    def fail(
        self,
        kind: str,
        *,
        limit: int | None = None,
        input: int | None = None,
        requested: int | None = None,
        message: str = "",
    ) -> bool:
        """Record that the last call ended in an error; whether to send the next request at once.

        After an `overflow` the next is smaller, or CannotFit says why it cannot be. `rejected` is a
        400 for what was said, as for a picture, and `message` the provider's words: that is left
        out of the next request, and what the user said last as soon as something else is said.
        """
        told = {"limit": limit, "input": input, "requested": requested}
        redact, knobs = self.options.redact, parse_policy_config(self.options.limits)
        call = self.window.accounting.open_call_seq
        outcome = build_error_outcome(call, kind, message=message, redact=redact, **told)
        named = self._find_rejected_texts(message)
        self._append(outcome)
        edits = choose_policy_after_error(kind, knobs, named)(self.window, self.budget()).edits
        for edit in edits:
            self._append(edit)
        return kind == "overflow" or bool(edits)

    def watch(
        self, stream: Iterable[StreamEventT] | AsyncIterable[StreamEventT]
    ) -> ReplyRecordingStream[StreamEventT]:
        """Pass a stream on and add its reply, with usage, when it ends; then its `message` is the
        reply as the model said it."""
        dialect = get_dialect(self.window.settings.dialect)

        def add_reply(reply_body: WireObject) -> Message:
            handle, message = self.add(reply_body), dialect.parse_reply(reply_body).message
            self._streamed_reply = (message, handle)
            return message

        gathering = dialect.create_reply_accumulator()
        return ReplyRecordingStream(stream, gathering, to_plain_dict, add_reply)

    @_changes_context
    def sync(
        self,
        messages: Sequence[WireObject],
        *,
        ids: Sequence[str] | None = None,
        check: HistoryCheck = "newest",
    ) -> None:
        """Take over a caller's whole history: what is known is matched, what is new appended.

        A message is known by the caller's id for it, if `ids` has one for each, or as the same
        object, or as one that says the same. Of messages that are known as objects or by their
        ids the newest 64 are compared with what they were; `check="all"` compares every one.
        Where the list diverges, a rewind is recorded first, and what was hidden of the messages
        that come again unchanged is hidden again. System messages at its start come after
        `system`, unless they begin with it.
        """
        messages = require_message_list(messages)
        if check not in get_args(HistoryCheck):
            raise ValueError(describe_wrong_value("check", check, '"newest" or "all"'))
        if ids is not None and (isinstance(ids, str) or len(ids) != len(messages)):
            raise ValueError(f"{len(ids)} ids for {len(messages)} messages; give a list of them")
        known = self._known_history if check == "newest" else KnownHistory()
        before, first_item, after_seq = known.find_restart(messages, ids, self.window.entries)
        settings = self.window.settings
        dialect, model = settings.dialect, settings.rules_model
        read = read_history(messages, dialect=dialect, model=model, first_item=first_item)
        said = [redacted_message(message, self.options.redact) for message in read.messages]
        system = read.system if not first_item else self._synced_system
        self._use_listed_system(system)
        matched, position = match_prefix_and_rewind_point(self.window, said, after_seq=after_seq)
        new = read.messages[matched:]
        for message in new:
            convert_media_or_refuse(message, dialect=dialect, model=model)
        if position is None:
            self._replay(new)
        else:
            self._replay_from(position, new)
        listed = [e for e in list_entries_after(self.window, after_seq) if not e.is_repair]
        self._known_history, self._synced_system = known, system
        seqs = [entry.seq for entry in listed]
        changed = {
            entry.seq
            for entry, given, kept in zip(listed, read.messages, said, strict=False)
            if given is not kept or not is_same_message(entry.message, kept)
        }
        known.remember(messages, ids, before, read.starts, seqs, changed_seqs=changed)

    def _use_listed_system(self, listed: tuple[Message, ...]) -> None:
        """Let the system messages of a caller's list stand after the prompt that was set."""
        own, _ = split_system_prompt(self.window.settings)
        # A list that was fitted before has our prompt at its start.
        begins_with_own = len(listed) >= len(own) and all(map(is_same_message, listed, own))
        known = len(own) if begins_with_own else 0
        if listed[known:] != self.options.listed_system:
            self._record_options(replace(self.options, listed_system=listed[known:]))

    def _replay_from(self, position: int, messages: Sequence[Message]) -> None:
        """Go back to a position and go on with other messages; what comes again unchanged is hidden
        as it was."""
        edits = EditsInForce(self.window, position)
        self._append(Rewind(to=position))
        self._replay(messages, decides=False)
        for body in edits.restore(self.window, self.budget()):
            self._append(body)

    @_changes_context
    def _replay(self, messages: Sequence[Message], *, decides: bool = True) -> None:
        """Add what was said elsewhere; before each reply stands the call that it answers.

        The policy decides before each call. In a history that would fill the window many times it
        does so once for as many tokens as two windows hold, and more often near the end: a long
        history is taken in at the price of its length.
        """
        made, limit = None, self.budget().limit
        sizes = [estimate_message_tokens(message) for message in messages]
        # In steps, so that one more message leaves what was decided as it is.
        step, total = max(1, limit // 4), sum(sizes)
        fills_many = total > MAX_UNBATCHED_WINDOWS * limit
        last_steps = (total // step - 1) * step if fills_many else 0
        is_long = fills_many or len(messages) > MAX_UNBATCHED_MESSAGES
        short_pause = limit // DECISIONS_PER_WINDOW if is_long else 0
        read = decided = 0
        for message, size in zip(messages, sizes, strict=True):
            rounds = self.window.conversation.rounds
            last = rounds[-1].entries[-1].seq if rounds else 0
            if message.role == "assistant" and last > self.window.accounting.sent_through_seq:
                pause = 2 * limit if read < last_steps else short_pause
                due = decides and read - decided >= pause
                made = self._record_external_call(decides=due)
                decided = read if due else decided
            self._add_message(message)
            read += size
        if made is not None:
            self._append(CallOutcome(call=made))  # its usage will never be known

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
    @_changes_context
    def request(self, *, stream: bool = False, volatile: str | None = None) -> Any:
        """Keyword arguments for the model's SDK.

        Repairs open calls, applies the policy and records the call. Asked again with nothing
        added in between, it returns the same and records nothing. The message list is fresh; what
        stands in the request is shared and must not be modified. `volatile` rides behind, once.
        What this model is known to refuse is put right: thinking, for one, is off while a tool loop
        is open that did not begin with it.
        """
        if not self._is_silent:
            log_missing_reply(self.window)
        for events in self._request_steps(stream=stream, volatile=volatile):
            self._apply(events)
        return self._render_request()

    def _request_steps(
        self, *, stream: bool = False, volatile: str | None = None
    ) -> Generator[list[Event]]:
        """What a request appends, step by step; each step's events are to be applied before the
        next is asked for. None where the last call stands for this one, too."""
        if not self.window.visible_groups:
            raise ValueError("nothing was said yet; add a message before asking for a request")
        last, volatile = self.window.last_call, _validate_volatile(volatile)
        if (
            last is not None
            and last.seq == self.window.seq
            and last.body.hash  # else it was made elsewhere
            and (last.body.stream, last.body.volatile) == (stream, volatile)
        ):
            return
        yield self._build_repair_events()
        yield self._decide_edits(volatile=volatile)
        yield [self._build_call_event(stream=stream, volatile=volatile)]

    def _record_external_call(self, *, decides: bool = True) -> int:
        """Let a call pass that was made elsewhere: decide, render nothing; returns its position."""
        self._apply(self._build_repair_events())
        if decides:
            # Whether it could fit is no longer ours to say.
            with suppress(CannotFit):
                self._apply(self._decide_edits())
        budget, note = self.budget(), self._decision.note
        tokens, output = budget.head.tokens + self.window.tokens, budget.max_output
        media, seq = self.window.conversation.visible_media_tokens(), self.window.seq
        return self._append(
            ModelCall(position=seq, max_output=output, tokens=tokens, media=media, note=note)
        )

    def _build_repair_events(self) -> list[Event]:
        """Results that stand in for those that open calls never got."""
        return self._build_events(build_repairs_for_open_calls(self.window))

    def _decide_edits(self, *, volatile: str | None = None) -> list[Event]:
        """The edits that the policy and the guard want before the next call; changes nothing.
        Raises CannotFit where no edit would make the request fit."""
        budget = self.budget(volatile)
        self._decision = self._run_policy(budget)
        edits = add_edits_to_fit(self.window, budget, self._decision.edits)
        untouched = edits == self._decision.edits
        self._decided = self.window.seq + len(edits) if untouched else -1
        return self._build_events(edits)

    def _run_policy(self, budget: Budget) -> Decision:
        self._adopt_logged_settings()
        decision = self._policy(self.window, budget)
        if not isinstance(decision, Decision):  # pyright: ignore[reportUnnecessaryIsInstance] - a caller's
            raise TypeError(
                f"policy {self.window.settings.policy!r} returned {short(decision)}; it must "
                "return a Decision, and Decision() is to change nothing"
            )
        return decision

    def _build_call_event(self, *, stream: bool = False, volatile: str | None = None) -> Event:
        """The record of the call that the window would make now; changes nothing."""
        budget = self.budget(volatile)
        if self.window.seq != self._decided:
            # The guard has hidden more than the policy, or somebody else has written meanwhile:
            # either may have moved the frontier.
            self._decision = replace(self._decision, frontier=self._run_policy(budget).frontier)
        made = build_call_event(
            self.window, budget, self._rendering, self._decision, stream=stream, volatile=volatile
        )
        return self._build_event(made)

    def _render_request(self) -> dict[str, Any]:
        """The request of the call that was just recorded."""
        if self.window.last_call is None:
            raise ValueError("no call is recorded; ask for a request")
        return build_request(
            self.window.settings,
            self._rendering,
            self.window.last_call.body,
            last_reply_id=self.window.conversation.last_reply_id,
        )

    def rebuild_request(self, seq: int) -> dict[str, Any]:
        """The exact request of a past call, checked against its hash."""
        return rebuild_request_from_events(self.events, seq, self.window.counters_by_name)

    @_changes_context
    def preview(self, *, stream: bool = False, volatile: str | None = None) -> RequestPreview:
        """What the next call would send and cost; changes nothing."""
        twin = copy(self)
        twin.window, twin.events = self.window.copy(), []
        twin._draft = twin._renderer = None  # noqa: SLF001 - its own class
        twin._is_silent = True  # noqa: SLF001 - nothing is decided yet
        request = twin.request(stream=stream, volatile=volatile)
        edits = tuple(event.body for event in twin.events if isinstance(event.body, Edit))
        return build_request_preview(
            twin.window, request, twin.report(volatile), edits, at=self._clock()
        )

    def view(self) -> list[ShownMessage]:
        """What the last `request()` shows of the conversation, message by message, each with its
        place in the list that `sync` was given.

        For who sends messages of a type of his own: those that are not edited are sent as they
        are, the caller's own objects, and only the others are made anew.
        """
        known = self._known_history
        return list_shown_messages(self.window, known.find_positions, known.changed_seqs)

    def count_request(self, *, volatile: str | None = None) -> Request:
        """Keyword arguments for the provider's count endpoint, for what the next call would send:
        Anthropic's `messages.count_tokens` and OpenAI's `responses.input_tokens.count`.

        Changes nothing. Raises ValueError for Chat Completions, which has no such endpoint.
        """
        preview = self.preview(volatile=volatile)
        return select_count_parameters(self.window.settings.dialect, preview.request)

    def _load_kwargs(self, options: Options | None = None) -> dict[str, Any]:
        """What is ours and not in the log: the keyword arguments by which it is loaded again."""
        names, set_now = ("policy", "tokenizer", "redact"), options or self.options
        ours: dict[str, Any] = {name: getattr(set_now, name) for name in names}
        return ours | {"on_edit": self._on_edit, "clock": self._clock}

    def report(self, volatile: str | None = None) -> ContextReport:
        """Where the tokens of the next call would go. Print it, or take `to_dict()`."""
        budget = self.budget(volatile)
        return build_context_report(self.window, budget, Plan(self.window, budget).bound())

    def budget(self, volatile: str | None = None) -> Budget:
        """The terms of the next call's limit."""
        return compute_budget(self.window, volatile_text=volatile, now=self._clock())

    def recall(self, handle: str) -> str:
        """The text behind a handle: a part's exactly as it was said, a message's below its name.

        For a picture or a file it says what it is; `recall_part` returns the thing itself.
        """
        return recall_text(self.window, handle)

    def recall_part(self, handle: str) -> Part:
        """One part of a message, hidden or not, as it was said: a picture with all its bytes."""
        return recall_part(self.window, handle)

    def why(self, handle: str) -> VisibilityReason:
        """Why something is not in the context, since when, and by which edit."""
        window, named = self.window, parse_handle(handle)
        _, known = window.base.collect_refold_source(self.events)
        events = {event.seq: event.body for event in known}
        said = events.get(named.first_seq)
        if said is None and window.base.was_evicted(named.first_seq):
            raise HistoryNotInMemory(named.first_seq - 1)
        message = said.message if isinstance(said, MessageAdded | ToolResultRepair) else None
        reason = explain_message_visibility(window, handle, message)
        decided = next((event for event in known if event.seq == reason.event), None)
        return add_event_time_and_reason(reason, decided)

    @_changes_context
    def answer(self, call: ToolCall | WireObject) -> str:
        """Answer a call of a recall tool and add the result; returns its text.

        A picture or a file is in the result itself, or revealed if no result can carry it.
        """
        asked = call if isinstance(call, ToolCall) else parse_any_tool_call(call)
        text, recalled = (
            answer_recall_call(self.window, asked),
            find_recalled_parts_in_window(self.window, asked),
        )
        result, reveals = build_recall_result(asked, text, recalled, self.window.settings)
        self._add_message(result)
        if reveals:
            self.reveal(parse_recall_arguments(asked)["handle"])
        return result.results[0].text

    def pending_summary(self, *, forced: bool = False) -> SummaryRequest | None:
        """What should be summarised now, with the summary it must carry on; None for nothing.

        `forced` is what the next call would put a stand-in for, if nobody summarises it before.
        """
        return build_summary_request(
            self.window, self._run_policy(self.budget()), take_extractive_span=forced
        )

    @_changes_context
    def add_summary(self, text: str, *, span: MessageSpan | None = None) -> None:
        """Replace what `pending_summary` named by a summary; refused where it is not smaller.

        Give the span of a summary that took its time: it is refused where what it tells of was
        undone or erased meanwhile, and what was said since stays.
        """
        decision = self._run_policy(self.budget())
        span = span or decision.span_to_summarise
        if span is None:
            raise UnusableSummary("nothing is waiting to be summarised")
        for edit in build_summary_edits(Plan(self.window, self.budget()), span, text, decision):
            self._append(edit)

    def pending_result_summaries(self) -> tuple[ResultSummaryRequest, ...]:
        """Tool results that the next call would cut and that are to be summarised instead."""
        knobs = parse_policy_config(self.options.limits)
        if not knobs.summarises_results:
            return ()
        return list_result_summary_requests(self.window, self._run_policy(self.budget()), knobs)

    @_changes_context
    def add_result_summary(
        self, request: ResultSummaryRequest, text: str, *, written_by: str = ""
    ) -> None:
        """Send a summary in place of a result that `pending_result_summaries` named; it is not cut
        then.

        Refused where it takes more than the cut would, or came too late. `written_by` names who
        wrote it.
        """
        for edit in build_result_summary_edits(
            Plan(self.window, self.budget()), request, text, written_by
        ):
            self._append(edit)

    @_changes_context
    def reveal(self, handle: str) -> None:
        """Show again what an edit hid, with its calls or results, until the model has replied."""
        named = require_known_handle(self.window, handle)
        self._append(
            Edit(
                op="reveal",
                first=named.first_seq,
                last=named.last_seq,
                part=named.part_index,
                why="asked",
            )
        )

    @_changes_context
    def pin(self, handle: str, *, pinned: bool = True) -> None:
        """Keep messages from being hidden by any policy, or stop doing so."""
        named = require_known_handle(self.window, handle)
        self._append(Pin(first=named.first_seq, last=named.last_seq, pinned=pinned))

    @_changes_context
    def erase(self, handle: str, *, reason: str = "") -> None:
        """Destroy the payload of a message or a part, here and in all that was made from it."""
        window, named = self.window, parse_handle(handle)
        _, known = window.base.collect_refold_source(self.events)
        erases = ErasurePlanner(named, reason, known).list_pending_erasures(
            is_evicted=window.base.was_evicted
        )
        for erase in erases:
            window.base.require_targets_in_memory(
                erase, window.conversation.entries, window.conversation.groups
            )  # all or nothing
        self._apply(self._build_events(erases))
        self.events[:] = map(make_event_eraser(erases), self.events)
        # All that still holds what was said.
        self._known_history, self._streamed_reply = KnownHistory(), None
        self._renderer, self._decision, self._decided = None, Decision(), -1

    @_changes_context
    def configure(self, **changes: Unpack[OptionChanges]) -> None:
        """Change the model, the system prompt, the tools or any other option from now on.

        Nothing is recorded where all of it is set already.
        """
        self._record_options(merge_options(self.options, changes, self.window.counters_by_name))

    def _record_options(self, options: Options) -> None:
        policy, counter = options.build_policy(), options.build_counter()
        self.window.register_counter(counter)
        at = self._clock()  # the prices are those of the event's own day
        settings = build_settings_event(options, counter, at=at)
        # Read once: another dialect would take the same blocks for something else.
        system, listed_system = split_system_prompt(settings)
        options = replace(options, system=system, listed_system=listed_system)
        self._next = (settings, options)
        if settings == self.window.settings:
            self._options, self._policy = options, policy
        else:
            log_changed_settings(self.window.settings, settings)
            self._apply([self._build_event(settings, at=at)])

    @_changes_context
    def rewind(self, to: int | str) -> None:
        """Go back to a position, or to just behind the message that a handle names."""
        position = to if isinstance(to, int) else parse_handle(to).last_seq
        if not 0 <= position <= self.window.seq:
            raise ValueError(f"cannot rewind to {position}; positions go up to {self.window.seq}")
        self._append(Rewind(to=position))

    @_changes_context
    def compact(self) -> tuple[Edit, ...]:
        """Make the context smaller now, whatever its policy; returns the edits that were made.

        The newest messages stay. Nothing is lost: what is hidden can be read back by its handle.
        """
        config = parse_policy_config(self.options.limits)
        edits = decide_on_demand_compaction(self.window, self.budget(), config=config).edits
        for edit in edits:
            self._append(edit)
        return edits

    @_changes_context
    def undo(self) -> UndoOutcome | None:
        """Take back the user's newest message and everything after it; None if there is none."""
        user, first = self.window.newest_user_entry, find_first_entry_of_user_undo(self.window)
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

    @_changes_context
    def fork(self, *, parent_name: str = "", at: int | None = None) -> Self:
        """A new context that shares the past up to a position, and nothing after."""
        at = resolve_fork_position(at, self.window.base.snapshot.seq, self.window.seq)
        base, known = self.window.base.collect_refold_source(self.events)
        past = [event for event in known if event.seq <= at]
        settings = next(e.body for e in reversed(past) if isinstance(e.body, Settings))
        own = self._load_kwargs(
            rebuild_options_from_changed_settings(
                settings, self.options, past_counters=self.window.counters_by_name
            )
        )
        twin = self.load(past, snapshot=base, **own)
        for body in build_events_closing_fork_copy(
            known[len(past) :], parent_session=parent_name, fork_position=at
        ):
            twin._append(body)  # noqa: SLF001 - its own class
        return twin

    def _apply(self, events: Iterable[Event]) -> None:
        """Fold events that `steps` or a draft gave, or that a log holds."""
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
        """What is done in here is written to the list that it yields, and not folded: it can be
        put into a store first, and applied then."""
        self._draft = []
        try:
            yield self._draft
        finally:
            self._draft = None

    def _checkpoint(self) -> Snapshot:
        """Let go of all that is hidden, and of the log so far: someone else keeps them."""
        self.window.checkpoint()
        self.events.clear()
        return self.window.base.snapshot

    def _append(self, body: EventBody) -> int:
        """Add what happened, whatever it is; returns its position."""
        event = self._build_event(body)
        self._apply([event])
        return event.seq

    def _build_event(self, body: EventBody, offset: int = 0, *, at: float | None = None) -> Event:
        """An event that could be applied next, or `offset` events later; None for `at` is now."""
        seq = self.window.seq + len(self._draft or ()) + 1 + offset
        return Event(seq=seq, at=self._clock() if at is None else at, body=body)

    def _build_events(self, bodies: Sequence[EventBody]) -> list[Event]:
        return [self._build_event(body, offset) for offset, body in enumerate(bodies)]

    def _add_message(
        self, message: Message, *, key: str | None = None, reply: ModelReply | None = None
    ) -> str:
        """Check the order, redact, measure, record: nothing is recorded if a step fails."""
        window = self.window
        before: list[EventBody] = []
        if reply is not None and (open_call := window.accounting.open_call_seq) is not None:
            before.append(build_reply_outcome(open_call, reply))
        if message.role == "assistant" and not continues_open_assistant_reply(window, message):
            before += build_repairs_for_open_calls(window)
        is_recalled = message.role != "assistant" and is_recall_answer(window, message)
        is_users_own = message.role == "user" and not message.results
        masks = self._mask_rejected_content() if is_users_own else ()
        message = redacted_message(message, self.options.redact)
        message = tag_thinking_family(message, window.settings.rules_model)
        sizes = measure_message_parts(message, window.counter)
        call = window.last_call if message.role == "assistant" else None
        added = MessageAdded(
            message=message,
            sizes=sizes,
            counter=window.counter.name,
            call=call.seq if call is not None else None,
            reply_id=reply.id if reply is not None else None,
            key=key,
            recalled=is_recalled,
            paused=reply is not None and reply.paused,
        )
        events = self._build_events([*before, added, *masks])
        self._apply(events)
        return f"m{events[len(before)].seq}"

    def _mask_rejected_content(self) -> tuple[Edit, ...]:
        """What the provider has rejected before: it is in the way of nothing that is said next."""
        rejection = self.window.accounting.rejection
        if not rejection.last_sent_seq:
            return ()
        named = self._find_rejected_texts(rejection.provider_message)
        return decide_masks_at_next_message(self.window, blamed_texts=named).edits

    def _find_rejected_texts(self, provider_message: str) -> frozenset[str]:
        """What stands where a provider's words say that the last request is at fault."""
        return find_rejected_texts(self.window, lambda: self._rendering, provider_message)

    @property
    def _rendering(self) -> IncrementalRenderer:
        """The window as blocks, up to date."""
        self._adopt_logged_settings()
        if self._renderer is None:
            self._renderer = create_rendering(self.window.settings)
        self._renderer.update(self.window)
        return self._renderer


def _validate_volatile(volatile: Any) -> str | None:
    """What rides behind a call, as it can be sent."""
    if volatile is None:
        return None
    if not isinstance(volatile, str):
        raise TypeError(describe_wrong_value("volatile", volatile, "a text, or None"))
    return replace_lone_surrogates(volatile)
