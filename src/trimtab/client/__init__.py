"""A typed client of `trimtab serve`. Needs the extra `client`.

Methods return the dataclasses of `trimtab.http_api_response_types`, which the server also uses.
"""

from __future__ import annotations

from trimtab.client.client import Client as Client
from trimtab.client.errors import ApiError as ApiError
from trimtab.client.errors import ServerUnreachable as ServerUnreachable
from trimtab.client.session import RemoteSession as RemoteSession
from trimtab.client.session import RemoteTurnFailed as RemoteTurnFailed
from trimtab.client.sse import StreamEvent as StreamEvent

__all__ = [
    "ApiError",
    "Client",
    "RemoteSession",
    "RemoteTurnFailed",
    "ServerUnreachable",
    "StreamEvent",
]
