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

from trimtab.observe.labels import OTHER, Bounded

Posted = Literal["taken", "known", "crowded"]
"""Kept; known already by its key; or refused, as too many wait."""
Sent = Literal["sent", "put_off", "refused", "unknown", "given_up"]
"""Arrived; the platform asked to wait; it will never arrive; it may have arrived and is tried
again; it is not tried again."""
Fired = Literal["ran", "failed"]
"""It did as its rule for missed runs says; or it could not be posted and stays due."""

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
AGENTS = Bounded(100)
TENANTS = Bounded(100)
DOORS = Bounded(50)
ROUTES = Bounded(100)
ERRORS = Bounded(50)


@cache
def _meters() -> ModuleType | None:
    try:
        from trimtab.observe import prometheus
    except ImportError:
        return None
    return prometheus.meters


def letter_posted(tenant: str, outcome: Posted = "taken") -> None:
    """A door has handed something in."""
    if (meters := _meters()) is not None:
        meters.letters.labels(TENANTS(tenant), outcome).inc()


def letters_waiting(count: int) -> None:
    """So many messages wait for a turn now; best asked of the mail when `/metrics` is read."""
    if (meters := _meters()) is not None:
        meters.letters_waiting.set(count)


def letters_answered(agent: str, waited: Sequence[float]) -> None:
    """A turn is finished; of each message that it took, the seconds since it came."""
    if (meters := _meters()) is not None:
        # A door's clock may be ahead of ours.
        for seconds in waited:
            meters.letter_seconds.labels(AGENTS(agent)).observe(max(0.0, seconds))


def sessions_dead(count: int) -> None:
    """So many sessions were given up and wait for somebody to look; best asked as above."""
    if (meters := _meters()) is not None:
        meters.sessions_dead.set(count)


def turn_put_off() -> None:
    """A turn has failed and is tried again."""
    if (meters := _meters()) is not None:
        meters.turn_retries.inc()


def turn_given_up(letters: int) -> None:
    """A turn is not tried again, and so many messages stay unanswered."""
    if (meters := _meters()) is not None:
        meters.dead_letters.inc(letters)


def delivery_ended(door: str, outcome: Sent, seconds: float | None = None) -> None:
    """One attempt to send a reply is over."""
    if (meters := _meters()) is not None:
        meters.deliveries.labels(DOORS(door), outcome).inc()
        if seconds is not None:
            meters.delivery_seconds.labels(DOORS(door)).observe(seconds)


def schedule_fired(outcome: Fired) -> None:
    """A schedule was due."""
    if (meters := _meters()) is not None:
        meters.schedules.labels(outcome).inc()


def http_ended(method: str, route: str, status: int, seconds: float) -> None:
    """A request is answered. `route` is the pattern, `/v1/sessions/{id}`, never the path; empty
    where none was found."""
    if (meters := _meters()) is not None:
        verb = method if method in METHODS else OTHER
        where = ROUTES(route) if route else OTHER
        meters.http.labels(verb, where, str(status)).inc()
        meters.http_seconds.labels(verb, where).observe(seconds)


@contextmanager
def streaming() -> Generator[None]:
    """Somebody listens to a stream of events, for the length of a `with`."""
    meters: Any = _meters()
    if meters is None:
        yield
        return
    with meters.streams_open.track_inprogress():
        yield


def store_failed(error: Exception) -> None:
    """The store has raised where no turn tells of it: in a queue, a door, or the mail."""
    if (meters := _meters()) is not None:
        meters.store_errors.labels(ERRORS(type(error).__name__)).inc()
