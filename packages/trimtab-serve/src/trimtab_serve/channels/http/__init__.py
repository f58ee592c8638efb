"""The HTTP API: sessions of served agents for programs. Needs the extra `serve`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trimtab.lazy_names import export_on_demand

if TYPE_CHECKING:
    from trimtab_serve.channels.http.api_caller import ApiCaller as ApiCaller
    from trimtab_serve.channels.http.app import create_http_app as create_http_app
    from trimtab_serve.channels.http.server_state import HttpServerState as HttpServerState

_HOMES = {
    "ApiCaller": "channels.http.api_caller",
    "HttpServerState": "channels.http.server_state",
    "create_http_app": "channels.http.app",
}

__all__, __getattr__ = export_on_demand(__name__, _HOMES)
