"""HTTP: sessions of served agents for programs. Needs the extra `serve`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimtab.gateways.http.app import make_app
    from trimtab.gateways.http.asking import Offer
    from trimtab.gateways.http.keys import Caller, KeyFile

__all__ = ["Caller", "KeyFile", "Offer", "make_app"]

_HOMES = {"Caller": "keys", "KeyFile": "keys", "Offer": "asking", "make_app": "app"}


def __getattr__(name: str) -> Any:
    """Import a name at its first use: the client shares the answers' types, not the server."""
    if name not in _HOMES:
        raise AttributeError(f"module 'trimtab.gateways.http' has no attribute {name!r}")
    return getattr(import_module(f"trimtab.gateways.http.{_HOMES[name]}"), name)
