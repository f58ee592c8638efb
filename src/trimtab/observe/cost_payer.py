"""Who pays for a model call: the outermost agent whose turn runs, for its sub-agents as well.

A tool runs in a copy of its turn's context, so that a turn of another agent within it finds who
pays. A served turn is nobody's part, whoever's task has started it.
"""

from __future__ import annotations

from contextvars import ContextVar, Token
from typing import NamedTuple


class PayerLabels(NamedTuple):
    """For whom money is spent."""

    agent: str
    tenant: str


_payer: ContextVar[PayerLabels | None] = ContextVar("trimtab_payer", default=None)


def current_payer() -> PayerLabels | None:
    """Who pays for what is done here; None where no turn runs."""
    return _payer.get()


def set_payer(payer: PayerLabels | None) -> Token[PayerLabels | None]:
    """Let somebody pay from now on, or nobody, until `reset_payer`."""
    return _payer.set(payer)


def reset_payer(token: Token[PayerLabels | None]) -> None:
    """Let whoever paid before pay again."""
    _payer.reset(token)
