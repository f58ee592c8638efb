"""OpenAI's two APIs. Most other servers also speak Chat Completions: set `base_url`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from trimtab.dialects.json_values import dicts_in_list
from trimtab.errors import MissingApiKeyError, MissingSdkError
from trimtab.providers.loop_clients import LoopClients
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

        def create() -> AsyncOpenAI:
            try:
                return openai.AsyncOpenAI(
                    api_key=api_key,
                    base_url=base_url,
                    timeout=timeout,
                    default_headers=headers,
                    max_retries=0,
                    # The SDK's own would be closed by the garbage collector, in any event loop.
                    http_client=openai.DefaultAsyncHttpxClient(timeout=timeout),
                )
            except openai.OpenAIError as error:
                raise MissingApiKeyError(
                    "no key for OpenAI: set OPENAI_API_KEY, or give api_key, '-' for a server that "
                    "needs none"
                ) from error

        self._use(LoopClients(create, client and client.with_options(max_retries=0)))

    def _use(self, clients: LoopClients[AsyncOpenAI]) -> None:
        import openai

        self._clients = clients
        self._exchange = SdkRequestSender(
            openai,
            self._call,
            dialect_name=self.dialect,
            is_final_event=self._is_final_event,
        )

    async def _call(self, **request: Any) -> Any:
        raise NotImplementedError

    @staticmethod
    def _is_final_event(event: Mapping[str, Any]) -> bool:
        raise NotImplementedError

    def send(self, request: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        """See `Provider`."""
        return self._exchange.send(request)

    async def list_models(self) -> list[str]:
        """Return the names of the server's models; raise `ProviderError` if the call fails."""
        return await self._exchange.list_model_names(self._clients.get().models.list())

    async def close(self) -> None:
        """See `Provider`."""
        await self._clients.close()


class OpenAIChatProvider(_OpenAIProvider):
    """Sends requests of the `openai_chat` dialect through the official SDK, without its retries.

    It may be used in several event loops.

    Args:
        client: Your own client. It is used as you configured it, in one event loop, and `close`
            leaves it open.
        api_key: The API key.
        base_url: Another server with this API, such as vLLM, llama.cpp, Ollama or OpenRouter.
        timeout: Seconds without any data, not for the whole reply.
        headers: Headers for every request.

    Raises:
        MissingApiKeyError: If there is no key: no argument, and no variable of the SDK.
        MissingSdkError: If the SDK is not installed.
    """

    dialect = "openai_chat"

    async def _call(self, **request: Any) -> Any:
        create: Any = self._clients.get().chat.completions.create
        return await create(**request)

    @staticmethod
    def _is_final_event(event: Mapping[str, Any]) -> bool:
        # The usage follows in a chunk of its own, and `[DONE]`; some servers send neither.
        return any(choice.get("finish_reason") for choice in dicts_in_list(event.get("choices")))


class OpenAIResponsesProvider(_OpenAIProvider):
    """Sends requests of the `openai_responses` dialect.

    The arguments are those of `OpenAIChatProvider`.
    """

    dialect = "openai_responses"

    async def _call(self, **request: Any) -> Any:
        """Pass the body on unchanged.

        The SDK would check the types of every item, which takes a third of a second for a long
        history and changes nothing.
        """
        typed_names = ("model", "stream", "extra_headers", "extra_query", "timeout")
        options = {name: request.pop(name) for name in typed_names if name in request}
        more: dict[str, Any] = request.pop("extra_body", {})
        create: Any = self._clients.get().responses.create
        return await create(**options, extra_body={**request, **more})

    @staticmethod
    def _is_final_event(event: Mapping[str, Any]) -> bool:
        return event.get("type") in ("response.completed", "response.incomplete")
