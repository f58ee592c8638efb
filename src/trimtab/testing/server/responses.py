"""What goes back for one request.

Refusals in the words and bodies of the provider that makes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from trimtab.testing.request_counter import dump_compact_json


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedResponse:
    """A response to be sent, whole or as a stream of events."""

    status: int = 200
    """Of the HTTP response."""
    body: Mapping[str, Any] | str = ""
    """JSON, or a text that is sent as it is; of no use where there are events."""
    events: Iterable[Mapping[str, Any]] | None = None
    """What is streamed; None for a whole body."""
    has_event_names: bool = True
    """Whether events are sent with their names, and without a `[DONE]` at the end."""
    frame_event: Callable[[Mapping[str, Any]], bytes] | None = None
    """How an event is written; None for server-sent events."""
    media_type: str = "text/event-stream"
    """What a stream is declared to be."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Sent along."""
    cut: int | None = None
    """Events, or bytes of the body, behind which the connection breaks."""
    delay: float = 0.0
    """Seconds before anything is sent."""
    pace: float = 0.0
    """Seconds before each event."""

    def stream_chunks(self) -> Iterable[bytes]:
        """The stream's events as they are written on the wire, up to the cut."""
        for number, event in enumerate(self.events or ()):
            if number == self.cut:
                return
            if self.frame_event is not None:
                yield self.frame_event(event)
                continue
            name = f"event: {event['type']}\n" if self.has_event_names else ""
            yield f"{name}data: {dump_compact_json(event)}\n\n".encode("utf-8", "surrogatepass")
        if self.frame_event is None and not self.has_event_names and self.cut is None:
            yield b"data: [DONE]\n\n"

    def body_bytes(self) -> bytes:
        """The body's bytes, all of them."""
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
    """A request that the provider does not take."""

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
    """An error of the Messages API."""
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
    """An error of the Chat Completions and Responses APIs."""
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
