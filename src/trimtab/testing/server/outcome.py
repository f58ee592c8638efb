"""What goes back for one request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from trimtab.testing.counting import compact


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A response to be sent, whole or as a stream of events."""

    status: int = 200
    """Of the HTTP response."""
    body: Mapping[str, Any] | str = ""
    """JSON, or a text that is sent as it is; of no use where there are events."""
    events: Iterable[Mapping[str, Any]] | None = None
    """What is streamed; None for a whole body."""
    named: bool = True
    """Whether events are sent with their names, and without a `[DONE]` at the end."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Sent along."""
    cut: int | None = None
    """Events, or bytes of the body, behind which the connection breaks."""
    delay: float = 0.0
    """Seconds before anything is sent."""
    pace: float = 0.0
    """Seconds before each event."""

    def chunks(self) -> Iterable[bytes]:
        """The stream's events as they are written on the wire, up to the cut."""
        for number, event in enumerate(self.events or ()):
            if number == self.cut:
                return
            name = f"event: {event['type']}\n" if self.named else ""
            yield f"{name}data: {compact(event)}\n\n".encode("utf-8", "surrogatepass")
        if not self.named and self.cut is None:
            yield b"data: [DONE]\n\n"

    def whole(self) -> bytes:
        """The body's bytes, all of them."""
        text = self.body if isinstance(self.body, str) else compact(self.body)
        return text.encode("utf-8", "surrogatepass")
