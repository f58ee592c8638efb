"""A typed client of `trimtab serve`. Needs the extra `client`.

Answers are the values that the server makes them from; see `trimtab.gateways.http.answers`.
"""

from __future__ import annotations

from trimtab.client.client import Client as Client
from trimtab.client.problems import Refused as Refused
from trimtab.client.problems import Unreachable as Unreachable
from trimtab.client.session import RemoteSession as RemoteSession
from trimtab.client.session import TurnFailed as TurnFailed
from trimtab.client.streams import StreamEvent as StreamEvent

__all__ = ["Client", "Refused", "RemoteSession", "StreamEvent", "TurnFailed", "Unreachable"]
