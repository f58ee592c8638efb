"""OpenAI's models at Microsoft Azure, through the Azure client of OpenAI's SDK."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

from trimtab.errors import MissingSdkError
from trimtab.providers.openai import OpenAIChatProvider

if TYPE_CHECKING:
    from openai import AsyncAzureOpenAI


class AzureOpenAIProvider:
    """Sends requests of the `openai_chat` dialect to Azure OpenAI, without the SDK's retries.

    The `model` of a request is the name of a deployment. A client of the caller's own is used as it
    is set up, and left open by `close`. Either `api_key` or `ad_token` says who asks. `timeout` is
    in seconds without a sign of life.
    """

    dialect = "openai_chat"

    def __init__(
        self,
        client: AsyncAzureOpenAI | None = None,
        *,
        endpoint: str | None = None,
        api_version: str | None = None,
        api_key: str | None = None,
        ad_token: str | None = None,
        timeout: float = 600.0,
    ) -> None:
        try:
            import openai
        except ModuleNotFoundError as error:
            raise MissingSdkError("openai") from error
        self._own: AsyncAzureOpenAI | None = None
        if client is None:
            client = self._own = openai.AsyncAzureOpenAI(
                azure_endpoint=endpoint or "",
                api_version=api_version,
                api_key=api_key,
                azure_ad_token=ad_token,
                timeout=timeout,
                max_retries=0,
            )
        self._provider = OpenAIChatProvider(client)

    def send(self, request: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        """See `Provider`."""
        return self._provider.send(request)

    async def close(self) -> None:
        """See `Provider`."""
        if self._own is not None:
            await self._own.close()
