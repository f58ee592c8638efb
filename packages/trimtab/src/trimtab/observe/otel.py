"""Turns as spans, by the names of OpenTelemetry's conventions for generative AI.

A turn has a span, with a span in it for each model call, tool and summary. While a call or a tool
runs, its span is the current one, so that other traces are nested in it. Spans contain no text of
messages.
"""

from __future__ import annotations

from functools import lru_cache
from time import time_ns
from typing import NamedTuple

from opentelemetry import context, metrics, trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from trimtab.engine.log.event import Usage
from trimtab.engine.log.message import ToolCall
from trimtab.observe.request_ids import current_request_id
from trimtab.observe.trace_parents import TRACEPARENT_HEADER, current_traceparent
from trimtab.session import events as turn_events

SCOPE_NAME = "trimtab"
DURATION_BUCKETS_S = (
    0.01,
    0.02,
    0.04,
    0.08,
    0.16,
    0.32,
    0.64,
    1.28,
    2.56,
    5.12,
    10.24,
    20.48,
    40.96,
    81.92,
)
TOKEN_BUCKETS = (1, 4, 16, 64, 256, 1_024, 4_096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304)
PROVIDER_BY_DIALECT = {
    "anthropic": "anthropic",
    "openai_chat": "openai",
    "openai_responses": "openai",
}
"""The provider's name, by wire format."""

SpanAttributes = dict[str, AttributeValue]


class OtelInstruments(NamedTuple):
    """The histograms for measurements."""

    tracer: trace.Tracer
    token_histogram: metrics.Histogram
    duration_histogram: metrics.Histogram


class OpenSpan(NamedTuple):
    """A span that is current, with the token that restores the previous one."""

    span: Span
    started_ns: int
    context_token: object


def create_turn_spans(agent: str) -> TurnSpans | None:
    """Return the observer of one turn. None if the application has set up neither traces nor
    metrics."""
    tracers = trace.get_tracer_provider()
    meters = metrics.get_meter_provider()
    if not (_is_set_up(tracers) or _is_set_up(meters)):
        return None
    return TurnSpans(create_instruments(tracers, meters), agent)


def _is_set_up(provider: object) -> bool:
    """Return whether it is more than the API's placeholder for a missing provider."""
    return not type(provider).__module__.startswith(
        ("opentelemetry.trace", "opentelemetry.metrics")
    )


@lru_cache(maxsize=8)
def create_instruments(
    tracers: trace.TracerProvider, meters: metrics.MeterProvider
) -> OtelInstruments:
    """Return the instruments, made once per provider. A second one of the same name gives a
    warning."""
    meter = meters.get_meter(SCOPE_NAME)
    return OtelInstruments(
        tracer=tracers.get_tracer(SCOPE_NAME),
        token_histogram=meter.create_histogram(
            "gen_ai.client.token.usage",
            unit="{token}",
            description="Tokens that model calls used.",
            explicit_bucket_boundaries_advisory=TOKEN_BUCKETS,
        ),
        duration_histogram=meter.create_histogram(
            "gen_ai.client.operation.duration",
            unit="s",
            description="How long model calls took.",
            explicit_bucket_boundaries_advisory=DURATION_BUCKETS_S,
        ),
    )


class TurnSpans:
    """The spans of one turn."""

    def __init__(self, instruments: OtelInstruments, agent: str = "") -> None:
        self._to = instruments
        self._agent = agent
        self._own: SpanAttributes = {}
        self._within = context.get_current()
        self._turn: OpenSpan | None = None
        self._call: OpenSpan | None = None
        self._asked: SpanAttributes = {}
        self._tools: dict[int, OpenSpan] = {}
        self._edits: list[turn_events.ContextEdited] = []

    def __call__(self, event: turn_events.TurnEvent) -> None:
        """Record one event."""
        match event:
            case turn_events.TurnStarted():
                self._start_turn(event)
            case turn_events.ContextEdited():
                self._edits.append(event)
            case turn_events.ModelCallStarted():
                self._start_call(event)
            case turn_events.ModelCallFinished():
                self._end_call(event)
            case turn_events.ToolStarted():
                self._start_tool(event.call)
            case turn_events.ToolFinished():
                self._end_tool(event)
            case turn_events.SummaryFinished():
                self._record_summary(event)
            case turn_events.ModelCallRetried() if self._turn is not None:
                limit: SpanAttributes = {"trimtab.limit": event.limit} if event.limit else {}
                self._turn.span.add_event("trimtab.model_call.retried", limit)
            case turn_events.TurnFinished():
                self._end_turn(event.reason, calls=event.calls)
            case turn_events.TurnFailed():
                self._fail_turn(event)
            case _:
                pass

    def _start_turn(self, turn: turn_events.TurnStarted) -> None:
        self._own = {
            "gen_ai.provider.name": PROVIDER_BY_DIALECT.get(turn.dialect, turn.dialect),
            "gen_ai.conversation.id": turn.session,
        }
        if self._agent:
            self._own["gen_ai.agent.name"] = self._agent
        span_name = f"invoke_agent {self._agent}".rstrip()
        attributes: SpanAttributes = {"gen_ai.request.model": turn.model}
        if request_id := current_request_id():
            attributes["trimtab.request.id"] = request_id
        within = context.get_current()
        if parent := current_traceparent():
            within = TraceContextTextMapPropagator().extract({TRACEPARENT_HEADER: parent})
        self._turn = self._open_span(span_name, "invoke_agent", attributes, within=within)
        self._within = trace.set_span_in_context(self._turn.span)

    def _start_call(self, call: turn_events.ModelCallStarted) -> None:
        self._asked = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": self._own.get("gen_ai.provider.name", ""),
            "gen_ai.request.model": call.model,
        }
        attributes: SpanAttributes = {
            "gen_ai.request.model": call.model,
            "gen_ai.request.max_tokens": call.max_output,
            "trimtab.window.messages": call.messages,
            "trimtab.window.tokens": call.tokens,
            "trimtab.window.system_and_tools_tokens": call.head,
            "trimtab.window.summary_tokens": call.front,
            "trimtab.window.budget_tokens": call.room,
            "trimtab.window.budget_ratio": call.room_share,
            "trimtab.window.near_limit": call.near,
        }
        if self._edits:
            attributes["trimtab.edits.count"] = sum(edit.count for edit in self._edits)
            attributes["trimtab.edits.hidden_tokens"] = sum(edit.tokens for edit in self._edits)
            attributes["trimtab.edits.ops"] = sorted({edit.op for edit in self._edits})
            self._edits.clear()
        self._call = self._open_span(f"chat {call.model}", "chat", attributes, kind=SpanKind.CLIENT)

    def _end_call(self, call: turn_events.ModelCallFinished) -> None:
        if self._call is None:
            return
        span = self._call.span
        has_failed = call.outcome != "ok"
        if call.usage is not None:
            span.set_attributes(_usage_attributes(call.usage))
            for kind, count in (("input", call.usage.input), ("output", call.usage.output)):
                self._to.token_histogram.record(count, {**self._asked, "gen_ai.token.type": kind})
        if call.cost is not None:
            span.set_attribute("trimtab.cost.usd", call.cost)
        wrong: SpanAttributes = {"error.type": call.outcome} if has_failed else {}
        self._to.duration_histogram.record(call.seconds, {**self._asked, **wrong})
        self._close_span(self._call, call.outcome if has_failed else None, seconds=call.seconds)
        self._call = None

    def _start_tool(self, call: ToolCall) -> None:
        attributes: SpanAttributes = {
            "gen_ai.tool.name": call.name,
            "gen_ai.tool.call.id": call.id,
            "gen_ai.tool.type": "function",
        }
        self._tools[id(call)] = self._open_span(
            f"execute_tool {call.name}", "execute_tool", attributes
        )

    def _end_tool(self, tool: turn_events.ToolFinished) -> None:
        open_span = self._tools.pop(id(tool.call), None)
        if open_span is not None:  # else it never ran
            self._close_span(open_span, "tool_error" if tool.is_error else None)

    def _record_summary(self, event: turn_events.SummaryFinished) -> None:
        attempt = event.attempt
        now = time_ns()
        attributes: SpanAttributes = {
            **self._own,
            "gen_ai.operation.name": "summarise",
            "gen_ai.request.model": attempt.model,
            "trimtab.summary.outcome": attempt.outcome,
            "trimtab.summary.calls": attempt.calls,
            "trimtab.summary.tokens": attempt.tokens,
            "trimtab.summary.replaced_tokens": attempt.replaced,
            "trimtab.summary.patched_items": attempt.patched,
            "trimtab.window.messages": event.messages,
            "trimtab.window.tokens": event.tokens,
        }
        if attempt.usage is not None:
            attributes |= _usage_attributes(attempt.usage)
        span = self._to.tracer.start_span(
            f"summarise {attempt.model}",
            context=self._within,
            attributes=attributes,
            start_time=now - int(event.seconds * 1e9),
        )
        if not attempt.tokens:
            _mark_failed(span, attempt.outcome)
        span.end(now)

    def _end_turn(
        self, outcome: str, *, calls: int | None = None, error: str | None = None
    ) -> None:
        if self._turn is None:
            return
        self._turn.span.set_attribute("trimtab.turn.outcome", outcome)
        if calls is not None:
            self._turn.span.set_attribute("trimtab.turn.calls", calls)
        self._close_span(self._turn, error)
        self._turn = None

    def _fail_turn(self, event: turn_events.TurnFailed) -> None:
        for open_span in self._tools.values():
            # It was the current span of a task that is over, not of this one.
            _mark_failed(open_span.span, "cancelled")
            open_span.span.end()
        self._tools.clear()
        if self._call is not None:
            wrong = "cancelled" if event.reason == "cancelled" else event.error
            seconds = (time_ns() - self._call.started_ns) / 1e9
            self._to.duration_histogram.record(seconds, {**self._asked, "error.type": wrong})
            self._close_span(self._call, wrong)
            self._call = None
        self._end_turn(event.reason, error=event.error)

    def _open_span(
        self,
        name: str,
        operation: str,
        extra_attributes: SpanAttributes,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        within: context.Context | None = None,
    ) -> OpenSpan:
        attributes: SpanAttributes = {
            "gen_ai.operation.name": operation,
            **self._own,
            **extra_attributes,
        }
        within = self._within if within is None else within
        began = time_ns()
        span = self._to.tracer.start_span(
            name, context=within, kind=kind, attributes=attributes, start_time=began
        )
        before = context.attach(trace.set_span_in_context(span))
        return OpenSpan(span, began, before)

    def _close_span(
        self, opened: OpenSpan, error_type: str | None, *, seconds: float | None = None
    ) -> None:
        # A task that began it may have ended meanwhile, and the span is current in no other one.
        if trace.get_current_span() is opened.span:
            context.detach(opened.context_token)  # pyright: ignore[reportArgumentType] - an opaque token
        if error_type is not None:
            _mark_failed(opened.span, error_type)
        opened.span.end(None if seconds is None else opened.started_ns + int(seconds * 1e9))


def _mark_failed(span: Span, error_type: str) -> None:
    span.set_attribute("error.type", error_type)
    span.set_status(Status(StatusCode.ERROR, error_type))


def _usage_attributes(usage: Usage) -> SpanAttributes:
    """Return the usage. The input includes cache reads and writes."""
    return {
        "gen_ai.usage.input_tokens": usage.input,
        "gen_ai.usage.output_tokens": usage.output,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read,
        "gen_ai.usage.cache_write.input_tokens": usage.cache_write,
    }
