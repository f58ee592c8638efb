"""Limit the number of different values of a label."""

from __future__ import annotations

OTHER_LABEL = "other"
"""Replaces all values above the limit."""


class LabelLimiter:
    """Keeps a number of values. All later ones become `other`."""

    def __init__(self, max_values: int) -> None:
        self._most = max_values
        self._known: set[str] = set()

    def __contains__(self, value: str) -> bool:
        return value in self._known

    def __call__(self, value: str) -> str:
        """Return the value, or `other`."""
        if value in self._known:
            return value
        if len(self._known) >= self._most:
            return OTHER_LABEL
        self._known.add(value)
        return value
