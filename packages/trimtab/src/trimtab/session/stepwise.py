"""A context whose caller takes the steps one by one."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Any, Self

from trimtab.context import Context
from trimtab.dialects.base import ModelReply
from trimtab.dialects.known_history import KnownHistory
from trimtab.dialects.reading import read_message
from trimtab.engine.log.event import Event, Usage
from trimtab.engine.window.checkpoint import Snapshot
from trimtab.request import DialectT_co


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
    build_report = Context._build_report
    checkpoint = Context._checkpoint
    decide_edits = Context._decide_edits
    drafting = Context._drafting
    find_rejected_texts = Context._find_rejected_texts
    list_events_after = Context._list_events_after
    load_kwargs = Context._load_kwargs
    record_external_call = Context._record_external_call
    render_request = Context._render_request
    rendering = Context._rendering
    replay = Context._replay
    request_steps = Context._request_steps
    require_due_reply = Context._require_due_reply

    @classmethod
    def load_with_missing_functions(
        cls, events: Iterable[Event], *, snapshot: Snapshot | None, **load_kwargs: Any
    ) -> Self:
        """Create a context from its log, like `load`, but without an error if the redaction or the
        tokenizer of the log is missing."""
        return cls._load(events, snapshot=snapshot, **load_kwargs)

    @property
    def known_history(self) -> KnownHistory:
        """What is known of the list that was last passed to `sync`."""
        return self._known_history

    def forget_known_history(self) -> None:
        """Forget the caller's list. The next one is read completely."""
        self._known_history = KnownHistory()
        self._marked_messages = None

    def take_known_history(self, other: StepwiseContext[Any], known: KnownHistory | None) -> None:
        """Go on with the list of another context of the same log; `known` replaces what that one
        knows."""
        self._known_history = other.known_history if known is None else known
        self._synced_system = other._synced_system
        self._marked_messages = other._marked_messages

    def copy_to_change(self) -> Self:
        """Return a copy that can change independently."""
        twin = copy(self)
        twin.window = self.window.copy()
        twin.events = [*self.events]
        twin.take_known_history(self, self.known_history.copy())
        return twin

    @contextmanager
    def silenced(self) -> Generator[None]:
        """Report no edits meanwhile: they may not be stored."""
        self._is_silent = True
        try:
            yield
        finally:
            self._is_silent = False

    def tell_edits(self, events: Sequence[Event]) -> None:
        """Report the edits among events that are stored and folded."""
        if self._on_edit is not None:
            self._report_edits(events)

    @contextmanager
    def answering(self, call: int | None) -> Generator[None]:
        """Take a reply that is added meanwhile as the reply to this call; None is the last call."""
        self._answered_call = call
        try:
            yield
        finally:
            self._answered_call = None

    def read_new_reply(self, item: Any, usage: Usage | None) -> ModelReply | None:
        """Read what a caller adds as a reply with its usage; None if it is not one, or known."""
        settings = self.window.settings
        message, reply = read_message(item, dialect=settings.dialect, model=settings.rules_model)
        reply = self._add_usage(message, reply, usage)
        if reply is None or reply.usage is None or self._is_known_reply(reply):
            return None
        return reply

    @property
    def clock(self) -> Callable[[], float]:
        """The function that returns the time in seconds since the epoch."""
        return self._clock
