"""Turns as Prometheus counts them. Loading this module is what turns the metrics on."""

from __future__ import annotations

from time import perf_counter

from trimtab.log.event import Usage
from trimtab.observe import metrics
from trimtab.observe.label_limiter import OTHER_LABEL, LabelLimiter
from trimtab.observe.metrics import REGISTRY as REGISTRY
from trimtab.observe.tool_timers import RunningToolTimers
from trimtab.session.events import (
    ContextEdited,
    ModelCallFinished,
    ModelCallRetried,
    ModelCallStarted,
    SummaryFinished,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnEvent,
    TurnFailed,
    TurnFinished,
    TurnStarted,
)
from trimtab.window.costs import compute_cost_usd

# Imported behind `meters`, which says what to install where it is missing.
from prometheus_client import (  # isort: skip
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    generate_latest,
    start_http_server,
)

AGENT_LABELS = LabelLimiter(100)
MODEL_LABELS = LabelLimiter(50)
TOOL_LABELS = LabelLimiter(100)
"""Of tools that have run: a model may ask for names that nobody has heard of."""


def render_metrics() -> tuple[bytes, str]:
    """What `/metrics` answers: the body, and its content type."""
    return generate_latest(REGISTRY) + generate_latest(
        metrics.PROCESS_REGISTRY
    ), CONTENT_TYPE_LATEST


def start_metrics_server(port: int, host: str = "127.0.0.1") -> int:
    """Answer `/metrics` from a thread of its own, for processes that offer no HTTP; returns the
    port. Raises `ValueError` where it is taken."""
    both = CollectorRegistry()
    both.register(REGISTRY)
    both.register(metrics.PROCESS_REGISTRY)
    try:
        server, _ = start_http_server(port, addr=host, registry=both)
    except OSError as error:
        raise ValueError(f"metrics cannot be shown at {host}:{port}: {error.strerror}") from error
    return server.server_port


class TurnMetrics:
    """Counts what happens in one turn."""

    def __init__(self, agent: str = "") -> None:
        self._agent = AGENT_LABELS(agent)
        self._model = ""
        self._tools = RunningToolTimers()
        self._began: float | None = None
        self._called: float | None = None
        self._failed = ""

    def __call__(self, event: TurnEvent) -> None:
        """Hear what happens."""
        match event:
            case TextDelta():
                self._observe_first_delta()
            case ModelCallStarted():
                self._count_call_start(event)
            case ModelCallFinished():
                self._count_call_end(event)
            case ToolStarted():
                TOOL_LABELS(event.call.name)
                self._tools.start(event)
            case ToolFinished():
                self._count_tool_end(event)
            case ContextEdited():
                _count_hidden(event.op, event.cause, event.count, event.tokens)
            case SummaryFinished():
                _count_summary(event)
            case ModelCallRetried():
                self._count_retry(event)
            case TurnStarted():
                self._count_turn_start(event)
            case TurnFinished():
                self._count_turn_end(event.reason)
            case TurnFailed():
                self._count_turn_failure(event)
            case _:
                pass

    def _count_turn_start(self, turn: TurnStarted) -> None:
        self._model = MODEL_LABELS(turn.model)
        self._began = perf_counter()
        metrics.turns_running.labels(self._agent).inc()

    def _count_call_start(self, call: ModelCallStarted) -> None:
        self._called = perf_counter()
        self._model = model = MODEL_LABELS(call.model)
        metrics.prompt_tokens.labels(model).observe(call.tokens)
        metrics.prompt_share.labels(model).observe(call.room_share)
        metrics.window_messages.observe(call.messages)
        sent = metrics.prompt_section_tokens
        sent.labels(model, "head").inc(call.head)
        sent.labels(model, "front").inc(call.front)
        sent.labels(model, "messages").inc(max(0, call.tokens - call.head - call.front))
        if call.near:
            metrics.near_limit.labels(model).inc()

    def _observe_first_delta(self) -> None:
        if self._called is not None:
            took = perf_counter() - self._called
            metrics.first_piece_seconds.labels(self._model).observe(took)

    def _count_call_end(self, call: ModelCallFinished) -> None:
        self._called = None
        self._failed = call.outcome
        metrics.calls.labels(self._model, call.outcome).inc()
        metrics.call_seconds.labels(self._model).observe(call.seconds)
        _count_usage(self._model, "turn", call.usage, call.cost)

    def _count_retry(self, call: ModelCallRetried) -> None:
        metrics.recoveries.labels(self._failed).inc()
        if call.limit is not None:
            metrics.learned_limits.labels(self._model).inc()

    def _count_tool_end(self, tool: ToolFinished) -> None:
        seconds = self._tools.stop(tool)
        name = tool.call.name if tool.call.name in TOOL_LABELS else OTHER_LABEL
        ran = "error" if tool.is_error else "ok"
        metrics.tools.labels(name, "not_run" if seconds is None else ran).inc()
        if seconds is not None:
            metrics.tool_seconds.labels(name).observe(seconds)

    def _count_turn_failure(self, end: TurnFailed) -> None:
        if self._called is not None:
            outcome = "cancelled" if end.reason == "cancelled" else "error"
            metrics.calls.labels(self._model, outcome).inc()
            metrics.call_seconds.labels(self._model).observe(perf_counter() - self._called)
            self._called = None
        for call, seconds in self._tools.stop_all():
            name = call.name if call.name in TOOL_LABELS else OTHER_LABEL
            metrics.tools.labels(name, "cancelled").inc()
            metrics.tool_seconds.labels(name).observe(seconds)
        if end.reason in ("store", "stale"):
            metrics.store_errors.labels(end.error).inc()
        self._count_turn_end(end.reason)

    def _count_turn_end(self, outcome: str) -> None:
        if self._began is None:
            return
        metrics.turns.labels(self._agent, outcome).inc()
        metrics.turn_seconds.labels(self._agent).observe(perf_counter() - self._began)
        metrics.turns_running.labels(self._agent).dec()
        self._began = None


def _count_summary(event: SummaryFinished) -> None:
    tried = event.attempt
    model = MODEL_LABELS(tried.model)
    of, op = ("messages", "summarise") if tried.part is None else ("result", "truncate")
    metrics.summaries.labels(tried.outcome, of).inc()
    metrics.summary_seconds.observe(event.seconds)
    metrics.summary_calls.labels(model).inc(tried.calls)
    if tried.tokens:
        metrics.summary_tokens.observe(tried.tokens)
        metrics.patched_items.inc(tried.patched)
        _count_hidden(op, "summary", 1, tried.replaced)
    paid = compute_cost_usd(tried.usage, tried.prices) if tried.usage is not None else None
    _count_usage(model, "summary", tried.usage, paid)


def _count_hidden(op: str, cause: str, count: int, hidden_token_count: int) -> None:
    metrics.edits.labels(op, cause).inc(count)
    metrics.hidden_tokens.labels(op, cause).inc(max(0, hidden_token_count))


def _count_usage(model: str, use: str, usage: Usage | None, cost: float | None) -> None:
    if usage is not None:
        metrics.tokens.labels(model, "input", use).inc(usage.input)
        metrics.tokens.labels(model, "output", use).inc(usage.output)
        metrics.tokens.labels(model, "cache_read", use).inc(usage.cache_read)
        metrics.tokens.labels(model, "cache_write", use).inc(usage.cache_write)
    if cost is not None:
        metrics.cost.labels(model, use).inc(cost)
