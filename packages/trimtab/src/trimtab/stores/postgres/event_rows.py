"""Events as rows, and the rows that are made from them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from trimtab.engine.log.event import (
    CallOutcome,
    Edit,
    Event,
    Fork,
    MessageAdded,
    ModelCall,
    Settings,
    SummaryAttempt,
    TurnProgressRecord,
    Usage,
    event_from_json,
    event_to_json,
)
from trimtab.stores.large_texts import compress_text, extract_large_texts, restore_large_texts
from trimtab.stores.postgres.escaping import compute_subject_hash, escape_for_text_column
from trimtab.stores.subjects import find_subject, session_scope

ROW_BLOB_THRESHOLD_BYTES = 8 * 1024
"""Maximum UTF-8 bytes of a text in its row. A longer text becomes a blob, which costs a row and a
second query to read. For prose that PostgreSQL's own compression left at 8,192 bytes, ours left
4,569."""

MIN_TIMESTAMP_S = -62135596800.0
MAX_TIMESTAMP_S = 253402300799.0
"""The years 1 and 9999: the range of timestamps, whatever the session's clock says."""

EventRow = tuple[float, int, str, str | None, str, int | None]
"""An event's row after its session: time, position, kind, key, body, hash of the subject."""

# `dump` with one encoder for all: making an encoder costs as much as encoding a small event.
_encode_json = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCallRow:
    seq: int
    """The position of the call."""
    bytes: int
    """UTF-8 bytes of all texts sent."""
    at: float
    """Time at which the request was handed out."""
    status: str = "sent"
    """`sent` until the outcome is known, then `ok` or `error`."""
    usage: Usage | None = None
    """What the provider reported."""
    model: str | None = None
    """The model that was called; None for the session's model."""
    purpose: str = "reply"
    """The purpose: `reply` or `summary`."""


@dataclass(slots=True, kw_only=True)
class AppendBatch:
    """Everything that one append writes."""

    rows: list[EventRow] = field(default_factory=list[EventRow])
    """The events, in order."""
    blobs: dict[str, str] = field(default_factory=dict[str, str])
    """Large texts by digest."""
    calls: dict[int, ModelCallRow] = field(default_factory=dict[int, ModelCallRow])
    """Calls by position."""
    outcomes: dict[int, CallOutcome] = field(default_factory=dict[int, CallOutcome])
    """Outcomes of calls that were appended earlier, by the call's position."""
    inherited: int = 0
    """Calls before this position were made by the parent of this fork."""
    epoch: int = 0
    """Epoch of the newest claimed turn; 0 for none."""
    summary: tuple[str, float] | None = None
    """The newest summary and its time."""
    parent: str | None = None
    """The parent of a fork."""
    model: str | None = None
    """The session's model from now on."""
    active_at: float | None = None
    """When a turn was claimed."""

    @property
    def has_only_events(self) -> bool:
        """Whether only the rows of the events are written."""
        return not (self.blobs or self.calls or self.outcomes or self.changes_session_row)

    @property
    def changes_session_row(self) -> bool:
        """Whether the session's row must be updated."""
        return bool(self.epoch or self.summary or self.parent is not None or self.model)


def event_to_row_and_blobs(session: str, event: Event) -> tuple[EventRow, dict[str, str]]:
    """Return the row of an event of this session, and its large texts."""
    data = event_to_json(event)
    line = _encode_json(data)
    blobs: dict[str, str] = {}
    if len(line) > ROW_BLOB_THRESHOLD_BYTES:
        lighter, blobs = extract_large_texts(data, ROW_BLOB_THRESHOLD_BYTES)
        if blobs:
            line = _encode_json(lighter)
    body = event.body
    key = body.key if type(body) is MessageAdded else None
    key_column = key if key is None else escape_for_text_column(key)
    return (
        event.at,
        event.seq,
        data["kind"],
        key_column,
        line,
        _hash_subject(session, event),
    ), blobs


def _hash_subject(session: str, event: Event) -> int | None:
    subject = find_subject(event)
    if subject is None:
        return None
    owner = event.body.parent if isinstance(event.body, Fork) else session
    return compute_subject_hash(session_scope(owner), subject)


def needs_only_event_row(event: Event) -> bool:
    """Whether an event needs no other row than its own, apart from large texts."""
    match event.body:
        case ModelCall(imported=imported):
            return imported
        case CallOutcome() | Fork() | Settings():
            return False
        case SummaryAttempt(calls=calls):
            return not calls
        case TurnProgressRecord(state=state):
            return state != "claimed"
        case Edit(op=op):
            return op != "summarise"
        case _:
            return True


def build_append_batch(session: str, events: Sequence[Event]) -> AppendBatch:
    """Return everything that these events of a session need."""
    batch = AppendBatch()
    for event in events:
        row, blobs = event_to_row_and_blobs(session, event)
        batch.rows.append(row)
        batch.blobs |= blobs
        _add_derived_rows(batch, event)
    return batch


def _add_derived_rows(batch: AppendBatch, event: Event) -> None:
    match event.body:
        case ModelCall(imported=False) as call:
            batch.calls[event.seq] = ModelCallRow(
                seq=event.seq, bytes=call.bytes, at=event.at, model=batch.model
            )
        case SummaryAttempt() as attempt if attempt.calls:
            batch.calls[event.seq] = ModelCallRow(
                seq=event.seq,
                # What was sent is not in the log: four bytes for each of its tokens.
                bytes=4 * (attempt.usage.input if attempt.usage else attempt.replaced),
                at=event.at,
                status="error" if attempt.outcome == "failed" else "ok",
                usage=attempt.usage,
                model=escape_for_text_column(attempt.model),
                purpose="summary",
            )
        case Settings() as settings:
            batch.model = escape_for_text_column(settings.model)
        case CallOutcome() as outcome if 0 < outcome.call < event.seq:
            apply_model_call_outcome(batch.calls, batch.outcomes, outcome)
        case TurnProgressRecord(state="claimed") as turn:
            batch.epoch = max(batch.epoch, turn.epoch)
            batch.active_at = event.at
        case Edit(op="summarise") as edit:
            batch.summary = edit.text, event.at
        case Fork() as fork:
            batch.parent = fork.parent
            batch.inherited = event.seq
            batch.calls.clear()
            batch.outcomes.clear()
        case _:
            pass


def apply_model_call_outcome(
    model_calls: dict[int, ModelCallRow],
    pending_outcomes: dict[int, CallOutcome],
    outcome: CallOutcome,
) -> None:
    """Complete a call of this batch, or keep the outcome of an earlier call."""
    call = model_calls.get(outcome.call)
    if call is None:
        pending_outcomes[outcome.call] = outcome
    else:
        model_calls[call.seq] = replace(call, status=outcome.status, usage=outcome.usage)


def build_event_parameters(batch: AppendBatch) -> list[str]:
    """Return $2 to $6 of the queries that append."""
    ats, seqs, kinds, keys, bodies, _ = zip(*batch.rows, strict=True)
    return [*map(format_number_array, (ats, seqs)), *map(format_text_array, (kinds, keys, bodies))]


def build_subject_parameter(batch: AppendBatch) -> str:
    """Return the hashes of the events' subjects."""
    return format_number_array([row[-1] for row in batch.rows])


def format_number_array(values: Sequence[float | None]) -> str:
    """Return an array in PostgreSQL's syntax.

    psycopg's own conversion takes longer than everything else in an append. It also gives arrays of
    small and of large numbers different types, and each type is prepared again.
    """
    return "{" + ",".join("NULL" if item is None else repr(item) for item in values) + "}"


def format_text_array(values: Sequence[str | None]) -> str:
    """Return an array of texts in PostgreSQL's syntax."""
    return (
        "{" + ",".join("NULL" if item is None else _quote_array_text(item) for item in values) + "}"
    )


def _quote_array_text(item: str) -> str:
    return '"' + item.replace("\\", "\\\\").replace('"', '\\"') + '"'


def build_blob_and_call_parameters(batch: AppendBatch) -> list[Any]:
    """Return $9 to $28: blobs, then calls, then outcomes, then the subjects of the events."""
    calls = batch.calls.values()
    outcomes = batch.outcomes.values()
    return [
        [bytes.fromhex(digest) for digest in batch.blobs],
        [compress_text(text) for text in batch.blobs.values()],
        batch.inherited,
        format_number_array([call.seq for call in calls]),
        format_number_array([call.bytes for call in calls]),
        format_number_array([clamp_timestamp(call.at) for call in calls]),
        format_text_array([call.status for call in calls]),
        *_format_usage_columns([call.usage for call in calls]),
        format_text_array([call.model for call in calls]),
        format_text_array([call.purpose for call in calls]),
        format_number_array([outcome.call for outcome in outcomes]),
        format_text_array([outcome.status for outcome in outcomes]),
        *_format_usage_columns([outcome.usage for outcome in outcomes]),
        build_subject_parameter(batch),
    ]


def build_session_row_parameters(batch: AppendBatch) -> list[Any]:
    """Return $29 to $35: the values for the session's row."""
    summary, at = batch.summary or (None, None)
    return [
        batch.epoch,
        batch.summary is not None,
        summary if summary is None else escape_for_text_column(summary),
        at if at is None else clamp_timestamp(at),
        batch.parent if batch.parent is None else escape_for_text_column(batch.parent),
        batch.model,
        batch.active_at,
    ]


def usage_to_columns(usage: Usage | None) -> tuple[int | None, ...]:
    """Return prompt and completion tokens, and tokens read from and written to the cache."""
    if usage is None:
        return None, None, None, None
    return usage.input, usage.output, usage.cache_read, usage.cache_write


def clamp_timestamp(timestamp: float) -> float:
    """Limit a time to the range of timestamps."""
    return min(max(timestamp, MIN_TIMESTAMP_S), MAX_TIMESTAMP_S)


def event_from_row_body(body_json: dict[str, Any], texts_by_digest: dict[str, str]) -> Event:
    """Return the event of a row's body."""
    return event_from_json(restore_large_texts(body_json, texts_by_digest))


def _format_usage_columns(usages: list[Usage | None]) -> list[str]:
    rows = [usage_to_columns(usage) for usage in usages]
    return [format_number_array([row[column] for row in rows]) for column in range(4)]
