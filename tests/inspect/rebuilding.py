"""What the engine sent, to compare with what a page rebuilds."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from trimtab.dialects.outgoing import create_rendering
from trimtab.engine.log.event import Event, ModelCall, dump_canonical_json
from trimtab.engine.window.window import Window
from trimtab.inspect.block_body import decode_body
from trimtab.inspect.session_timeline import read_session_timeline
from trimtab.inspect.timeline import Timeline, apply_splices

MOST_CALLS = 4
"""Calls of one log that are compared; each costs a whole fold."""


def assert_same_blocks(events: Sequence[Event], seed: int, *, every: bool = False) -> None:
    """Compare calls of a log with the engine's own rendering."""
    timeline = read_session_timeline("session", events)
    calls = [event for event in events if isinstance(event.body, ModelCall)]
    assert [call.seq for call in timeline.calls] == sorted_seqs(calls)
    lists = list_blocks(timeline)
    chosen = range(len(calls))
    if not every and len(calls) > MOST_CALLS:
        chosen = Random(seed).sample(chosen, MOST_CALLS)  # noqa: S311 - no secret
    for index in chosen:
        call = timeline.calls[index]
        assert texts_of(timeline, lists[index]) == sent_blocks(events, call.position), call.seq


def sorted_seqs(calls: Sequence[Event]) -> list[int]:
    def place(event: Event) -> tuple[int, int]:
        assert isinstance(event.body, ModelCall)
        return event.body.position, event.seq

    return [event.seq for event in sorted(calls, key=place)]


def list_blocks(timeline: Timeline) -> list[list[int]]:
    blocks: list[int] = []
    lists: list[list[int]] = []
    for call in timeline.calls:
        apply_splices(blocks, call.splices)
        lists.append([*blocks])
    return lists


def texts_of(timeline: Timeline, blocks: Sequence[int]) -> list[str]:
    return [
        dump_canonical_json([block.role, decode_body(block.body, timeline.pool)])
        for block in map(timeline.blocks.__getitem__, blocks)
    ]


def sent_blocks(events: Sequence[Event], position: int) -> list[str]:
    """The blocks of a request, by a fold of their own."""
    window = Window()
    window.apply(*events[:position])
    rendering = create_rendering(window.settings)
    rendering.update(window)
    return [dump_canonical_json([block.role, block.body]) for block in rendering.blocks]
