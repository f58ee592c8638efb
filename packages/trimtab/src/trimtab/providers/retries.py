"""The only layer that sends a request again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Mapping
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from typing import Any, cast

from trimtab.dialects.json_values import dict_or_none, dicts_in_list
from trimtab.errors import ProviderError, ProviderFailureDetails, ProviderPaused
from trimtab.providers.base import TRANSIENT_KINDS, Provider

MAX_FIRST_WAIT_S = 0.5
"""Maximum seconds of the first wait; doubled for each further wait."""

OnRetryWait = Callable[[ProviderFailureDetails, float], None]
"""Called with the failure and the seconds to wait, before a request is sent again."""

_wait_listener: ContextVar[OnRetryWait | None] = ContextVar("retry_wait_listener", default=None)

_BEFORE_CONTENT = frozenset(
    {"message_start", "ping", "response.created", "response.in_progress", "response.queued"}
)


def ignore_retry_wait(failure: ProviderFailureDetails, wait_s: float) -> None:
    """Ignore the wait."""
    del failure, wait_s


@contextmanager
def hear_retry_waits(listener: OnRetryWait) -> Generator[None]:
    """Hear of the waits of all providers with retries that are called in the block."""
    token = _wait_listener.set(listener)
    try:
        yield
    finally:
        _wait_listener.reset(token)


def with_retries(
    provider: Provider,
    *,
    max_attempts: int = 5,
    max_wait_s: float = 60.0,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    random_fraction: Callable[[], float] = random.random,
    on_wait: OnRetryWait = ignore_retry_wait,
) -> Provider:
    """Return the provider with retries for failures that may pass.

    Between attempts it waits as long as the provider asks, otherwise a random part of a time that
    doubles. If a part of the reply was already passed on, it does not retry, because that part
    cannot be taken back. The reader of the stream decides then.

    Args:
        provider: The provider to call.
        max_attempts: Maximum number of attempts.
        max_wait_s: Maximum number of seconds to wait between two attempts.
        sleep: The function that waits.
        random_fraction: A function that returns a random number from 0 to 1.
        on_wait: Called with the failure and the seconds before each wait.

    Returns:
        A provider.

    Raises:
        ValueError: If `max_attempts` is below 1.

    Example:
        Call Anthropic with up to five attempts::

            provider = with_retries(AnthropicProvider())
    """
    if max_attempts < 1:
        raise ValueError(f"max_attempts is {max_attempts}; it must be 1 or more")
    return _RetryingProvider(
        provider,
        max_attempts,
        max_wait_s,
        sleep=sleep,
        random_fraction=random_fraction,
        on_wait=on_wait,
    )


class _RetryingProvider:
    def __init__(
        self,
        provider: Provider,
        max_attempts: int,
        max_wait_s: float,
        *,
        sleep: Callable[[float], Awaitable[object]],
        random_fraction: Callable[[], float],
        on_wait: OnRetryWait,
    ) -> None:
        self._provider = provider
        self._attempts = max_attempts
        self._longest = max_wait_s
        self._sleep = sleep
        self._chance = random_fraction
        self._waits = on_wait

    @property
    def dialect(self) -> str:
        return self._provider.dialect

    async def send(self, request: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        for attempt in range(1, self._attempts + 1):
            passed_on = False
            try:
                async with aclosing(
                    _hold_back_until_content(self._provider.send(request))
                ) as events:
                    async for event in events:
                        passed_on = True
                        yield event
            except ProviderError as error:
                last = attempt == self._attempts
                is_pause = isinstance(error, ProviderPaused)
                if passed_on or last or is_pause or error.failure.kind not in TRANSIENT_KINDS:
                    if attempt > 1:
                        error.add_note(f"this was attempt {attempt} of {self._attempts}")
                    raise
                wait = self._compute_wait_s(error.failure, attempt)
                self._waits(error.failure, wait)
                if (listener := _wait_listener.get()) is not None:
                    listener(error.failure, wait)
            else:
                return
            await self._sleep(wait)

    async def close(self) -> None:
        await self._provider.close()

    def _compute_wait_s(self, failure: ProviderFailureDetails, attempt: int) -> float:
        # Full jitter: clients that failed together must not come back together. On top of what
        # the provider asks for it is the first step only, for that is no guess.
        if failure.retry_after is not None:
            return min(failure.retry_after + self._chance() * MAX_FIRST_WAIT_S, self._longest)
        return self._chance() * min(MAX_FIRST_WAIT_S * 2.0 ** (attempt - 1), self._longest)


async def _hold_back_until_content(
    events: AsyncIterator[Mapping[str, Any]],
) -> AsyncGenerator[Mapping[str, Any]]:
    """Pass events on, but hold events without content back until one has content.

    Anthropic reports an overload inside a stream that has just begun. If its first event had been
    passed on, the request could not be retried.
    """
    early_events: list[Mapping[str, Any]] | None = []
    try:
        async for event in events:
            if early_events is not None:
                early_events.append(event)
                if not has_content(event):
                    continue
                for early in early_events:
                    yield early
                early_events = None
            else:
                yield event
        for early in early_events or ():
            yield early
    finally:
        if hasattr(events, "aclose"):
            await cast("Any", events).aclose()


def has_content(event: Mapping[str, Any]) -> bool:
    """Whether an event of a stream, or a whole reply, has content."""
    if event.get("object") != "chat.completion.chunk":
        return event.get("type") not in _BEFORE_CONTENT
    return any(
        choice.get("finish_reason") or _delta_has_content(dict_or_none(choice.get("delta")) or {})
        for choice in dicts_in_list(event.get("choices"))
    )


def _delta_has_content(delta: Mapping[str, Any]) -> bool:
    return any(value for key, value in delta.items() if key != "role")
