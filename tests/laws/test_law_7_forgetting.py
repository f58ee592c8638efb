"""What is hidden may leave memory: snapshot and tail give what the whole log gives."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random

import pytest

from tests.laws.lives import law
from tests.laws.picture import outlook
from tests.recording import checkpoint, decide
from tests.strategies.life import Hooks, Life, live
from tests.strategies.logs import Loop, Say, Setup, Step, Story, Touch, Words, stories
from trimtab import Context
from trimtab.engine.log.event import Edit, Event, Settings
from trimtab.engine.policy.presets import POLICY_NAMES
from trimtab.engine.window.checkpoint import Snapshot, snapshot_from_json, snapshot_to_json
from trimtab.errors import CannotFit, HistoryNotInMemory


class Forgetful:
    """Beside a life that remembers all stands a context that lets go of what it may."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)  # noqa: S311 - no secret

    def begun(self, life: Life) -> None:
        self.life = life
        self.snapshots: list[Snapshot] = []
        self.heard: list[Event] = []
        self.short = self.life.loaded()

    def stepped(self, _: Life, __: Step) -> None:
        then = self.random.choice(["go on", "go on", "forget", "forget and restart"])
        self.follow()
        if then != "go on" and self.life.events:
            self.snapshots.append(round_trip(checkpoint(self.short)))
        if then == "forget and restart":
            self.restart(None)
        if self.life.context.window.entries:
            assert outlook(self.short._state) == outlook(self.life.context._state)
            assert decided(self.short) == decided(self.life.context)

    def follow(self) -> None:
        """Fold what is new, from further back where it needs what has left memory."""
        events, heard = self.life.events, self.heard
        self.heard = list(events)
        if [*map(place, events[: len(heard)])] != [*map(place, heard)]:  # a fork is another log
            self.snapshots.clear()
            self.restart(None)
            return
        new = [e for e in events if e.seq > self.short.window.seq]
        if any(isinstance(e.body, Settings) and e.body.policy not in POLICY_NAMES for e in new):
            self.restart(None)  # a function is not in the log
            return
        try:
            self.short.window.apply(*new)
        except HistoryNotInMemory as error:
            self.restart(error.position)

    def restart(self, upto: int | None) -> None:
        """Open again as from a store: the newest snapshot with all that is needed, and its tail."""
        usable = [s for s in self.snapshots if upto is None or s.seq <= upto]
        if not usable:
            self.short = self.life.loaded()
            return
        named = {seq for first, last in usable[-1].spans for seq in range(first, last + 1)}
        known = [e for e in self.life.events if e.seq > usable[-1].seq or e.seq in named]
        try:
            self.short = self.life.loaded(known, snapshot=usable[-1])
        except HistoryNotInMemory as error:
            self.restart(error.position)


def round_trip(snapshot: Snapshot) -> Snapshot:
    read = snapshot_from_json(json.loads(json.dumps(snapshot_to_json(snapshot))))
    assert read == snapshot
    return snapshot


def place(event: Event) -> tuple[int, float, type]:
    return (event.seq, event.at, type(event.body))


def decided(context: Context) -> list[Edit] | str:
    """What the policy wants now; `auto` looks at words that may have left memory."""
    if context.window.settings.policy not in set(POLICY_NAMES) - {"auto"}:
        return ""
    try:
        return [body for body in decide(context) if isinstance(body, Edit)]
    except CannotFit as error:
        return str(error)


def follow(story: Story) -> Hooks:
    forgetful = Forgetful(story.seed)
    return Hooks(begun=forgetful.begun, stepped=forgetful.stepped)


@pytest.mark.parametrize("seed", range(4))
def test_a_snapshot_knows_nothing_of_a_tool_search_that_retention_erased(seed: int):
    long = Words(unit="word ", size=6_000)
    steps = (Loop(rounds=6, width=3, words=long, loads=True), Touch(what="retain", which=39))
    setup = Setup(policy="full", dialect="openai_responses", model="gpt-5", window=2_000)
    setup = replace(setup, output=1_000, context={"tool_result_keep_first": 1})
    story = Story(setup=setup, steps=(*steps, Say(words=long)), seed=seed)
    live(story, follow(story))


@law(stories)
def test_snapshot_and_tail_give_what_the_whole_log_gives(story: Story) -> Hooks:
    return follow(story)
