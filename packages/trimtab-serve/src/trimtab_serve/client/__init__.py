"""A typed client of `trimtab serve`. Needs the extra `client`.

Methods return the dataclasses of `trimtab_serve.client.types`, which the server also
uses.
"""

from __future__ import annotations

from trimtab_serve.client.client import Client as Client
from trimtab_serve.client.errors import ApiError as ApiError
from trimtab_serve.client.errors import ServerUnreachable as ServerUnreachable
from trimtab_serve.client.session import RemoteSession as RemoteSession
from trimtab_serve.client.session import RemoteTurnFailed as RemoteTurnFailed
from trimtab_serve.client.sse import StreamEvent as StreamEvent

__all__ = [
    "ApiError",
    "Client",
    "RemoteSession",
    "RemoteTurnFailed",
    "ServerUnreachable",
    "StreamEvent",
]
