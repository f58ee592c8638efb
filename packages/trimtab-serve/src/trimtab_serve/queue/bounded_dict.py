"""A dict of limited size. It drops the entry that was set longest ago first."""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class BoundedDict(OrderedDict[K, V]):
    """Keeps at most `max_entries` entries. Setting a key again makes it the newest."""

    def __init__(self, max_entries: int) -> None:
        super().__init__()
        self.max_entries = max_entries
        """Maximum number of entries."""

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        while len(self) > self.max_entries:
            self.popitem(last=False)

    def add_if_missing(self, key: K, value: V) -> bool:
        """Set a key, or make it the newest if it exists. Return whether it was missing."""
        missing = key not in self
        self[key] = value if missing else self[key]
        return missing
