"""The calls of one `Session` object whose replies have not come yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from trimtab.engine.log.event import CallOutcome, Event, ModelCall

MAX_AWAITED_CALLS = 100
"""How many calls are remembered. A call whose reply never comes stays until then."""


class AwaitedCalls:
    """Says which call a reply answers, because another request may have called since.

    A request that is handed out a second time may be sent a second time. If both replies come, the
    second one needs a call of its own: None stands for it.
    """

    def __init__(self) -> None:
        self._calls: deque[int | None] = deque(maxlen=MAX_AWAITED_CALLS)

    def __bool__(self) -> bool:
        return bool(self._calls)

    def __contains__(self, call: int) -> bool:
        return call in self._calls

    @property
    def newest(self) -> int | None:
        """The call that the next reply answers. None if that call has a reply already."""
        return self._calls[-1] if self._calls else None

    def add(self, call: int) -> None:
        """Record that the request of a call was handed out."""
        self._calls.append(call)

    def remove_ended(self, stored_events: Sequence[Event]) -> None:
        """Remove the calls whose outcomes were stored."""
        new_calls = {event.seq for event in stored_events if isinstance(event.body, ModelCall)}
        for event in stored_events:
            if not isinstance(event.body, CallOutcome):
                continue
            call = None if event.body.call in new_calls else event.body.call
            if call in self._calls:
                self._calls.remove(call)
                again = (None if each == call else each for each in self._calls)
                self._calls = deque(again, maxlen=MAX_AWAITED_CALLS)
