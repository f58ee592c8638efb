"""What a cloud adds to a request and to what goes back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from trimtab.dialects.json_values import dict_or_none
from trimtab.testing.server.options import ProviderSimulatorOptions
from trimtab.testing.server.responses import ProviderRefusal, RefusalCause, SimulatedResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudRequest:
    """An HTTP request, as far as clouds look at it."""

    method: str
    """Such as `POST`."""
    raw_path: str
    """The path as it came over the wire, percent signs and all."""
    query: str
    """What stands behind the `?`."""
    headers: Mapping[str, str]
    """By name, in lower case."""
    body: bytes
    """As it came."""


class Cloud(Protocol):
    """One request at a cloud's address."""

    @property
    def http(self) -> CloudRequest:
        """The request itself."""
        ...

    @property
    def name(self) -> str:
        """What the records call it."""
        ...

    @property
    def dialect(self) -> str:
        """The API whose rules hold for what is inside."""
        ...

    def check_credentials(self, options: ProviderSimulatorOptions) -> str:
        """Who asks; raises ProviderRefusal."""
        ...

    def unwrap_request(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The request as its dialect has it; raises ProviderRefusal."""
        ...

    def wrap_response(self, response: SimulatedResponse) -> SimulatedResponse:
        """What goes back, as the cloud puts it."""
        ...


def make_cloud_refusal(
    error_type: str, message: str, status: int = 400, *, cause: RefusalCause = "violation"
) -> ProviderRefusal:
    """A refusal by the cloud itself; `wrap_response` gives it its form."""
    return ProviderRefusal(
        status, {"type": "error", "error": {"type": error_type, "message": message}}, cause=cause
    )


def read_error(response: SimulatedResponse) -> tuple[str, str] | None:
    """Type and words of an error in its API's usual form; None for any other response."""
    body = response.body
    if response.status < 400 or not isinstance(body, Mapping):
        return None
    error = dict_or_none(body.get("error")) or {}
    if not {"type", "message"} <= error.keys():
        return None
    if error.keys() - {"type", "message", "param", "code"}:
        return None
    return str(error["type"]), str(error["message"])
