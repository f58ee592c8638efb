"""The interface of providers: a request goes in, wire events come out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from reprlib import repr as short
from typing import Any, Protocol

from trimtab.errors import FailureKind, ProviderFailureDetails

TRANSIENT_KINDS: frozenset[FailureKind] = frozenset(
    {"rate_limit", "overloaded", "server", "network", "timeout"}
)
"""Failures that may pass when the same request is sent again."""


STREAM_CUT_SHORT = ProviderFailureDetails(
    kind="server", message="the stream ended before the reply was complete"
)
"""A stream that simply ends. Some servers refuse a streamed request this way, without an error."""


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


def require_provider(provider: Any) -> None:
    """Raise `TypeError` if the value is not a provider, such as a client of an SDK."""
    if hasattr(provider, "dialect") and hasattr(provider, "send"):
        return
    kind: type[Any] = type(provider)  # pyright: ignore[reportUnknownVariableType] - it may be anything
    wrappers = {"anthropic": "AnthropicProvider", "openai": "OpenAIResponsesProvider"}
    wrapper = wrappers.get(kind.__module__.partition(".")[0])
    if wrapper is None:
        advice = "pass one of trimtab.providers, such as create_provider(model)"
    elif kind.__name__.startswith("Async"):
        advice = f"wrap it: with_retries({wrapper}(client)), from trimtab.providers"
    else:
        advice = f"wrap the async client: with_retries({wrapper}(Async{kind.__name__}()))"
    raise TypeError(f"provider is {short(provider)}, which is not a provider; {advice}")
