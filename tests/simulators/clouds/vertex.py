"""Claude on Google's Vertex AI: the Messages API at an address of Google's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tests.simulators.clouds.base import CloudRequest, make_cloud_refusal, read_error
from trimtab.testing.request_counter import list_array_objects
from trimtab.testing.server.options import ProviderSimulatorOptions
from trimtab.testing.server.responses import SimulatedResponse, make_anthropic_refusal

VERTEX_VERSION = "vertex-2023-10-16"
NEWER_VERSION = "2026-10-21"
_REMOVED_IN_NEWER_VERSION = ("temperature", "top_p", "top_k")
_GOOGLE_STATUS = {
    "UNAUTHENTICATED": 401,
    "NOT_FOUND": 404,
    "INVALID_ARGUMENT": 400,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class VertexPredict:
    """One `rawPredict` or `streamRawPredict`."""

    http: CloudRequest
    """The request."""
    model: str
    """The model's name, with its version after an `@` if it has one."""
    streams: bool
    """Whether the reply is requested as a stream."""
    name: str = "vertex"
    dialect: str = "anthropic"

    def check_credentials(self, options: ProviderSimulatorOptions) -> str:
        authorization = self.http.headers.get("authorization", "")
        key = authorization.removeprefix("Bearer ").strip()
        if not authorization.startswith("Bearer ") or (
            options.api_keys and key not in options.api_keys
        ):
            raise make_cloud_refusal(
                "UNAUTHENTICATED",
                "Request had invalid authentication credentials. Expected OAuth 2 access token, "
                "login cookie or other valid authentication credential.",
                401,
                cause="auth",
            )
        return key

    def unwrap_request(self, body: Mapping[str, Any]) -> dict[str, Any]:
        if "anthropic_version" not in body:
            raise make_anthropic_refusal("anthropic_version: Field required")
        if body["anthropic_version"] not in (VERTEX_VERSION, NEWER_VERSION):
            raise make_anthropic_refusal(
                f"anthropic_version: {body['anthropic_version']!r} is not a valid version"
            )
        old_keys = _REMOVED_IN_NEWER_VERSION if body["anthropic_version"] == NEWER_VERSION else ()
        for name in ("model", *old_keys):
            if name in body:
                raise make_anthropic_refusal(f"{name}: Extra inputs are not permitted")
        if bool(body.get("stream")) != self.streams:
            raise make_anthropic_refusal("stream: does not fit the method that was called")
        for index, message in enumerate(list_array_objects(body.get("messages"))):
            if message.get("role") == "system":
                raise make_anthropic_refusal(
                    f"messages.{index}.role: Input should be 'user' or 'assistant'"
                )
        inner = {name: body[name] for name in body if not name.startswith("anthropic_")}
        return {**inner, "model": self.model}

    def wrap_response(self, response: SimulatedResponse) -> SimulatedResponse:
        """Return the response. Google's own errors have Google's form, Claude's errors
        Anthropic's."""
        type_and_message = read_error(response)
        if type_and_message is None or type_and_message[0] not in _GOOGLE_STATUS:
            return response
        error = {
            "code": response.status,
            "message": type_and_message[1],
            "status": type_and_message[0],
        }
        return replace(response, body={"error": error})
