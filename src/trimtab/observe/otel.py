"""Turns as spans, by the names of OpenTelemetry's conventions for generative AI.

A span for the turn; in it one for each model call, tool and summary. While a call or a tool runs
its span is the current one, so that whatever else is traced stands inside it. Nothing that was said
is in them.
"""

from __future__ import annotations

from functools import lru_cache
from time import time_ns
from typing import NamedTuple

from opentelemetry import context, metrics, trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.util.types import AttributeValue

from trimtab.core.event import Usage
from trimtab.core.message import ToolCall
from trimtab.session.happenings import (
    BrokeOff,
    CallBegan,
    CallEnded,
    Edited,
    Ended,
    Happening,
    Restarted,
    Summarised,
    ToolBegan,
    ToolEnded,
    TurnBegan,
)

NAME = "trimtab"
SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
TOKENS = (1, 4, 16, 64, 256, 1_024, 4_096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304)
PROVIDERS = {"anthropic": "anthropic", "openai_chat": "openai", "openai_responses": "openai"}
"""By the wire format that is spoken: whose it is."""

Attributes = dict[str, AttributeValue]


class Instruments(NamedTuple):
    """What measurements go to."""

    tracer: trace.Tracer
    tokens: metrics.Histogram
    seconds: metrics.Histogram


class Open(NamedTuple):
    """A span that is the current one, and by what the one before it comes back."""

    span: Span
    began: int
    before: object


def spans_of(agent: str) -> Spans | None:
    """What hears one turn; None where the application has set up neither traces nor metrics."""
    tracers, meters = trace.get_tracer_provider(), metrics.get_meter_provider()
    if not (_is_set_up(tracers) or _is_set_up(meters)):
        return None
    return Spans(instruments(tracers, meters), agent)


def _is_set_up(provider: object) -> bool:
    """Whether it is more than what the API puts in the place of one that is missing."""
    return not type(provider).__module__.startswith(
        ("opentelemetry.trace", "opentelemetry.metrics")
    )


@lru_cache(maxsize=8)
def instruments(tracers: trace.TracerProvider, meters: metrics.MeterProvider) -> Instruments:
    """Made once for each provider: a second one of the same name would be warned of."""
    meter = meters.get_meter(NAME)
    return Instruments(
        tracer=tracers.get_tracer(NAME),
        tokens=meter.create_histogram(
            "gen_ai.client.token.usage",
            unit="{token}",
            description="Tokens that model calls used.",
            explicit_bucket_boundaries_advisory=TOKENS,
        ),
        seconds=meter.create_histogram(
            "gen_ai.client.operation.duration",
            unit="s",
            description="How long model calls took.",
            explicit_bucket_boundaries_advisory=SECONDS,
        ),
    )


class Spans:
    """The spans of one turn."""

    def __init__(self, to: Instruments, agent: str = "") -> None:
        self._to = to
        self._agent = agent
        self._own: Attributes = {}
        self._within = context.get_current()
        self._turn: Open | None = None
        self._call: Open | None = None
        self._asked: Attributes = {}
        self._tools: dict[int, Open] = {}
        self._edits: list[Edited] = []

    def __call__(self, happening: Happening) -> None:
        """Hear what happens."""
        match happening:
            case TurnBegan():
                self._begin(happening)
            case Edited():
                self._edits.append(happening)
            case CallBegan():
                self._ask(happening)
            case CallEnded():
                self._answered(happening)
            case ToolBegan():
                self._tool(happening.call)
            case ToolEnded():
                self._tool_ended(happening)
            case Summarised():
                self._summarised(happening)
            case Restarted() if self._turn is not None:
                limit: Attributes = {"trimtab.limit": happening.limit} if happening.limit else {}
                self._turn.span.add_event("trimtab.restarted", limit)
            case Ended():
                self._end(happening.why, calls=happening.calls)
            case BrokeOff():
                self._broke_off(happening)
            case _:
                pass

    def _begin(self, turn: TurnBegan) -> None:
        self._own = {
            "gen_ai.provider.name": PROVIDERS.get(turn.dialect, turn.dialect),
            "gen_ai.conversation.id": turn.session,
        }
        if self._agent:
            self._own["gen_ai.agent.name"] = self._agent
        named = f"invoke_agent {self._agent}".rstrip()
        told: Attributes = {"gen_ai.request.model": turn.model}
        self._turn = self._open(named, "invoke_agent", told, within=context.get_current())
        self._within = trace.set_span_in_context(self._turn.span)

    def _ask(self, call: CallBegan) -> None:
        self._asked = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": self._own.get("gen_ai.provider.name", ""),
            "gen_ai.request.model": call.model,
        }
        told: Attributes = {
            "gen_ai.request.model": call.model,
            "gen_ai.request.max_tokens": call.max_output,
            "trimtab.window.messages": call.messages,
            "trimtab.window.tokens": call.tokens,
            "trimtab.window.head_tokens": call.head,
            "trimtab.window.front_tokens": call.front,
            "trimtab.window.room": call.room,
            "trimtab.window.share": call.share,
            "trimtab.window.near_limit": call.near,
        }
        if self._edits:
            told["trimtab.edits.count"] = sum(edit.count for edit in self._edits)
            told["trimtab.edits.hidden_tokens"] = sum(edit.tokens for edit in self._edits)
            told["trimtab.edits.ops"] = sorted({edit.op for edit in self._edits})
            self._edits.clear()
        self._call = self._open(f"chat {call.model}", "chat", told, kind=SpanKind.CLIENT)

    def _answered(self, call: CallEnded) -> None:
        if self._call is None:
            return
        span, failed = self._call.span, call.outcome != "ok"
        if call.usage is not None:
            span.set_attributes(_usage(call.usage))
            for kind, count in (("input", call.usage.input), ("output", call.usage.output)):
                self._to.tokens.record(count, {**self._asked, "gen_ai.token.type": kind})
        if call.cost is not None:
            span.set_attribute("trimtab.cost", call.cost)
        wrong: Attributes = {"error.type": call.outcome} if failed else {}
        self._to.seconds.record(call.seconds, {**self._asked, **wrong})
        self._close(self._call, call.outcome if failed else None, seconds=call.seconds)
        self._call = None

    def _tool(self, call: ToolCall) -> None:
        told: Attributes = {
            "gen_ai.tool.name": call.name,
            "gen_ai.tool.call.id": call.id,
            "gen_ai.tool.type": "function",
        }
        self._tools[id(call)] = self._open(f"execute_tool {call.name}", "execute_tool", told)

    def _tool_ended(self, tool: ToolEnded) -> None:
        opened = self._tools.pop(id(tool.call), None)
        if opened is not None:  # else it never ran
            self._close(opened, "tool_error" if tool.is_error else None)

    def _summarised(self, told: Summarised) -> None:
        tried, now = told.attempt, time_ns()
        attributes: Attributes = {
            **self._own,
            "gen_ai.operation.name": "summarise",
            "gen_ai.request.model": tried.model,
            "trimtab.summary.outcome": tried.outcome,
            "trimtab.summary.calls": tried.calls,
            "trimtab.summary.tokens": tried.tokens,
            "trimtab.summary.replaced_tokens": tried.replaced,
            "trimtab.summary.patched": tried.patched,
            "trimtab.window.messages": told.messages,
            "trimtab.window.tokens": told.tokens,
        }
        if tried.usage is not None:
            attributes |= _usage(tried.usage)
        span = self._to.tracer.start_span(
            f"summarise {tried.model}",
            context=self._within,
            attributes=attributes,
            start_time=now - int(told.seconds * 1e9),
        )
        if not tried.tokens:
            _fail(span, tried.outcome)
        span.end(now)

    def _end(self, why: str, *, calls: int | None = None, error: str | None = None) -> None:
        if self._turn is None:
            return
        self._turn.span.set_attribute("trimtab.turn.outcome", why)
        if calls is not None:
            self._turn.span.set_attribute("trimtab.turn.calls", calls)
        self._close(self._turn, error)
        self._turn = None

    def _broke_off(self, end: BrokeOff) -> None:
        for opened in self._tools.values():
            # It was the current span of a task that is over, not of this one.
            _fail(opened.span, "cancelled")
            opened.span.end()
        self._tools.clear()
        if self._call is not None:
            wrong = "cancelled" if end.why == "cancelled" else end.error
            seconds = (time_ns() - self._call.began) / 1e9
            self._to.seconds.record(seconds, {**self._asked, "error.type": wrong})
            self._close(self._call, wrong)
            self._call = None
        self._end(end.why, error=end.error)

    def _open(
        self,
        name: str,
        operation: str,
        told: Attributes,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        within: context.Context | None = None,
    ) -> Open:
        attributes: Attributes = {"gen_ai.operation.name": operation, **self._own, **told}
        within = self._within if within is None else within
        began = time_ns()
        span = self._to.tracer.start_span(
            name, context=within, kind=kind, attributes=attributes, start_time=began
        )
        before = context.attach(trace.set_span_in_context(span))
        return Open(span, began, before)

    def _close(self, opened: Open, wrong: str | None, *, seconds: float | None = None) -> None:
        context.detach(opened.before)  # pyright: ignore[reportArgumentType] - an opaque token
        if wrong is not None:
            _fail(opened.span, wrong)
        opened.span.end(None if seconds is None else opened.began + int(seconds * 1e9))


def _fail(span: Span, wrong: str) -> None:
    span.set_attribute("error.type", wrong)
    span.set_status(Status(StatusCode.ERROR, wrong))


def _usage(usage: Usage) -> Attributes:
    """The input includes what was read from and written to the cache."""
    return {
        "gen_ai.usage.input_tokens": usage.input,
        "gen_ai.usage.output_tokens": usage.output,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read,
        "gen_ai.usage.cache_write.input_tokens": usage.cache_write,
    }
