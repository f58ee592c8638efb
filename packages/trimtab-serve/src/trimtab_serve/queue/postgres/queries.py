"""SQL of the message queue and the jobs, by name."""

from __future__ import annotations

from importlib.resources import files

from trimtab.stores.named_queries import parse_named_queries
from trimtab.stores.postgres.queries import build_query_per_partition

SERVER_QUERIES = parse_named_queries(
    files("trimtab_serve.queue.postgres").joinpath("queries.sql").read_text(encoding="utf-8")
)
POST_BY_PARTITION = build_query_per_partition(SERVER_QUERIES["post"])
"""The query by partition of the session's events."""
