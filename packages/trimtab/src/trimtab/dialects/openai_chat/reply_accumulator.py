"""Collects streamed Chat Completions chunks into the body that the API returns without
streaming."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trimtab.dialects.json_values import dict_or_none, dicts_in_list, int_or_zero, list_or_none

_TEXT_DELTA_KEYS = ("content", "refusal", "reasoning_content", "reasoning")


class _ChoiceAccumulator:
    def __init__(self) -> None:
        self.rest: dict[str, Any] = {}
        self.message: dict[str, Any] = {"role": "assistant", "content": None}
        self.pieces: dict[str, list[str]] = {}
        self.calls: dict[int, list[dict[str, Any]]] = {}

    def feed(self, choice: Mapping[str, Any]) -> None:
        for key, value in choice.items():
            if key == "logprobs":
                self.rest[key] = _merge_delta(self.rest.get(key), value)
            elif key != "delta" and (value is not None or key not in self.rest):
                self.rest[key] = value
        for key, value in (dict_or_none(choice.get("delta")) or {}).items():
            if key == "tool_calls":
                for fragment in dicts_in_list(value):
                    self._call(fragment)
            elif key in _TEXT_DELTA_KEYS and isinstance(value, str):
                self.pieces.setdefault(key, []).append(value)
            elif value is not None or key not in self.message:
                self.message[key] = _merge_delta(self.message.get(key), value)

    def _call(self, fragment: Mapping[str, Any]) -> None:
        index = fragment.get("index")
        if not isinstance(index, int):
            # Some servers leave the index out: an id then begins the next call.
            index = len(self.calls) - (0 if fragment.get("id") or not self.calls else 1)
        call = self._held(index, fragment)
        for key, value in fragment.items():
            body = dict_or_none(value)
            if body is not None and key in ("function", "custom"):
                pieces: dict[str, Any] = call.setdefault(key, {})
                for inner, piece in body.items():
                    if inner in ("arguments", "input"):
                        pieces.setdefault(inner, []).append(piece or "")
                    elif piece is not None:
                        pieces[inner] = piece
            elif key != "index" and value is not None:
                call[key] = value

    def _held(self, index: int, fragment: Mapping[str, Any]) -> dict[str, Any]:
        """Return the call that a fragment belongs to.

        Some servers give all calls one index; another id with a name begins the next call.
        """
        calls = self.calls.setdefault(index, [{}])
        call_id = fragment.get("id")
        for call in reversed(calls):
            if call_id and call.get("id") == call_id:
                return call
        if call_id and calls[-1].get("id") and _fragment_tool_name(fragment):
            calls.append({})
        return calls[-1]

    def to_choice(self) -> dict[str, Any]:
        texts = {key: "".join(pieces) for key, pieces in self.pieces.items()}
        message = {**self.message, **texts}
        if self.calls:
            calls = [call for index in sorted(self.calls) for call in self.calls[index]]
            message["tool_calls"] = [_assemble_call(call) for call in calls]
        return {**self.rest, "message": message}


def _fragment_tool_name(fragment: Mapping[str, Any]) -> Any:
    body = dict_or_none(fragment.get("function")) or dict_or_none(fragment.get("custom")) or {}
    return body.get("name")


def _assemble_call(call: Mapping[str, Any]) -> dict[str, Any]:
    out = {"type": "custom" if "custom" in call else "function", **call}
    for key, text in (("function", "arguments"), ("custom", "input")):
        if (body := dict_or_none(call.get(key))) is not None:
            out[key] = {**body, text: "".join(body.get(text, ()))}
    return out


def _merge_delta(held: Any, value: Any) -> Any:
    """Append to lists and to the texts of objects; replace every other value."""
    old = list_or_none(held)
    new = list_or_none(value)
    if old is not None and new is not None:
        return [*old, *new]
    before = dict_or_none(held)
    after = dict_or_none(value)
    if before is None or after is None:
        return held if value is None else value
    out = dict(before)
    for key, piece in after.items():
        if isinstance(piece, str) and isinstance(out.get(key), str) and key != "id":
            out[key] += piece
        else:
            out[key] = _merge_delta(out.get(key), piece)
    return out


class _ChatAccumulator:
    expected_events = "chunks of the Chat Completions API (objects with choices)"

    def __init__(self) -> None:
        self.has_started = False
        self._head: dict[str, Any] = {}
        self._choices: dict[int, _ChoiceAccumulator] = {}

    def feed(self, event: Mapping[str, Any]) -> None:
        # The SDK's helper wraps each chunk, and tells beside it what it made of them.
        chunk = dict_or_none(event.get("chunk")) or event
        if "choices" in chunk or "type" not in chunk:
            self._chunk(chunk)

    def _chunk(self, chunk: Mapping[str, Any]) -> None:
        self.has_started = self.has_started or "choices" in chunk
        for key, value in chunk.items():
            if key != "choices" and (value is not None or key not in self._head):
                self._head[key] = value
        for choice in dicts_in_list(chunk.get("choices")):
            self._choices.setdefault(int_or_zero(choice.get("index")), _ChoiceAccumulator()).feed(
                choice
            )

    def reply_body(self) -> dict[str, Any] | None:
        choices = [self._choices[index] for index in sorted(self._choices)]
        if not choices or not all(choice.rest.get("finish_reason") for choice in choices):
            return None
        bodies = [choice.to_choice() for choice in choices]
        return {**self._head, "object": "chat.completion", "choices": bodies}


def create_reply_accumulator() -> _ChatAccumulator:
    return _ChatAccumulator()
