"""What is hidden when a person asks for a smaller context."""

import asyncio
from functools import partial

from tests.unit.cli.chat.talking import script, talking, turns
from trimtab.core.policies.asked import MESSAGES, RESULTS, asked
from trimtab.core.policies.knobs import Knobs


async def compacted(count, knobs):
    talk = await talking(script(count))
    await talk.session.configure(policy="full", context_window=100_000)
    await turns(talk, count)
    await talk.session.apply_policy(partial(asked, knobs=knobs))
    return talk.session


def test_the_newest_messages_stay_and_a_summary_stands_for_the_rest():
    async def run():
        session = await compacted(8, Knobs())
        window = session.window
        assert window.summary is not None
        assert window.summary.why.startswith("asked for")
        assert MESSAGES <= window.messages < window.said
        shown = [result for result in window.results.values() if result.edited is None]
        assert len(shown) == min(RESULTS, len(window.results))

    asyncio.run(run())


def test_asked_again_it_has_nothing_to_do():
    async def run():
        session = await compacted(8, Knobs())
        assert asked(session.window, session.budget(), knobs=Knobs()).edits == ()

    asyncio.run(run())


def test_a_short_conversation_is_left_as_it_is():
    async def run():
        session = await compacted(1, Knobs())
        assert session.window.summary is None
        assert session.window.messages == session.window.said

    asyncio.run(run())
