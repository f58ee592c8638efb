"""No peer: keeps everything. What it costs must be what `full` costs in our own replay."""

from __future__ import annotations

from typing import Any


class Everything:
    def __init__(self) -> None:
        self._count = 0

    def add(self, index: int, message: dict[str, Any], size: int, used: int | None) -> None:  # noqa: ARG002 - the worker's protocol
        self._count += 1

    def decide(self) -> None:
        pass

    def view(self) -> list[int]:
        return list(range(self._count))


def open_session(setup: dict[str, Any], stand_in: object) -> Everything:  # noqa: ARG001 - the worker's protocol
    return Everything()
