from dataclasses import replace
from itertools import accumulate, pairwise

import pytest

from tests.replay.conversations import conversation
from trimtab.engine.log.event import Usage
from trimtab.models.catalog import resolve_model_info
from trimtab.replay.billing import build_cache_rules
from trimtab.replay.calls import EVERYTHING, ReplaySetup
from trimtab.replay.needs import find_needs
from trimtab.replay.prompt_scale import (
    add_head_stand_in,
    learn_prompt_scale,
    make_counter,
    measure_messages,
)
from trimtab.replay.runner import learn_recorded_scale, replay_conversation
from trimtab.replay.selection import RecordedCall, RecordedConversation
from trimtab.replay.times import estimate_believed_times

MODEL = "claude-sonnet-4-5"
RULES = build_cache_rules(resolve_model_info(MODEL))
SENT = ReplaySetup(name=EVERYTHING, options={"policy": EVERYTHING}, model=MODEL)


def as_billed(
    one: RecordedConversation, *, ratio: float, head: int, lost: set[int], shared: int = 0
) -> RecordedConversation:
    """Give a conversation the usage of a provider that counts `ratio` tokens for an estimated one,
    after a head that the log does not show, and that lost its cache before some messages."""
    sizes = [0, *accumulate(measure_messages(one.messages, make_counter(MODEL)))]
    recorded: dict[int, RecordedCall] = {}
    before = 0
    for index, message in enumerate(one.messages):
        if message.role == "assistant":
            total = round(ratio * (head + sizes[index]))
            read = shared if index in lost or not before else before
            usage = Usage(input=total, output=300, cache_read=read, cache_write=total - read)
            recorded[index], before = RecordedCall(usage=usage, model=MODEL), total
    return replace(one, recorded=recorded, model=MODEL)


TALK = conversation("talk", 40, words=900)
LOST = {21, 51}
"""Indexes of replies."""


@pytest.mark.parametrize("ratio", [0.8, 1.0, 1.6])
def test_head_and_ratio_are_learned_from_the_first_third(ratio):
    one = as_billed(TALK, ratio=ratio, head=40_000, lost=LOST)
    sizes = measure_messages(one.messages, make_counter(MODEL))
    first = {index: one.usage[index] for index in sorted(one.usage)[:14]}
    scale = learn_prompt_scale(first, sizes)
    assert scale.ratio == pytest.approx(ratio, rel=0.1)
    assert scale.ratio * scale.head == pytest.approx(ratio * 40_000, rel=0.05)


def test_without_usage_nothing_is_learned():
    assert learn_recorded_scale(TALK, MODEL) is None


@pytest.mark.parametrize("ratio", [0.8, 1.6])
def test_everything_costs_what_was_paid(ratio):
    one = as_billed(TALK, ratio=ratio, head=40_000, lost=LOST, shared=15_000)
    scale = learn_recorded_scale(one, MODEL)
    run = replay_conversation(one, SENT, {"own": RULES}, {}, scale=scale)
    paid = sum(
        usage.cache_read * RULES.read + usage.cache_write * RULES.write
        for usage in one.usage.values()
    )
    modelled = sum(call.bill["own"].cost(RULES) for call in run.calls)
    assert len(run.calls) == one.calls
    assert modelled == pytest.approx(paid, rel=0.05)
    assert {call.output for call in run.calls} == {300}


def test_a_policy_that_hides_nothing_costs_what_everything_costs():
    one = as_billed(TALK, ratio=1.3, head=40_000, lost=LOST, shared=15_000)
    scale = learn_recorded_scale(one, MODEL)
    full = ReplaySetup(name="full", options={"policy": "full"}, model=MODEL)
    costs = [
        sum(call.bill["own"].cost(RULES) for call in run.calls)
        for setup in (SENT, full)
        for run in [replay_conversation(one, setup, {"own": RULES}, {}, scale=scale)]
    ]
    assert costs[1] == pytest.approx(costs[0], rel=0.03)


def test_the_stand_in_is_as_long_as_what_the_log_does_not_show():
    one = as_billed(TALK, ratio=1.0, head=30_000, lost=set())
    scale = learn_recorded_scale(one, MODEL)
    assert scale is not None
    counter = make_counter(MODEL)
    added = add_head_stand_in(one, scale, counter)
    assert sum(measure_messages(added.system, counter)) == pytest.approx(scale.head, rel=0.03)


def test_times_are_such_that_a_cache_does_what_usage_shows():
    one = as_billed(TALK, ratio=1.0, head=40_000, lost=LOST)
    times = tuple(accumulate((1.0, 4_000.0)[i // 2 % 2] for i in range(len(one.messages))))
    for recorded in (None, times):
        believed = estimate_believed_times(replace(one, times=recorded), RULES.ttl)
        calls = sorted(one.usage)
        assert believed == sorted(believed)
        for before, index in pairwise(calls):
            assert (believed[index] - believed[before] > RULES.ttl) == (index in LOST)


def test_a_call_that_does_not_fit_is_counted_apart_unless_the_provider_answered_it():
    small = replace(SENT, options={"policy": EVERYTHING, "context_window": 20_000})
    references = find_needs(TALK.messages)
    bare = replay_conversation(TALK, small, {"own": RULES}, references)
    assert bare.cannot_fit > 0
    assert bare.cannot_fit + len(bare.calls) == TALK.calls
    one = as_billed(TALK, ratio=1.0, head=40_000, lost=set())
    answered = replay_conversation(
        one, small, {"own": RULES}, references, scale=learn_recorded_scale(one, MODEL)
    )
    assert answered.cannot_fit == 0
