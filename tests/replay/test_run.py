from dataclasses import replace

import pytest

from tests.replay.conversations import conversation
from trimtab.engine.log.message import make_text_message
from trimtab.replay.billing import get_provider_pricing
from trimtab.replay.calls import ReplaySetup
from trimtab.replay.needs import find_needs, sum_need_counts
from trimtab.replay.runner import replay_all, replay_conversation, replay_under_each_setup
from trimtab.replay.times import estimate_message_times

RULES = {"Anthropic": get_provider_pricing("claude-sonnet-4-5").rules}
FULL = ReplaySetup(name="full", options={"policy": "full"})
LAYERED = ReplaySetup(name="layered", options={"policy": "layered"})
TALK = conversation("talk", 30, words=300)


def test_every_assistant_message_is_one_call():
    run = replay_conversation(TALK, FULL, RULES, find_needs(TALK.messages))
    assert len(run.calls) == TALK.calls
    assert run.cannot_fit == 0


def test_a_recording_in_which_replies_are_repeated_is_replayed():
    messages = (make_text_message("assistant", "x"),) * 9
    repeated = replace(TALK, messages=messages, times=tuple(map(float, range(9))), recorded={})
    run = replay_conversation(repeated, FULL, RULES, find_needs(repeated.messages))
    assert len(run.calls) == 9


def test_full_history_shows_every_reference_and_never_breaks_its_prompt():
    calls = replay_conversation(TALK, FULL, RULES, find_needs(TALK.messages)).calls
    needs = sum_need_counts(call.needs for call in calls)
    assert needs.references > 0
    assert needs.seen == needs.references
    assert not any(call.broke for call in calls)


@pytest.mark.parametrize("policy", ["everything", "full"])
def test_what_is_new_in_each_call_adds_up_to_the_messages_of_the_last(policy):
    setup = ReplaySetup(name=policy, options={"policy": policy})
    calls = replay_conversation(TALK, setup, RULES, find_needs(TALK.messages)).calls
    assert sum(call.new for call in calls) + calls[-1].head == calls[-1].tokens
    assert calls[0].is_cold


def test_masked_results_lose_what_only_they_held():
    calls = replay_conversation(TALK, LAYERED, RULES, find_needs(TALK.messages)).calls
    needs = sum_need_counts(call.needs for call in calls)
    assert needs.seen < needs.references
    assert any(call.missing for call in calls)
    assert any(call.broke for call in calls)


def test_a_bill_covers_the_whole_input():
    for call in replay_conversation(TALK, LAYERED, RULES, find_needs(TALK.messages)).calls:
        for bill in call.bill.values():
            assert bill.read + bill.write + bill.fresh == call.tokens


def test_pauses_are_modelled_alike_each_time_and_never_go_back():
    times = estimate_message_times(TALK)
    assert times == estimate_message_times(TALK)
    assert times == sorted(times)
    assert len(times) == len(TALK.messages)


@pytest.mark.process
def test_many_processes_find_what_one_does_in_the_order_given():
    several = [conversation(f"c{i}", 2 + i, first=40 * i) for i in range(3)]
    told: list[tuple[int, int]] = []
    alone = [run for one in several for run in replay_under_each_setup(one, [FULL, LAYERED], RULES)]
    together = replay_all(
        several, [FULL, LAYERED], RULES, jobs=2, on_progress=lambda *done: told.append(done)
    )
    assert together == alone
    calls = 2 * sum(one.calls for one in several)
    assert told[-1] == (calls, calls)


def test_a_failure_names_the_conversation_and_the_setup():
    broken = ReplaySetup(name="odd", options={"policy": "nonsense"})
    with pytest.raises(ValueError, match="unknown policy") as failure:
        replay_under_each_setup(TALK, [broken], RULES)
    assert failure.value.__notes__ == ["in conversation talk under odd"]
