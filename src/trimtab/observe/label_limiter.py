"""Label values that cannot grow without end."""

from __future__ import annotations

OTHER_LABEL = "other"
"""What stands for a value beyond those that are kept apart."""


class LabelLimiter:
    """Keeps so many values apart; all later ones are one."""

    def __init__(self, max_values: int) -> None:
        self._most = max_values
        self._known: set[str] = set()

    def __contains__(self, value: str) -> bool:
        return value in self._known

    def __call__(self, value: str) -> str:
        """The value, or what stands for it."""
        if value in self._known:
            return value
        if len(self._known) >= self._most:
            return OTHER_LABEL
        self._known.add(value)
        return value
