"""What is decided and applied is decided for good; asking twice for the request changes nothing.
A placeholder is never masked or cut again, and never larger than what it replaces."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any

import pytest

from tests.laws.lives import law
from tests.laws.oracle import Told, tell, under
from tests.laws.picture import picture
from tests.recording import apply_decided, decide, repair, request_anyway
from tests.strategies.life import Hooks, Life, live
from tests.strategies.logs import (
    Chat,
    Loop,
    Peek,
    Say,
    Setup,
    Squeeze,
    Step,
    Story,
    Touch,
    Turn,
    Words,
    stories,
)
from trimtab import RequestPreview
from trimtab.engine.log.event import Edit, Event, dump_canonical_json
from trimtab.engine.policy.rejections import REJECTED_REASON
from trimtab.engine.tokens.counter import measure_part
from trimtab.errors import CannotFit


def previews_the_next_request(life: Life) -> None:
    """What a preview shows is what the next request would send, and nothing is changed by it."""
    context = life.context
    if not context.window.entries:
        return
    before = picture(context.window)
    clock = context._state.clock
    other = deepcopy(context, {id(clock): clock})
    asked, shown = outcome(partial(request_anyway, other)), outcome(context.preview)
    if isinstance(shown, RequestPreview):
        assert dump_canonical_json(shown.request) == dump_canonical_json(asked)
        assert shown.report == other.report()
    else:
        assert shown == asked
    assert picture(context.window) == before


def outcome(ask: Callable[[], object]) -> object:
    try:
        return ask()
    except CannotFit as error:
        return str(error)


class Idempotent:
    def __init__(self) -> None:
        self.events: list[Event] = []
        """The log before the step."""

    def stepping(self, life: Life, _: Step) -> None:
        self.events = list(life.events)

    def stepped(self, life: Life, step: Step) -> None:
        if isinstance(step, Peek):
            assert life.events == self.events, "looking has left a trace"
            previews_the_next_request(life)

    def decides_once(self, life: Life, stream: bool, volatile: str | None) -> None:
        context = life.context
        repair(context)
        assert repair(context) == []
        try:
            apply_decided(context, volatile=volatile)
        except CannotFit:
            return
        assert decide(context, volatile=volatile) == []

    def again(self, life: Life, request: dict[str, Any]) -> None:
        edits_shrink(life)
        events, call = list(life.events), life.last_call
        second = request_anyway(life.context, stream=call.stream, volatile=call.volatile)
        assert dump_canonical_json(second) == dump_canonical_json(request)
        assert life.events == events


SHORT, LONG = Words(size=12), Words(size=1_500)
FOUND: dict[str, tuple[Setup, list[Step]]] = {
    "a result cut beside what was revealed, under a cap of the history": (
        Setup(
            policy="full",
            window=2_000,
            system=SHORT,
            context={
                "max_history_tokens": 20,
                "max_tool_result_tokens": 1,
                "tools": {"read": {"max_tool_result_tokens": 50}},
            },
        ),
        [
            Loop(rounds=2, words=LONG, opaque=True),
            Touch(what="reveal"),
            Say(words=LONG),
            Chat(rounds=1, words=SHORT),
        ],
    ),
    "three results that share next to nothing": (
        Setup(policy="rolling", goal="cost", system=Words(unit="", size=1), tools=1),
        [
            Say(words=SHORT),
            Squeeze(times=2),
            Say(words=Words(unit="🙂🚀", size=1_500)),
            Squeeze(times=2),
            Loop(rounds=2, width=3, words=LONG),
        ],
    ),
    "results of a loop that is one group, some sent and some cut now": (
        Setup(policy="auto", goal="cost", dialect="openai_chat", model="gpt-4o", window=60_000),
        [
            Say(words=Words(size=6_000)),
            Touch(what="pin"),
            Loop(rounds=1, width=1, words=SHORT, opaque=True),
            Turn(calls=("a",)),
            Loop(rounds=4, width=3, words=Words(size=20_000)),
        ],
    ),
}
"""Lives in which it once changed something."""


@pytest.mark.parametrize("name", FOUND)
def test_what_once_changed_when_asked_twice_does_not(name: str):
    setup, steps = FOUND[name]
    story = Story(setup=setup, steps=tuple(steps), ahead=True)
    live(story, look_twice(story))


def look_twice(story: Story) -> Hooks:
    idempotent = Idempotent()
    return Hooks(
        stepping=idempotent.stepping,
        stepped=idempotent.stepped,
        asking=idempotent.decides_once if story.ahead else None,
        asked=idempotent.again,
    )


@law(stories)
def test_asking_twice_changes_nothing(story: Story) -> Hooks:
    return look_twice(story)


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
    assert edit.first not in told.pinned or edit.why.startswith(REJECTED_REASON), (
        f"m{edit.first} is pinned"
    )
    place, counter = (edit.first, edit.part), life.context.window.counter
    before = told.edits.get(place)
    assert before is None or before.op != "mask", f"{before} is edited again: {edit}"
    said = told.messages[edit.first].parts[edit.part]
    old, new = measure_part(told.shown(*place), counter), measure_part(under(said, edit), counter)
    assert edit.size == new
    if edit.why.startswith(REJECTED_REASON):
        told.edits[place] = edit
        return  # no policy's: it is left out however small it is
    assert new.tokens < old.tokens
    assert new.bytes <= old.bytes
    told.edits[place] = edit
