"""Context: the line from a message to a request, in memory, without any I/O."""

from __future__ import annotations

import time
from collections.abc import AsyncIterable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Unpack

from trimtab import request as wire
from trimtab import validation
from trimtab.catalog import CacheMarks
from trimtab.dialects import (
    detect_dialect,
    get_dialect,
    parse_any_tool_call,
    to_plain_dict,
)
from trimtab.dialects.base import ModelReply, WireObject
from trimtab.dialects.langchain import convert_langchain_reply, is_langchain_message
from trimtab.dialects.reply_recording import ReplyRecordingStream
from trimtab.errors import SummaryRefused
from trimtab.log.edits import parse_handle
from trimtab.log.erase import ErasureCollector, make_event_eraser
from trimtab.log.event import (
    CallOutcome,
    Edit,
    Event,
    EventBody,
    ModelCall,
    Pin,
    Rewind,
    Settings,
    dump_event_line,
)
from trimtab.log.fork import build_fork_bodies
from trimtab.log.message import Message, Text, ToolCall, ToolResult
from trimtab.options import (
    OptionChanges,
    Options,
    Tokenizer,
    adopt_logged_settings,
    build_options,
    build_settings_event,
    merge_options,
    options_from_log,
)
from trimtab.policy.budget import Budget, compute_budget
from trimtab.policy.config import Goal, SummaryMode, parse_policy_config
from trimtab.policy.guard import CannotFit, add_edits_to_fit
from trimtab.policy.on_demand import decide_on_demand_compaction
from trimtab.policy.plan import Decision, MessageSpan, Plan, Policy
from trimtab.policy.presets import DEFAULT_POLICY_NAME
from trimtab.policy.provider_rejections import find_undo_start_entry
from trimtab.policy.summary_requests import (
    ResultSummaryRequest,
    SummaryRequest,
    build_result_summary_edits,
    build_summary_edits,
    build_summary_request,
    list_result_summary_requests,
)
from trimtab.prompt.context_report import (
    ContextReport,
    RequestPreview,
    build_context_report,
    build_request_preview,
)
from trimtab.prompt.render import IncrementalRenderer
from trimtab.recall.tools import answer_recall_call, recall_text, require_known_handle
from trimtab.redaction import Redact, redacted_message
from trimtab.window.checkpoint import Snapshot
from trimtab.window.repairs import build_repairs_for_open_calls
from trimtab.window.sync import belongs_to_open_calls, match_known_prefix
from trimtab.window.window import Window


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoneMessages:
    """What `undo` took back."""

    position: int
    """The last position of the log that is still in force."""
    messages: int
    """How many messages were taken back."""
    tool_results: int
    """How many results of tools are among them. What a tool did outside is not undone."""
    text: str
    """What the user's newest message said."""


class Context:
    """What a model sees of a conversation: add what is said, ask for the next request."""

    def __init__(
        self,
        model: str,
        *,
        system: str | Sequence[WireObject] | tuple[Message, ...] = "",
        tools: Sequence[WireObject] = (),
        dialect: str | None = None,
        policy: str | Policy = DEFAULT_POLICY_NAME,
        goal: Goal = "balanced",
        limits: Mapping[str, Any] | None = None,
        summaries: SummaryMode = "extractive",
        context_window: int | None = None,
        max_input_tokens: int | None = None,
        max_output_tokens: int | None = None,
        params: Mapping[str, Any] | None = None,
        recall: bool = False,
        model_info: Mapping[str, Any] | None = None,
        cache: CacheMarks | None = None,
        tokenizer: Tokenizer | None = None,
        redact: Redact | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
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
        self._initialise(options, clock)
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
        snapshot: Snapshot | None = None,
        snapshot_events: Iterable[Event] = (),
    ) -> None:
        self._clock = validation.validate_clock(clock)
        self.events: list[Event] = []
        """The log: all that happened, in order; since the last checkpoint, if there was one."""
        self._draft: list[Event] | None = None
        counter = options.build_counter()
        self.window = Window({counter.name: counter}, snapshot, snapshot_events)
        """The log folded."""
        self._settings, self._next = self.window.settings, (self.window.settings, options)
        self._use_options(options)

    def _use_options(self, options: Options) -> None:
        self._options = options
        self._policy = options.build_policy()
        self._decision, self._decided = Decision(), 0
        self._rendering: IncrementalRenderer | None = None

    @property
    def options(self) -> Options:
        """What is set now, by us or by whoever else has written to the log."""
        self._adopt_logged_settings()
        return self._options

    def _adopt_logged_settings(self) -> None:
        settings, (ours, chosen) = self.window.settings, self._next
        if settings is not self._settings:
            self._use_options(
                chosen if settings == ours else adopt_logged_settings(settings, self._options)
            )
            self._settings = settings

    @classmethod
    def load(
        cls,
        events_or_lines: Iterable[Event | str | bytes],
        *,
        snapshot: Snapshot | None = None,
        policy: str | Policy | None = None,
        tokenizer: Tokenizer | None = None,
        redact: Redact | None = None,
        clock: Callable[[], float] = time.time,
    ) -> Context:
        """A context folded from its log, whose lines `dump` wrote.

        With a snapshot, the log need hold no more than the events that it names and those behind
        it. A policy, a tokenizer or a redaction of one's own is not in the log and is given again.
        """
        events = validation.parse_event_log(events_or_lines)
        start = snapshot.seq if snapshot is not None else 0
        settings = [e.body for e in events if isinstance(e.body, Settings)]
        if not settings:
            raise ValueError("the log holds no settings event; it is not the log of a context")
        made = cls.__new__(cls)
        options = options_from_log(settings[-1], policy=policy, tokenizer=tokenizer, redact=redact)
        made._initialise(options, clock, snapshot, events)  # noqa: SLF001 - its own class
        made.apply(event for event in events if event.seq > start)
        made._settings = made.window.settings  # noqa: SLF001 - its own class
        made._next = (made.window.settings, options)  # noqa: SLF001 - its own class
        return made

    def dump(self) -> list[str]:
        """The log as lines of JSON."""
        return [dump_event_line(event) for event in self.events]

    def add(self, item: Any, *, key: str | None = None) -> str:
        """Append what was said: a dict of any supported dialect, an SDK's reply, or a Message.

        From a whole reply the usage is read too. What comes again under a key that is known, or
        the same reply, is not added twice. Returns the handle of the message.
        """
        if key is not None and key in self.window.base.seq_by_idempotency_key:
            return f"m{self.window.base.seq_by_idempotency_key[key]}"
        if isinstance(item, Message):
            return self._add_message(
                validation.fit_media_to_model(
                    validation.copy_message_as_json(item), self.window.settings
                ),
                key=key,
            )
        plain = to_plain_dict(
            convert_langchain_reply(item)
            if is_langchain_message(item)
            else validation.require_single_message(item)
        )
        own = detect_dialect(plain, get_dialect(self.window.settings.dialect))
        if own.is_reply_body(plain):
            return self._add_reply(own.parse_reply(plain), key)
        message = validation.fit_media_to_model(
            validation.reject_bare_reasoning(own.parse_message(plain)), self.window.settings
        )
        return self._add_message(message, key=key)

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
        outcome = wire.build_error_outcome(
            self.window, kind, message=message, redact=redact, **told
        )
        named = wire.find_rejected_content(self.window, lambda: self.rendering, message)
        self.append(outcome)
        edits = wire.choose_policy_after_error(kind, knobs, named)(self.window, self.budget()).edits
        for edit in edits:
            self.append(edit)
        return kind == "overflow" or bool(edits)

    def watch(self, stream: Iterable[Any] | AsyncIterable[Any]) -> ReplyRecordingStream:
        """Pass a stream on and add its reply, with usage, when it ends."""
        gathering = get_dialect(self.window.settings.dialect).create_stream_accumulator()
        return ReplyRecordingStream(stream, gathering, to_plain_dict, self.add)

    def sync(self, messages: Sequence[WireObject]) -> None:
        """Take over a caller's whole history: what is known is matched, what is new appended.

        Where it diverges, a rewind is recorded first. Its first system messages are the prompt.
        """
        system, history = validation.parse_message_list(messages, self.window.settings)
        said = [redacted_message(message, self.options.redact) for message in history]
        if system and system != self.window.settings.system:
            self.configure(system=system)
        known, position = match_known_prefix(self.window, said)
        for message in history[known:]:
            validation.fit_media_to_model(message, self.window.settings)
        if position is not None:
            self.append(Rewind(to=position))
        self.replay(history[known:])

    def replay(self, messages: Iterable[Message]) -> None:
        """Add what was said elsewhere; before each reply stands the call that it answers."""
        made = None
        for message in messages:
            last = (
                self.window.conversation.rounds[-1].entries[-1].seq
                if self.window.conversation.rounds
                else 0
            )
            if message.role == "assistant" and last > self.window.accounting.sent_through_seq:
                made = self.record_external_call()
            self._add_message(message)
        if made is not None:
            self.append(CallOutcome(call=made))  # its usage will never be known

    def request(self, *, stream: bool = False, volatile: str | None = None) -> dict[str, Any]:
        """Keyword arguments for the model's SDK.

        Repairs open calls, applies the policy and records the call. Asked again with nothing
        added in between, it returns the same and records nothing. The message list is fresh; what
        stands in the request is shared and must not be modified. `volatile` rides behind, once.
        What this model is known to refuse is put right: thinking, for one, is off while a tool loop
        is open that did not begin with it.
        """
        for events in self.request_steps(stream=stream, volatile=volatile):
            self.apply(events)
        return self.render_request()

    def request_steps(
        self, *, stream: bool = False, volatile: str | None = None
    ) -> Generator[list[Event]]:
        """What a request appends, step by step; each step's events are to be applied before the
        next is asked for. None where the last call stands for this one, too."""
        if not self.window.visible_groups:
            raise ValueError("nothing was said yet; add a message before asking for a request")
        last, volatile = self.window.last_call, validation.validate_volatile(volatile)
        if (
            last is not None
            and last.seq == self.window.seq
            and last.body.hash  # else it was made elsewhere
            and (last.body.stream, last.body.volatile) == (stream, volatile)
        ):
            return
        yield self.build_repair_events()
        yield self.decide_edits(volatile=volatile)
        yield [self.build_call_event(stream=stream, volatile=volatile)]

    def record_external_call(self) -> int:
        """Let a call pass that was made elsewhere: decide, render nothing; returns its position."""
        self.apply(self.build_repair_events())
        # Whether it could fit is no longer ours to say.
        with suppress(CannotFit):
            self.apply(self.decide_edits())
        budget, note = self.budget(), self._decision.note
        tokens, output = budget.head.tokens + self.window.tokens, budget.max_output
        media, seq = self.window.conversation.visible_media_tokens(), self.window.seq
        return self.append(
            ModelCall(position=seq, max_output=output, tokens=tokens, media=media, note=note)
        )

    def build_repair_events(self) -> list[Event]:
        """Results that stand in for those that open calls never got."""
        return [
            self.build_event(body, offset)
            for offset, body in enumerate(build_repairs_for_open_calls(self.window))
        ]

    def decide_edits(self, *, volatile: str | None = None) -> list[Event]:
        """The edits that the policy and the guard want before the next call; changes nothing.
        Raises CannotFit where no edit would make the request fit."""
        budget = self.budget(volatile)
        self._decision = self._run_policy(budget)
        edits = add_edits_to_fit(self.window, budget, self._decision.edits)
        untouched = edits == self._decision.edits
        self._decided = self.window.seq + len(edits) if untouched else -1
        return [self.build_event(edit, offset) for offset, edit in enumerate(edits)]

    def _run_policy(self, budget: Budget) -> Decision:
        self._adopt_logged_settings()
        return validation.validate_policy_result(
            self._policy(self.window, budget), self.window.settings.policy
        )

    def build_call_event(self, *, stream: bool = False, volatile: str | None = None) -> Event:
        """The record of the call that the window would make now; changes nothing."""
        budget = self.budget(volatile)
        if self.window.seq != self._decided:
            # The guard has hidden more than the policy, or somebody else has written meanwhile:
            # either may have moved the frontier.
            self._decision = replace(self._decision, frontier=self._run_policy(budget).frontier)
        made = wire.build_call_event(
            self.window, budget, self.rendering, self._decision, stream=stream, volatile=volatile
        )
        return self.build_event(made)

    def render_request(self) -> dict[str, Any]:
        """The request of the call that was just recorded."""
        if self.window.last_call is None:
            raise ValueError("no call is recorded; ask for a request")
        return wire.build_request(self.window.settings, self.rendering, self.window.last_call.body)

    def rebuild_request(self, seq: int) -> dict[str, Any]:
        """The exact request of a past call, checked against its hash."""
        return wire.rebuild_request_from_events(self.events, seq, self.window.counters_by_name)

    def preview(self, *, stream: bool = False, volatile: str | None = None) -> RequestPreview:
        """What the next call would send and cost; changes nothing."""
        base, known = self.window.base.collect_refold_source(self.events)
        twin = Context.load(known, snapshot=base, **self.load_kwargs())
        request = twin.request(stream=stream, volatile=volatile)
        new = [event.body for event in twin.events if event.seq > self.window.seq]
        edits = tuple(body for body in new if isinstance(body, Edit))
        return build_request_preview(twin.window, request, twin.report(volatile), edits)

    def load_kwargs(self, options: Options | None = None) -> dict[str, Any]:
        """What is ours and not in the log: the keyword arguments by which it is loaded again."""
        names, set_now = ("policy", "tokenizer", "redact"), options or self.options
        return {name: getattr(set_now, name) for name in names} | {"clock": self._clock}

    def report(self, volatile: str | None = None) -> ContextReport:
        """Where the tokens of the next call would go. Print it, or take `to_dict()`."""
        budget = self.budget(volatile)
        return build_context_report(self.window, budget, Plan(self.window, budget).bound())

    def budget(self, volatile: str | None = None) -> Budget:
        """The terms of the next call's limit."""
        return compute_budget(self.window, volatile_text=volatile, now=self._clock())

    def recall(self, handle: str) -> str:
        """The text behind a handle: a part's exactly as it was said, a message's below its name."""
        return recall_text(self.window, validation.validate_handle(handle))

    def answer(self, call: ToolCall | WireObject) -> str:
        """Answer a call of a recall tool and add the result; returns its text."""
        asked = call if isinstance(call, ToolCall) else parse_any_tool_call(call)
        text = answer_recall_call(self.window, asked)
        result = ToolResult(call_id=asked.id, content=(Text(text=text),))
        self._add_message(Message(role="tool", parts=(result,)))
        return text

    def pending_summary(self, *, forced: bool = False) -> SummaryRequest | None:
        """What should be summarised now, with the summary it must carry on; None for nothing.

        `forced` is what the next call would put a stand-in for, if nobody summarises it before.
        """
        return build_summary_request(self.window, self._run_policy(self.budget()), forced=forced)

    def add_summary(self, text: str, *, span: MessageSpan | None = None) -> None:
        """Replace what `pending_summary` named by a summary; refused where it is not smaller.

        Give the span of a summary that took its time: it is refused where what it tells of was
        undone or erased meanwhile, and what was said since stays.
        """
        decision = self._run_policy(self.budget())
        span = span or decision.span_to_summarise
        if span is None:
            raise SummaryRefused("nothing is waiting to be summarised")
        for edit in build_summary_edits(Plan(self.window, self.budget()), span, text, decision):
            self.append(edit)

    def pending_result_summaries(self) -> tuple[ResultSummaryRequest, ...]:
        """Tool results that the next call would cut and that are to be summarised instead."""
        knobs = parse_policy_config(self.options.limits)
        if not knobs.summarises_results:
            return ()
        return list_result_summary_requests(self.window, self._run_policy(self.budget()), knobs)

    def add_result_summary(
        self, request: ResultSummaryRequest, text: str, *, written_by: str = ""
    ) -> None:
        """Send a summary in place of a result that `pending_result_summaries` named; it is not cut
        then.

        Refused where it takes more than the cut would, or came too late. `by` is who wrote it.
        """
        for edit in build_result_summary_edits(
            Plan(self.window, self.budget()), request, text, written_by
        ):
            self.append(edit)

    def reveal(self, handle: str) -> None:
        """Show again what an edit hid, with its calls or results, until the model has replied."""
        named = require_known_handle(self.window, validation.validate_handle(handle))
        self.append(
            Edit(op="reveal", first=named.first, last=named.last, part=named.part, why="asked")
        )

    def pin(self, handle: str, *, pinned: bool = True) -> None:
        """Keep messages from being hidden by any policy, or stop doing so."""
        named = require_known_handle(self.window, validation.validate_handle(handle))
        self.append(Pin(first=named.first, last=named.last, pinned=pinned))

    def erase(self, handle: str, *, reason: str = "") -> None:
        """Destroy the payload of a message or a part, here and in all that was made from it."""
        window, named = self.window, parse_handle(validation.validate_handle(handle))
        _, known = window.base.collect_refold_source(self.events)
        erases = ErasureCollector(named, reason, known).list_pending_erasures(
            is_evicted=window.base.was_evicted
        )
        for erase in erases:
            window.base.require_targets_in_memory(
                erase, window.conversation.entries, window.conversation.groups
            )  # all or nothing
        self.apply(self.build_event(erase, offset) for offset, erase in enumerate(erases))
        self.events[:] = map(make_event_eraser(erases), self.events)

    def configure(self, **changes: Unpack[OptionChanges]) -> None:
        """Change the model, the system prompt, the tools or any other option from now on.

        Nothing is recorded where all of it is set already.
        """
        self._record_options(merge_options(self.options, changes, self.window.counters_by_name))

    def _record_options(self, options: Options) -> None:
        policy, counter = options.build_policy(), options.build_counter()
        self.window.register_counter(counter)
        settings = build_settings_event(options, counter)
        # Read once: another dialect would take the same blocks for something else.
        options = replace(options, system=settings.system)
        self._next = (settings, options)
        if settings == self.window.settings:
            self._options, self._policy = options, policy
        else:
            self.append(settings)

    def rewind(self, to: int | str) -> None:
        """Go back to a position, or to just behind the message that a handle names."""
        position = to if isinstance(to, int) else parse_handle(validation.validate_handle(to)).last
        if not 0 <= position <= self.window.seq:
            raise ValueError(f"cannot rewind to {position}; positions go up to {self.window.seq}")
        self.append(Rewind(to=position))

    def compact(self) -> tuple[Edit, ...]:
        """Make the context smaller now, whatever its policy; returns the edits that were made.

        The newest messages stay. Nothing is lost: what is hidden can be read back by its handle.
        """
        config = parse_policy_config(self.options.limits)
        edits = decide_on_demand_compaction(self.window, self.budget(), config=config).edits
        for edit in edits:
            self.append(edit)
        return edits

    def undo(self) -> UndoneMessages | None:
        """Take back the user's newest message and everything after it; None if there is none."""
        user, first = self.window.newest_user_entry, find_undo_start_entry(self.window)
        if user is None or first is None:
            return None
        after = [entry for seq, entry in self.window.entries.items() if seq > user.seq]
        before = self.window.conversation.total_messages
        self.rewind(first.seq - 1)
        return UndoneMessages(
            position=first.seq - 1,
            messages=before - self.window.conversation.total_messages,
            tool_results=sum(len(entry.message.results) for entry in after),
            text=user.message.text,
        )

    def fork(self, *, parent_name: str = "", at: int | None = None) -> Context:
        """A new context that shares the past up to a position, and nothing after."""
        at = validation.resolve_fork_position(at, self.window.base.snapshot.seq, self.window.seq)
        base, known = self.window.base.collect_refold_source(self.events)
        past = [event for event in known if event.seq <= at]
        settings = next(e.body for e in reversed(past) if isinstance(e.body, Settings))
        own = self.load_kwargs(
            adopt_logged_settings(
                settings, self.options, past_counters=self.window.counters_by_name
            )
        )
        twin = Context.load(past, snapshot=base, **own)
        for body in build_fork_bodies(known[len(past) :], parent_session=parent_name, position=at):
            twin.append(body)
        return twin

    def apply(self, events: Iterable[Event]) -> None:
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
    def drafting(self) -> Generator[list[Event]]:
        """What is done in here is written to the list that it yields, and not folded: it can be
        put into a store first, and applied then."""
        self._draft = []
        try:
            yield self._draft
        finally:
            self._draft = None

    def checkpoint(self) -> Snapshot:
        """Let go of all that is hidden, and of the log so far: someone else keeps them."""
        self.window.checkpoint()
        self.events.clear()
        return self.window.base.snapshot

    def append(self, body: EventBody) -> int:
        """Add what happened, whatever it is; returns its position."""
        event = self.build_event(body)
        self.apply([event])
        return event.seq

    def build_event(self, body: EventBody, offset: int = 0) -> Event:
        """An event that could be applied next, or `offset` events later."""
        seq = self.window.seq + len(self._draft or ()) + 1 + offset
        return Event(seq=seq, at=self._clock(), body=body)

    def _add_message(
        self, message: Message, *, key: str | None = None, reply: ModelReply | None = None
    ) -> str:
        message = redacted_message(message, self.options.redact)
        if message.role == "assistant" and not belongs_to_open_calls(self.window, message):
            self.apply(self.build_repair_events())
        said = wire.build_message_with_rejection_edits(
            self.window, lambda: self.rendering, message, key=key, reply=reply
        )
        seqs = [self.append(body) for body in said]
        return f"m{seqs[0]}"

    def _add_reply(self, reply: ModelReply, key: str | None) -> str:
        # Some servers give every reply the same id: after another call it is another reply.
        again = reply.id is not None and reply.id == self.window.conversation.last_reply_id
        if again and self.window.accounting.open_call_seq is None:
            return f"m{self.window.conversation.last_reply_seq}"
        if (call := self.window.accounting.open_call_seq) is not None:
            self.append(CallOutcome(call=call, usage=reply.usage, stop=reply.stop))
        return self._add_message(reply.message, key=key, reply=reply)

    @property
    def rendering(self) -> IncrementalRenderer:
        """The window as blocks, up to date."""
        self._adopt_logged_settings()
        if self._rendering is None:
            self._rendering = wire.create_rendering(self.window.settings)
        self._rendering.update(self.window)
        return self._rendering
