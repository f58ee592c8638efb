"""Claude at Google's Vertex AI, through the Vertex client of Anthropic's SDK."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

from trimtab.errors import MissingSdkError, ProviderError, ProviderFailureDetails
from trimtab.providers.anthropic import create_messages_sender
from trimtab.providers.loop_clients import LoopClients

if TYPE_CHECKING:
    from anthropic.lib.vertex import AsyncAnthropicVertex

VERTEX_ANTHROPIC_VERSION = "vertex-2023-10-16"
"""Every Claude at Vertex accepts this version."""


class VertexClaudeProvider:
    """Sends requests of the `anthropic` dialect to Claude at Vertex AI, without the SDK's retries.

    It may be used in several event loops.

    Args:
        client: Your own client. It is used as you configured it, in one event loop, and `close`
            leaves it open.
        region: The region, such as `europe-west1`.
        project: The Google Cloud project.
        access_token: An access token. None uses Google's default credentials and renews them.
        base_url: Another endpoint than that of the region.
        timeout: Seconds without any data, not for the whole reply.

    Raises:
        MissingSdkError: If the SDK is not installed.
    """

    dialect = "anthropic"

    def __init__(
        self,
        client: AsyncAnthropicVertex | None = None,
        *,
        region: str | None = None,
        project: str | None = None,
        access_token: str | None = None,
        base_url: str | None = None,
        timeout: float = 600.0,
    ) -> None:
        try:
            import google.auth.exceptions
            from anthropic import NOT_GIVEN, DefaultAsyncHttpxClient
            from anthropic.lib.vertex import AsyncAnthropicVertex
        except ModuleNotFoundError as error:
            raise MissingSdkError("vertex") from error
        self._google_errors = google.auth.exceptions.GoogleAuthError

        def create() -> AsyncAnthropicVertex:
            return AsyncAnthropicVertex(
                region=region if region is not None else NOT_GIVEN,
                project_id=project if project is not None else NOT_GIVEN,
                access_token=access_token,
                base_url=base_url,
                timeout=timeout,
                max_retries=0,
                http_client=DefaultAsyncHttpxClient(timeout=timeout),
            )

        self._clients = LoopClients[Any](create, client and client.with_options(max_retries=0))
        self._exchange = create_messages_sender(self._clients.get)

    async def send(self, request: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        """See `Provider`."""
        body = {"anthropic_version": VERTEX_ANTHROPIC_VERSION, **request.get("extra_body", {})}
        messages = [_as_taken_by_vertex(message) for message in request["messages"]]
        vertex_request = {**request, "messages": messages, "extra_body": body}
        try:
            async for event in self._exchange.send(vertex_request):
                yield event
        except self._google_errors as error:
            raise ProviderError(ProviderFailureDetails(kind="auth", message=str(error))) from error

    async def close(self) -> None:
        """See `Provider`."""
        await self._clients.close()


def _as_taken_by_vertex(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Give system messages the user's role.

    Anthropic accepts them among the others, but Vertex does not, although a model has the same name
    there.
    """
    return {**message, "role": "user"} if message.get("role") == "system" else message
