"""Whoever watches a turn stands beside those who listen, and never in their way."""

import pytest

from tests.conversations import prose
from tests.session.turns.sessions import act, create, say
from trimtab.observe import instrument
from trimtab.observe.instrument import EventFanOut
from trimtab.session.events import TurnFinished
from trimtab.session.turn import run_turn
from trimtab.testing import ScriptedProvider
from trimtab_serve.metrics.labels import LabelLimiter

pytestmark = pytest.mark.anyio


def claude(*replies):
    return ScriptedProvider("anthropic", replies)


async def test_a_turn_that_is_observed_twice_is_counted_once(memory, counted):
    session = await create(memory)
    await run_turn(session, claude("Hm."), message=say(), on_event=instrument(instrument()))
    assert counted("trimtab_turns_total", outcome="done") == 1


async def test_a_watcher_that_fails_costs_nobody_the_answer(memory, caplog):
    class Clumsy:
        def __init__(self):
            self.heard = 0

        def __call__(self, happening):
            self.heard += 1
            raise RuntimeError("cannot count")

    clumsy, told = Clumsy(), []
    session = await create(memory)
    await run_turn(
        session, claude("Hm."), message=say(), on_event=EventFanOut([clumsy], told.append)
    )
    assert isinstance(told[-1], TurnFinished)
    assert clumsy.heard == 1
    assert "observer Clumsy failed and is skipped for the rest of this turn" in caplog.messages


async def test_whoever_listens_hears_every_piece(memory):
    session = await create(memory)
    plain = await act(session, claude(prose(900)), says="One.")
    told = []
    tell = instrument(told.append)
    await run_turn(session, claude(prose(900)), message=say("Two."), on_event=tell)
    assert [type(each) for each in told] == [type(each) for each in plain]


def test_labels_beyond_the_most_are_one():
    tools = LabelLimiter(2)
    assert [tools(name) for name in ("a", "b", "c", "a", "d")] == ["a", "b", "other", "a", "other"]
