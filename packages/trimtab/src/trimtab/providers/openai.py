"""OpenAI's two APIs. Most other servers also speak Chat Completions: set `base_url`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

from trimtab.dialects.json_values import dicts_in_list
from trimtab.errors import MissingApiKeyError, MissingSdkError
from trimtab.providers.transport import IsFinalEvent, SdkRequestSender

if TYPE_CHECKING:
    from openai import AsyncOpenAI


class OpenAIChatProvider:
    """Sends requests of the `openai_chat` dialect through the official SDK, without its retries.

    Args:
        client: Your own client. It is used as you configured it, and `close` leaves it open.
        api_key: The API key.
        base_url: Another server with this API, such as vLLM, llama.cpp, Ollama or OpenRouter.
        timeout: Seconds without any data, not for the whole reply.
        headers: Headers for every request.

    Raises:
        MissingApiKeyError: If there is no key: no argument, and no variable of the SDK.
        MissingSdkError: If the SDK is not installed.
    """

    dialect = "openai_chat"

    def __init__(
        self,
        client: AsyncOpenAI | None = None,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        timeout: float = 600.0,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._line = _OpenAIClient(client, api_key, base_url, timeout, headers)
        create = self._line.client.chat.completions.create
        self._exchange = self._line.build_transport(create, self.dialect, _is_final_chat_chunk)

    def send(self, request: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        """See `Provider`."""
        return self._exchange.send(request)

    async def list_models(self) -> list[str]:
        """Return the names of the server's models; raise `ProviderError` if the call fails."""
        return await self._exchange.list_model_names(self._line.client.models.list())

    async def close(self) -> None:
        """See `Provider`."""
        await self._line.close()


class OpenAIResponsesProvider:
    """Sends requests of the `openai_responses` dialect.

    The arguments are those of `OpenAIChatProvider`.
    """

    dialect = "openai_responses"

    def __init__(
        self,
        client: AsyncOpenAI | None = None,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        timeout: float = 600.0,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._line = _OpenAIClient(client, api_key, base_url, timeout, headers)
        create = _without_type_walk(self._line.client.responses.create)
        self._exchange = self._line.build_transport(create, self.dialect, _is_final_response_event)

    def send(self, request: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        """See `Provider`."""
        return self._exchange.send(request)

    async def list_models(self) -> list[str]:
        """Return the names of the server's models; raise `ProviderError` if the call fails."""
        return await self._exchange.list_model_names(self._line.client.models.list())

    async def close(self) -> None:
        """See `Provider`."""
        await self._line.close()


class _OpenAIClient:
    """A client of the SDK, and whether `close` must close it."""

    def __init__(
        self,
        client: AsyncOpenAI | None,
        api_key: str | None,
        base_url: str | None,
        timeout: float,
        headers: Mapping[str, str] | None,
    ) -> None:
        try:
            import openai
        except ModuleNotFoundError as error:
            raise MissingSdkError("openai") from error
        self._sdk = openai
        self._own: AsyncOpenAI | None = None
        if client is None:
            try:
                client = self._own = openai.AsyncOpenAI(
                    api_key=api_key,
                    base_url=base_url,
                    timeout=timeout,
                    default_headers=headers,
                    max_retries=0,
                )
            except openai.OpenAIError as error:
                raise MissingApiKeyError(
                    "no key for OpenAI: set OPENAI_API_KEY, or give api_key, '-' for a server that "
                    "needs none"
                ) from error
        self.client = client.with_options(max_retries=0)

    def build_transport(
        self, create: Any, dialect_name: str, is_final_event: IsFinalEvent
    ) -> SdkRequestSender:
        return SdkRequestSender(
            self._sdk, create, dialect_name=dialect_name, is_final_event=is_final_event
        )

    async def close(self) -> None:
        if self._own is not None:
            await self._own.close()


def _without_type_walk(create: Any) -> Any:
    """Pass the body on unchanged.

    The SDK would check the types of every item, which takes a third of a second for a long history
    and changes nothing.
    """

    async def send(**request: Any) -> Any:
        typed_names = ("model", "stream", "extra_headers", "extra_query", "timeout")
        options = {name: request.pop(name) for name in typed_names if name in request}
        more: dict[str, Any] = request.pop("extra_body", {})
        return await create(**options, extra_body={**request, **more})

    return send


def _is_final_chat_chunk(event: Mapping[str, Any]) -> bool:
    # The usage follows in a chunk of its own, and `[DONE]`; some servers send neither.
    return any(choice.get("finish_reason") for choice in dicts_in_list(event.get("choices")))


def _is_final_response_event(event: Mapping[str, Any]) -> bool:
    return event.get("type") in ("response.completed", "response.incomplete")
