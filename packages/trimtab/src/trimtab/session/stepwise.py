"""A context whose caller takes the steps one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Self

from trimtab.context import Context
from trimtab.engine.log.event import Event
from trimtab.engine.window.checkpoint import Snapshot
from trimtab.types import DialectT_co


class StepwiseContext(Context[DialectT_co]):
    """A context for a caller that stores the log or makes the calls.

    A session stores the events of each step before it applies them; `fit` and replays add calls
    that were made elsewhere.
    """

    append = Context._append
    apply = Context._apply
    build_call_event = Context._build_call_event
    build_event = Context._build_event
    build_repair_events = Context._build_repair_events
    checkpoint = Context._checkpoint
    decide_edits = Context._decide_edits
    drafting = Context._drafting
    find_rejected_texts = Context._find_rejected_texts
    load_kwargs = Context._load_kwargs
    render_request = Context._render_request
    rendering = Context._rendering
    replay = Context._replay
    request_steps = Context._request_steps

    @classmethod
    def load_with_missing_functions(
        cls, events: Iterable[Event], *, snapshot: Snapshot | None, **load_kwargs: Any
    ) -> Self:
        """Create a context from its log, like `load`, but without an error if the redaction or the
        tokenizer of the log is missing."""
        return cls._load(events, snapshot=snapshot, **load_kwargs)

    @property
    def clock(self) -> Callable[[], float]:
        """The function that returns the time in seconds since the epoch."""
        return self._clock
