"""A streamed Anthropic reply, gathered into the body that the API returns unstreamed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trimtab.dialects.foreign import tool_input
from trimtab.dialects.shapes import as_dict, as_int, as_list

_TEXTS = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "compaction_delta": "content",
}


class _Gathering:
    expected = "events of the Messages API (message_start … message_stop)"

    def __init__(self) -> None:
        self._message: dict[str, Any] = {}
        self._blocks: dict[int, dict[str, Any]] = {}
        self._pieces: dict[tuple[int, str], list[str]] = {}
        self._whole = False

    def feed(self, event: Mapping[str, Any]) -> None:
        match event.get("type"):
            case "message_start":
                self._message = dict(as_dict(event.get("message")) or {})
            case "content_block_start":
                block = as_dict(event.get("content_block")) or {}
                self._blocks[as_int(event.get("index"))] = dict(block)
            case "content_block_delta":
                self._delta(as_int(event.get("index")), as_dict(event.get("delta")) or {})
            case "message_delta":
                self._end(event)
            case "message_stop":
                self._whole = True
            case _:
                pass

    @property
    def begun(self) -> bool:
        return bool(self._message)

    def reply(self) -> dict[str, Any] | None:
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
            block["citations"] = [*(as_list(block.get("citations")) or []), delta["citation"]]
        elif kind in _TEXTS:
            key = _TEXTS[kind]
            self._pieces.setdefault((index, key), []).append(delta.get(key) or "")

    def _end(self, event: Mapping[str, Any]) -> None:
        self._message.update(as_dict(event.get("delta")) or {})
        if (edits := event.get("context_management")) is not None:
            self._message["context_management"] = edits
        # Counts are cumulative; a null says nothing and must not erase what the start said.
        counts = as_dict(event.get("usage")) or {}
        known = {key: value for key, value in counts.items() if value is not None}
        self._message["usage"] = {**(as_dict(self._message.get("usage")) or {}), **known}

    def _block(self, index: int) -> dict[str, Any]:
        block = dict(self._blocks[index])
        for key in ("text", "thinking", "signature", "content"):
            if (pieces := self._pieces.get((index, key))) is not None:
                block[key] = (block.get(key) or "") + "".join(pieces)
        if text := "".join(self._pieces.get((index, "input"), ())):
            block["input"] = tool_input(text)
        return block


def gather() -> _Gathering:
    return _Gathering()
