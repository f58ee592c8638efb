"""What the server received, byte for byte, and what became of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

RequestFate = Literal["answered", "violation", "overflow", "auth", "fault"]


@dataclass(slots=True, kw_only=True)
class RecordedRequest:
    """One request."""

    number: int
    """Counted from 1."""
    dialect: str
    """Of the endpoint."""
    key: str
    """The API key it came with."""
    raw: bytes
    """The body as it came; empty where bodies are not kept."""
    fate: RequestFate = "answered"
    """What became of it."""
    status: int = 200
    """Of the HTTP response."""
    tokens: int = 0
    """Input as it was counted, whatever was reported; 0 where it did not come to that."""
    message: str = ""
    """The error's words."""
    reply: Mapping[str, Any] | None = None
    """The whole reply, also where it was streamed."""

    @property
    def body(self) -> Any:
        """The body, parsed."""
        return json.loads(self.raw) if self.raw else None

    def to_json(self) -> dict[str, Any]:
        """All of it as JSON; the body is parsed."""
        names = ("number", "dialect", "key", "fate", "status", "tokens", "message", "reply")
        try:
            body = self.body
        except ValueError:
            body = None
        return {name: getattr(self, name) for name in names} | {"body": body}


@dataclass(slots=True, kw_only=True)
class RequestLog:
    """All requests since the last reset."""

    requests: list[RecordedRequest] = field(default_factory=list[RecordedRequest])
    """In the order in which they came."""
    counts: dict[str, int] = field(default_factory=dict[str, int])
    """How many had each fate."""
    total: int = 0
    """How many there were, forgotten ones included."""

    def start_record(self, dialect: str, raw: bytes) -> RecordedRequest:
        """A record of a request that has just come."""
        self.total += 1
        record = RecordedRequest(number=self.total, dialect=dialect, key="", raw=raw)
        self.requests.append(record)
        return record

    def finish_record(self, record: RecordedRequest) -> None:
        """Count what became of a request."""
        self.counts[record.fate] = self.counts.get(record.fate, 0) + 1

    def stats(self) -> dict[str, int]:
        """Requests by what became of them. `refused` is what the server did not take by itself:
        violations, overflows and keys; faults were asked for."""
        counts = self.counts
        known = {name: counts.get(name, 0) for name in ("answered", "overflow", "auth", "fault")}
        violations = counts.get("violation", 0)
        refused = violations + known["overflow"] + known["auth"]
        return {
            "requests": sum(counts.values()),
            **known,
            "violations": violations,
            "refused": refused,
        }

    def clear(self) -> None:
        """Forget all requests and counts; numbers go on."""
        self.requests.clear()
        self.counts.clear()
