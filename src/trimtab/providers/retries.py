"""The one layer that sends a request again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, cast

from trimtab.dialects.json_values import dict_or_none, dicts_in_list
from trimtab.providers.protocol_and_failures import (
    TRANSIENT_KINDS,
    Provider,
    ProviderError,
    ProviderFailureDetails,
    ProviderPaused,
)

MAX_FIRST_WAIT_S = 0.5
"""Seconds; the longest that the first wait may be, doubled with each further one."""

OnRetryWait = Callable[[ProviderFailureDetails, float], None]
"""Hears why a request is sent again, and in how many seconds."""

_BEFORE_CONTENT = frozenset(
    {"message_start", "ping", "response.created", "response.in_progress", "response.queued"}
)


def ignore_retry_wait(failure: ProviderFailureDetails, wait_s: float) -> None:
    """Nobody wants to know."""
    del failure, wait_s


def with_retries(
    provider: Provider,
    *,
    max_attempts: int = 5,
    max_wait_s: float = 60.0,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    random_fraction: Callable[[], float] = random.random,
    on_wait: OnRetryWait = ignore_retry_wait,
) -> Provider:
    """The provider, asked up to `attempts` times where its failure may pass.

    Between them it waits as long as the provider asks, else a random part of a time that doubles;
    never more than `longest` seconds, of which `waits` hears. Once something of the reply was
    passed on it asks no more: what came cannot be taken back, so whoever reads the stream decides.
    """
    if max_attempts < 1:
        raise ValueError(f"attempts is {max_attempts}; it must be 1 or more")
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
                paused = isinstance(error, ProviderPaused)
                if passed_on or last or paused or error.failure.kind not in TRANSIENT_KINDS:
                    if attempt > 1:
                        error.add_note(f"this was attempt {attempt} of {self._attempts}")
                    raise
                wait = self._compute_wait_s(error.failure, attempt)
                self._waits(error.failure, wait)
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
    """The events; those that say nothing yet are kept until one does.

    Anthropic reports an overload inside a stream that has just begun. Had its first event been
    passed on, that could not be tried again.
    """
    held: list[Mapping[str, Any]] | None = []
    try:
        async for event in events:
            if held is not None:
                held.append(event)
                if not has_content(event):
                    continue
                for early in held:
                    yield early
                held = None
            else:
                yield event
        for early in held or ():
            yield early
    finally:
        if hasattr(events, "aclose"):
            await cast("Any", events).aclose()


def has_content(event: Mapping[str, Any]) -> bool:
    """Return whether an event of a stream, or a whole reply, says something."""
    if event.get("object") != "chat.completion.chunk":
        return event.get("type") not in _BEFORE_CONTENT
    return any(
        choice.get("finish_reason") or _delta_has_content(dict_or_none(choice.get("delta")) or {})
        for choice in dicts_in_list(event.get("choices"))
    )


def _delta_has_content(delta: Mapping[str, Any]) -> bool:
    return any(value for key, value in delta.items() if key != "role")
