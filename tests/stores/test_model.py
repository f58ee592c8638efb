"""Whatever is done to a store, it holds what a list would hold."""

import asyncio
import os
from dataclasses import dataclass, field, replace
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from tests.stores.events import claimed, held, said
from tests.stores.places import Place
from trimtab.engine.log.event import (
    Event,
    MessageAdded,
    TurnProgressRecord,
    dump_event_line,
    load_event_line,
)
from trimtab.engine.recall.search import (
    Query,
    get_searchable_text,
    rank_scored_positions,
    score_text,
)
from trimtab.engine.window.checkpoint import Snapshot
from trimtab.errors import (
    DuplicateIdempotencyKey,
    PositionTaken,
    SessionNotFound,
    StaleOwner,
    StoreError,
)

TIMES = {"quick": 0.5, "thorough": 20}.get(os.environ.get("TRIMTAB_LAWS", ""), 1)
EXAMPLES = {"memory": 60, "files": 60, "postgres": 15}

SESSIONS = st.sampled_from(["a", "b:2"])
KEYS = st.none() | st.sampled_from(["k1", "k2", "k3", "k4", "ключ"])
LARGE = {"<one>": "large one " * 6_600, "<other>": "Ärger " * 9_400}
"""By a name, for Hypothesis prints what it draws from."""
TEXTS = st.sampled_from(["alpha beta", "Beta \ud83d gamma", "", "東京 alpha", *LARGE])
QUERIES = st.sampled_from(["alpha", "beta GAM", "京", "one large", "är", "nothing"])
MOVES = st.lists(st.tuples(TEXTS, KEYS) | st.integers(1, 4), min_size=1, max_size=4)


@dataclass
class Model:
    """One session, in the plainest way."""

    events: list[Event] = field(default_factory=list)
    snapshots: dict[int, Snapshot] = field(default_factory=dict)
    rewritten: float = float("inf")
    """From here on a store may have thrown its snapshots away."""

    @property
    def keys(self):
        bodies = [(event.seq, event.body) for event in self.events]
        return {
            body.key: seq for seq, body in bodies if isinstance(body, MessageAdded) and body.key
        }

    @property
    def epoch(self):
        claims = (event.body for event in self.events if isinstance(event.body, TurnProgressRecord))
        return max((body.epoch for body in claims), default=0)

    def refuses(self, events, epoch):
        if epoch is not None and epoch < self.epoch:
            return StaleOwner
        if events and events[0].seq != len(self.events) + 1:
            return PositionTaken
        new = [e.body.key for e in events if isinstance(e.body, MessageAdded) and e.body.key]
        return (
            DuplicateIdempotencyKey if len({*new, *self.keys}) < len(new) + len(self.keys) else None
        )

    def found(self, query, limit):
        wanted = Query.parse(query)
        return rank_scored_positions(
            ((score_text(wanted, get_searchable_text(event)), event.seq) for event in self.events),
            limit,
        )


def made(first: int, moves: list[tuple[str, str | None] | int]) -> list[Event]:
    events: list[Event] = []
    for seq, move in enumerate(moves, first):
        if isinstance(move, int):
            events.append(claimed(seq, move))
        else:
            text, key = move
            events.append(said(seq, LARGE.get(text, text), key=key))
    return events


def erasing(word):
    def change(event):
        if isinstance(event.body, MessageAdded) and word in event.body.message.text:
            return replace(event, body=said(1, "[erased]").body)
        return event

    return change


class StoreMachine(RuleBasedStateMachine):
    place: Place

    def __init__(self):
        super().__init__()
        self.runner = asyncio.Runner()
        self.store = self.runner.run(self.place.open())
        self.models = {}
        self.tag = uuid4().hex

    def teardown(self):
        self.runner.run(self.store.close())
        self.runner.close()

    def id(self, session):
        """The place outlives an example; its sessions must not meet the next one's."""
        return f"{self.tag} {session}"

    def model(self, session):
        return self.models.get(session, Model())

    def does(self, coroutine, refused):
        """Run it; it must be refused as the model says."""
        if refused is None:
            return self.runner.run(coroutine)
        with pytest.raises(StoreError) as caught:
            self.runner.run(coroutine)
        assert type(caught.value) is refused
        return None

    @rule(
        session=SESSIONS,
        moves=MOVES,
        shift=st.sampled_from([0, 0, 0, 0, 0, -1, 1]),
        epoch=st.none() | st.integers(1, 4),
    )
    def append(self, session, moves, shift, epoch):
        model = self.model(session)
        events = made(max(len(model.events) + 1 + shift, 1), moves)
        refused = model.refuses(events, epoch)
        self.does(self.store.append(self.id(session), events, epoch=epoch), refused)
        if refused is None:
            model.events += events
            self.models[session] = model

    @rule(session=SESSIONS, back=st.integers(0, 6), note=st.integers())
    def checkpoint(self, session, back, note):
        model = self.model(session)
        seq = max(len(model.events) - back, 1)
        snapshot = Snapshot(seq=seq, spans=((1, seq),), state={"note": note, "a b": ["x"]})
        refused = None if session in self.models else SessionNotFound
        self.does(self.store.checkpoint(self.id(session), snapshot), refused)
        if refused is None:
            model.snapshots[seq] = snapshot

    @rule(session=SESSIONS, upto=st.none() | st.integers(0, 30))
    def snapshot(self, session, upto):
        model = self.model(session)
        seqs = [seq for seq in model.snapshots if upto is None or seq <= upto]
        found = self.runner.run(self.store.snapshot(self.id(session), upto=upto))
        newest = max(seqs, default=None)
        if newest is None or newest < model.rewritten:
            assert found == (None if newest is None else model.snapshots[newest])
        elif found is not None:
            assert found == model.snapshots[found.seq]

    @rule(session=SESSIONS, word=st.sampled_from(["alpha", "large", "Beta"]), moves=MOVES)
    def rewrite(self, session, word, moves):
        model, change = self.model(session), erasing(word)
        events = made(len(model.events) + 1, moves)
        refused = model.refuses(events, None) if session in self.models else SessionNotFound
        self.does(self.store.rewrite(self.id(session), events, change), refused)
        if refused is None:
            new = [change(event) for event in model.events]
            changed = [e.seq for e, old in zip(new, model.events, strict=True) if e != old]
            model.rewritten = min([model.rewritten, *changed])
            model.events = [*new, *events]

    @rule(session=SESSIONS)
    def delete(self, session):
        self.does(self.store.delete(self.id(session)), self.absent(session))
        self.models.pop(session, None)

    def absent(self, session):
        return None if session in self.models else SessionNotFound

    @rule(session=SESSIONS, key=KEYS.filter(bool))
    def find_key(self, session, key):
        found = self.runner.run(self.store.find_key(self.id(session), key))
        assert found == self.model(session).keys.get(key)

    @rule(session=SESSIONS, query=QUERIES, limit=st.integers(1, 5))
    def search(self, session, query, limit):
        found = self.runner.run(self.store.search(self.id(session), query, limit=limit))
        assert found == self.model(session).found(query, limit)

    @rule(session=SESSIONS, first=st.integers(1, 10), last=st.none() | st.integers(1, 20))
    def read(self, session, first, last):
        spans = [(first, last)] if last is None or last >= first else [(last, last), (first, first)]
        found = self.does(held(self.store, self.id(session), spans), self.absent(session))
        if found is not None:
            events = self.model(session).events
            assert found == [
                dump_event_line(event) for span in spans for event in events[span[0] - 1 : span[1]]
            ]

    @rule()
    def reopen(self):
        self.runner.run(self.store.close())
        self.store = self.runner.run(self.place.open())

    @rule(session=SESSIONS)
    def release(self, session):
        self.runner.run(self.store.release(self.id(session)))

    @rule(session=SESSIONS)
    def whole(self, session):
        found = self.does(held(self.store, self.id(session)), self.absent(session))
        if found is not None:
            assert found == [dump_event_line(event) for event in self.model(session).events]
            assert [dump_event_line(load_event_line(line)) for line in found] == found

    @invariant()
    def lists_what_is_there(self):
        listed = self.runner.run(self.store.sessions(after=self.tag, limit=2))
        assert [
            (kept.session, kept.position, kept.messages, kept.updated)
            for kept in listed
            if kept.session.startswith(self.tag)
        ] == [
            (self.id(name), len(model.events), said_in(model), model.events[-1].at)
            for name, model in sorted(self.models.items())
        ]


def said_in(model):
    return sum(isinstance(event.body, MessageAdded) for event in model.events)


@pytest.mark.slow
def test_a_store_holds_what_a_list_would_hold(place):
    run_state_machine_as_test(
        type("Machine", (StoreMachine,), {"place": place}),
        settings=settings(
            max_examples=int(EXAMPLES[place.name] * TIMES),
            stateful_step_count=25,
            deadline=None,
            database=None,
            print_blob=True,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
