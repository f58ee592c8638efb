"""Anthropic's `clear_tool_uses_20250919`, which runs on its servers: a model of it, not the thing.

From the documentation of context editing: above `trigger` input tokens (100,000 by default) the
oldest tool results are replaced by a placeholder until the newest `keep` tool uses (3) are left;
`clear_at_least` tokens (none) must be won, or nothing is cleared; inputs of calls stay. The client
sends its whole history each time.

With its defaults every request stands for itself: above the trigger, all but the newest three are
cleared at each call anew. `driven` is a client that moves `keep` from call to call so that the
border of what is cleared stands still: what was cleared stays cleared, and the next clearing waits
until it wins `clear_at_least` again.
"""

from __future__ import annotations

from typing import Any

PLACEHOLDER = "[Old tool result content cleared]"
PLACEHOLDER_TOKENS = 18


class Server:
    def __init__(
        self,
        *,
        head: int,
        trigger: int = 100_000,
        keep: int = 3,
        clear_at_least: int = 0,
        driven: bool = False,
    ) -> None:
        self._head = head
        self._trigger, self._keep, self._least = trigger, keep, clear_at_least
        self._driven = driven
        self._messages: list[dict[str, Any]] = []
        self._sizes: list[int] = []
        self._results: list[int] = []
        self._cleared: set[int] = set()

    def add(self, index: int, message: dict[str, Any], size: int, used: int | None) -> None:  # noqa: ARG002 - the worker's protocol
        self._messages.append(message)
        self._sizes.append(size)
        if message["role"] == "tool":
            self._results.append(index)

    def decide(self) -> None:
        if not self._driven:
            self._cleared = set()
        gains = {i: max(0, self._sizes[i] - PLACEHOLDER_TOKENS) for i in self._results}
        size = self._head + sum(self._sizes) - sum(gains[i] for i in self._cleared)
        if size <= self._trigger:
            return
        older = [i for i in self._results[: -self._keep or None] if i not in self._cleared]
        if sum(gains[i] for i in older) >= max(1, self._least):
            self._cleared |= set(older)

    def view(self) -> list[int | dict[str, Any]]:
        return [
            {**message, "content": PLACEHOLDER} if index in self._cleared else index
            for index, message in enumerate(self._messages)
        ]


def open_session(setup: dict[str, Any], stand_in: object) -> Server:  # noqa: ARG001 - the worker's protocol
    return Server(**setup)
