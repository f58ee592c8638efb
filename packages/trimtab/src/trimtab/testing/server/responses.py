"""The response to one request, and errors in the words and bodies of each provider."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from trimtab.testing.request_counter import dump_compact_json


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedResponse:
    """A response to send, whole or as a stream of events."""

    status: int = 200
    """The status of the HTTP response."""
    body: Mapping[str, Any] | str = ""
    """JSON, or a text that is sent unchanged. It is ignored if there are events."""
    events: Iterable[Mapping[str, Any]] | None = None
    """The events to stream. None for a whole body."""
    has_event_names: bool = True
    """Whether events are sent with their names, and without a `[DONE]` at the end."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Additional headers."""
    cut: int | None = None
    """Number of events, or bytes of the body, after which the connection breaks."""
    delay: float = 0.0
    """Seconds before anything is sent."""
    pace: float = 0.0
    """Seconds before each event."""

    def stream_chunks(self) -> Iterable[bytes]:
        """Yield the stream's events as they are sent, up to the cut."""
        for number, event in enumerate(self.events or ()):
            if number == self.cut:
                return
            name = f"event: {event['type']}\n" if self.has_event_names else ""
            yield f"{name}data: {dump_compact_json(event)}\n\n".encode("utf-8", "surrogatepass")
        if not self.has_event_names and self.cut is None:
            yield b"data: [DONE]\n\n"

    def body_bytes(self) -> bytes:
        """Return all bytes of the body."""
        text = self.body if isinstance(self.body, str) else dump_compact_json(self.body)
        return text.encode("utf-8", "surrogatepass")


RefusalCause = Literal["violation", "overflow", "auth"]
_ANTHROPIC_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class ProviderRefusal(Exception):
    """A request that the provider refuses."""

    def __init__(
        self,
        status: int,
        body: Mapping[str, Any],
        *,
        cause: RefusalCause = "violation",
    ) -> None:
        self.status = status
        self.body = body
        self.cause: RefusalCause = cause
        super().__init__(str(body["error"]["message"]))


def build_anthropic_error_body(
    status: int, message: str, error_type: str | None = None
) -> dict[str, Any]:
    """Build an error of the Messages API."""
    error = {
        "type": error_type or _ANTHROPIC_ERROR_TYPES.get(status, "api_error"),
        "message": message,
    }
    return {"type": "error", "error": error, "request_id": "req_simulated"}


def build_openai_error_body(
    status: int,
    message: str,
    *,
    error_type: str | None = None,
    param: str | None = None,
    code: str | int | None = None,
) -> dict[str, Any]:
    """Build an error of the Chat Completions and Responses APIs."""
    usual = "server_error" if status >= 500 else "invalid_request_error"
    error = {"message": message, "type": error_type or usual, "param": param, "code": code}
    return {"error": error}


def make_anthropic_refusal(
    message: str, status: int = 400, *, cause: RefusalCause = "violation"
) -> ProviderRefusal:
    return ProviderRefusal(status, build_anthropic_error_body(status, message), cause=cause)


def make_openai_refusal(
    message: str,
    status: int = 400,
    *,
    param: str | None = None,
    code: str | None = None,
    cause: RefusalCause = "violation",
) -> ProviderRefusal:
    return ProviderRefusal(
        status, build_openai_error_body(status, message, param=param, code=code), cause=cause
    )
