"""Stops calling a provider that fails repeatedly, and finds out by itself when it works again.

After some failures in a row, only one probe at a time is sent, with a pause between probes. The
first content of a reply closes the circuit again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from dataclasses import replace
from http import HTTPStatus
from typing import Any, cast
from urllib.parse import urlsplit

from trimtab.errors import ProviderError, ProviderFailureDetails, ProviderPaused
from trimtab.providers.base import STREAM_CUT_SHORT, TRANSIENT_KINDS, Provider
from trimtab.providers.retries import has_content

FAILURES_TO_OPEN = 5
"""Failed calls in a row after which the circuit opens."""
FIRST_PROBE_S = 5.0
MAX_PROBE_S = 30.0
"""Seconds before the first probe, and the maximum. Each wait is twice the previous one."""
MAX_RETRY_AFTER_S = 300.0
"""Maximum number of seconds before a probe that the provider can ask for."""
PROBE_RUNNING_S = 5.0
"""Seconds after which to look again while a probe runs."""

log = logging.getLogger("trimtab.providers")


class CircuitBreaker:
    """The state of one provider, shared by all callers in this process."""

    def __init__(self, name: str = "", *, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = name
        """The name in the log and the metrics."""
        self._clock = clock
        self._failures = 0
        self._probe_wait_s = 0.0
        self._probe_at = 0.0
        self._probing = False
        self._last: ProviderFailureDetails | None = None

    @property
    def is_open(self) -> bool:
        """Whether calls are held back."""
        return self._last is not None

    def seconds_until_probe(self) -> float | None:
        """Return how long calls are still held back; None if a call can be made now."""
        if not self.is_open:
            return None
        if self._probing:
            return PROBE_RUNNING_S
        seconds = self._probe_at - self._clock()
        return seconds if seconds > 0 else None

    def check(self) -> None:
        """Raise `ProviderPaused` if no call can be made now."""
        wait = self.seconds_until_probe()
        if wait is not None and self._last is not None:
            raise ProviderPaused(replace(self._last, retry_after=wait))

    def begin_call(self) -> bool:
        """Get permission for a call; return True if the call is a probe.

        Raise `ProviderPaused` otherwise.
        """
        self.check()
        self._probing = self.is_open
        return self._probing

    def end_call(self, *, probe: bool) -> None:
        """Record the end of a call, whatever its result, so that another probe can be made."""
        if probe:
            self._probing = False

    def record_success(self) -> None:
        """Record that the provider answers, so that calls are made again."""
        if self.is_open:
            log.info("provider %s answers again; its circuit is closed", self.name)
        self._failures = 0
        self._last = None
        self._probe_wait_s = 0.0

    def record_failure(self, failure: ProviderFailureDetails) -> None:
        """Record a failed call.

        A key that is not accepted opens the circuit at once. A transient error opens it after some
        failures in a row. Other errors are caused by the request. A 403 may be about the key or
        about one user's text, because firewalls in front of a provider reject texts with it. So a
        single 403 opens nothing.
        """
        if failure.kind == "auth" and failure.status != HTTPStatus.FORBIDDEN:
            self._failures = max(self._failures, FAILURES_TO_OPEN)
        elif failure.kind == "auth" or failure.kind in TRANSIENT_KINDS:
            self._failures += 1
        else:
            if self.is_open and failure.status is not None:
                self.record_success()  # a provider that refuses a request has read it
            return
        if self._failures < FAILURES_TO_OPEN:
            return
        if not self.is_open:
            log.error(
                "provider %s failed %d times in a row; its circuit is open and messages wait: %s",
                self.name,
                self._failures,
                ProviderError(failure),
            )
        elif self._clock() < self._probe_at:
            return  # begun before the circuit opened
        self._last = failure
        self._probe_wait_s = min(MAX_PROBE_S, max(FIRST_PROBE_S, 2 * self._probe_wait_s))
        retry_after = min(MAX_RETRY_AFTER_S, failure.retry_after or 0.0)
        self._probe_at = self._clock() + max(self._probe_wait_s, retry_after)


def with_circuit_breaker(provider: Provider, breaker: CircuitBreaker) -> Provider:
    """Return the provider, called only while the breaker allows it.

    Put it inside the retries, so that each attempt counts and none is made while the circuit is
    open.
    """
    return _GuardedProvider(provider, breaker)


class CircuitBreakers:
    """One breaker for each combination of provider, address and key."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, str], CircuitBreaker] = {}

    def get(self, provider_name: str, base_url: str | None, api_key: str | None) -> CircuitBreaker:
        """Return the breaker of a provider. Its name contains no secret."""
        host = urlsplit(base_url).hostname if base_url else None
        port = urlsplit(base_url).port if base_url else None
        place = f"{host}:{port}" if host and port else host
        name = f"{provider_name} at {place}" if place else provider_name
        return self._made.setdefault((name, api_key or ""), CircuitBreaker(name))


class _GuardedProvider:
    def __init__(self, provider: Provider, breaker: CircuitBreaker) -> None:
        self._provider = provider
        self._breaker = breaker

    @property
    def dialect(self) -> str:
        return self._provider.dialect

    async def send(self, request: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        probe = self._breaker.begin_call()
        has_answer = False
        try:
            async with aclosing(cast("Any", self._provider.send(request))) as events:
                async for event in events:
                    if not has_answer and has_content(event):
                        has_answer = True
                        self._breaker.record_success()
                    yield event
            if not has_answer:
                self._breaker.record_failure(STREAM_CUT_SHORT)
        except ProviderError as error:
            if not has_answer:
                self._breaker.record_failure(error.failure)
            raise
        finally:
            self._breaker.end_call(probe=probe)

    async def close(self) -> None:
        await self._provider.close()
