"""What a verb reads and remembers, and the driver that applies at once what it records.

A verb is a generator. It yields batches of event bodies to be recorded, and is sent the events back
when they are recorded and folded. So it decides on each batch from a window that has all batches
before it. `Context` applies a batch at once. A session stores it first: if another process was
faster, it folds what is new and starts the verb again with a new copy of the memory. A verb that
yields several batches therefore recognises what it has stored already.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field
from reprlib import repr as short
from typing import Any, TypeVar

from trimtab.dialects.known_history import KnownHistory
from trimtab.dialects.outgoing import create_rendering
from trimtab.engine.log.event import Event, EventBody, Settings
from trimtab.engine.log.message import Message
from trimtab.engine.policy.budget import Budget, compute_budget
from trimtab.engine.policy.planning.plan import Decision, Policy
from trimtab.engine.prompt.render import IncrementalRenderer
from trimtab.engine.prompt.shown_messages import IncrementalView
from trimtab.engine.text.arguments import describe_wrong_value
from trimtab.engine.window.checkpoint import Snapshot
from trimtab.engine.window.window import Window
from trimtab.options import (
    Options,
    options_from_log,
    rebuild_options_from_changed_settings,
)
from trimtab.verbs.notices import EditNotice, build_notices
from trimtab.verbs.warnings import VerbWarning

T = TypeVar("T")
Verb = Generator[Sequence[EventBody], list[Event], T]
"""A verb that runs. It yields what is to be recorded, and is sent it back as events."""


@dataclass(kw_only=True)
class Memory:
    """What verbs remember besides the window. It is copied or thrown away as a whole."""

    options: Options
    """The options as they were adopted last; `State.options` has the current ones."""
    policy: Policy
    """The policy of these options."""
    adopted_settings: Settings
    """The settings of the log that these options belong to."""
    recorded_options: tuple[Settings, Options]
    """The settings that were recorded last, and their options."""
    given_options: tuple[Settings | None, Options]
    """The options as a caller gave them, and the settings that record them."""
    recorded_day: tuple[Settings | None, float] = (None, 0.0)
    """The settings after options were recorded last, and the day: prices may change with it."""
    known_history: KnownHistory = field(default_factory=KnownHistory)
    """The list that was passed last."""
    listed_system: tuple[Message, ...] = ()
    """The system messages at the start of that list."""
    marked_messages: dict[int, Message] | None = None
    """By position: each message with cache marks of the caller, as it was passed last. None if
    the log must be searched for them."""
    streamed_reply: tuple[Message, str] | None = None
    """The last reply that `watch` added, and its handle: its caller may add it once more."""
    decision: Decision = field(default_factory=Decision)
    """What the policy decided last."""
    seq_after_decision: int = 0
    """The position of the log at which exactly the decided edits are made; -1 if the guard made
    others."""
    decided_budget: tuple[int, str | None, Budget] | None = None
    """The position and the volatile text at the last decision, and the budget for them."""
    usage_is_doubted: bool = False
    """Whether the provider's usage is not believed, and a warning says so."""

    def use_options(self, options: Options) -> None:
        """Go on with other options. What was decided with the earlier ones is forgotten."""
        self.options = options
        self.policy = options.build_policy()
        self.forget_decision()

    def forget_decision(self) -> None:
        """Forget what the policy decided last."""
        self.decision = Decision()
        self.seq_after_decision = 0
        self.decided_budget = None

    def forget_list(self) -> None:
        """Forget the caller's list. The next one is read completely."""
        self.known_history = KnownHistory()
        self.marked_messages = None

    def take_list(self, other: Memory) -> None:
        """Go on with the caller's list that another memory of the same log has."""
        self.known_history = other.known_history
        self.listed_system = other.listed_system
        self.marked_messages = other.marked_messages


@dataclass(slots=True, kw_only=True)
class State:
    """All that a verb works with. A verb changes the memory; only its driver changes the
    window."""

    window: Window
    """The state that the log adds up to."""
    memory: Memory
    """What verbs remember besides the window."""
    clock: Callable[[], float]
    """Returns the time in seconds since the epoch."""
    warnings: list[VerbWarning] = field(default_factory=list[VerbWarning])
    """What the driver logs when the verb has ended."""
    stored: Sequence[Event] = ()
    """What this verb stored before it was started again."""
    renderer: IncrementalRenderer | None = None
    """The rendered window, perhaps not up to date; `rendering` is."""
    shown: IncrementalView | None = None
    """What `view` has shown of it."""

    @property
    def options(self) -> Options:
        """The current options. They also reflect changes that others have written to the log."""
        self.adopt_logged_settings()
        return self.memory.options

    @property
    def rendering(self) -> IncrementalRenderer:
        """The rendered window, up to date."""
        self.adopt_logged_settings()
        if self.renderer is None:
            self.renderer = create_rendering(self.window.settings)
        self.renderer.update(self.window)
        return self.renderer

    def adopt_logged_settings(self) -> None:
        """Use the settings of the log, if others or this context have changed them."""
        memory = self.memory
        settings = self.window.settings
        if settings is memory.adopted_settings:
            return
        own_settings, own_options = memory.recorded_options
        memory.use_options(
            own_options
            if settings == own_settings
            else rebuild_options_from_changed_settings(settings, memory.options)
        )
        memory.adopted_settings = settings
        self.forget_rendering()

    def forget_rendering(self) -> None:
        """Render the window from its beginning, when it is needed next."""
        self.renderer = None
        self.shown = None

    def budget(self, volatile: str | None = None) -> Budget:
        """Return the token budget of the next call, with a text for this call only."""
        return compute_budget(self.window, volatile_text=volatile, now=self.clock())

    def run_policy(self, budget: Budget) -> Decision:
        """Ask the policy what to hide; change nothing."""
        self.adopt_logged_settings()
        decision = self.memory.policy(self.window, budget)
        if not isinstance(decision, Decision):  # pyright: ignore[reportUnnecessaryIsInstance] - a caller's
            raise TypeError(
                f"policy {self.window.settings.policy!r} returned {short(decision)}; it must "
                "return a Decision (Decision() changes nothing)"
            )
        return decision

    def with_own_memory(self, stored: Sequence[Event] = ()) -> State:
        """Return a state of the same window for one attempt at a verb, with a copy of the
        memory."""
        return State(
            window=self.window,
            memory=copy(self.memory),
            clock=self.clock,
            stored=stored,
            renderer=self.renderer,
            shown=self.shown,
        )

    def use_copied_window(self) -> None:
        """Go on with a copy of the window, so that others may read the original meanwhile."""
        self.window = self.window.copy()
        self.forget_rendering()


def check_clock(clock: object) -> None:
    """Raise `TypeError` if this cannot return the time."""
    if not callable(clock):
        right = "a function that returns seconds, such as time.time"
        raise TypeError(describe_wrong_value("clock", clock, right))


def create_state(
    options: Options,
    clock: Callable[[], float],
    snapshot: Snapshot | None = None,
    snapshot_events: Iterable[Event] = (),
) -> State:
    """Create the state of an empty log, or of what a snapshot has."""
    check_clock(clock)
    counter = options.build_counter()
    window = Window({counter.name: counter}, snapshot, snapshot_events)
    memory = Memory(
        options=options,
        policy=options.build_policy(),
        adopted_settings=window.settings,
        recorded_options=(window.settings, options),
        given_options=(None, options),
    )
    return State(window=window, memory=memory, clock=clock)


def load_state(
    events: Sequence[Event],
    clock: Callable[[], float],
    *,
    snapshot: Snapshot | None = None,
    **functions: Any,
) -> State:
    """Fold the state of a log. Its caller may lack a function that the log was written with."""
    settings = [event.body for event in events if isinstance(event.body, Settings)]
    if not settings:
        raise ValueError("the log has no settings event, so it is not the log of a context")
    options = options_from_log(settings[-1], **functions)
    state = create_state(options, clock, snapshot, events)
    start = snapshot.seq if snapshot is not None else 0
    state.window.apply(*(event for event in events if event.seq > start))
    state.memory.adopted_settings = state.window.settings
    state.memory.recorded_options = (state.window.settings, options)
    return state


def build_events(bodies: Sequence[EventBody], *, after: int, at: float) -> list[Event]:
    """Build the events of a batch for the positions after the last one, all with one time."""
    return [Event(seq=seq, at=at, body=body) for seq, body in enumerate(bodies, after + 1)]


def apply_at_once(
    state: State, verb: Verb[T], log: list[Event], notices: list[EditNotice] | None = None
) -> T:
    """Run a verb: add each batch to a log in memory, and fold it. Return the verb's result.

    `notices` collects what was edited; None for a caller that does not want to know.
    """
    window = state.window
    events: list[Event] | None = None
    while True:
        try:
            # The first step of a generator takes None.
            bodies = next(verb) if events is None else verb.send(events)
        except StopIteration as end:
            return end.value
        events = build_events(bodies, after=window.seq, at=state.clock()) if bodies else []
        try:
            window.apply(*events)
        finally:
            log.extend(event for event in events if event.seq <= window.seq)
        if notices is not None:
            notices += build_notices(window, events)


def record(bodies: Sequence[EventBody]) -> Verb[None]:
    """Record events that are decided already, in one batch."""
    yield bodies
