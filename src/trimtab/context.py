"""Context: the line from a message to a request, in memory, without any I/O."""

from __future__ import annotations

import time
from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trimtab.core.budget import Budget, budget_for
from trimtab.core.edits import parse_handle
from trimtab.core.erase import scrub
from trimtab.core.event import (
    Body,
    Call,
    Edit,
    Erase,
    Event,
    Fork,
    Outcome,
    Pin,
    Repair,
    Retention,
    Rewind,
    Said,
    Settings,
    dump,
    load,
)
from trimtab.core.guard import guarded
from trimtab.core.ledger import Ledger, ledger_of
from trimtab.core.matching import same
from trimtab.core.message import Message, Text, ToolCall, ToolResult
from trimtab.core.plan import Decision, Plan, Policy, Span
from trimtab.core.policies import DEFAULT, POLICIES
from trimtab.core.policies.knobs import Goal, Summaries
from trimtab.core.policies.summaries import SummaryRefused, WantedSummary, summarised, wanted
from trimtab.core.prompt import Rendering, call_record, marks_for
from trimtab.core.recall import answer, recall
from trimtab.core.tokens import sizes_of
from trimtab.core.window import Window
from trimtab.dialects import detect, dialect, read_call, read_history, to_wire
from trimtab.dialects.dialect import Reply, Wire
from trimtab.dialects.watching import Watch
from trimtab.options import Options, Tokenizer, options_of, settings_of
from trimtab.wire import rebuild, rendering_of, request_of

NO_RESULT = "[no result: the call was interrupted]"
"""What stands for the result of a call that never got one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What the next call would send and cost."""

    request: Mapping[str, Any]
    """Keyword arguments for the SDK."""
    report: Ledger
    """Where its tokens would go."""
    edits: tuple[Edit, ...]
    """What would be hidden first."""


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
        tokenizer: Tokenizer | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        options = Options(
            model=model,
            system=system,
            tools=tools,
            dialect=dialect,
            policy=policy,
            goal=goal,
            context=context or {},
            summaries=summaries,
            context_window=context_window,
            max_input_tokens=max_input_tokens,
            max_output_tokens=max_output_tokens,
            params=params or {},
            recall=recall,
            entry=entry or {},
            tokenizer=tokenizer,
        )
        self._start(options, clock)
        self._append(settings_of(options, self._counter))

    def __repr__(self) -> str:
        window, limit = self.window, self.budget().limit
        used = window.settings.head.tokens + window.tokens
        said = f"{window.messages} of {len(window.entries)} messages shown"
        return f"<Context {window.settings.model}: {said}, {used:,} of {limit:,} tokens>"

    def _start(self, options: Options, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.events: list[Event] = []
        """The log: all that happened, in order."""
        self._use(options)
        self.window = Window({self._counter.name: self._counter})
        """The log folded."""

    def _use(self, options: Options) -> None:
        self.options = options
        self._policy = options.decide()
        self._counter = options.counter()
        self._decision = Decision()
        self._rendering: Rendering | None = None

    @classmethod
    def load(
        cls,
        log: Iterable[Event | str | bytes],
        *,
        policy: str | Policy | None = None,
        tokenizer: Tokenizer | None = None,
        clock: Callable[[], float] = time.time,
    ) -> Context:
        """A context folded from its log, whose lines `dump` wrote.

        A policy or a tokenizer of one's own is not in the log and is given again.
        """
        events = [line if isinstance(line, Event) else load(line) for line in log]
        settings = next((e.body for e in reversed(events) if isinstance(e.body, Settings)), None)
        if settings is None:
            raise ValueError("the log holds no settings event; it is not the log of a context")
        made = cls.__new__(cls)
        made._start(  # noqa: SLF001 - its own class
            options_of(settings, policy=policy, tokenizer=tokenizer), clock
        )
        made.apply(events)
        return made

    def dump(self) -> list[str]:
        """The log as lines of JSON."""
        return [dump(event) for event in self.events]

    # What is said

    def add(self, item: Any, *, key: str | None = None) -> str:
        """Append what was said: a dict of any supported dialect, an SDK's reply, or a Message.

        From a whole reply the usage is read too. What comes again under a key that is known, or
        the same reply, is not added twice. Returns the handle of the message.
        """
        if key is not None and key in self.window.keys:
            return f"m{self.window.keys[key]}"
        if isinstance(item, Message):
            return self._say(item, key=key)
        if isinstance(item, str):
            raise TypeError('a text has no role; add {"role": "user", "content": …}')
        if isinstance(item, list):
            raise TypeError("add takes one message; sync(messages) takes a whole history")
        wire = to_wire(item)
        own = detect(wire, dialect(self.window.settings.dialect))
        if own.is_reply(wire):
            return self._reply(own.read_reply(wire))
        return self._say(own.read(wire), key=key)

    def fail(
        self,
        kind: str,
        *,
        limit: int | None = None,
        input: int | None = None,
        requested: int | None = None,
    ) -> None:
        """Record that the last call ended in an error; `overflow` with a limit teaches it."""
        call = self.window.awaiting
        if call is None:
            raise ValueError("no call waits for an outcome that could be an error")
        told = {"kind": kind, "limit": limit, "input": input, "requested": requested}
        error = {name: value for name, value in told.items() if value is not None}
        self._append(Outcome(call=call, status="error", error=error))

    def watch(self, stream: Iterable[Any] | AsyncIterable[Any]) -> Watch:
        """Pass a stream on and add its reply, with usage, when it ends."""
        gathering = dialect(self.window.settings.dialect).gather()
        return Watch(stream, gathering, to_wire, self.add)

    def sync(self, messages: Sequence[Wire]) -> None:
        """Take over a caller's whole history: what is known is matched, what is new appended.

        Where it diverges from what is known, a rewind is recorded first. System messages at its
        start are the system prompt.
        """
        system, said = read_history(messages, self.window.settings.dialect)
        if system and system != self.window.settings.system:
            self.configure(system=system)
        known = [entry for entry in self.window.entries.values() if not entry.repair]
        matched = 0
        for entry, message in zip(known, said, strict=False):
            if not same(entry.message, message):
                break
            matched += 1
        if matched < len(known):
            self._append(Rewind(to=known[matched].seq - 1))
        for message in said[matched:]:
            self._say(message)

    # What is sent

    def request(self, *, stream: bool = False, volatile: str | None = None) -> dict[str, Any]:
        """Keyword arguments for the model's SDK.

        Repairs open calls, applies the policy and records the call. Asked again with nothing
        added in between, it returns the same and records nothing. The message list is fresh; the
        messages in it are shared and must not be modified. `volatile` rides behind the messages
        in this call alone.
        """
        if not self.window.visible:
            raise ValueError("nothing was said yet; add a message before asking for a request")
        last = self.window.last_call
        asked = (stream, volatile)
        if (
            last is None
            or last.seq != self.window.seq
            or not last.body.hash  # it was made elsewhere
            or (last.body.stream, last.body.volatile) != asked
        ):
            self.apply(self.repairs())
            self.apply(self.decide(volatile=volatile))
            self.apply([self.call(stream=stream, volatile=volatile)])
        return self.render()

    def step(self) -> None:
        """Let a call pass that was made elsewhere: decide and record, but render nothing."""
        self.apply(self.repairs())
        self.apply(self.decide())
        budget = self.budget()
        tokens = budget.head.tokens + self.window.tokens
        self._append(
            Call(
                position=self.window.seq,
                max_output=budget.max_output,
                tokens=tokens,
                note=self._decision.note,
            )
        )

    def repairs(self) -> list[Event]:
        """Results that stand in for those that open calls never got."""
        return [
            self.event(self._repair(pairing.id), offset)
            for offset, pairing in enumerate(self.window.open_calls())
        ]

    def decide(self, *, volatile: str | None = None) -> list[Event]:
        """The edits that the policy and the guard want before the next call; changes nothing.

        Raises CannotFit where no edit would make the request fit.
        """
        budget = self.budget(volatile)
        self._decision = self._policy(self.window, budget)
        edits = guarded(self.window, budget, self._decision.edits)
        return [self.event(edit, offset) for offset, edit in enumerate(edits)]

    def call(self, *, stream: bool = False, volatile: str | None = None) -> Event:
        """The record of the call that the window would make now; changes nothing."""
        window, budget = self.window, self.budget(volatile)
        rendering = self.rendering
        marks = marks_for(rendering, window, self._decision.frontier)
        bound = Plan(window, budget).bound()
        body = Call(
            position=window.seq,
            max_output=min(budget.max_output, budget.limit - bound),
            tokens=budget.head.tokens + window.tokens + budget.volatile,
            bound=bound,
            blocks=len(rendering.blocks),
            marks=marks,
            stream=stream,
            volatile=volatile,
            note=self._decision.note,
        )
        digest = rendering.digest(call_record(window.settings.params, body))
        return self.event(replace(body, hash=digest))

    def render(self) -> dict[str, Any]:
        """The request of the call that was just recorded."""
        if self.window.last_call is None:
            raise ValueError("no call is recorded; ask for a request")
        return request_of(self.window.settings, self.rendering, self.window.last_call.body)

    def rebuild(self, seq: int) -> dict[str, Any]:
        """The exact request of a past call, checked against its hash."""
        return rebuild(self.events, seq, {self._counter.name: self._counter})

    def preview(self, *, stream: bool = False, volatile: str | None = None) -> Preview:
        """What the next call would send and cost; changes nothing."""
        options = self.options
        twin = Context.load(
            self.events, policy=options.policy, tokenizer=options.tokenizer, clock=self._clock
        )
        request = twin.request(stream=stream, volatile=volatile)
        new = [event.body for event in twin.events[len(self.events) :]]
        edits = tuple(body for body in new if isinstance(body, Edit))
        return Preview(request=request, report=twin.report(), edits=edits)

    def report(self) -> Ledger:
        """Where the tokens of the next call would go. Print it, or take `to_dict()`."""
        budget = self.budget()
        return ledger_of(self.window, budget, Plan(self.window, budget).bound())

    def budget(self, volatile: str | None = None) -> Budget:
        """The terms of the next call's limit."""
        window = self.window
        return budget_for(
            window.settings,
            learned=window.learned_limit,
            ratio=window.ratio,
            margin=window.counter.unanchored,
            volatile=window.counter.count(volatile) + 8 if volatile else 0,
            now=self._clock(),
        )

    # What is hidden

    def recall(self, handle: str) -> str:
        """The text behind a handle, exactly as it was said."""
        return recall(self.window, handle)

    def answer(self, call: ToolCall | Wire) -> str:
        """Answer a call of a recall tool and add the result; returns its text."""
        asked = call if isinstance(call, ToolCall) else read_call(call)
        text = answer(self.window, asked)
        result = ToolResult(call_id=asked.id, content=(Text(text=text),))
        self._say(Message(role="tool", parts=(result,)))
        return text

    def wanted_summary(self) -> WantedSummary | None:
        """What should be summarised now, with the summary it must carry on; None for nothing."""
        span = self._policy(self.window, self.budget()).wanted
        return None if span is None else wanted(self.window, span)

    def add_summary(self, text: str, *, span: Span | None = None) -> None:
        """Replace what `wanted_summary` named by a summary; refused where it is not smaller.

        Give the span of a summary that took its time: it is refused where what it tells of was
        undone or erased meanwhile, and what was said since stays.
        """
        decision = self._policy(self.window, self.budget())
        span = span or decision.wanted
        if span is None:
            raise SummaryRefused("nothing is waiting to be summarised")
        plan = Plan(self.window, self.budget())
        for edit in summarised(plan, span, text, decision.summary_tokens):
            self._append(edit)

    def reveal(self, handle: str) -> None:
        """Show again what an edit hid."""
        named = parse_handle(handle)
        self._append(
            Edit(op="reveal", first=named.first, last=named.last, part=named.part, why="asked")
        )

    def pin(self, handle: str, *, pinned: bool = True) -> None:
        """Keep messages from being hidden by any policy, or stop doing so."""
        named = parse_handle(handle)
        self._append(Pin(first=named.first, last=named.last, pinned=pinned))

    def erase(self, handle: str, *, why: str = "") -> None:
        """Destroy the payload of a message or a part, here and in all that was made from it."""
        named = parse_handle(handle)
        for event in self.events[max(named.first - 1, 0) : named.last]:
            # Also what a rewind has undone: a later one could bring it back.
            if isinstance(event.body, Said | Repair):
                self._append(Erase(message=event.seq, part=named.part, why=why))
        scrubbed = [scrub(e, named.first, named.last, named.part) for e in self.events]
        self.events[:] = scrubbed

    # What changes

    def configure(self, **changes: Any) -> None:
        """Change the model, the system prompt, the tools or any other option from now on."""
        options = replace(self.options, **changes)
        if "model" in changes and "entry" not in changes:
            options = replace(options, entry={})
        if "model" in changes and "dialect" not in changes:
            options = replace(options, dialect=None)
        counter = options.counter()
        settings = settings_of(options, counter)
        self._use(options)
        self.window.know(counter)
        self._append(settings)

    def rewind(self, to: int | str) -> None:
        """Go back to a position, or to just behind the message that a handle names."""
        position = parse_handle(to).last if isinstance(to, str) else to
        if not 0 <= position <= self.window.seq:
            raise ValueError(f"cannot rewind to {position}; positions go up to {self.window.seq}")
        self._append(Rewind(to=position))

    def fork(self, *, name: str = "", at: int | None = None) -> Context:
        """A new context that shares the past up to a position, and nothing after."""
        at = self.window.seq if at is None else at
        options, past = self.options, self.events[:at]
        named = next((e.body.policy for e in reversed(past) if isinstance(e.body, Settings)), "")
        twin = Context.load(
            past,
            # A preset is the one of that time; a function is not in the log.
            policy=None if named in POLICIES else options.policy,
            tokenizer=options.tokenizer,
            clock=self._clock,
        )
        # What was destroyed since is missing from the copy as well, and the copy must say so.
        for event in self.events[at:]:
            match event.body:
                case Erase() as erase if erase.message <= at:
                    twin._append(erase)  # noqa: SLF001 - its own class
                case Retention() as rule:
                    twin._append(replace(rule, before=min(rule.before, at + 1)))  # noqa: SLF001
                case _:
                    pass
        twin._append(Fork(parent=name, position=at))  # noqa: SLF001 - its own class
        return twin

    def apply(self, events: Iterable[Event]) -> None:
        """Fold events that `repairs`, `decide` or `call` returned, or that a log holds."""
        for event in events:
            self.window.apply(event)
            self.events.append(event)

    def _append(self, body: Body) -> None:
        self.apply([self.event(body)])

    def event(self, body: Body, offset: int = 0) -> Event:
        """An event that could be applied next, or `offset` events later."""
        return Event(seq=self.window.seq + 1 + offset, at=self._clock(), body=body)

    def _say(self, message: Message, *, key: str | None = None, reply_id: str | None = None) -> str:
        if message.role == "assistant" and not self._continues(message):
            self.apply(self.repairs())
        call = self.window.last_call if message.role == "assistant" else None
        self._append(
            Said(
                message=message,
                sizes=sizes_of(message, self._counter),
                counter=self._counter.name,
                call=call.seq if call is not None else None,
                reply_id=reply_id,
                key=key,
            )
        )
        return f"m{self.window.seq}"

    def _continues(self, message: Message) -> bool:
        """Whether an assistant's item belongs to the calls that are open: items come singly."""
        last = self.window.rounds[-1].entries[-1] if self.window.rounds else None
        return (
            last is not None
            and message.origin == "openai_responses"
            and last.message.role == "assistant"
            and last.message.origin == message.origin
        )

    def _reply(self, reply: Reply) -> str:
        if reply.id is not None and reply.id == self.window.last_reply:
            return f"m{self._last_assistant()}"
        if self.window.awaiting is not None:
            call = self.window.awaiting
            self._append(Outcome(call=call, usage=reply.usage, stop=reply.stop))
        return self._say(reply.message, reply_id=reply.id)

    def _last_assistant(self) -> int:
        entries = reversed(self.window.entries.values())
        return next((e.seq for e in entries if e.message.role == "assistant"), 0)

    def _repair(self, call_id: str) -> Repair:
        result = ToolResult(call_id=call_id, content=(Text(text=NO_RESULT),), is_error=True)
        message = Message(role="tool", parts=(result,))
        return Repair(message=message, sizes=sizes_of(message, self._counter), why="no result came")

    @property
    def rendering(self) -> Rendering:
        """The window as blocks, up to date."""
        if self._rendering is None:
            self._rendering = rendering_of(self.window.settings)
        self._rendering.update(self.window)
        return self._rendering
