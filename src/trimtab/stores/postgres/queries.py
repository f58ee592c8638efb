"""SQL by name, from the `.sql` files beside this one."""

from __future__ import annotations

import re
from importlib.resources import files

PARTITIONS = 16
"""Of the table of events."""

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def named(text: str) -> dict[str, bytes]:
    """The queries of a file: each begins with a line `-- name: x` and ends at the next one's
    comment. As bytes, which is how psycopg takes a query that is no literal."""
    _, *pieces = _NAME.split(text)
    return {
        name: _uncommented(query).encode()
        for name, query in zip(pieces[::2], pieces[1::2], strict=True)
    }


def for_partitions(query: bytes, owner: bytes = b"") -> tuple[bytes, ...]:
    """A query that appends, once for each partition, for those whom `owner` lets through."""
    whole = query.replace(b":owner", owner)
    return tuple(
        whole.replace(b":events", b"trimtab.events_%02d" % number) for number in range(PARTITIONS)
    )


def with_values(query: bytes, rows: int, types: tuple[str, ...], first: int) -> bytes:
    """A query with so many rows of values, whose parameters begin at a number."""
    numbers = iter(range(first, first + rows * len(types)))
    row = [
        "(" + ", ".join(f"${next(numbers)}::{kind}" for kind in types) + ")" for _ in range(rows)
    ]
    return query.replace(b":values", ", ".join(row).encode())


def _uncommented(query: str) -> str:
    lines = (line.rstrip() for line in query.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("--")).rstrip(";")


QUERIES = named(
    files("trimtab.stores.postgres").joinpath("sql/queries.sql").read_text(encoding="utf-8")
)
