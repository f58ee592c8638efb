"""Count turns for Prometheus. Importing this module turns the metrics on."""

from __future__ import annotations

from contextvars import Token
from time import perf_counter

from trimtab.engine.log.call_failure import OVER_CEILING_KIND
from trimtab.engine.log.event import Usage
from trimtab.engine.tokens.cost import compute_cost_usd
from trimtab.observe.instrument import turn_observers
from trimtab.observe.tool_timers import RunningToolTimers
from trimtab.session import events as turn_events
from trimtab_serve.metrics import definitions
from trimtab_serve.metrics.definitions import REGISTRY as REGISTRY
from trimtab_serve.metrics.labels import (
    OTHER_LABEL,
    LabelLimiter,
    PayerLabels,
    current_payer,
    reset_payer,
    set_payer,
)
from trimtab_serve.metrics.recording import AGENT_LABELS, TENANT_LABELS

# Imported after `metrics`, which says what to install if the package is missing.
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest  # isort: skip

MODEL_LABELS = LabelLimiter(50)
TOOL_LABELS = LabelLimiter(100)
"""Names of tools that have run. A model may ask for tools that do not exist."""


def render_metrics() -> tuple[bytes, str]:
    """Return the answer of `/metrics`.

    Returns:
        The body and its content type.
    """
    return generate_latest(REGISTRY) + generate_latest(
        definitions.PROCESS_REGISTRY
    ), CONTENT_TYPE_LATEST


class TurnMetrics:
    """Counts the events of one turn. `session` is for events outside of a turn, such as a summary
    that another process writes."""

    def __init__(self, agent: str = "", session: str = "") -> None:
        self._agent_name = agent
        self._agent = AGENT_LABELS(agent)
        self._payer = self._find_payer(session)
        self._payer_token: Token[PayerLabels | None] | None = None
        self._model = ""
        self._tools = RunningToolTimers()
        self._began: float | None = None
        self._called: float | None = None

    def __call__(self, event: turn_events.TurnEvent) -> None:
        """Count one event."""
        match event:
            case turn_events.TextDelta():
                self._observe_first_delta()
            case turn_events.ModelCallStarted():
                self._count_call_start(event)
            case turn_events.ModelCallFinished():
                self._count_call_end(event)
            case turn_events.ToolStarted():
                TOOL_LABELS(event.call.name)
                self._tools.start(event)
            case turn_events.ToolFinished():
                self._count_tool_end(event)
            case turn_events.ContextEdited():
                _count_hidden(event.op, event.cause, event.count, event.tokens)
            case turn_events.SummaryFinished():
                self._count_summary(event)
            case turn_events.ModelCallRetried():
                self._count_retry(event)
            case turn_events.TurnStarted():
                self._count_turn_start(event)
            case turn_events.TurnFinished():
                self._count_turn_finished(event)
            case turn_events.TurnFailed():
                self._count_turn_failure(event)
            case _:
                pass

    def _count_turn_start(self, turn: turn_events.TurnStarted) -> None:
        self._model = MODEL_LABELS(turn.model)
        self._began = perf_counter()
        self._payer = self._find_payer(turn.session)
        self._payer_token = set_payer(self._payer)
        definitions.turns_running.labels(self._agent).inc()

    def _count_call_start(self, call: turn_events.ModelCallStarted) -> None:
        self._called = perf_counter()
        self._model = model = MODEL_LABELS(call.model)
        definitions.prompt_tokens.labels(model).observe(call.tokens)
        definitions.prompt_budget_ratio.labels(model).observe(call.room_share)
        definitions.window_messages.observe(call.messages)
        counter = definitions.prompt_section_tokens
        counter.labels(model, "system_and_tools").inc(call.head)
        counter.labels(model, "summary").inc(call.front)
        counter.labels(model, "messages").inc(max(0, call.tokens - call.head - call.front))
        if call.near:
            definitions.near_limit.labels(model).inc()

    def _observe_first_delta(self) -> None:
        if self._called is not None:
            took = perf_counter() - self._called
            definitions.time_to_first_token.labels(self._model).observe(took)

    def _count_call_end(self, call: turn_events.ModelCallFinished) -> None:
        self._called = None
        if call.outcome == OVER_CEILING_KIND:
            return  # it was never made
        definitions.model_calls.labels(self._model, call.outcome).inc()
        definitions.model_call_duration.labels(self._model).observe(call.seconds)
        self._count_usage(self._model, "reply", call.usage, call.cost)

    def _count_retry(self, call: turn_events.ModelCallRetried) -> None:
        definitions.model_call_retries.labels(call.kind).inc()
        if call.limit is not None:
            definitions.learned_limits.labels(self._model).inc()

    def _count_tool_end(self, tool: turn_events.ToolFinished) -> None:
        seconds = self._tools.stop(tool)
        name = tool.call.name if tool.call.name in TOOL_LABELS else OTHER_LABEL
        ran = "error" if tool.is_error else "ok"
        definitions.tool_calls.labels(name, "not_run" if seconds is None else ran).inc()
        if seconds is not None:
            definitions.tool_call_duration.labels(name).observe(seconds)

    def _count_turn_failure(self, end: turn_events.TurnFailed) -> None:
        if self._called is not None:
            outcome = "cancelled" if end.reason == "cancelled" else "error"
            definitions.model_calls.labels(self._model, outcome).inc()
            definitions.model_call_duration.labels(self._model).observe(
                perf_counter() - self._called
            )
            self._called = None
        for call, seconds in self._tools.stop_all():
            name = call.name if call.name in TOOL_LABELS else OTHER_LABEL
            definitions.tool_calls.labels(name, "cancelled").inc()
            definitions.tool_call_duration.labels(name).observe(seconds)
        if end.reason == "stale":  # a store that is away is counted where it is met
            definitions.store_errors.labels(end.error).inc()
        self._count_turn_end(end.reason)

    def _count_turn_finished(self, end: turn_events.TurnFinished) -> None:
        self._count_turn_end(end.reason)
        if end.cost_ceiling is not None:
            refusals = definitions.cost_ceiling_refusals
            refusals.labels(self._agent, end.cost_ceiling).inc()

    def _count_turn_end(self, outcome: str) -> None:
        if self._began is None:
            return
        definitions.turns.labels(self._agent, outcome).inc()
        definitions.turn_duration.labels(self._agent).observe(perf_counter() - self._began)
        definitions.turns_running.labels(self._agent).dec()
        self._began = None
        if self._payer_token is not None:
            reset_payer(self._payer_token)
            self._payer_token = None

    def _find_payer(self, session: str) -> PayerLabels:
        """Return the payer of the enclosing turn, otherwise this agent and the tenant of its
        session."""
        tenant, _, rest = session.partition("/")
        is_served = rest.startswith(f"{self._agent_name}/")
        return current_payer() or PayerLabels(
            self._agent, TENANT_LABELS(tenant) if is_served else ""
        )

    def _count_summary(self, event: turn_events.SummaryFinished) -> None:
        attempt = event.attempt
        model = MODEL_LABELS(attempt.model)
        whole = attempt.part is None
        target, op = ("messages", "summarise") if whole else ("tool_result", "truncate")
        definitions.summaries.labels(attempt.outcome, target).inc()
        definitions.summary_duration.observe(event.seconds)
        definitions.summary_model_calls.labels(model).inc(attempt.calls)
        if attempt.tokens:
            definitions.summary_tokens.observe(attempt.tokens)
            definitions.summary_patched_items.inc(attempt.patched)
            _count_hidden(op, "summary", 1, attempt.replaced)
        cost_usd = (
            compute_cost_usd(attempt.usage, attempt.prices) if attempt.usage is not None else None
        )
        self._count_usage(model, "summary", attempt.usage, cost_usd)

    def _count_usage(
        self, model: str, purpose: str, usage: Usage | None, cost: float | None
    ) -> None:
        if usage is not None:
            tokens = definitions.tokens
            tokens.labels(model, "input", purpose).inc(usage.input)
            tokens.labels(model, "output", purpose).inc(usage.output)
            tokens.labels(model, "cache_read", purpose).inc(usage.cache_read)
            tokens.labels(model, "cache_write", purpose).inc(usage.cache_write)
        if cost is not None:
            definitions.cost.labels(model, purpose).inc(cost)
            definitions.agent_cost.labels(*self._payer).inc(cost)


def _count_hidden(op: str, cause: str, count: int, hidden_token_count: int) -> None:
    definitions.edits.labels(op, cause).inc(count)
    definitions.hidden_tokens.labels(op, cause).inc(max(0, hidden_token_count))


turn_observers.append(TurnMetrics)
