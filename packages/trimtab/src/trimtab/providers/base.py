"""The interface of providers: a request goes in, wire events come out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from trimtab.errors import TrimtabError

FailureKind = Literal[
    "overflow",  # the request is larger than the model takes
    "malformed",  # the history breaks a rule of the API: a call without its result, a wrong order
    "rate_limit",
    "overloaded",
    "server",  # 5xx, or a stream that broke off
    "network",
    "timeout",
    "auth",
    "rejected",  # what was said: a picture it cannot read, a text its policy forbids
    "refused",  # any other 4xx, such as the account, the model, a parameter
]

TRANSIENT_KINDS: frozenset[FailureKind] = frozenset(
    {"rate_limit", "overloaded", "server", "network", "timeout"}
)
"""Failures that may pass when the same request is sent again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderFailureDetails:
    """The meaning of a provider's error, stop reason or stream event."""

    kind: FailureKind
    """The kind of failure, which decides what to do."""
    message: str
    """The provider's error text."""
    status: int | None = None
    """The status of the HTTP response; None for an error inside a stream or without a response."""
    limit: int | None = None
    """Tokens that the model accepts, if the provider named them."""
    input: int | None = None
    """Tokens of input that the provider counted."""
    requested: int | None = None
    """Tokens of output that were requested, as the provider counted them."""
    retry_after: float | None = None
    """Seconds that the provider asks to wait."""


STREAM_CUT_SHORT = ProviderFailureDetails(
    kind="server", message="the stream ended before the reply was complete"
)
"""A stream that simply ends. Some servers refuse a streamed request this way, without an error."""


class ProviderError(TrimtabError):
    """A model call failed. `failure` has the details."""

    def __init__(self, failure: ProviderFailureDetails) -> None:
        self.failure = failure
        status = f" (HTTP {failure.status})" if failure.status else ""
        super().__init__(f"{failure.kind}{status}: {failure.message}")


class ProviderPaused(ProviderError):
    """A call was not made because the provider has failed too often; see `CircuitBreaker`.

    `failure` is the last failure, and its `retry_after` says when to try again.
    """


class Provider(Protocol):
    """Sends requests of one dialect. Write a class with these methods to add your own provider."""

    @property
    def dialect(self) -> str:
        """The wire format of its requests."""
        ...

    def send(self, request: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        """Send a request that `Context.request()` returned. Never retries.

        Args:
            request: The keyword arguments. With `stream` the reply is streamed.

        Returns:
            The events of the stream as plain dicts, or one whole reply.

        Raises:
            ProviderError: If the call fails.
        """
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...
