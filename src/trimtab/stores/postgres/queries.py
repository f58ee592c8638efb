"""SQL by name, from the `.sql` files beside this one."""

from __future__ import annotations

import re
from importlib.resources import files

EVENT_PARTITION_COUNT = 16
"""Of the table of events."""

_QUERY_NAME_LINE = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def parse_named_queries(sql: str) -> dict[str, bytes]:
    """The queries of a file: each begins with a line `-- name: x` and ends at the next one's
    comment. As bytes, which is how psycopg takes a query that is no literal."""
    _, *pieces = _QUERY_NAME_LINE.split(sql)
    return {
        name: _strip_comments(query).encode()
        for name, query in zip(pieces[::2], pieces[1::2], strict=True)
    }


def build_query_per_partition(query: bytes, owner_clause: bytes = b"") -> tuple[bytes, ...]:
    """A query that appends, once for each partition, for those whom `owner` lets through."""
    whole = query.replace(b":owner", owner_clause)
    return tuple(
        whole.replace(b":events", b"trimtab.events_%02d" % number)
        for number in range(EVENT_PARTITION_COUNT)
    )


def expand_values_placeholder(
    query: bytes, row_count: int, column_types: tuple[str, ...], first_parameter: int
) -> bytes:
    """A query with so many rows of values, whose parameters begin at a number."""
    numbers = iter(range(first_parameter, first_parameter + row_count * len(column_types)))
    row = [
        "(" + ", ".join(f"${next(numbers)}::{kind}" for kind in column_types) + ")"
        for _ in range(row_count)
    ]
    return query.replace(b":values", ", ".join(row).encode())


def _strip_comments(query: str) -> str:
    lines = (line.rstrip() for line in query.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("--")).rstrip(";")


QUERIES = parse_named_queries(
    files("trimtab.stores.postgres").joinpath("sql/queries.sql").read_text(encoding="utf-8")
)
