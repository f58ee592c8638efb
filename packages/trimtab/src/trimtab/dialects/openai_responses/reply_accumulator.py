"""A streamed response: its last event contains the whole response."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trimtab.dialects.json_values import dict_or_none, int_or_zero


class _ResponsesAccumulator:
    expected_events = "events of the Responses API (response.created … response.completed)"

    def __init__(self) -> None:
        self.has_started = False
        self._items: dict[int, dict[str, Any]] = {}
        self._response: dict[str, Any] | None = None

    def feed(self, event: Mapping[str, Any]) -> None:
        kind = str(event.get("type"))
        self.has_started = self.has_started or kind.startswith("response.")
        if kind in ("response.completed", "response.incomplete"):
            self._response = dict_or_none(event.get("response"))
        elif kind == "response.output_item.done":
            item = dict_or_none(event.get("item"))
            if item is not None:
                self._items[int_or_zero(event.get("output_index"))] = item

    def reply_body(self) -> dict[str, Any] | None:
        if self._response is None or self._response.get("output") or not self._items:
            return self._response
        # Some servers end with a bare response and have sent the items only one by one.
        return {**self._response, "output": [self._items[i] for i in sorted(self._items)]}


def create_reply_accumulator() -> _ResponsesAccumulator:
    return _ResponsesAccumulator()
