"""SQL by name, from `.sql` files."""

from __future__ import annotations

import re

_QUERY_NAME_LINE = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def split_named_queries(sql: str) -> dict[str, str]:
    """Return the queries of a file. Each begins with a line `-- name: x` and ends at the next one's
    comment."""
    _, *pieces = _QUERY_NAME_LINE.split(sql)
    return {
        name: _strip_comments(query) for name, query in zip(pieces[::2], pieces[1::2], strict=True)
    }


def parse_named_queries(sql: str) -> dict[str, bytes]:
    """Return the queries of a file as bytes, because psycopg accepts dynamic queries only as
    bytes."""
    return {name: query.encode() for name, query in split_named_queries(sql).items()}


def _strip_comments(query: str) -> str:
    lines = (line.rstrip() for line in query.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("--")).rstrip(";")
