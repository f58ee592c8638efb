"""OpenAI's models at Microsoft Azure, through OpenAI's SDK."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from trimtab.errors import MissingSdkError
from trimtab.providers.openai import OpenAIChatProvider, OpenAIResponsesProvider

if TYPE_CHECKING:
    from openai import AsyncOpenAI


class _AzureProvider:
    _provider_type: ClassVar[type[OpenAIChatProvider | OpenAIResponsesProvider]]

    def __init__(
        self,
        client: AsyncOpenAI | None = None,
        *,
        endpoint: str | None = None,
        api_version: str | None = None,
        api_key: str | None = None,
        ad_token: str | None = None,
        timeout: float = 600.0,
    ) -> None:
        self._own: AsyncOpenAI | None = None
        if client is None:
            client = self._own = _create_client(
                endpoint or "", api_version, api_key=api_key, ad_token=ad_token, timeout=timeout
            )
        self._provider = self._provider_type(client)

    def send(self, request: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        """See `Provider`."""
        return self._provider.send(request)

    async def close(self) -> None:
        """See `Provider`."""
        if self._own is not None:
            await self._own.close()


class AzureOpenAIProvider(_AzureProvider):
    """Sends requests of the `openai_chat` dialect to Azure OpenAI, without the SDK's retries.

    The `model` of a request is the name of a deployment.

    Args:
        client: Your own client. It is used as you configured it, and `close` leaves it open.
        endpoint: The address of your Azure resource.
        api_version: A version of Azure's API. None uses the v1 API, which has no versions.
        api_key: The API key.
        ad_token: An Entra ID token, instead of the key.
        timeout: Seconds without any data, not for the whole reply.

    Raises:
        MissingSdkError: If the SDK is not installed.
    """

    dialect = "openai_chat"
    _provider_type = OpenAIChatProvider


class AzureResponsesProvider(_AzureProvider):
    """Sends requests of the `openai_responses` dialect to Azure OpenAI, without the SDK's retries.

    The arguments are those of `AzureOpenAIProvider`.
    """

    dialect = "openai_responses"
    _provider_type = OpenAIResponsesProvider


def _create_client(
    endpoint: str,
    api_version: str | None,
    *,
    api_key: str | None,
    ad_token: str | None,
    timeout: float,
) -> AsyncOpenAI:
    """Create a client for a version of Azure's API, or for its v1 API, which works like OpenAI's
    own."""
    try:
        import openai
    except ModuleNotFoundError as error:
        raise MissingSdkError("openai") from error
    if api_version is None:
        return openai.AsyncOpenAI(
            api_key=api_key or ad_token,
            base_url=f"{endpoint.rstrip('/').removesuffix('/openai/v1')}/openai/v1",
            timeout=timeout,
            max_retries=0,
        )
    return openai.AsyncAzureOpenAI(
        azure_endpoint=endpoint,
        api_version=api_version,
        api_key=api_key,
        azure_ad_token=ad_token,
        timeout=timeout,
        max_retries=0,
    )
