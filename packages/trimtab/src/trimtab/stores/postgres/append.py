"""Append events in one statement, and find out why an append was refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from psycopg import errors
from psycopg.types.numeric import Float8, Int4, Int8

from trimtab.engine.log.event import Event, MessageAdded
from trimtab.errors import DuplicateIdempotencyKey, PositionTaken, StaleOwner, StoreError
from trimtab.stores.postgres.escaping import (
    compute_partition,
    compute_session_uuid,
    escape_for_text_column,
    unescape_from_text_column,
)
from trimtab.stores.postgres.event_rows import (
    EventRow,
    build_append_batch,
    build_blob_and_call_parameters,
    build_event_parameters,
    build_session_row_parameters,
    build_subject_parameter,
    clamp_timestamp,
    event_to_row_and_blobs,
    needs_only_event_row,
)
from trimtab.stores.postgres.log_reader import FetchRows
from trimtab.stores.postgres.queries import (
    QUERIES,
    build_query_per_partition,
    expand_values_placeholder,
)

ANY_EPOCH = 2**63 - 1
"""The epoch of a writer that owns no turn."""

APPEND_ONE_SQL = build_query_per_partition(QUERIES["append_one"])
APPEND_MANY_SQL = build_query_per_partition(QUERIES["append_many"], QUERIES["owner_shares"])
APPEND_FEW_SQL = {
    rows: build_query_per_partition(
        expand_values_placeholder(
            QUERIES["append_few"], rows, ("float8", "int4", "text", "text", "text", "int8"), 4
        ),
        QUERIES["owner_of_few"],
    )
    for rows in range(1, 9)
}
APPEND_WITH_ROWS_SQL = build_query_per_partition(QUERIES["append_rows"], QUERIES["owner_shares"])
APPEND_CLAIM_SQL = build_query_per_partition(QUERIES["append_rows"], QUERIES["owner_claims"])
APPEND_FIRST_SQL = build_query_per_partition(QUERIES["append_rows"], QUERIES["owner_begins"])

BoundStatement = tuple[bytes, list[Any]]


def build_append_statement(
    session: str, events: Sequence[Event], epoch: int | None
) -> BoundStatement:
    """Return the statement that appends these events or changes no row."""
    key = compute_session_uuid(session)
    first = events[0].seq
    part = compute_partition(session)
    # Of one type whatever their size: a statement is prepared for each.
    limit = Int8(ANY_EPOCH if epoch is None else epoch)
    before = Int4(first - 1)
    if len(events) == 1 and first != 1 and needs_only_event_row(events[0]):
        row, blobs = event_to_row_and_blobs(session, events[0])
        if not blobs:
            # As text, which psycopg sends on as it is.
            *values, subject = event_row_to_sql_values(row)
            return APPEND_ONE_SQL[part], [key.hex, *values, limit, before, subject]
    for seq, event in enumerate(events, first):
        if event.seq != seq:
            raise ValueError(
                f"event {event.seq} of a batch is out of order: event {seq} is expected here"
            )
    batch = build_append_batch(session, events)
    if first != 1 and batch.has_only_events and len(events) in APPEND_FEW_SQL:
        values = [value for row in batch.rows for value in event_row_to_sql_values(row)]
        return APPEND_FEW_SQL[len(events)][part], [key.hex, limit, before, *values]
    parameters = [key, *build_event_parameters(batch), limit, before]
    if first == 1:
        batch.active_at = events[-1].at
        session_columns = [escape_for_text_column(session), clamp_timestamp(events[0].at)]
        return APPEND_FIRST_SQL[part], [
            *parameters,
            *build_blob_and_call_parameters(batch),
            *build_session_row_parameters(batch),
            *session_columns,
        ]
    if batch.changes_session_row:
        return APPEND_CLAIM_SQL[part], [
            *parameters,
            *build_blob_and_call_parameters(batch),
            *build_session_row_parameters(batch),
        ]
    if batch.has_only_events:
        return APPEND_MANY_SQL[part], [*parameters, build_subject_parameter(batch)]
    return APPEND_WITH_ROWS_SQL[part], [*parameters, *build_blob_and_call_parameters(batch)]


def event_row_to_sql_values(event_row: EventRow) -> tuple[Any, ...]:
    at, seq, kind, key, body, subject = event_row
    # A subject is sent as text, so that its type is the same as that of none.
    return Float8(at), Int4(seq), kind, key, body, subject if subject is None else str(subject)


async def find_append_refusal(
    fetch: FetchRows, session: str, events: Sequence[Event], epoch: int | None
) -> StoreError | None:
    """Return why no row was written; None if the append could succeed now."""
    rows = await fetch(QUERIES["standing"], [compute_session_uuid(session)])
    newest, position = rows[0] if rows else (0, 0)
    if epoch is not None and epoch < newest:
        return StaleOwner(session, epoch, newest)
    if events and position != events[0].seq - 1:
        return PositionTaken(session, events[0].seq, position)
    return None


async def find_key_refusal(
    fetch: FetchRows, session: str, events: Sequence[Event]
) -> StoreError | None:
    """Return the error for a duplicate key; None if there is no longer one."""
    keys = {
        event.seq: event.body.key
        for event in events
        if isinstance(event.body, MessageAdded) and event.body.key is not None
    }
    if not keys:
        return None
    names = [escape_for_text_column(key) for key in keys.values()]
    for name, seq in await fetch(QUERIES["keys"], [compute_session_uuid(session), names]):
        return DuplicateIdempotencyKey(session, unescape_from_text_column(name), seq)
    positions: dict[str, int] = {}
    for seq, key in keys.items():
        if key in positions:
            return DuplicateIdempotencyKey(session, key, positions[key])
        positions[key] = seq
    return None


def is_position_conflict(error: errors.UniqueViolation) -> bool:
    """Whether two writers used the same position. Otherwise they used the same key."""
    return (error.diag.constraint_name or "").endswith("_pkey")
