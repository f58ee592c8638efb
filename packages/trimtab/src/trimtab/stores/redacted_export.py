"""What an export has instead of texts, so that it can be attached to a report.

Only what is listed here stays as it is. Every other string may be content and becomes a filler of
the same length, so that a field that is added later is hidden until somebody lists it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

_KEPT_KEYS = frozenset(
    (
        *("kind", "op", "role", "origin", "state", "status", "outcome", "stop", "type", "media"),
        *("mime", "model", "dialect", "policy", "goal", "summaries", "tool_result_truncation"),
        *("counter", "name", "required"),
    )
)
"""Keys of strings that say what something is, not what was said. `name` is that of a tool."""
_KEPT_FIELDS = frozenset(("entry", "limits"))
"""Fields of an event without content: the model's catalog entry, and limits."""
_ID_KEYS = frozenset(("call", "result", "id", "key", "parent"))
_DROPPED_FIELDS = frozenset(("hash",))
"""Fields of an event that are left out: a short text can be guessed by its hash."""
_MAX_ASCII, _MAX_TWO_BYTES, _MAX_THREE_BYTES = 0x7F, 0x7FF, 0xFFFF


class EventRedactor:
    """Redacts the events of one session, in their order. Ids keep their identity."""

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}
        self._tool_keys: set[str] = set()

    def redact(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """Return the stored form of an event without its texts."""
        return {
            key: value if key in _KEPT_FIELDS else self._redact_value(key, value)
            for key, value in event.items()
            if key not in _DROPPED_FIELDS
        }

    def _redact_value(self, key: str, value: Any) -> Any:
        if key == "tools":
            self._collect_keys(value)
        if key in ("extra", "opaque", "params"):
            return self._redact_content(value)
        if isinstance(value, Mapping):
            fields = cast("Mapping[str, Any]", value).items()
            return {name: self._redact_value(name, item) for name, item in fields}
        if isinstance(value, list | tuple):
            return [self._redact_value(key, item) for item in cast("list[Any]", value)]
        if not isinstance(value, str) or key in _KEPT_KEYS:
            return value
        if key == "arguments":
            return self._redact_arguments(value)
        if key in _ID_KEYS or key.endswith("_id"):
            return self._redact_id(value)
        return fill_text(value)

    def _redact_content(self, value: Any) -> Any:
        """Redact an object of a provider or a caller: only its keys, types and ids stay."""
        if isinstance(value, Mapping):
            return {
                key: self._redact_content_field(key, item)
                for key, item in cast("Mapping[str, Any]", value).items()
            }
        if isinstance(value, list | tuple):
            return [self._redact_content(item) for item in cast("list[Any]", value)]
        return _fill_value(value)

    def _redact_content_field(self, key: str, value: Any) -> Any:
        if isinstance(value, str) and key == "type":
            return value
        if isinstance(value, str) and (key == "id" or key.endswith("_id")):
            return self._redact_id(value)
        return self._redact_content(value)

    def _redact_arguments(self, arguments: str) -> str:
        """Redact the arguments of a call. Only keys that a tool declares stay."""
        try:
            values = json.loads(arguments)
        except (ValueError, RecursionError):
            return fill_text(arguments)
        return json.dumps(self._redact_argument(values), ensure_ascii=False)

    def _redact_argument(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {
                key if key in self._tool_keys else fill_text(key): self._redact_argument(item)
                for key, item in cast("Mapping[str, Any]", value).items()
            }
        if isinstance(value, list | tuple):
            return [self._redact_argument(item) for item in cast("list[Any]", value)]
        return _fill_value(value)

    def _collect_keys(self, value: Any) -> None:
        if isinstance(value, Mapping):
            for key, item in cast("Mapping[str, Any]", value).items():
                self._tool_keys.add(key)
                self._collect_keys(item)
        elif isinstance(value, list | tuple):
            for item in cast("list[Any]", value):
                self._collect_keys(item)

    def _redact_id(self, value: str) -> str:
        return self._ids.setdefault(value, f"id-{len(self._ids) + 1}")


def fill_text(text: str) -> str:
    """Return a text of the same lines, characters and UTF-8 bytes."""
    return "".join(map(_fill_character, text))


def _fill_character(character: str) -> str:
    if character == "\n":
        return character
    code = ord(character)
    if code <= _MAX_ASCII:
        return "x"
    if code <= _MAX_TWO_BYTES:
        return "é"
    return "字" if code <= _MAX_THREE_BYTES else "😀"


def _fill_value(value: Any) -> Any:
    if isinstance(value, str):
        return fill_text(value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return 0 if is_number else value
