"""Find who pays for a model call: the outermost agent whose turn runs, also for its sub-agents.

A tool runs in a copy of its turn's context, so a nested turn of another agent finds the payer. A
served turn is never part of another turn, even if a task of another turn started it.
"""

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
