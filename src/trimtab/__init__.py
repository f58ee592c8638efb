"""Trimtab decides, before every model call of a long-lived agent, what the model sees."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimtab.checking import check
    from trimtab.context import Context
    from trimtab.core.event import Event
    from trimtab.core.guard import CannotFit
    from trimtab.core.ledger import Ledger, Preview
    from trimtab.core.message import Message
    from trimtab.core.policies.summaries import SummaryRefused, WantedSummary
    from trimtab.core.recall import Erased
    from trimtab.fitting import Fitted, fit
    from trimtab.wire import RequestChanged

__all__ = [
    "CannotFit",
    "Context",
    "Erased",
    "Event",
    "Fitted",
    "Ledger",
    "Message",
    "Preview",
    "RequestChanged",
    "SummaryRefused",
    "WantedSummary",
    "check",
    "fit",
]

_HOMES = {
    "CannotFit": "core.guard",
    "Context": "context",
    "Erased": "core.recall",
    "Event": "core.event",
    "Fitted": "fitting",
    "Ledger": "core.ledger",
    "Message": "core.message",
    "Preview": "core.ledger",
    "RequestChanged": "wire",
    "SummaryRefused": "core.policies.summaries",
    "WantedSummary": "core.policies.summaries",
    "check": "checking",
    "fit": "fitting",
}


def __getattr__(name: str) -> Any:
    """Import a name at its first use: a program that only might need us starts as fast."""
    if name not in _HOMES:
        raise AttributeError(f"module 'trimtab' has no attribute {name!r}")
    found = getattr(import_module(f"trimtab.{_HOMES[name]}"), name)
    globals()[name] = found
    return found
