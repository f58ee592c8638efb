"""The usage of a pool of database connections."""

from __future__ import annotations

from typing import NamedTuple


class PoolUsage(NamedTuple):
    """The current state of a connection pool."""

    in_use: int
    """Connections in use."""
    max_size: int
    """Maximum number of connections."""
    waiting: int
    """Tasks that wait for a connection."""
