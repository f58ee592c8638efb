"""Anthropic's Messages API, and servers with the same API."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any

from trimtab.errors import MissingApiKeyError, MissingSdkError
from trimtab.providers.loop_clients import LoopClients
from trimtab.providers.transport import SdkRequestSender

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic
    from anthropic.lib.bedrock import AsyncAnthropicBedrock
    from anthropic.lib.vertex import AsyncAnthropicVertex


class AnthropicProvider:
    """Sends requests of the `anthropic` dialect through the official SDK, without its retries.

    It may be used in several event loops.

    Args:
        client: Your own client. It is used as you configured it, in one event loop, and `close`
            leaves it open.
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

        def create() -> AsyncAnthropic:
            own_client = anthropic.AsyncAnthropic(
                api_key=api_key,
                base_url=base_url,
                timeout=timeout,
                default_headers=headers,
                max_retries=0,
                # The SDK's own would be closed by the garbage collector, in whichever event loop.
                http_client=anthropic.DefaultAsyncHttpxClient(timeout=timeout),
            )
            names = {name.lower() for name in own_client.default_headers}
            has_key = names & {"x-api-key", "authorization"}
            if not has_key and getattr(own_client, "credentials", None) is None:
                raise MissingApiKeyError(
                    "no key for Anthropic: set ANTHROPIC_API_KEY, or give api_key"
                )
            return own_client

        self._clients = LoopClients[Any](create, client and client.with_options(max_retries=0))
        self._exchange = create_messages_sender(self._clients.get)

    def send(self, request: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        """See `Provider`."""
        return self._exchange.send(request)

    async def list_models(self) -> list[str]:
        """Return the names of the server's models; raise `ProviderError` if the call fails."""
        # The clients for Bedrock and Vertex have no list; nobody asks them for one.
        listing = self._clients.get().models.list(limit=1_000)
        return await self._exchange.list_model_names(listing)

    async def close(self) -> None:
        """See `Provider`."""
        await self._clients.close()


def create_messages_sender(get_client: Callable[[], Any]) -> SdkRequestSender:
    """Return a sender of requests through the client of the running event loop."""
    import anthropic

    async def create(**request: Any) -> Any:
        client = get_client()
        # Said with the request, the timeout keeps the SDK from refusing a long unstreamed reply.
        return await client.messages.create(**{"timeout": client.timeout, **request})

    return SdkRequestSender(
        anthropic, create, dialect_name="anthropic", is_final_event=_is_final_event
    )


def _is_final_event(event: Mapping[str, Any]) -> bool:
    return event.get("type") == "message_stop"
