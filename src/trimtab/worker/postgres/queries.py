"""SQL of the mail and the fleet, by name."""

from __future__ import annotations

from importlib.resources import files

from trimtab.stores.postgres.queries import for_partitions, named

QUERIES = named(
    files("trimtab.worker.postgres").joinpath("queries.sql").read_text(encoding="utf-8")
)
POST = for_partitions(QUERIES["post"])
"""By the partition of the session's events."""
