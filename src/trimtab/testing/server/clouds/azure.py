"""Azure OpenAI: Chat Completions at the address of a deployment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qs

from trimtab.testing.server.clouds.base import CloudRequest
from trimtab.testing.server.options import ProviderSimulatorOptions
from trimtab.testing.server.responses import (
    SimulatedResponse,
    build_openai_error_body,
    make_openai_refusal,
)

_API_VERSION = re.compile(r"\d{4}-\d{2}-\d{2}(?:-preview)?|v1|preview|latest")


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureChat:
    """One chat completion."""

    http: CloudRequest
    """The request."""
    deployment: str
    """The name of the deployment that is asked."""
    name: str = "azure"
    dialect: str = "openai_chat"

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
        versions = parse_qs(self.http.query).get("api-version", [])
        if len(versions) != 1 or not _API_VERSION.fullmatch(versions[0]):
            raise make_openai_refusal("Resource not found", 404, code="404")
        return key

    def unwrap_request(self, body: Mapping[str, Any]) -> dict[str, Any]:
        # The address says which model it is, whatever the body does.
        return {**body, "model": self.deployment}

    def wrap_response(self, response: SimulatedResponse) -> SimulatedResponse:
        if response.status not in (401, 404) or not isinstance(response.body, Mapping):
            return response
        error: Any = response.body["error"]
        told = build_openai_error_body(response.status, error["message"])["error"]
        short = {"code": error.get("code") or str(response.status), "message": told["message"]}
        return replace(response, body={"error": short})
