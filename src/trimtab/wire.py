"""From what was said to its record, and from a recorded call to keyword arguments for an SDK, now
or long after."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from trimtab import given
from trimtab.core.budget import Budget
from trimtab.core.event import Body, Call, Event, Outcome, Said, Settings
from trimtab.core.message import Message
from trimtab.core.plan import Decision, Plan, Policy
from trimtab.core.policies.aggressive import after_refusal
from trimtab.core.policies.knobs import Knobs
from trimtab.core.prompt import Block, Prompt, Rendering, call_record, marks_for
from trimtab.core.recall import is_answer
from trimtab.core.rejected import at_once, with_next
from trimtab.core.tokens import Counter, sizes_of
from trimtab.core.utf8 import whole_pairs
from trimtab.core.window import Window
from trimtab.dialects import dialect
from trimtab.dialects.dialect import Reply
from trimtab.dialects.families import attributed
from trimtab.dialects.places import named_at
from trimtab.redaction import Redact

REJECTION = 1_000
"""Characters that are kept of what a provider said of a request that it rejected."""


class RequestChanged(ValueError):
    """A past request, rendered again, is not what its call recorded."""


def rendering_of(settings: Settings) -> Rendering:
    """An empty rendering in the settings' dialect."""
    wire = dialect(settings.dialect)

    def render(messages: Sequence[Message]) -> list[Block]:
        return wire.blocks(messages, settings.renderer, settings.model)

    return Rendering(render, system_notices=wire.system_notices, join=wire.join)


def request_of(settings: Settings, rendering: Rendering, call: Call) -> dict[str, Any]:
    """The request of a call whose window is rendered."""
    prompt = Prompt(
        model=settings.model,
        system=settings.system,
        tools=settings.tools,
        blocks=rendering.blocks,
        marks=call.marks,
        max_output=call.max_output,
        output_param=_output_param(settings),
        params=settings.params,
        stream=call.stream,
        volatile=call.volatile,
        selected=settings.selected,
        renderer=settings.renderer,
        hour=settings.entry.get("cache_marks") == "1h",
    )
    return dialect(settings.dialect).request(prompt)


def said_of(window: Window, message: Message, *, key: str | None, reply: Reply | None) -> Said:
    """The record of a message, said now."""
    call = window.last_call if message.role == "assistant" else None
    message = attributed(message, window.settings.model)
    return Said(
        message=message,
        sizes=sizes_of(message, window.counter),
        counter=window.counter.name,
        call=call.seq if call is not None else None,
        reply_id=reply.id if reply is not None else None,
        key=key,
        recalled=is_answer(window, message),
        paused=reply is not None and reply.paused,
    )


def said_with(
    window: Window,
    rendering: Callable[[], Rendering],
    message: Message,
    *,
    key: str | None,
    reply: Reply | None,
) -> list[Body]:
    """The record of a message, and with a user's what its provider has rejected before: that is
    in the way of nothing that is said after it."""
    said = said_of(window, message, key=key, reply=reply)
    if not window.rejection.position or message.role != "user" or message.results:
        return [said]
    named = at_fault(window, rendering, window.rejection.words)
    return [said, *with_next(window, named=named).edits]


def failed(
    window: Window,
    kind: str,
    *,
    message: str = "",
    redact: Redact | None = None,
    **told: int | None,
) -> Outcome:
    """The record of a call that ended in an error, with the tokens that it names; with the
    provider's words where they are about what was said."""
    given.refuse_failure(kind, message, **told)
    if (call := window.awaiting) is None:
        raise ValueError("no call waits for an outcome that could be an error")
    known: dict[str, Any] = {name: value for name, value in told.items() if value is not None}
    if kind == "rejected" and message:
        kept = message if redact is None else redact(message)
        known["message"] = whole_pairs(kept[:REJECTION])
    return Outcome(call=call, status="error", error={"kind": kind, **known})


def remedy(kind: str, knobs: Knobs, named: frozenset[str]) -> Policy:
    """What is hidden after a call that ended in an error of a kind, so that the next is another."""
    match kind:
        case "overflow":
            return partial(after_refusal, knobs=knobs)
        case "rejected":
            return partial(at_once, named=named)
        case _:
            return lambda _window, _budget: Decision()


def at_fault(window: Window, rendering: Callable[[], Rendering], words: str) -> frozenset[str]:
    """What stands where a provider's words say that the last request is at fault; nothing where
    they do not say, or something that was sent has changed since."""
    last = window.last_call
    if not words or last is None or window.call_version != window.version:
        return frozenset()
    return named_at(request_of(window.settings, rendering(), last.body), words)


def call_of(
    window: Window,
    budget: Budget,
    rendering: Rendering,
    decision: Decision,
    *,
    stream: bool,
    volatile: str | None,
) -> Call:
    """The record of the call that a rendered window makes."""
    bound = Plan(window, budget).bound()
    tail = len((volatile or "").encode("utf-8", "surrogatepass"))
    body = Call(
        position=window.seq,
        max_output=min(budget.max_output, budget.limit - bound),
        tokens=budget.head.tokens + window.tokens + budget.volatile,
        media=window.media_tokens(),
        bytes=budget.head.bytes + window.bytes + tail,
        bound=bound,
        blocks=len(rendering.blocks),
        marks=_marks(rendering, window, decision.frontier),
        stream=stream,
        volatile=volatile,
        note=decision.note,
    )
    digest = rendering.digest(call_record(window.settings.params, body))
    return replace(body, hash=digest)


def _marks(rendering: Rendering, window: Window, frontier: int | None) -> tuple[int, ...]:
    off = window.settings.entry.get("cache_marks") == "off"
    return () if off else marks_for(rendering, window, frontier)


def rebuild(
    events: Sequence[Event], seq: int, counters: Mapping[str, Counter] | None = None
) -> dict[str, Any]:
    """The exact request of a past call, from the log alone and checked against its hash."""
    call = call_at(events[seq - 1] if 0 < seq <= len(events) else None, seq)
    window = Window(counters)
    window.apply(*events[: call.position])
    return sent_in(window, seq, call)


def call_at(event: Event | None, seq: int) -> Call:
    """The call that an event records."""
    if event is None or not isinstance(event.body, Call):
        raise LookupError(f"event {seq} is not a call")
    return event.body


def sent_in(window: Window, seq: int, body: Call) -> dict[str, Any]:
    """The request of a past call, given the window of that time; checked against its hash."""
    rendering = rendering_of(window.settings)
    rendering.update(window)
    if body.hash and rendering.digest(call_record(window.settings.params, body)) != body.hash:
        raise RequestChanged(
            f"the request of call {seq} cannot be shown as it was sent: rendered from the log it "
            "has another hash (something it held was erased, or the renderer changed)"
        )
    return request_of(window.settings, rendering, body)


def _output_param(settings: Settings) -> str:
    match settings.dialect:
        case "openai_responses":
            return "max_output_tokens"
        case "anthropic":
            return "max_tokens"
        case _:
            return str(settings.entry.get("output_param", "max_tokens"))
