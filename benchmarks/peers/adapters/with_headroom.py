"""Headroom: its `compress`, asked before each call as an agent that uses it as a library would.

`frozen_message_count` is the length of the request before, as its documentation asks of whoever
keeps a conversation: what was sent stays as it was sent. Its model for free text (Kompress) is off,
because its weights would have to be downloaded.
"""

# The peer is not installed where types are checked.
# pyright: basic, reportMissingImports=false
from __future__ import annotations

import os
from typing import Any

# It says how it is used, unless it is told not to.
os.environ.setdefault("HEADROOM_TELEMETRY", "off")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from headroom import compress

Wire = dict[str, Any]
MODEL = "claude-sonnet-4-5-20250929"


class Session:
    def __init__(self, options: Wire) -> None:
        self._options = options
        self._recorded: list[Wire] = []
        self._sent: list[Wire] = []

    def add(self, index: int, message: Wire, size: int, used: int | None) -> None:  # noqa: ARG002 - the worker's protocol
        self._recorded.append(message)

    def decide(self) -> None:
        sent = len(self._sent)
        messages = [*self._sent, *(dict(message) for message in self._recorded[sent:])]
        compressed = compress(
            messages,
            model=MODEL,
            frozen_message_count=sent,
            kompress_model="disabled",
            **self._options,
        )
        self._sent = compressed.messages

    def view(self) -> list[int | Wire]:
        return [
            index if sent == recorded else sent
            for index, (sent, recorded) in enumerate(zip(self._sent, self._recorded, strict=True))
        ]


def open_session(setup: Wire, stand_in: object) -> Session:  # noqa: ARG001 - the worker's protocol
    return Session(setup)
