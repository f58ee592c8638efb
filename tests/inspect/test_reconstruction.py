"""A page shows what was sent: its blocks, rebuilt for each call, are those of the engine."""

from __future__ import annotations

import pytest

from tests.golden.record import log_file
from tests.inspect.rebuilding import assert_same_blocks
from tests.laws.lives import law
from tests.strategies.life import Hooks, Life
from tests.strategies.logs import Story, stories
from trimtab.engine.log.event import load_event_line
from trimtab.inspect.session_timeline import read_session_timeline
from trimtab.inspect.timeline import apply_splices, find_splices


@law(stories)
def test_every_call_of_any_life_is_rebuilt_as_it_was_sent(story: Story) -> Hooks:
    def ended(life: Life) -> None:
        assert_same_blocks(life.events, story.seed)

    return Hooks(ended=ended)


@pytest.mark.parametrize("dialect", ["anthropic", "openai_chat", "openai_responses"])
def test_every_call_of_the_golden_logs_is_rebuilt_in_each_dialect(dialect: str):
    lines = log_file(dialect).read_bytes().splitlines()
    events = [load_event_line(line) for line in lines]
    timeline = read_session_timeline("golden", events)
    assert timeline.calls
    assert_same_blocks(events, 0, every=True)
    assert all(call.is_verified for call in timeline.calls)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([], [0, 1, 2]),
        ([0, 1, 2], [0, 1, 2, 3, 4]),
        ([0, 1, 2, 3], [0, 9, 2, 3, 4]),
        ([0, 1, 2, 3], []),
        ([0, 1, 2, 3], [7, 3, 8]),
        ([0, 1, 2, 3], [3, 2, 1, 0]),
        ([4, 5, 6], [5, 9, 10, 12, 6, 13]),
    ],
)
def test_splices_turn_one_list_into_the_other(before: list[int], after: list[int]):
    blocks = [*before]
    apply_splices(blocks, find_splices(before, after))
    assert blocks == after
