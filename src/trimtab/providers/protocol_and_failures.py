"""What a provider is to the loop: a request in, the wire's own events out."""

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
"""What may pass when the same request is sent again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderFailureDetails:
    """What a provider's error, stop reason or stream event means."""

    kind: FailureKind
    """What is to be done about it."""
    message: str
    """The provider's own words."""
    status: int | None = None
    """Of the HTTP response; None for an error inside a stream or none at all."""
    limit: int | None = None
    """Tokens that the model takes, where the provider named them."""
    input: int | None = None
    """Tokens of input that the provider counted."""
    requested: int | None = None
    """Tokens of output that were asked for, as the provider counted them."""
    retry_after: float | None = None
    """Seconds that the provider asks to wait."""


STREAM_CUT_SHORT = ProviderFailureDetails(
    kind="server", message="the stream ended before the reply was whole"
)
"""A stream that simply ends. Some servers refuse a streamed request so, without a word."""


class ProviderError(TrimtabError):
    """A call that ended in an error."""

    def __init__(self, failure: ProviderFailureDetails) -> None:
        self.failure = failure
        status = f" (HTTP {failure.status})" if failure.status else ""
        super().__init__(f"{failure.kind}{status}: {failure.message}")


class ProviderPaused(ProviderError):
    """A call that was not made, for the provider has failed too often: see `CircuitBreaker`.
    `failure` is the last one, and its `retry_after` says when to look again."""


class Provider(Protocol):
    """Somebody who answers requests of one dialect."""

    @property
    def dialect(self) -> str:
        """The wire format it speaks."""
        ...

    def send(self, request: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        """Send what `Context.request()` gave. With `stream` the stream's events as plain dicts,
        else one whole reply. Raises ProviderError; never retries by itself."""
        ...

    async def close(self) -> None:
        """Give back connections."""
        ...
