"""OpenAI's two APIs. Most other servers also speak Chat Completions: set `base_url`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from trimtab.dialects.json_values import dicts_in_list
from trimtab.errors import MissingApiKeyError, MissingSdkError
from trimtab.providers.transport import SdkRequestSender

if TYPE_CHECKING:
    from openai import AsyncOpenAI


class _OpenAIProvider:
    """Sends requests through the official SDK. Its classes name the call."""

    dialect: ClassVar[str]

    def __init__(
        self,
        client: AsyncOpenAI | None = None,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        timeout: float = 600.0,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        try:
            import openai
        except ModuleNotFoundError as error:
            raise MissingSdkError("openai") from error
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
        self._client = client.with_options(max_retries=0)
        self._exchange = SdkRequestSender(
            openai,
            self._find_call(self._client),
            dialect_name=self.dialect,
            is_final_event=self._is_final_event,
        )

    @staticmethod
    def _find_call(client: AsyncOpenAI) -> Any:
        raise NotImplementedError

    @staticmethod
    def _is_final_event(event: Mapping[str, Any]) -> bool:
        raise NotImplementedError

    def send(self, request: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        """See `Provider`."""
        return self._exchange.send(request)

    async def list_models(self) -> list[str]:
        """Return the names of the server's models; raise `ProviderError` if the call fails."""
        return await self._exchange.list_model_names(self._client.models.list())

    async def close(self) -> None:
        """See `Provider`."""
        if self._own is not None:
            await self._own.close()


class OpenAIChatProvider(_OpenAIProvider):
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

    @staticmethod
    def _find_call(client: AsyncOpenAI) -> Any:
        return client.chat.completions.create

    @staticmethod
    def _is_final_event(event: Mapping[str, Any]) -> bool:
        # The usage follows in a chunk of its own, and `[DONE]`; some servers send neither.
        return any(choice.get("finish_reason") for choice in dicts_in_list(event.get("choices")))


class OpenAIResponsesProvider(_OpenAIProvider):
    """Sends requests of the `openai_responses` dialect.

    The arguments are those of `OpenAIChatProvider`.
    """

    dialect = "openai_responses"

    @staticmethod
    def _find_call(client: AsyncOpenAI) -> Any:
        return _without_type_walk(client.responses.create)

    @staticmethod
    def _is_final_event(event: Mapping[str, Any]) -> bool:
        return event.get("type") in ("response.completed", "response.incomplete")


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
