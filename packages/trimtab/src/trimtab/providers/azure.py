"""OpenAI's models at Microsoft Azure, through OpenAI's SDK."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from trimtab.errors import MissingSdkError
from trimtab.providers.loop_clients import LoopClients
from trimtab.providers.openai import OpenAIChatProvider, OpenAIResponsesProvider

if TYPE_CHECKING:
    from openai import AsyncOpenAI


class AzureOpenAIProvider(OpenAIChatProvider):
    """Sends requests of the `openai_chat` dialect to Azure OpenAI, without the SDK's retries.

    The `model` of a request is the name of a deployment.

    It may be used in several event loops.

    Args:
        client: Your own client. It is used as you configured it, in one event loop, and `close`
            leaves it open.
        endpoint: The address of your Azure resource.
        api_version: A version of Azure's API. None uses the v1 API, which has no versions.
        api_key: The API key.
        ad_token: An Entra ID token, instead of the key.
        timeout: Seconds without any data, not for the whole reply.

    Raises:
        MissingSdkError: If the SDK is not installed.
    """

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
        create = partial(
            _create_client,
            endpoint or "",
            api_version,
            api_key=api_key,
            ad_token=ad_token,
            timeout=timeout,
        )
        self._use(LoopClients(create, client and client.with_options(max_retries=0)))


class AzureResponsesProvider(OpenAIResponsesProvider):
    """Sends requests of the `openai_responses` dialect to Azure OpenAI, without the SDK's retries.

    The arguments are those of `AzureOpenAIProvider`.
    """

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
        create = partial(
            _create_client,
            endpoint or "",
            api_version,
            api_key=api_key,
            ad_token=ad_token,
            timeout=timeout,
        )
        self._use(LoopClients(create, client and client.with_options(max_retries=0)))


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
    http_client = openai.DefaultAsyncHttpxClient(timeout=timeout)
    if api_version is None:
        return openai.AsyncOpenAI(
            api_key=api_key or ad_token,
            base_url=f"{endpoint.rstrip('/').removesuffix('/openai/v1')}/openai/v1",
            timeout=timeout,
            max_retries=0,
            http_client=http_client,
        )
    return openai.AsyncAzureOpenAI(
        azure_endpoint=endpoint,
        api_version=api_version,
        api_key=api_key,
        azure_ad_token=ad_token,
        timeout=timeout,
        max_retries=0,
        http_client=http_client,
    )
