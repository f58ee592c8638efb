"""How much of a pool of database connections is used."""

from __future__ import annotations

from typing import NamedTuple


class PoolUsage(NamedTuple):
    """A pool of connections at this moment."""

    in_use: int
    """Connections that are lent."""
    max_size: int
    """Connections that it may open."""
    waiting: int
    """Tasks that wait for one."""
