"""Anthropic's Messages API, and servers with the same API."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

from trimtab.errors import MissingApiKeyError, MissingSdkError
from trimtab.providers.transport import SdkRequestSender

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic
    from anthropic.lib.bedrock import AsyncAnthropicBedrock
    from anthropic.lib.vertex import AsyncAnthropicVertex


class AnthropicProvider:
    """Sends requests of the `anthropic` dialect through the official SDK, without its retries.

    Args:
        client: Your own client. It is used as you configured it, and `close` leaves it open.
        api_key: The API key.
        base_url: The address of another server with the same API.
        timeout: Seconds without any data, not for the whole reply.
        headers: Headers for every request.

    Raises:
        MissingApiKeyError: If there is no key: no argument, and no variable of the SDK.
        MissingSdkError: If the SDK is not installed.
    """

    dialect = "anthropic"

    def __init__(
        self,
        client: AsyncAnthropic | AsyncAnthropicBedrock | AsyncAnthropicVertex | None = None,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        timeout: float = 600.0,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        try:
            import anthropic
        except ModuleNotFoundError as error:
            raise MissingSdkError("anthropic") from error
        self._own: AsyncAnthropic | None = None
        if client is None:
            client = self._own = anthropic.AsyncAnthropic(
                api_key=api_key,
                base_url=base_url,
                timeout=timeout,
                default_headers=headers,
                max_retries=0,
            )
            names = {name.lower() for name in client.default_headers}
            has_key = names & {"x-api-key", "authorization"}
            if not has_key and getattr(client, "credentials", None) is None:
                raise MissingApiKeyError(
                    "no key for Anthropic: set ANTHROPIC_API_KEY, or give api_key"
                )
        self._client = client.with_options(max_retries=0)
        self._exchange = SdkRequestSender(
            anthropic,
            self._client.messages.create,
            dialect_name=self.dialect,
            is_final_event=_is_final_event,
        )

    def send(self, request: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        """See `Provider`."""
        # Said with the request, the timeout keeps the SDK from refusing a long unstreamed reply.
        return self._exchange.send({"timeout": self._client.timeout, **request})

    async def list_models(self) -> list[str]:
        """Return the names of the server's models; raise `ProviderError` if the call fails."""
        # The clients for Bedrock and Vertex have no list; nobody asks them for one.
        client: Any = self._client
        return await self._exchange.list_model_names(client.models.list(limit=1_000))

    async def close(self) -> None:
        """See `Provider`."""
        if self._own is not None:
            await self._own.close()


def _is_final_event(event: Mapping[str, Any]) -> bool:
    return event.get("type") == "message_stop"
