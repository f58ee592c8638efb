"""lovia: its `Compaction` policy, asked before each call as its runner does, usage included."""

# The peer is not installed where types are checked.
# pyright: basic, reportMissingImports=false
from __future__ import annotations

import asyncio
from typing import Any

from lovia.context import Compaction, CompactionRequest, transcript_to_text
from lovia.transcript import AssistantTextEntry, InputEntry, ToolCallEntry, ToolResultEntry

Wire = dict[str, Any]


class Summarizer:
    """lovia's own prompt is not built; its instructions are short beside what is summarised."""

    def __init__(self, stand_in: Any) -> None:
        self._stand_in = stand_in

    async def summarize(
        self,
        entries: list[Any],
        *,
        req: CompactionRequest,  # noqa: ARG002 - lovia's signature
        prior_summary: str | None = None,
    ) -> str:
        return self._stand_in.summary(f"{prior_summary or ''}\n{transcript_to_text(entries)}")


class Session:
    def __init__(self, stand_in: Any, options: Wire) -> None:
        self._policy = Compaction(summarizer=Summarizer(stand_in), **options)
        self._loop = asyncio.new_event_loop()
        self._entries: list[Any] = []
        self._index: dict[int, int] = {}
        self._scratch: dict[str, Any] = {}
        self._used: int | None = None
        self._sent: list[Any] = []

    def add(self, index: int, message: Wire, size: int, used: int | None) -> None:  # noqa: ARG002 - the worker's protocol
        for entry in _entries(message):
            self._entries.append(entry)
            self._index[id(entry)] = index
        self._used = used or self._used

    def decide(self) -> None:
        request = CompactionRequest(
            entries=self._entries, last_input_tokens=self._used, scratch=self._scratch
        )
        self._sent = self._loop.run_until_complete(self._policy.compact(request)).entries

    def view(self) -> list[int | Wire]:
        out: list[int | Wire] = []
        for entry in self._sent:
            index = self._index.get(id(entry))
            if index is None:
                out.append(_made(entry))
            elif not out or out[-1] != index:
                # A reply's text and calls are entries of their own, and go or stay together.
                out.append(index)
        return out


def _entries(message: Wire) -> list[Any]:
    content = message.get("content") or ""
    if message["role"] == "tool":
        return [ToolResultEntry(call_id=message["tool_call_id"], output=content)]
    if message["role"] != "assistant":
        return [InputEntry(role=message["role"], content=content)]
    calls = message.get("tool_calls") or ()
    entries: list[Any] = [AssistantTextEntry(content=content)] if content or not calls else []
    return entries + [
        ToolCallEntry(
            call_id=call["id"],
            name=call["function"]["name"],
            arguments=call["function"]["arguments"],
        )
        for call in calls
    ]


def _made(entry: Any) -> Wire:
    if isinstance(entry, ToolResultEntry):
        return {"role": "tool", "tool_call_id": entry.call_id, "content": entry.output}
    return {"role": getattr(entry, "role", "assistant"), "content": str(entry.content)}


def open_session(setup: Wire, stand_in: Any) -> Session:
    return Session(stand_in, setup)
