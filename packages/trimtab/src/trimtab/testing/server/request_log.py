"""The requests that the server received, byte for byte, and their outcomes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

RequestFate = Literal["answered", "violation", "overflow", "auth", "fault"]
"""What became of a request."""


@dataclass(slots=True, kw_only=True)
class RecordedRequest:
    """One request that a simulator has recorded."""

    number: int
    """The number of the request, from 1."""
    dialect: str
    """The dialect of the endpoint."""
    key: str
    """The API key of the request."""
    raw: bytes
    """The body as received. Empty if bodies are not kept."""
    fate: RequestFate = "answered"
    """The outcome."""
    status: int = 200
    """The status of the HTTP response."""
    tokens: int = 0
    """The counted input tokens, regardless of what was reported. 0 if they were not counted."""
    message: str = ""
    """The message of the error."""
    reply: Mapping[str, Any] | None = None
    """The whole reply, also if it was streamed."""

    @property
    def body(self) -> Any:
        """The parsed body."""
        return json.loads(self.raw) if self.raw else None

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON, with the parsed body."""
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
    """The requests in the order in which they arrived."""
    counts: dict[str, int] = field(default_factory=dict[str, int])
    """Number of requests by outcome."""
    total: int = 0
    """Total number of requests, including forgotten ones."""

    def start_record(self, dialect: str, raw: bytes) -> RecordedRequest:
        """Return a record of a request that has just arrived."""
        self.total += 1
        record = RecordedRequest(number=self.total, dialect=dialect, key="", raw=raw)
        self.requests.append(record)
        return record

    def finish_record(self, record: RecordedRequest) -> None:
        """Count the outcome of a request."""
        self.counts[record.fate] = self.counts.get(record.fate, 0) + 1

    def stats(self) -> dict[str, int]:
        """Return the number of requests by outcome. `refused` counts what the server itself
        refused: violations, overflows and keys. Faults from the script are not included."""
        counts = self.counts
        fates = {name: counts.get(name, 0) for name in ("answered", "overflow", "auth", "fault")}
        violations = counts.get("violation", 0)
        refusals = violations + fates["overflow"] + fates["auth"]
        return {
            "requests": sum(counts.values()),
            **fates,
            "violations": violations,
            "refused": refusals,
        }

    def clear(self) -> None:
        """Forget all requests and counts. The numbering continues."""
        self.requests.clear()
        self.counts.clear()
