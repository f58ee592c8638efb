"""One append as one statement, and why it was refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from psycopg import errors
from psycopg.types.numeric import Float8, Int4, Int8

from trimtab.core.event import Event, Said
from trimtab.stores.errors import KeyTaken, PositionTaken, StaleOwner, StoreError
from trimtab.stores.postgres.names import partition_of, read, uuid_of, written
from trimtab.stores.postgres.queries import QUERIES, for_partitions, with_values
from trimtab.stores.postgres.reading import Fetch
from trimtab.stores.postgres.rows import (
    Row,
    batch_of,
    claim_parameters,
    clamped,
    event_parameters,
    is_plain,
    row_of,
    row_parameters,
)

ANY_EPOCH = 2**63 - 1
"""Of a writer that owns no turn and needs none."""

ONE = for_partitions(QUERIES["append_one"])
MANY = for_partitions(QUERIES["append_many"], QUERIES["owner_shares"])
FEW = {
    rows: for_partitions(
        with_values(QUERIES["append_few"], rows, ("float8", "int4", "text", "text", "text"), 4),
        QUERIES["owner_of_few"],
    )
    for rows in range(1, 9)
}
ROWS = for_partitions(QUERIES["append_rows"], QUERIES["owner_shares"])
CLAIM = for_partitions(QUERIES["append_rows"], QUERIES["owner_claims"])
BEGIN = for_partitions(QUERIES["append_rows"], QUERIES["owner_begins"])

Statement = tuple[bytes, list[Any]]


def statement_of(session: str, events: Sequence[Event], epoch: int | None) -> Statement:
    """The statement that appends these events, or touches no row at all."""
    key, first, part = uuid_of(session), events[0].seq, partition_of(session)
    # Of one type whatever their size: a statement is prepared for each.
    limit, before = Int8(ANY_EPOCH if epoch is None else epoch), Int4(first - 1)
    if len(events) == 1 and first != 1 and is_plain(events[0]):
        row, blobs = row_of(events[0])
        if not blobs:
            # As text, which psycopg sends on as it is.
            return ONE[part], [key.hex, *row_values(row), limit, before]
    for seq, event in enumerate(events, first):
        if event.seq != seq:
            raise ValueError(f"event {event.seq} was given to be appended where {seq} must stand")
    batch = batch_of(events)
    if first != 1 and batch.plain and len(events) in FEW:
        values = [value for row in batch.rows for value in row_values(row)]
        return FEW[len(events)][part], [key.hex, limit, before, *values]
    parameters = [key, *event_parameters(batch), limit, before]
    if first == 1:
        begun = [written(session), clamped(events[0].at)]
        return BEGIN[part], [*parameters, *row_parameters(batch), *claim_parameters(batch), *begun]
    if batch.claims:
        return CLAIM[part], [*parameters, *row_parameters(batch), *claim_parameters(batch)]
    if batch.plain:
        return MANY[part], parameters
    return ROWS[part], [*parameters, *row_parameters(batch)]


def row_values(row: Row) -> tuple[Any, ...]:
    at, seq, kind, key, body = row
    return Float8(at), Int4(seq), kind, key, body


async def refusal(
    fetch: Fetch, session: str, events: Sequence[Event], epoch: int | None
) -> StoreError | None:
    """Why no row was written; None where by now it could be."""
    rows = await fetch(QUERIES["standing"], [uuid_of(session)])
    newest, position = rows[0] if rows else (0, 0)
    if epoch is not None and epoch < newest:
        return StaleOwner(session, epoch, newest)
    if events and position != events[0].seq - 1:
        return PositionTaken(session, events[0].seq, position)
    return None


async def key_refusal(fetch: Fetch, session: str, events: Sequence[Event]) -> StoreError | None:
    """Which key was taken, and where; None where none is any more."""
    keys = {
        event.seq: event.body.key
        for event in events
        if isinstance(event.body, Said) and event.body.key is not None
    }
    if not keys:
        return None
    names = [written(key) for key in keys.values()]
    for name, seq in await fetch(QUERIES["keys"], [uuid_of(session), names]):
        return KeyTaken(session, read(name), seq)
    seen: dict[str, int] = {}
    for seq, key in keys.items():
        if key in seen:
            return KeyTaken(session, key, seen[key])
        seen[key] = seq
    return None


def is_position(error: errors.UniqueViolation) -> bool:
    """True where two writers met at one position; else it was at a key."""
    return (error.diag.constraint_name or "").endswith("_pkey")
