"""Compaction on a provider's servers, by its documented rule: a model of it, not the thing.

`anthropic`: above the trigger the server summarises the whole conversation. Everything before the
summary is dropped, the user's messages too. `openai`: the same, but the user's messages stay word
for word before the summary. Both count all input, system prompt and tools included. What is dropped
cannot be read back. The stand-in writes the summary.
"""

from __future__ import annotations

from typing import Any

Wire = dict[str, Any]
SUMMARY_TOKENS = 310
"""Of the stand-in's summary, with its frame."""


class Server:
    def __init__(self, stand_in: Any, *, rule: str, trigger: int, head: int) -> None:
        self._stand_in = stand_in
        self._keeps_user_messages = rule == "openai"
        self._trigger = trigger
        self._head = head
        self._messages: list[Wire] = []
        self._sizes: list[int] = []
        self._front: list[int | Wire] = []
        self._front_tokens = 0
        self._border = 0

    def add(self, index: int, message: Wire, size: int, used: int | None) -> None:  # noqa: ARG002 - the worker's protocol
        self._messages.append(message)
        self._sizes.append(size)

    def decide(self) -> None:
        newer = self._sizes[self._border :]
        if not newer or self._head + self._front_tokens + sum(newer) <= self._trigger:
            return
        text = "\n".join(_text(self._read(one)) for one in self.view())
        summary = {"role": "user", "content": f"[compaction] {self._stand_in.summary(text)}"}
        self._border = len(self._messages)
        spoken = [i for i, message in enumerate(self._messages) if message["role"] == "user"]
        kept = spoken if self._keeps_user_messages else []
        self._front = [*kept, summary]
        self._front_tokens = sum(self._sizes[i] for i in kept) + SUMMARY_TOKENS

    def view(self) -> list[int | Wire]:
        return [*self._front, *range(self._border, len(self._messages))]

    def _read(self, one: int | Wire) -> Wire:
        return self._messages[one] if isinstance(one, int) else one


def _text(message: Wire) -> str:
    calls = message.get("tool_calls") or ()
    arguments = "".join(call["function"]["name"] + call["function"]["arguments"] for call in calls)
    return (message.get("content") or "") + arguments


def open_session(setup: Wire, stand_in: Any) -> Server:
    return Server(stand_in, **setup)
