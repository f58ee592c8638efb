"""SQL by name, from the `.sql` files beside this one."""

from __future__ import annotations

from importlib.resources import files

from trimtab.stores.named_queries import parse_named_queries

PARTITION_COUNT = 16
"""Number of partitions of each table that has the rows of sessions."""


def build_query_per_partition(query: bytes, owner_clause: bytes = b"") -> tuple[bytes, ...]:
    """Return a query for each partition. An append is restricted by `owner_clause`."""
    whole = query.replace(b":owner", owner_clause)
    return tuple(
        whole.replace(b":events", b"trimtab.events_%02d" % number).replace(
            b":calls", b"trimtab.llm_calls_%02d" % number
        )
        for number in range(PARTITION_COUNT)
    )


def expand_values_placeholder(
    query: bytes, row_count: int, column_types: tuple[str, ...], first_parameter: int
) -> bytes:
    """Return a query with this number of rows of values. Parameters start at `first_parameter`."""
    numbers = iter(range(first_parameter, first_parameter + row_count * len(column_types)))
    row = [
        "(" + ", ".join(f"${next(numbers)}::{kind}" for kind in column_types) + ")"
        for _ in range(row_count)
    ]
    return query.replace(b":values", ", ".join(row).encode())


QUERIES = parse_named_queries(
    files("trimtab.stores.postgres").joinpath("sql/queries.sql").read_text(encoding="utf-8")
)
