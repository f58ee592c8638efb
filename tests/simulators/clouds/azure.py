"""Azure OpenAI: Chat Completions at the address of a deployment, and the v1 API."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qs

from tests.simulators.clouds.base import CloudRequest
from trimtab.testing.server.options import ProviderSimulatorOptions
from trimtab.testing.server.responses import (
    SimulatedResponse,
    build_openai_error_body,
    make_openai_refusal,
)

_DATED_VERSION = re.compile(r"\d{4}-\d{2}-\d{2}(?:-preview)?")
_V1_VERSIONS = ("v1", "preview", "latest")
_FIRST_RESPONSES_VERSION = "2025-03-01-preview"


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureCall:
    """One chat completion or response."""

    http: CloudRequest
    """The request."""
    dialect: str
    """`openai_chat` or `openai_responses`."""
    deployment: str | None = None
    """The name of the deployment, if the address contains it. Otherwise it is in the body."""
    is_v1: bool = False
    """Whether it is the v1 API, which needs no version."""

    @property
    def name(self) -> str:
        return "azure" if self.dialect == "openai_chat" else "azure_responses"

    def check_credentials(self, options: ProviderSimulatorOptions) -> str:
        headers = self.http.headers
        key = headers.get("api-key") or headers.get("authorization", "").removeprefix("Bearer ")
        if not key or (options.api_keys and key not in options.api_keys):
            raise make_openai_refusal(
                "Access denied due to invalid subscription key or wrong API endpoint. Make sure to "
                "provide a valid key for an active subscription and use a correct regional API "
                "endpoint for your resource.",
                401,
                code="401",
                cause="auth",
            )
        if not self._is_version_known():
            raise make_openai_refusal("Resource not found", 404, code="404")
        return key

    def _is_version_known(self) -> bool:
        versions = parse_qs(self.http.query).get("api-version", [])
        if self.is_v1:
            return not versions or (len(versions) == 1 and versions[0] in _V1_VERSIONS)
        if len(versions) != 1 or not _DATED_VERSION.fullmatch(versions[0]):
            return False
        return self.dialect == "openai_chat" or versions[0] >= _FIRST_RESPONSES_VERSION

    def unwrap_request(self, body: Mapping[str, Any]) -> dict[str, Any]:
        # An address that names a deployment says which model it is, whatever the body does.
        return {**body, **({"model": self.deployment} if self.deployment else {})}

    def wrap_response(self, response: SimulatedResponse) -> SimulatedResponse:
        if response.status not in (401, 404) or not isinstance(response.body, Mapping):
            return response
        error: Any = response.body["error"]
        openai_error = build_openai_error_body(response.status, error["message"])["error"]
        short = {
            "code": error.get("code") or str(response.status),
            "message": openai_error["message"],
        }
        return replace(response, body={"error": short})
