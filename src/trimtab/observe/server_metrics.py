"""What doors, queues and deliveries tell of themselves, for `/metrics`.

Plain functions, to be called where it happens. They do nothing where `prometheus_client` is not
installed. What is given must come from code or configuration, never from what a user wrote.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Any, Literal

from trimtab.observe.label_limiter import OTHER_LABEL, LabelLimiter

InboundResultLabel = Literal["taken", "known", "crowded"]
"""Kept; known already by its key; or refused, as too many wait."""
DeliveryResultLabel = Literal["sent", "put_off", "refused", "unknown", "given_up"]
"""Arrived; the platform asked to wait; it will never arrive; it may have arrived and is tried
again; it is not tried again."""
ScheduleResultLabel = Literal["ran", "failed"]
"""It did as its rule for missed runs says; or it could not be posted and stays due."""

HTTP_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
AGENT_LABELS = LabelLimiter(100)
TENANT_LABELS = LabelLimiter(100)
CHANNEL_LABELS = LabelLimiter(50)
ROUTE_LABELS = LabelLimiter(100)
ERROR_LABELS = LabelLimiter(50)


@cache
def _load_metrics() -> ModuleType | None:
    try:
        from trimtab.observe import prometheus
    except ImportError:
        return None
    return prometheus.metrics


def count_inbound_message(tenant: str, outcome: InboundResultLabel = "taken") -> None:
    """A door has handed something in."""
    if (meters := _load_metrics()) is not None:
        meters.letters.labels(TENANT_LABELS(tenant), outcome).inc()


def set_waiting_messages(count: int) -> None:
    """So many messages wait for a turn now; best asked of the mail when `/metrics` is read."""
    if (meters := _load_metrics()) is not None:
        meters.letters_waiting.set(count)


def observe_answer_delays(agent: str, delays_s: Sequence[float]) -> None:
    """A turn is finished; of each message that it took, the seconds since it came."""
    if (meters := _load_metrics()) is not None:
        # A door's clock may be ahead of ours.
        for seconds in delays_s:
            meters.letter_seconds.labels(AGENT_LABELS(agent)).observe(max(0.0, seconds))


def set_dead_sessions(count: int) -> None:
    """So many sessions were given up and wait for somebody to look; best asked as above."""
    if (meters := _load_metrics()) is not None:
        meters.sessions_dead.set(count)


def count_turn_retry() -> None:
    """A turn has failed and is tried again."""
    if (meters := _load_metrics()) is not None:
        meters.turn_retries.inc()


def count_dead_letters(count: int) -> None:
    """A turn is not tried again, and so many messages stay unanswered."""
    if (meters := _load_metrics()) is not None:
        meters.dead_letters.inc(count)


def count_delivery_attempt(
    channel: str, outcome: DeliveryResultLabel, duration_s: float | None = None
) -> None:
    """One attempt to send a reply is over."""
    if (meters := _load_metrics()) is not None:
        meters.deliveries.labels(CHANNEL_LABELS(channel), outcome).inc()
        if duration_s is not None:
            meters.delivery_seconds.labels(CHANNEL_LABELS(channel)).observe(duration_s)


def count_schedule_run(outcome: ScheduleResultLabel) -> None:
    """A schedule was due."""
    if (meters := _load_metrics()) is not None:
        meters.schedules.labels(outcome).inc()


def count_http_request(method: str, route: str, status: int, duration_s: float) -> None:
    """A request is answered. `route` is the pattern, `/v1/sessions/{id}`, never the path; empty
    where none was found."""
    if (meters := _load_metrics()) is not None:
        verb = method if method in HTTP_METHODS else OTHER_LABEL
        where = ROUTE_LABELS(route) if route else OTHER_LABEL
        meters.http.labels(verb, where, str(status)).inc()
        meters.http_seconds.labels(verb, where).observe(duration_s)


@contextmanager
def track_open_stream() -> Generator[None]:
    """Somebody listens to a stream of events, for the length of a `with`."""
    meters: Any = _load_metrics()
    if meters is None:
        yield
        return
    with meters.streams_open.track_inprogress():
        yield


def count_store_error(error: Exception) -> None:
    """The store has raised where no turn tells of it: in a queue, a door, or the mail."""
    if (meters := _load_metrics()) is not None:
        meters.store_errors.labels(ERROR_LABELS(type(error).__name__)).inc()
