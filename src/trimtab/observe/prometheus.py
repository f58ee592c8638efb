"""Turns as Prometheus counts them. Loading this module is what turns the metrics on."""

from __future__ import annotations

from time import perf_counter

from trimtab.core.event import Usage
from trimtab.core.prices import cost_of
from trimtab.observe import meters
from trimtab.observe.labels import OTHER, Bounded
from trimtab.observe.meters import REGISTRY as REGISTRY
from trimtab.observe.timing import Running
from trimtab.session.happenings import (
    BrokeOff,
    CallBegan,
    CallEnded,
    Edited,
    Ended,
    Happening,
    Piece,
    Restarted,
    Summarised,
    ToolBegan,
    ToolEnded,
    TurnBegan,
)

# Imported behind `meters`, which says what to install where it is missing.
from prometheus_client import (  # isort: skip
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    generate_latest,
    start_http_server,
)

AGENTS = Bounded(100)
MODELS = Bounded(50)
TOOLS = Bounded(100)
"""Of tools that have run: a model may ask for names that nobody has heard of."""


def render() -> tuple[bytes, str]:
    """What `/metrics` answers: the body, and its content type."""
    return generate_latest(REGISTRY) + generate_latest(meters.PROCESS), CONTENT_TYPE_LATEST


def show(port: int, host: str = "127.0.0.1") -> int:
    """Answer `/metrics` from a thread of its own, for processes that offer no HTTP; returns the
    port. Raises `ValueError` where it is taken."""
    both = CollectorRegistry()
    both.register(REGISTRY)
    both.register(meters.PROCESS)
    try:
        server, _ = start_http_server(port, addr=host, registry=both)
    except OSError as error:
        raise ValueError(f"metrics cannot be shown at {host}:{port}: {error.strerror}") from error
    return server.server_port


class Metered:
    """Counts what happens in one turn."""

    def __init__(self, agent: str = "") -> None:
        self._agent = AGENTS(agent)
        self._model = ""
        self._tools = Running()
        self._began: float | None = None
        self._called: float | None = None
        self._failed = ""

    def __call__(self, happening: Happening) -> None:
        """Hear what happens."""
        match happening:
            case Piece():
                self._first()
            case CallBegan():
                self._asked(happening)
            case CallEnded():
                self._answered(happening)
            case ToolBegan():
                TOOLS(happening.call.name)
                self._tools.began(happening)
            case ToolEnded():
                self._tool(happening)
            case Edited():
                _hid(happening.op, happening.cause, happening.count, happening.tokens)
            case Summarised():
                _summary(happening)
            case Restarted():
                self._again(happening)
            case TurnBegan():
                self._turn(happening)
            case Ended():
                self._over(happening.why)
            case BrokeOff():
                self._broke_off(happening)
            case _:
                pass

    def _turn(self, turn: TurnBegan) -> None:
        self._model = MODELS(turn.model)
        self._began = perf_counter()
        meters.turns_running.labels(self._agent).inc()

    def _asked(self, call: CallBegan) -> None:
        self._called = perf_counter()
        self._model = model = MODELS(call.model)
        meters.prompt_tokens.labels(model).observe(call.tokens)
        meters.prompt_share.labels(model).observe(call.share)
        meters.window_messages.observe(call.messages)
        sent = meters.prompt_section_tokens
        sent.labels(model, "head").inc(call.head)
        sent.labels(model, "front").inc(call.front)
        sent.labels(model, "messages").inc(max(0, call.tokens - call.head - call.front))
        if call.near:
            meters.near_limit.labels(model).inc()

    def _first(self) -> None:
        if self._called is not None:
            took = perf_counter() - self._called
            meters.first_piece_seconds.labels(self._model).observe(took)

    def _answered(self, call: CallEnded) -> None:
        self._called = None
        self._failed = call.outcome
        meters.calls.labels(self._model, call.outcome).inc()
        meters.call_seconds.labels(self._model).observe(call.seconds)
        _used(self._model, "turn", call.usage, call.cost)

    def _again(self, call: Restarted) -> None:
        meters.recoveries.labels(self._failed).inc()
        if call.limit is not None:
            meters.learned_limits.labels(self._model).inc()

    def _tool(self, tool: ToolEnded) -> None:
        seconds = self._tools.ended(tool)
        name = tool.call.name if tool.call.name in TOOLS else OTHER
        ran = "error" if tool.is_error else "ok"
        meters.tools.labels(name, "not_run" if seconds is None else ran).inc()
        if seconds is not None:
            meters.tool_seconds.labels(name).observe(seconds)

    def _broke_off(self, end: BrokeOff) -> None:
        if self._called is not None:
            outcome = "cancelled" if end.why == "cancelled" else "error"
            meters.calls.labels(self._model, outcome).inc()
            meters.call_seconds.labels(self._model).observe(perf_counter() - self._called)
            self._called = None
        for call, seconds in self._tools.cut_off():
            name = call.name if call.name in TOOLS else OTHER
            meters.tools.labels(name, "cancelled").inc()
            meters.tool_seconds.labels(name).observe(seconds)
        if end.why in ("store", "stale"):
            meters.store_errors.labels(end.error).inc()
        self._over(end.why)

    def _over(self, outcome: str) -> None:
        if self._began is None:
            return
        meters.turns.labels(self._agent, outcome).inc()
        meters.turn_seconds.labels(self._agent).observe(perf_counter() - self._began)
        meters.turns_running.labels(self._agent).dec()
        self._began = None


def _summary(told: Summarised) -> None:
    tried = told.attempt
    model = MODELS(tried.model)
    of, op = ("messages", "summarise") if tried.part is None else ("result", "truncate")
    meters.summaries.labels(tried.outcome, of).inc()
    meters.summary_seconds.observe(told.seconds)
    meters.summary_calls.labels(model).inc(tried.calls)
    if tried.tokens:
        meters.summary_tokens.observe(tried.tokens)
        meters.patched_items.inc(tried.patched)
        _hid(op, "summary", 1, tried.replaced)
    paid = cost_of(tried.usage, tried.prices) if tried.usage is not None else None
    _used(model, "summary", tried.usage, paid)


def _hid(op: str, cause: str, count: int, hidden: int) -> None:
    meters.edits.labels(op, cause).inc(count)
    meters.hidden_tokens.labels(op, cause).inc(max(0, hidden))


def _used(model: str, use: str, usage: Usage | None, cost: float | None) -> None:
    if usage is not None:
        meters.tokens.labels(model, "input", use).inc(usage.input)
        meters.tokens.labels(model, "output", use).inc(usage.output)
        meters.tokens.labels(model, "cache_read", use).inc(usage.cache_read)
        meters.tokens.labels(model, "cache_write", use).inc(usage.cache_write)
    if cost is not None:
        meters.cost.labels(model, use).inc(cost)
