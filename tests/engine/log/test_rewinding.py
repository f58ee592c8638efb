import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.engine.log.event import Event, Pin, Rewind
from trimtab.engine.log.rewind import (
    find_undoing_rewind,
    is_event_in_force,
    list_undone_spans,
    select_events_in_force,
)


@st.composite
def logs(draw) -> list[Event]:
    """Events at 1, 2, 3 …, some of them rewinds to any position before."""
    log: list[Event] = []
    for seq in range(1, draw(st.integers(1, 14)) + 1):
        back = draw(st.none() | st.integers(0, seq - 1))
        body = Pin(first=1, last=1) if back is None else Rewind(to=back)
        log.append(Event(seq=seq, at=0.0, body=body))
    return log


def told(log: list[Event], to: int) -> list[int]:
    """By the word: a rewind puts back whatever was in force at the position it names."""
    states: list[list[int]] = [[]]
    for event in log:
        body = event.body
        states.append([*states[body.to]] if isinstance(body, Rewind) else [*states[-1], event.seq])
    return states[to]


def rewinds(log: list[Event]) -> list[tuple[int, int]]:
    return [(event.seq, event.body.to) for event in log if isinstance(event.body, Rewind)]


@given(logs(), st.integers(0, 14))
def test_what_is_in_force_is_what_was_in_force_at_the_positions_gone_back_to(log, to):
    to = min(to, len(log))
    assert [event.seq for event in select_events_in_force(log, to)] == told(log, to)


@given(logs())
def test_an_event_holds_where_it_is_in_force_at_the_end(log):
    said = [event.seq for event in log if not isinstance(event.body, Rewind)]
    held = [seq for seq in said if is_event_in_force(seq, rewinds(log))]
    assert held == told(log, len(log))


@given(logs())
def test_what_does_not_hold_was_undone_by_a_rewind_over_it(log):
    for event in log:
        by = find_undoing_rewind(event.seq, rewinds(log))
        if isinstance(event.body, Rewind):
            continue
        assert (by is None) == is_event_in_force(event.seq, rewinds(log))
        if by is not None:
            at, to = by
            assert to < event.seq < at
            assert by in rewinds(log)


def test_the_events_may_begin_anywhere():
    log = [Event(seq=seq, at=0.0, body=Pin(first=1, last=1)) for seq in range(100, 104)]
    log.append(Event(seq=104, at=0.0, body=Rewind(to=101)))
    assert [event.seq for event in select_events_in_force(log, 104)] == [100, 101]


@pytest.mark.slow
def test_a_thousand_rewinds_are_carried_out_in_one_pass():
    log: list[Event] = []
    for number in range(1_000):  # one that is folded again for each before it would never end
        log.append(Event(seq=2 * number + 1, at=0.0, body=Pin(first=1, last=1)))
        log.append(Event(seq=2 * number + 2, at=0.0, body=Rewind(to=2 * number)))
    assert select_events_in_force(log, len(log)) == []
    assert not is_event_in_force(1, rewinds(log))
    assert find_undoing_rewind(1, rewinds(log)) == (2, 0)


def test_what_is_undone_is_all_that_is_not_in_force():
    rewinds = [(5, 2), (9, 7), (12, 3), (20, 15)]
    spans = list_undone_spans(rewinds)
    assert spans == [(4, 12), (16, 20)]
    undone = {seq for first, last in spans for seq in range(first, last + 1)}
    assert undone == {seq for seq in range(1, 25) if not is_event_in_force(seq, rewinds)}
    assert list_undone_spans([]) == []
