"""A streamed response: its last event carries it whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trimtab.dialects.shapes import as_dict, as_int


class _Gathering:
    expected = "events of the Responses API (response.created … response.completed)"

    def __init__(self) -> None:
        self.begun = False
        self._items: dict[int, dict[str, Any]] = {}
        self._response: dict[str, Any] | None = None

    def feed(self, event: Mapping[str, Any]) -> None:
        kind = str(event.get("type"))
        self.begun = self.begun or kind.startswith("response.")
        if kind in ("response.completed", "response.incomplete"):
            self._response = as_dict(event.get("response"))
        elif kind == "response.output_item.done":
            item = as_dict(event.get("item"))
            if item is not None:
                self._items[as_int(event.get("output_index"))] = item

    def reply(self) -> dict[str, Any] | None:
        if self._response is None or self._response.get("output") or not self._items:
            return self._response
        # Some servers end with a bare response and have sent the items only one by one.
        return {**self._response, "output": [self._items[i] for i in sorted(self._items)]}


def gather() -> _Gathering:
    return _Gathering()
