"""Context: the line from a message to a request, in memory, without any I/O."""

from __future__ import annotations

import time
from collections.abc import AsyncIterable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

from trimtab import given, wire
from trimtab.catalog import CacheMarks
from trimtab.core.branching import branch, held
from trimtab.core.budget import Budget
from trimtab.core.calls import budget_of
from trimtab.core.edits import parse_handle
from trimtab.core.erase import Erasing, eraser
from trimtab.core.event import Body, Call, Edit, Event, Outcome, Pin, Rewind, Settings, dump
from trimtab.core.forgetting import left_memory, refuse_forgotten
from trimtab.core.guard import CannotFit, guarded
from trimtab.core.ledger import Ledger, Preview, ledger_of, preview_of
from trimtab.core.matching import continues, known_prefix
from trimtab.core.message import Message, Text, ToolCall, ToolResult
from trimtab.core.plan import Decision, Plan, Policy, Span
from trimtab.core.policies import DEFAULT
from trimtab.core.policies.knobs import Goal, Summaries, knobs_from
from trimtab.core.policies.results import WantedResult, summarised_part, wanted_results
from trimtab.core.policies.summaries import SummaryRefused, WantedSummary, summarised, wanted
from trimtab.core.prompt import Rendering
from trimtab.core.recall import answer, named_in, recall
from trimtab.core.repairs import repairs_of
from trimtab.core.snapshot import Snapshot
from trimtab.core.window import Window
from trimtab.dialects import detect, dialect, read_call, to_wire
from trimtab.dialects.dialect import Reply, Wire
from trimtab.dialects.langchain import is_langchain, reply_of
from trimtab.dialects.watching import Watch
from trimtab.options import Options, Tokenizer, changed, loaded, made, options_after, settings_of
from trimtab.redaction import Redact, redacted


class Context:
    """What a model sees of a conversation: add what is said, ask for the next request."""

    def __init__(
        self,
        model: str,
        *,
        system: str | Sequence[Wire] = "",
        tools: Sequence[Wire] = (),
        dialect: str | None = None,
        policy: str | Policy = DEFAULT,
        goal: Goal = "balanced",
        context: Mapping[str, Any] | None = None,
        summaries: Summaries = "extractive",
        context_window: int | None = None,
        max_input_tokens: int | None = None,
        max_output_tokens: int | None = None,
        params: Mapping[str, Any] | None = None,
        recall: bool = False,
        entry: Mapping[str, Any] | None = None,
        cache: CacheMarks | None = None,
        tokenizer: Tokenizer | None = None,
        redact: Redact | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        options = made(
            model=model,
            system=system,
            tools=tools,
            dialect=dialect,
            policy=policy,
            goal=goal,
            context=context,
            summaries=summaries,
            context_window=context_window,
            max_input_tokens=max_input_tokens,
            max_output_tokens=max_output_tokens,
            params=params,
            recall=recall,
            entry=entry,
            cache=cache,
            tokenizer=tokenizer,
            redact=redact,
        )
        self._start(options, clock)
        self._set(options)

    def __repr__(self) -> str:
        window, limit = self.window, self.budget().limit
        used = window.settings.head.tokens + window.tokens
        said = f"{window.messages} of {window.said} messages shown"
        return f"<Context {window.settings.model}: {said}, {used:,} of {limit:,} tokens>"

    def _start(
        self,
        options: Options,
        clock: Callable[[], float],
        snapshot: Snapshot | None = None,
        named: Iterable[Event] = (),
    ) -> None:
        self._clock = given.clock(clock)
        self.events: list[Event] = []
        """The log: all that happened, in order; since the last checkpoint, if there was one."""
        self._draft: list[Event] | None = None
        counter = options.counter()
        self.window = Window({counter.name: counter}, snapshot, named)
        """The log folded."""
        self._settings, self._next = self.window.settings, (self.window.settings, options)
        self._use(options)

    def _use(self, options: Options) -> None:
        self._options = options
        self._policy = options.decide()
        self._decision, self._decided = Decision(), 0
        self._rendering: Rendering | None = None

    @property
    def options(self) -> Options:
        """What is set now, by us or by whoever else has written to the log."""
        self._follow()
        return self._options

    def _follow(self) -> None:
        settings, (ours, chosen) = self.window.settings, self._next
        if settings is not self._settings:
            self._use(chosen if settings == ours else options_after(settings, self._options))
            self._settings = settings

    @classmethod
    def load(
        cls,
        log: Iterable[Event | str | bytes],
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
        events = given.events(log)
        start = snapshot.seq if snapshot is not None else 0
        settings = [e.body for e in events if isinstance(e.body, Settings)]
        if not settings:
            raise ValueError("the log holds no settings event; it is not the log of a context")
        made = cls.__new__(cls)
        options = loaded(settings[-1], policy=policy, tokenizer=tokenizer, redact=redact)
        made._start(options, clock, snapshot, events)  # noqa: SLF001 - its own class
        made.apply(event for event in events if event.seq > start)
        made._settings = made.window.settings  # noqa: SLF001 - its own class
        made._next = (made.window.settings, options)  # noqa: SLF001 - its own class
        return made

    def dump(self) -> list[str]:
        """The log as lines of JSON."""
        return [dump(event) for event in self.events]

    def add(self, item: Any, *, key: str | None = None) -> str:
        """Append what was said: a dict of any supported dialect, an SDK's reply, or a Message.

        From a whole reply the usage is read too. What comes again under a key that is known, or
        the same reply, is not added twice. Returns the handle of the message.
        """
        if key is not None and key in self.window.keys:
            return f"m{self.window.keys[key]}"
        if isinstance(item, Message):
            return self._say(given.sendable(given.message(item), self.window.settings), key=key)
        plain = to_wire(reply_of(item) if is_langchain(item) else given.one(item))
        own = detect(plain, dialect(self.window.settings.dialect))
        if own.is_reply(plain):
            return self._reply(own.read_reply(plain), key)
        message = given.sendable(given.whole(own.read(plain)), self.window.settings)
        return self._say(message, key=key)

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
        redact, knobs = self.options.redact, knobs_from(self.options.context)
        outcome = wire.failed(self.window, kind, message=message, redact=redact, **told)
        named = wire.at_fault(self.window, lambda: self.rendering, message)
        self.append(outcome)
        edits = wire.remedy(kind, knobs, named)(self.window, self.budget()).edits
        for edit in edits:
            self.append(edit)
        return kind == "overflow" or bool(edits)

    def watch(self, stream: Iterable[Any] | AsyncIterable[Any]) -> Watch:
        """Pass a stream on and add its reply, with usage, when it ends."""
        gathering = dialect(self.window.settings.dialect).gather()
        return Watch(stream, gathering, to_wire, self.add)

    def sync(self, messages: Sequence[Wire]) -> None:
        """Take over a caller's whole history: what is known is matched, what is new appended.

        Where it diverges, a rewind is recorded first. Its first system messages are the prompt.
        """
        system, history = given.history(messages, self.window.settings)
        said = [redacted(message, self.options.redact) for message in history]
        if system and system != self.window.settings.system:
            self.configure(system=system)
        known, position = known_prefix(self.window, said)
        for message in history[known:]:
            given.sendable(message, self.window.settings)
        if position is not None:
            self.append(Rewind(to=position))
        self.replay(history[known:])

    def replay(self, said: Iterable[Message]) -> None:
        """Add what was said elsewhere; before each reply stands the call that it answers."""
        made = None
        for message in said:
            last = self.window.rounds[-1].entries[-1].seq if self.window.rounds else 0
            if message.role == "assistant" and last > self.window.sent:
                made = self.step()
            self._say(message)
        if made is not None:
            self.append(Outcome(call=made))  # its usage will never be known

    def request(self, *, stream: bool = False, volatile: str | None = None) -> dict[str, Any]:
        """Keyword arguments for the model's SDK.

        Repairs open calls, applies the policy and records the call. Asked again with nothing
        added in between, it returns the same and records nothing. The message list is fresh; what
        stands in the request is shared and must not be modified. `volatile` rides behind, once.
        What this model is known to refuse is put right: thinking, for one, is off while a tool loop
        is open that did not begin with it.
        """
        for events in self.steps(stream=stream, volatile=volatile):
            self.apply(events)
        return self.render()

    def steps(self, *, stream: bool = False, volatile: str | None = None) -> Generator[list[Event]]:
        """What a request appends, step by step; each step's events are to be applied before the
        next is asked for. None where the last call stands for this one, too."""
        if not self.window.visible:
            raise ValueError("nothing was said yet; add a message before asking for a request")
        last, volatile = self.window.last_call, given.tail(volatile)
        if (
            last is not None
            and last.seq == self.window.seq
            and last.body.hash  # else it was made elsewhere
            and (last.body.stream, last.body.volatile) == (stream, volatile)
        ):
            return
        yield self.repairs()
        yield self.decide(volatile=volatile)
        yield [self.call(stream=stream, volatile=volatile)]

    def step(self) -> int:
        """Let a call pass that was made elsewhere: decide, render nothing; returns its position."""
        self.apply(self.repairs())
        # Whether it could fit is no longer ours to say.
        with suppress(CannotFit):
            self.apply(self.decide())
        budget, note = self.budget(), self._decision.note
        tokens, output = budget.head.tokens + self.window.tokens, budget.max_output
        media, seq = self.window.media_tokens(), self.window.seq
        return self.append(
            Call(position=seq, max_output=output, tokens=tokens, media=media, note=note)
        )

    def repairs(self) -> list[Event]:
        """Results that stand in for those that open calls never got."""
        return [self.event(body, offset) for offset, body in enumerate(repairs_of(self.window))]

    def decide(self, *, volatile: str | None = None) -> list[Event]:
        """The edits that the policy and the guard want before the next call; changes nothing.
        Raises CannotFit where no edit would make the request fit."""
        budget = self.budget(volatile)
        self._decision, self._decided = self._wanted(budget), self.window.seq
        edits = guarded(self.window, budget, self._decision.edits)
        return [self.event(edit, offset) for offset, edit in enumerate(edits)]

    def _wanted(self, budget: Budget) -> Decision:
        self._follow()
        return given.decision(self._policy(self.window, budget), self.window.settings.policy)

    def call(self, *, stream: bool = False, volatile: str | None = None) -> Event:
        """The record of the call that the window would make now; changes nothing."""
        budget = self.budget(volatile)
        if self.window.seq != self._decided:
            # What the guard has hidden beside the policy's edits may have moved the frontier.
            self._decision = replace(self._decision, frontier=self._wanted(budget).frontier)
        made = wire.call_of(
            self.window, budget, self.rendering, self._decision, stream=stream, volatile=volatile
        )
        return self.event(made)

    def render(self) -> dict[str, Any]:
        """The request of the call that was just recorded."""
        if self.window.last_call is None:
            raise ValueError("no call is recorded; ask for a request")
        return wire.request_of(self.window.settings, self.rendering, self.window.last_call.body)

    def rebuild(self, seq: int) -> dict[str, Any]:
        """The exact request of a past call, checked against its hash."""
        return wire.rebuild(self.events, seq, self.window.counters)

    def preview(self, *, stream: bool = False, volatile: str | None = None) -> Preview:
        """What the next call would send and cost; changes nothing."""
        base, known = held(self.window, self.events)
        twin = Context.load(known, snapshot=base, **self.own())
        request = twin.request(stream=stream, volatile=volatile)
        new = [event.body for event in twin.events if event.seq > self.window.seq]
        edits = tuple(body for body in new if isinstance(body, Edit))
        return preview_of(twin.window, request, twin.report(volatile), edits)

    def own(self, options: Options | None = None) -> dict[str, Any]:
        """What is ours and not in the log: the keyword arguments by which it is loaded again."""
        names, set_now = ("policy", "tokenizer", "redact"), options or self.options
        return {name: getattr(set_now, name) for name in names} | {"clock": self._clock}

    def report(self, volatile: str | None = None) -> Ledger:
        """Where the tokens of the next call would go. Print it, or take `to_dict()`."""
        budget = self.budget(volatile)
        return ledger_of(self.window, budget, Plan(self.window, budget).bound())

    def budget(self, volatile: str | None = None) -> Budget:
        """The terms of the next call's limit."""
        return budget_of(self.window, volatile=volatile, now=self._clock())

    def recall(self, handle: str) -> str:
        """The text behind a handle: a part's exactly as it was said, a message's below its name."""
        return recall(self.window, given.handle(handle))

    def answer(self, call: ToolCall | Wire) -> str:
        """Answer a call of a recall tool and add the result; returns its text."""
        asked = call if isinstance(call, ToolCall) else read_call(call)
        text = answer(self.window, asked)
        result = ToolResult(call_id=asked.id, content=(Text(text=text),))
        self._say(Message(role="tool", parts=(result,)))
        return text

    def wanted_summary(self, *, forced: bool = False) -> WantedSummary | None:
        """What should be summarised now, with the summary it must carry on; None for nothing.

        `forced` is what the next call would put a stand-in for, if nobody summarises it before.
        """
        return wanted(self.window, self._wanted(self.budget()), forced=forced)

    def add_summary(self, text: str, *, span: Span | None = None) -> None:
        """Replace what `wanted_summary` named by a summary; refused where it is not smaller.

        Give the span of a summary that took its time: it is refused where what it tells of was
        undone or erased meanwhile, and what was said since stays.
        """
        decision = self._wanted(self.budget())
        span = span or decision.wanted
        if span is None:
            raise SummaryRefused("nothing is waiting to be summarised")
        for edit in summarised(Plan(self.window, self.budget()), span, text, decision):
            self.append(edit)

    def wanted_results(self) -> tuple[WantedResult, ...]:
        """Tool results that the next call would cut and that are to be summarised instead."""
        knobs = knobs_from(self.options.context)
        if not knobs.summarises_results:
            return ()
        return wanted_results(self.window, self._wanted(self.budget()), knobs)

    def add_result_summary(self, wanted: WantedResult, text: str, *, by: str = "") -> None:
        """Send a summary in place of a result that `wanted_results` named; it is not cut then.

        Refused where it takes more than the cut would, or came too late. `by` is who wrote it.
        """
        for edit in summarised_part(Plan(self.window, self.budget()), wanted, text, by):
            self.append(edit)

    def reveal(self, handle: str) -> None:
        """Show again what an edit hid, with its calls or results, until the model has replied."""
        named = named_in(self.window, given.handle(handle))
        self.append(
            Edit(op="reveal", first=named.first, last=named.last, part=named.part, why="asked")
        )

    def pin(self, handle: str, *, pinned: bool = True) -> None:
        """Keep messages from being hidden by any policy, or stop doing so."""
        named = named_in(self.window, given.handle(handle))
        self.append(Pin(first=named.first, last=named.last, pinned=pinned))

    def erase(self, handle: str, *, why: str = "") -> None:
        """Destroy the payload of a message or a part, here and in all that was made from it."""
        named, known = parse_handle(given.handle(handle)), held(self.window, self.events)[1]
        erases = Erasing(named, why, known).found(lost=partial(left_memory, self.window))
        for erase in erases:
            refuse_forgotten(self.window, erase)  # all or nothing
        self.apply(self.event(erase, offset) for offset, erase in enumerate(erases))
        self.events[:] = map(eraser(erases), self.events)

    def configure(self, **changes: Any) -> None:
        """Change the model, the system prompt, the tools or any other option from now on.

        Nothing is recorded where all of it is set already.
        """
        self._set(changed(self.options, changes, self.window.counters))

    def _set(self, options: Options) -> None:
        policy, counter = options.decide(), options.counter()
        self.window.know(counter)
        settings = settings_of(options, counter)
        # Read once: another dialect would take the same blocks for something else.
        options = replace(options, system=settings.system)
        self._next = (settings, options)
        if settings == self.window.settings:
            self._options, self._policy = options, policy
        else:
            self.append(settings)

    def rewind(self, to: int | str) -> None:
        """Go back to a position, or to just behind the message that a handle names."""
        position = to if isinstance(to, int) else parse_handle(given.handle(to)).last
        if not 0 <= position <= self.window.seq:
            raise ValueError(f"cannot rewind to {position}; positions go up to {self.window.seq}")
        self.append(Rewind(to=position))

    def fork(self, *, name: str = "", at: int | None = None) -> Context:
        """A new context that shares the past up to a position, and nothing after."""
        at = given.fork(at, self.window.base.seq, self.window.seq)
        base, known = held(self.window, self.events)
        past = [event for event in known if event.seq <= at]
        settings = next(e.body for e in reversed(past) if isinstance(e.body, Settings))
        own = self.own(options_after(settings, self.options, earlier=self.window.counters))
        twin = Context.load(past, snapshot=base, **own)
        for body in branch(known[len(past) :], parent=name, at=at):
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
        return self.window.base

    def append(self, body: Body) -> int:
        """Add what happened, whatever it is; returns its position."""
        event = self.event(body)
        self.apply([event])
        return event.seq

    def event(self, body: Body, offset: int = 0) -> Event:
        """An event that could be applied next, or `offset` events later."""
        seq = self.window.seq + len(self._draft or ()) + 1 + offset
        return Event(seq=seq, at=self._clock(), body=body)

    def _say(self, message: Message, *, key: str | None = None, reply: Reply | None = None) -> str:
        message = redacted(message, self.options.redact)
        if message.role == "assistant" and not continues(self.window, message):
            self.apply(self.repairs())
        said = wire.said_with(self.window, lambda: self.rendering, message, key=key, reply=reply)
        seqs = [self.append(body) for body in said]
        return f"m{seqs[0]}"

    def _reply(self, reply: Reply, key: str | None) -> str:
        # Some servers give every reply the same id: after another call it is another reply.
        again = reply.id is not None and reply.id == self.window.last_reply
        if again and self.window.awaiting is None:
            return f"m{self.window.last_reply_by}"
        if (call := self.window.awaiting) is not None:
            self.append(Outcome(call=call, usage=reply.usage, stop=reply.stop))
        return self._say(reply.message, key=key, reply=reply)

    @property
    def rendering(self) -> Rendering:
        """The window as blocks, up to date."""
        self._follow()
        if self._rendering is None:
            self._rendering = wire.rendering_of(self.window.settings)
        self._rendering.update(self.window)
        return self._rendering
