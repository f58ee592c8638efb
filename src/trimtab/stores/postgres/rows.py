"""Events as rows: their own, and those made from them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from trimtab.core.event import (
    Attempt,
    Call,
    Edit,
    Event,
    Fork,
    Outcome,
    Said,
    Settings,
    Turn,
    Usage,
    event_from_json,
    event_to_json,
)
from trimtab.stores.blobs import externalise, inline, pack
from trimtab.stores.postgres.names import written

THRESHOLD = 8 * 1024
"""Bytes of UTF-8; a text over it becomes a blob, which costs a row and a second query to read. Of
prose that PostgreSQL's own compression left at 8,192 bytes, ours left 4,569."""

EARLIEST, LATEST = -62135596800.0, 253402300799.0
"""The years 1 and 9999: what a timestamp of ours may say, whatever the session's clock does."""

Row = tuple[float, int, str, str | None, str]
"""An event's row behind its session: time, position, kind, key, body."""

# `dump` with one encoder for all: making an encoder costs as much as encoding a small event.
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRow:
    seq: int
    """The position of the call."""
    bytes: int
    """UTF-8 bytes of all texts sent."""
    at: float
    """When it was handed out."""
    status: str = "sent"
    """`sent` until the outcome is known, then `ok` or `error`."""
    usage: Usage | None = None
    """What the provider reported."""
    model: str | None = None
    """Where it went; None for the model that the session has."""
    purpose: str = "reply"
    """What for: `reply` or `summary`."""


@dataclass(slots=True, kw_only=True)
class Batch:
    """What one append writes."""

    rows: list[Row] = field(default_factory=list[Row])
    """The events, in order."""
    blobs: dict[str, str] = field(default_factory=dict[str, str])
    """Large texts by digest."""
    calls: dict[int, CallRow] = field(default_factory=dict[int, CallRow])
    """Calls by position."""
    outcomes: dict[int, Outcome] = field(default_factory=dict[int, Outcome])
    """Outcomes of calls that were appended earlier, by the call's position."""
    inherited: int = 0
    """Calls before this position were made by the session that this one was forked from."""
    epoch: int = 0
    """The newest turn claimed; 0 for none."""
    summary: tuple[str, float] | None = None
    """The newest summary and its time."""
    parent: str | None = None
    """The session forked from."""
    model: str | None = None
    """The session's model from now on."""

    @property
    def plain(self) -> bool:
        """True where no row but those of the events is written."""
        return not (self.blobs or self.calls or self.outcomes or self.claims)

    @property
    def claims(self) -> bool:
        """True where the session's row must know."""
        return bool(self.epoch or self.summary or self.parent is not None or self.model)


def row_of(event: Event) -> tuple[Row, dict[str, str]]:
    """An event's row, and its large texts."""
    data = event_to_json(event)
    line = _encode(data)
    blobs: dict[str, str] = {}
    if len(line) > THRESHOLD:
        lighter, blobs = externalise(data, THRESHOLD)
        if blobs:
            line = _encode(lighter)
    body = event.body
    key = body.key if type(body) is Said else None
    stored = key if key is None else written(key)
    return (event.at, event.seq, data["kind"], stored, line), blobs


def is_plain(event: Event) -> bool:
    """True for an event that needs no row but its own, large texts aside."""
    match event.body:
        case Call() | Outcome() | Fork() | Settings():
            return False
        case Attempt(calls=calls):
            return not calls
        case Turn(state=state):
            return state != "claimed"
        case Edit(op=op):
            return op != "summarise"
        case _:
            return True


def batch_of(events: Sequence[Event]) -> Batch:
    """All that these events need."""
    batch = Batch()
    for event in events:
        row, blobs = row_of(event)
        batch.rows.append(row)
        batch.blobs |= blobs
        _derive(batch, event)
    return batch


def _derive(batch: Batch, event: Event) -> None:
    match event.body:
        case Call() as call:
            batch.calls[event.seq] = CallRow(
                seq=event.seq, bytes=call.bytes, at=event.at, model=batch.model
            )
        case Attempt() as attempt if attempt.calls:
            batch.calls[event.seq] = CallRow(
                seq=event.seq,
                # What was sent is not in the log: four bytes for each of its tokens.
                bytes=4 * (attempt.usage.input if attempt.usage else attempt.replaced),
                at=event.at,
                status="error" if attempt.outcome == "failed" else "ok",
                usage=attempt.usage,
                model=written(attempt.model),
                purpose="summary",
            )
        case Settings() as settings:
            batch.model = written(settings.model)
        case Outcome() as outcome if 0 < outcome.call < event.seq:
            end(batch.calls, batch.outcomes, outcome)
        case Turn(state="claimed") as turn:
            batch.epoch = max(batch.epoch, turn.epoch)
        case Edit(op="summarise") as edit:
            batch.summary = edit.text, event.at
        case Fork() as fork:
            batch.parent, batch.inherited = fork.parent, event.seq
            batch.calls.clear()
            batch.outcomes.clear()
        case _:
            pass


def end(calls: dict[int, CallRow], others: dict[int, Outcome], outcome: Outcome) -> None:
    """Complete a call that is at hand; keep the outcome for one that is not."""
    call = calls.get(outcome.call)
    if call is None:
        others[outcome.call] = outcome
    else:
        calls[call.seq] = replace(call, status=outcome.status, usage=outcome.usage)


def event_parameters(batch: Batch) -> list[str]:
    """$2 to $6 of the queries that append."""
    ats, seqs, kinds, keys, bodies = zip(*batch.rows, strict=True)
    return [*map(numbers, (ats, seqs)), *map(texts, (kinds, keys, bodies))]


def numbers(items: Sequence[float | None]) -> str:
    """An array as PostgreSQL writes it. psycopg's own takes longer than all else in an append, and
    gives arrays of small and of large numbers different types, each to be prepared anew."""
    return "{" + ",".join("NULL" if item is None else repr(item) for item in items) + "}"


def texts(items: Sequence[str | None]) -> str:
    """An array of texts as PostgreSQL writes it."""
    return "{" + ",".join("NULL" if item is None else _quoted(item) for item in items) + "}"


def _quoted(item: str) -> str:
    return '"' + item.replace("\\", "\\\\").replace('"', '\\"') + '"'


def row_parameters(batch: Batch) -> list[Any]:
    """$9 to $27: blobs, then calls, then outcomes."""
    calls, outcomes = batch.calls.values(), batch.outcomes.values()
    return [
        [bytes.fromhex(digest) for digest in batch.blobs],
        [pack(text) for text in batch.blobs.values()],
        batch.inherited,
        numbers([call.seq for call in calls]),
        numbers([call.bytes for call in calls]),
        numbers([clamped(call.at) for call in calls]),
        texts([call.status for call in calls]),
        *_usages([call.usage for call in calls]),
        texts([call.model for call in calls]),
        texts([call.purpose for call in calls]),
        numbers([outcome.call for outcome in outcomes]),
        texts([outcome.status for outcome in outcomes]),
        *_usages([outcome.usage for outcome in outcomes]),
    ]


def claim_parameters(batch: Batch) -> list[Any]:
    """$28 to $33: what the session's row must know."""
    summary, at = batch.summary or (None, None)
    return [
        batch.epoch,
        batch.summary is not None,
        summary if summary is None else written(summary),
        at if at is None else clamped(at),
        batch.parent if batch.parent is None else written(batch.parent),
        batch.model,
    ]


def usage_columns(usage: Usage | None) -> tuple[int | None, ...]:
    """Tokens of prompt and completion, read from and written to the cache."""
    if usage is None:
        return None, None, None, None
    return usage.input, usage.output, usage.cache_read, usage.cache_write


def clamped(at: float) -> float:
    """A time that a timestamp can say."""
    return min(max(at, EARLIEST), LATEST)


def event_of(data: dict[str, Any], blobs: dict[str, str]) -> Event:
    """The event whose row it was."""
    return event_from_json(inline(data, blobs))


def _usages(usages: list[Usage | None]) -> list[str]:
    rows = [usage_columns(usage) for usage in usages]
    return [numbers([row[column] for row in rows]) for column in range(4)]
