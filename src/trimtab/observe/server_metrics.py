"""Metrics of channels, queues and deliveries, for `/metrics`.

Plain functions, to be called where something happens. They do nothing if `prometheus_client` is not
installed. Label values must come from code or configuration, never from what a user wrote.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Any, Literal

from trimtab.observe.label_limiter import OTHER_LABEL, LabelLimiter

InboundResultLabel = Literal["accepted", "duplicate", "rejected"]
"""Queued; a message with this key exists already; or refused, since too many wait."""
DeliveryResultLabel = Literal["sent", "deferred", "rejected", "unknown", "abandoned"]
"""Arrived; the platform asked to wait; it can never arrive; it may have arrived and is retried; it
is not retried."""
ScheduleResultLabel = Literal["ran", "failed"]
"""It ran, or was skipped as `catch_up` says; or it could not be queued and stays due."""

HTTP_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
AGENT_LABELS = LabelLimiter(100)
TENANT_LABELS = LabelLimiter(100)
CHANNEL_LABELS = LabelLimiter(50)
ROUTE_LABELS = LabelLimiter(100)
ERROR_LABELS = LabelLimiter(50)


@cache
def _load_metrics() -> ModuleType | None:
    try:
        from trimtab.observe import prometheus_metric_definitions
    except ImportError:
        return None
    return prometheus_metric_definitions


def count_inbound_message(tenant: str, outcome: InboundResultLabel = "accepted") -> None:
    """A channel has passed on a message."""
    if (meters := _load_metrics()) is not None:
        meters.inbound_messages.labels(TENANT_LABELS(tenant), outcome).inc()


def set_waiting_messages(count: int) -> None:
    """So many messages wait for a turn now; best read from the queue when `/metrics` is read."""
    if (meters := _load_metrics()) is not None:
        meters.queued_messages.set(count)


def observe_answer_delays(agent: str, delays_s: Sequence[float]) -> None:
    """A turn is finished: the seconds since each of its messages arrived."""
    if (meters := _load_metrics()) is not None:
        # A channel's clock may be ahead of ours.
        for seconds in delays_s:
            meters.message_latency.labels(AGENT_LABELS(agent)).observe(max(0.0, seconds))


def set_dead_sessions(count: int) -> None:
    """So many sessions have dead letters and wait for an operator; best read as above."""
    if (meters := _load_metrics()) is not None:
        meters.dead_letter_sessions.set(count)


def count_turn_retry() -> None:
    """A turn has failed and is retried."""
    if (meters := _load_metrics()) is not None:
        meters.turn_retries.inc()


def count_dead_letters(count: int) -> None:
    """A turn is not retried, and so many messages stay unanswered."""
    if (meters := _load_metrics()) is not None:
        meters.dead_letters.inc(count)


def count_delivery_attempt(
    channel: str, outcome: DeliveryResultLabel, duration_s: float | None = None
) -> None:
    """One attempt to send a reply is over."""
    if (meters := _load_metrics()) is not None:
        meters.deliveries.labels(CHANNEL_LABELS(channel), outcome).inc()
        if duration_s is not None:
            meters.delivery_duration.labels(CHANNEL_LABELS(channel)).observe(duration_s)


def count_schedule_run(outcome: ScheduleResultLabel) -> None:
    """A schedule was due."""
    if (meters := _load_metrics()) is not None:
        meters.schedule_runs.labels(outcome).inc()


def count_http_request(method: str, route: str, status: int, duration_s: float) -> None:
    """A request is answered. `route` is the pattern, `/v1/sessions/{id}`, never the path; it is
    empty if none matched."""
    if (meters := _load_metrics()) is not None:
        verb = method if method in HTTP_METHODS else OTHER_LABEL
        where = ROUTE_LABELS(route) if route else OTHER_LABEL
        meters.http_requests.labels(verb, where, str(status)).inc()
        meters.http_request_duration.labels(verb, where).observe(duration_s)


@contextmanager
def track_open_stream() -> Generator[None]:
    """A client reads a stream of events, for the length of a `with`."""
    meters: Any = _load_metrics()
    if meters is None:
        yield
        return
    with meters.event_streams_open.track_inprogress():
        yield


def count_store_error(error: Exception) -> None:
    """The store has raised where no turn reports it: in the queue or in a channel."""
    if (meters := _load_metrics()) is not None:
        meters.store_errors.labels(ERROR_LABELS(type(error).__name__)).inc()
