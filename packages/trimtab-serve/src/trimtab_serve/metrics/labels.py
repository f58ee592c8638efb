"""Limit the number of different values of a label, and say which agent pays for a call."""

from __future__ import annotations

from contextvars import ContextVar, Token
from typing import NamedTuple


class PayerLabels(NamedTuple):
    """The agent and the tenant that pay."""

    agent: str
    tenant: str


_payer: ContextVar[PayerLabels | None] = ContextVar("trimtab_payer", default=None)


def current_payer() -> PayerLabels | None:
    """Return who pays for the current calls. None if no turn runs."""
    return _payer.get()


def set_payer(payer: PayerLabels | None) -> Token[PayerLabels | None]:
    """Set who pays from now on, or None, until `reset_payer`."""
    return _payer.set(payer)


def reset_payer(token: Token[PayerLabels | None]) -> None:
    """Restore the previous payer."""
    _payer.reset(token)


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
