"""What a cloud changes in a request and in the response."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from trimtab.dialects.json_values import dict_or_none
from trimtab.testing.server.options import ProviderSimulatorOptions
from trimtab.testing.server.responses import ProviderRefusal, RefusalCause, SimulatedResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudRequest:
    """An HTTP request, as far as clouds need it."""

    method: str
    """Such as `POST`."""
    raw_path: str
    """The path as sent, with percent signs."""
    query: str
    """The part after the `?`."""
    headers: Mapping[str, str]
    """Headers by name, in lower case."""
    body: bytes
    """The body as received."""


class Cloud(Protocol):
    """One request at a cloud's address."""

    @property
    def http(self) -> CloudRequest:
        """The request itself."""
        ...

    @property
    def name(self) -> str:
        """The name in the records."""
        ...

    @property
    def dialect(self) -> str:
        """The API whose rules apply to the content."""
        ...

    def check_credentials(self, options: ProviderSimulatorOptions) -> str:
        """Return who sent the request. Raises `ProviderRefusal`."""
        ...

    def unwrap_request(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the request in the form of its dialect. Raises `ProviderRefusal`."""
        ...

    def wrap_response(self, response: SimulatedResponse) -> SimulatedResponse:
        """Return the response in the cloud's form."""
        ...


def make_cloud_refusal(
    error_type: str, message: str, status: int = 400, *, cause: RefusalCause = "violation"
) -> ProviderRefusal:
    """Return a refusal by the cloud itself. `wrap_response` gives it its form."""
    return ProviderRefusal(
        status, {"type": "error", "error": {"type": error_type, "message": message}}, cause=cause
    )


def read_error(response: SimulatedResponse) -> tuple[str, str] | None:
    """Return the type and the message of an error in its API's usual form. None for other
    responses."""
    body = response.body
    if response.status < 400 or not isinstance(body, Mapping):
        return None
    error = dict_or_none(body.get("error")) or {}
    if not {"type", "message"} <= error.keys():
        return None
    if error.keys() - {"type", "message", "param", "code"}:
        return None
    return str(error["type"]), str(error["message"])
