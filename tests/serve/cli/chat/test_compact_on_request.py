"""What is hidden when a person asks for a smaller context."""

from functools import partial

import pytest

from tests.serve.cli.chat.scripted_chat import script, talking, turns
from trimtab.engine.policy.config import PolicyConfig
from trimtab.engine.policy.on_demand import (
    KEPT_MESSAGES_ON_DEMAND,
    KEPT_RESULTS_ON_DEMAND,
    decide_on_demand_compaction,
)

pytestmark = pytest.mark.anyio


async def compacted(count, knobs):
    talk = await talking(script(count))
    await talk.session.configure(policy="full", context_window=100_000)
    await turns(talk, count)
    await talk.session.recorder.apply_policy(partial(decide_on_demand_compaction, config=knobs))
    return talk.session


async def test_the_newest_messages_stay_and_a_summary_stands_for_the_rest():
    session = await compacted(8, PolicyConfig())
    window = session.window
    assert window.summary is not None
    assert window.summary.why.startswith("asked for")
    assert KEPT_MESSAGES_ON_DEMAND <= window.visible_messages < window.conversation.total_messages
    shown = [result for result in window.results.values() if result.edit is None]
    assert len(shown) == min(KEPT_RESULTS_ON_DEMAND, len(window.results))


async def test_asked_again_it_has_nothing_to_do():
    session = await compacted(8, PolicyConfig())
    assert (
        decide_on_demand_compaction(session.window, session.budget(), config=PolicyConfig()).edits
        == ()
    )


async def test_a_short_conversation_is_left_as_it_is():
    session = await compacted(1, PolicyConfig())
    assert session.window.summary is None
    assert session.window.visible_messages == session.window.conversation.total_messages
