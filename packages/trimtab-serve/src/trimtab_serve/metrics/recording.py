"""Metrics of channels, queues and deliveries, for `/metrics`.

Call these functions when something happens. They do nothing if `prometheus_client` is not
installed. Label values must come from code or configuration, never from a user's text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from types import ModuleType
from typing import Any, Literal

from trimtab.stores.base import PoolUsage
from trimtab_serve.metrics.labels import OTHER_LABEL, LabelLimiter

InboundResultLabel = Literal["accepted", "duplicate", "rejected"]
"""Queued, already queued with this key, or refused because the queue is full."""
DeliveryResultLabel = Literal["sent", "deferred", "rejected", "unknown", "abandoned"]
"""Arrived, deferred by the platform, permanently rejected, unknown and retried, or given up."""
ScheduleResultLabel = Literal["ran", "failed"]
"""The schedule ran or was skipped according to `catch_up`, or it could not be queued and stays
due."""
ErasureEndLabel = Literal["done", "incomplete", "failed"]
"""Complete, complete except for damaged logs, or ended by an error."""
ApiKeyRejectionLabel = Literal["missing", "wrong", "expired", "paced"]
"""No key, an unknown key, an expired key, or too many requests with a missing or unknown key."""
ConnectionClosedLabel = Literal["header_timeout", "evicted", "refused"]
"""The headers took too long, another connection needed the place, or too many requests are open."""

HTTP_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
AGENT_LABELS = LabelLimiter(100)
TENANT_LABELS = LabelLimiter(100)
CHANNEL_LABELS = LabelLimiter(50)
PROVIDER_LABELS = LabelLimiter(50)
ROUTE_LABELS = LabelLimiter(100)
KEY_LABELS = LabelLimiter(200)
LOGGER_LABELS = LabelLimiter(50)


@cache
def _load_metrics() -> ModuleType | None:
    try:
        from trimtab_serve.metrics import definitions
    except ImportError:
        return None
    return definitions


def count_inbound_message(tenant: str, outcome: InboundResultLabel = "accepted") -> None:
    """Count a message from a channel."""
    if (meters := _load_metrics()) is not None:
        meters.inbound_messages.labels(TENANT_LABELS(tenant), outcome).inc()


def set_queue_state(waiting: int, dead_sessions: int, oldest_age_s: float) -> None:
    """Set what the store reported when `/metrics` was read."""
    if (meters := _load_metrics()) is not None:
        meters.store_reachable.set(1)
        meters.queued_messages.set(waiting)
        meters.dead_letter_sessions.set(dead_sessions)
        meters.oldest_waiting_message_age.set(max(0.0, oldest_age_s))


def mark_store_unreachable() -> None:
    """Mark the store as unreachable, and remove its old numbers, which would look current."""
    if (meters := _load_metrics()) is not None:
        meters.store_reachable.set(0)
        for gauge in (
            meters.queued_messages,
            meters.dead_letter_sessions,
            meters.oldest_waiting_message_age,
        ):
            gauge.set(math.nan)


def observe_answer_delays(agent: str, delays_s: Sequence[float]) -> None:
    """Record the seconds since each message of a finished turn arrived."""
    if (meters := _load_metrics()) is not None:
        # A channel's clock may be ahead of ours.
        for seconds in delays_s:
            meters.message_latency.labels(AGENT_LABELS(agent)).observe(max(0.0, seconds))


def count_turn_retry() -> None:
    """Count a turn that failed and is retried."""
    if (meters := _load_metrics()) is not None:
        meters.turn_retries.inc()


def set_waiting_retries(count: int) -> None:
    """Set how many sessions wait for another attempt at their turn. Call it when metrics are
    read."""
    if (meters := _load_metrics()) is not None:
        meters.turns_waiting_to_retry.set(count)


def set_provider_circuits(is_open_by_provider: Mapping[str, bool]) -> None:
    """Set whether the circuit of each provider is open. Call it when metrics are read."""
    if (meters := _load_metrics()) is not None:
        meters.provider_circuit_open.clear()
        for provider, is_open in is_open_by_provider.items():
            meters.provider_circuit_open.labels(PROVIDER_LABELS(provider)).set(is_open)


def count_dead_letters(count: int) -> None:
    """Count the messages that stay unanswered because a turn is not retried."""
    if (meters := _load_metrics()) is not None:
        meters.dead_letters.inc(count)


def count_delivery_attempt(
    channel: str, outcome: DeliveryResultLabel, duration_s: float | None = None
) -> None:
    """Count one attempt to send a reply."""
    if (meters := _load_metrics()) is not None:
        meters.deliveries.labels(CHANNEL_LABELS(channel), outcome).inc()
        if duration_s is not None:
            meters.delivery_duration.labels(CHANNEL_LABELS(channel)).observe(duration_s)


def count_retention_deletion(agent: str) -> None:
    """Count a session of an agent that was deleted because of its age."""
    if (meters := _load_metrics()) is not None:
        meters.retention_deleted.labels(AGENT_LABELS(agent)).inc()


def count_erasure(kind: Literal["user", "tenant"], outcome: ErasureEndLabel) -> None:
    """Count the erasure of a user or a tenant that was finished."""
    if (meters := _load_metrics()) is not None:
        meters.erasures.labels(kind, outcome).inc()


@contextmanager
def watch_erasure() -> Generator[None]:
    """Count the erasure of a user or a tenant that runs in the block."""
    if (meters := _load_metrics()) is None:
        yield
        return
    meters.erasures_running.inc()
    try:
        yield
    finally:
        meters.erasures_running.dec()


def count_schedule_run(outcome: ScheduleResultLabel) -> None:
    """Count a schedule that was due."""
    if (meters := _load_metrics()) is not None:
        meters.schedule_runs.labels(outcome).inc()


def count_http_request(method: str, route: str, status: int, duration_s: float) -> None:
    """Count an answered request. `route` is the pattern, `/v1/sessions/{id}`, never the path. It is
    empty if no route matched."""
    if (meters := _load_metrics()) is not None:
        verb = method if method in HTTP_METHODS else OTHER_LABEL
        where = ROUTE_LABELS(route) if route else OTHER_LABEL
        meters.http_requests.labels(verb, where, str(status)).inc()
        meters.http_request_duration.labels(verb, where).observe(duration_s)


def count_api_key_rejection(reason: ApiKeyRejectionLabel) -> None:
    """Count a request without a valid key."""
    if (meters := _load_metrics()) is not None:
        meters.api_key_rejections.labels(reason).inc()


def set_api_key_last_used(key_name: str, at: float) -> None:
    """Set when a key was last used, in seconds since the epoch."""
    if (meters := _load_metrics()) is not None:
        meters.api_key_last_used.labels(KEY_LABELS(key_name)).set(at)


def set_api_key_expiries(expires_by_key: Mapping[str, float]) -> None:
    """Set the expiry of all keys that expire, in seconds since the epoch. Other keys are
    removed."""
    if (meters := _load_metrics()) is not None:
        meters.api_key_expiry.clear()
        for name, at in expires_by_key.items():
            meters.api_key_expiry.labels(KEY_LABELS(name)).set(at)


def show_open_connections(count: Callable[[], int]) -> None:
    """Show the number of open HTTP connections whenever metrics are read."""
    if (meters := _load_metrics()) is not None:
        meters.http_connections_open.set_function(count)


def count_closed_connection(reason: ConnectionClosedLabel) -> None:
    """Count an HTTP connection that the server closed to protect itself."""
    if (meters := _load_metrics()) is not None:
        meters.http_connections_closed.labels(reason).inc()


def count_suppressed_log_line(logger_name: str) -> None:
    """Count a log line that was not written because the same line repeats too often."""
    if (meters := _load_metrics()) is not None:
        meters.log_lines_suppressed.labels(LOGGER_LABELS(logger_name)).inc()


@contextmanager
def track_open_stream() -> Generator[None]:
    """Count an open event stream inside of a `with` block."""
    meters: Any = _load_metrics()
    if meters is None:
        yield
        return
    with meters.event_streams_open.track_inprogress():
        yield


@contextmanager
def watch_pool(name: str, measure: Callable[[], PoolUsage]) -> Generator[None]:
    """Show a connection pool whenever metrics are read, inside of a `with` block."""
    meters: Any = _load_metrics()
    if meters is None:
        yield
        return
    gauges: dict[str, Any] = {
        "in_use": meters.pool_connections_in_use,
        "max_size": meters.pool_connections_max,
        "waiting": meters.pool_requests_waiting,
    }
    for part, gauge in gauges.items():
        gauge.labels(name).set_function(partial(_measure_pool, measure, part))
    try:
        yield
    finally:
        for gauge in gauges.values():
            gauge.remove(name)


def _measure_pool(measure: Callable[[], PoolUsage], part: str) -> float:
    return float(getattr(measure(), part))
