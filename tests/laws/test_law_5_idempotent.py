"""What is decided and applied is decided for good; asking twice for the request changes nothing.
A placeholder is never masked or cut again, and never larger than what it replaces."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.laws.oracle import Told, tell, under
from tests.strategies.life import Life
from tests.strategies.logs import Peek, Setup, Step, setups, steps
from trimtab import CannotFit
from trimtab.core.event import Edit, Event, canonical
from trimtab.core.tokens import size_of


class Idempotent(RuleBasedStateMachine):
    @initialize(setup=setups())
    def begin(self, setup: Setup) -> None:
        self.life = Life(setup, asking=self.decides_once, asked=self.again)

    @rule(step=steps)
    def live(self, step: Step) -> None:
        events = list(self.life.events)
        self.life.do(step)
        if isinstance(step, Peek):
            assert self.life.events == events, "looking has left a trace"

    def decides_once(self, life: Life, stream: bool, volatile: str | None) -> None:
        context = life.context
        context.apply(context.repairs())
        assert context.repairs() == []
        try:
            context.apply(context.decide(volatile=volatile))
        except CannotFit:
            return
        assert context.decide(volatile=volatile) == []

    def again(self, life: Life, request: dict[str, Any]) -> None:
        edits_shrink(life)
        events, call = list(life.events), life.last_call
        second = life.context.request(stream=call.stream, volatile=call.volatile)
        assert canonical(second) == canonical(request)
        assert life.events == events


TestAskingTwiceChangesNothing = Idempotent.TestCase
TestAskingTwiceChangesNothing.settings = settings(settings.get_profile("laws"))


def edits_shrink(life: Life) -> None:
    """All edits of parts that were made for this request."""
    events = life.events
    start = len(events) - 1
    while isinstance(edit := events[start - 1].body, Edit) and edit.op != "reveal":
        start -= 1
    told = tell(events[:start])
    for event in events[start:]:
        if isinstance(event.body, Edit) and event.body.part is not None:
            shrinks(life, told, event)


def shrinks(life: Life, told: Told, event: Event) -> None:
    edit = event.body
    assert isinstance(edit, Edit)
    assert edit.part is not None
    assert edit.first not in told.pinned, f"m{edit.first} is pinned"
    place, counter = (edit.first, edit.part), life.context.window.counter
    before = told.edits.get(place)
    assert before is None or before.op != "mask", f"{before} is edited again: {edit}"
    said = told.messages[edit.first].parts[edit.part]
    old, new = size_of(told.shown(*place), counter), size_of(under(said, edit), counter)
    assert edit.size == new
    assert new.tokens < old.tokens
    assert new.bytes <= old.bytes
    told.edits[place] = edit
