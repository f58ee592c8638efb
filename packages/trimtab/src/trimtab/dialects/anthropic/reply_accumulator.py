"""Collects a streamed Anthropic reply into the body that the API returns without streaming."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trimtab.dialects.json_values import dict_or_none, int_or_zero, list_or_none
from trimtab.dialects.provider_safe_values import parse_tool_arguments

_TEXT_KEY_BY_DELTA_TYPE = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "compaction_delta": "content",
}


class _AnthropicAccumulator:
    expected_events = "events of the Messages API (message_start … message_stop)"

    def __init__(self) -> None:
        self._message: dict[str, Any] = {}
        self._blocks: dict[int, dict[str, Any]] = {}
        self._pieces: dict[tuple[int, str], list[str]] = {}
        self._whole = False

    def feed(self, event: Mapping[str, Any]) -> None:
        match event.get("type"):
            case "message_start":
                self._message = dict(dict_or_none(event.get("message")) or {})
            case "content_block_start":
                block = dict_or_none(event.get("content_block")) or {}
                self._blocks[int_or_zero(event.get("index"))] = dict(block)
            case "content_block_delta":
                self._delta(int_or_zero(event.get("index")), dict_or_none(event.get("delta")) or {})
            case "message_delta":
                self._end(event)
            case "message_stop":
                self._whole = True
            case _:
                pass

    @property
    def has_started(self) -> bool:
        return bool(self._message)

    def reply_body(self) -> dict[str, Any] | None:
        if not self._whole or not self._message:
            return None
        content = [self._block(index) for index in sorted(self._blocks)]
        return {**self._message, "content": content}

    def _delta(self, index: int, delta: Mapping[str, Any]) -> None:
        kind = delta.get("type", "")
        if kind == "input_json_delta":
            self._pieces.setdefault((index, "input"), []).append(delta.get("partial_json") or "")
        elif kind == "citations_delta":
            block = self._blocks[index]
            block["citations"] = [*(list_or_none(block.get("citations")) or []), delta["citation"]]
        elif kind in _TEXT_KEY_BY_DELTA_TYPE:
            key = _TEXT_KEY_BY_DELTA_TYPE[kind]
            self._pieces.setdefault((index, key), []).append(delta.get(key) or "")

    def _end(self, event: Mapping[str, Any]) -> None:
        self._message.update(dict_or_none(event.get("delta")) or {})
        if (edits := event.get("context_management")) is not None:
            self._message["context_management"] = edits
        # Counts are cumulative; a null says nothing and must not erase what the start said.
        counts = dict_or_none(event.get("usage")) or {}
        reported_counts = {key: value for key, value in counts.items() if value is not None}
        self._message["usage"] = {
            **(dict_or_none(self._message.get("usage")) or {}),
            **reported_counts,
        }

    def _block(self, index: int) -> dict[str, Any]:
        block = dict(self._blocks[index])
        for key in ("text", "thinking", "signature", "content"):
            if (pieces := self._pieces.get((index, key))) is not None:
                block[key] = (block.get(key) or "") + "".join(pieces)
        if text := "".join(self._pieces.get((index, "input"), ())):
            block["input"] = parse_tool_arguments(text)
        return block


def create_reply_accumulator() -> _AnthropicAccumulator:
    return _AnthropicAccumulator()
