"""Claude at Google's Vertex AI, through the Vertex client of Anthropic's SDK."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

from trimtab.errors import MissingSdkError
from trimtab.providers.anthropic import AnthropicProvider
from trimtab.providers.protocol_and_failures import ProviderError, ProviderFailureDetails

if TYPE_CHECKING:
    from anthropic.lib.vertex import AsyncAnthropicVertex

VERTEX_ANTHROPIC_VERSION = "vertex-2023-10-16"
"""Every Claude at Vertex takes it."""


class VertexClaudeProvider:
    """Sends requests of the `anthropic` dialect to Claude at Vertex AI, without the SDK's retries.

    A client of the caller's own is used as it is set up, and left open by `close`. Without an
    `access_token` Google's default credentials are used, and renewed as they expire. `base_url` is
    an endpoint other than the region's own. `timeout` is in seconds without a sign of life.
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
            from anthropic import NOT_GIVEN
            from anthropic.lib.vertex import AsyncAnthropicVertex
        except ModuleNotFoundError as error:
            raise MissingSdkError("vertex") from error
        self._google_errors = google.auth.exceptions.GoogleAuthError
        self._own: AsyncAnthropicVertex | None = None
        if client is None:
            client = self._own = AsyncAnthropicVertex(
                region=region if region is not None else NOT_GIVEN,
                project_id=project if project is not None else NOT_GIVEN,
                access_token=access_token,
                base_url=base_url,
                timeout=timeout,
                max_retries=0,
            )
        self._provider = AnthropicProvider(client)

    async def send(self, request: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        """See `Provider`."""
        body = {"anthropic_version": VERTEX_ANTHROPIC_VERSION, **request.get("extra_body", {})}
        messages = [_as_taken_by_vertex(message) for message in request["messages"]]
        sent = {**request, "messages": messages, "extra_body": body}
        try:
            async for event in self._provider.send(sent):
                yield event
        except self._google_errors as error:
            raise ProviderError(ProviderFailureDetails(kind="auth", message=str(error))) from error

    async def close(self) -> None:
        """See `Provider`."""
        if self._own is not None:
            await self._own.close()


def _as_taken_by_vertex(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """A model has the same name here as at Anthropic itself, which takes system messages among the
    others. Vertex does not: there they are the user's."""
    return {**message, "role": "user"} if message.get("role") == "system" else message
