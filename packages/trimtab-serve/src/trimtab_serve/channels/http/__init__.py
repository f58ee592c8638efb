"""The HTTP API: sessions of served agents for programs. Needs the extra `serve`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimtab_serve.channels.http.api_caller import ApiCaller
    from trimtab_serve.channels.http.app import create_http_app
    from trimtab_serve.channels.http.server_state import HttpServerState

__all__ = ["ApiCaller", "HttpServerState", "create_http_app"]

_HOMES = {
    "ApiCaller": "api_caller",
    "HttpServerState": "server_state",
    "create_http_app": "app",
}


def __getattr__(name: str) -> Any:
    """Import a name at its first use, because the client needs only the response types."""
    if name not in _HOMES:
        raise AttributeError(f"module 'trimtab_serve.channels.http' has no attribute {name!r}")
    return getattr(import_module(f"trimtab_serve.channels.http.{_HOMES[name]}"), name)
