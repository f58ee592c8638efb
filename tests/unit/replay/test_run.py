import pytest

from tests.unit.replay.talk import conversation
from trimtab.replay.many import run_all, run_one
from trimtab.replay.providers import providers_for
from trimtab.replay.references import needs
from trimtab.replay.run import Setup, replay, times_of

RULES = {provider.name: provider.rules for provider in providers_for("claude-sonnet-4-5")}
FULL = Setup(name="full", options={"policy": "full"})
LAYERED = Setup(name="layered", options={"policy": "layered"})
TALK = conversation("talk", 30, words=300)


def test_every_assistant_message_is_one_call():
    run = replay(TALK, FULL, RULES, needs(TALK.messages))
    assert len(run.calls) == TALK.calls
    assert run.cannot_fit == 0


def test_full_history_shows_every_reference_and_never_breaks_its_prompt():
    calls = replay(TALK, FULL, RULES, needs(TALK.messages)).calls
    assert sum(call.needs for call in calls) > 0
    assert all(call.seen == call.needs and not call.broke for call in calls)


def test_masked_results_lose_what_only_they_held():
    calls = replay(TALK, LAYERED, RULES, needs(TALK.messages)).calls
    assert sum(call.seen for call in calls) < sum(call.needs for call in calls)
    assert any(call.missing for call in calls)
    assert any(call.broke for call in calls)


@pytest.mark.parametrize("setup", [FULL, LAYERED], ids=lambda setup: setup.name)
def test_sections_add_up_to_what_is_sent(setup):
    calls = replay(TALK, setup, RULES, needs(TALK.messages), sections=True).calls
    assert [sum((call.sections or {}).values()) for call in calls] == [c.tokens for c in calls]


def test_sections_are_taken_only_when_asked_for():
    calls = replay(TALK, FULL, RULES, needs(TALK.messages)).calls
    assert all(call.sections is None for call in calls)


def test_a_bill_covers_the_whole_input():
    for call in replay(TALK, LAYERED, RULES, needs(TALK.messages)).calls:
        for bill in call.bill.values():
            assert bill.read + bill.write + bill.fresh == call.tokens


def test_naive_marks_cost_more_and_send_the_same():
    naive = Setup(name="naive", options=LAYERED.options, naive_marks=True)
    marked, plain = (
        replay(TALK, setup, RULES, needs(TALK.messages)).calls for setup in (LAYERED, naive)
    )
    assert [call.tokens for call in plain] == [call.tokens for call in marked]
    assert sum(c.bill["Anthropic"].read for c in plain) < sum(
        c.bill["Anthropic"].read for c in marked
    )


def test_pauses_are_modelled_alike_each_time_and_never_go_back():
    times = times_of(TALK)
    assert times == times_of(TALK)
    assert times == sorted(times)
    assert len(times) == len(TALK.messages)


@pytest.mark.process
def test_many_processes_find_what_one_does_in_the_order_given():
    several = [conversation(f"c{i}", 2 + i, first=40 * i) for i in range(3)]
    told: list[tuple[int, int]] = []
    alone = [run for one in several for run in run_one(one, [FULL, LAYERED], RULES)]
    together = run_all(
        several, [FULL, LAYERED], RULES, jobs=2, progress=lambda *done: told.append(done)
    )
    assert together == alone
    calls = 2 * sum(one.calls for one in several)
    assert told[-1] == (calls, calls)


def test_a_failure_names_the_conversation_and_the_setup():
    broken = Setup(name="odd", options={"policy": "nonsense"})
    with pytest.raises(ValueError, match="unknown policy") as failure:
        run_one(TALK, [broken], RULES)
    assert failure.value.__notes__ == ["in conversation talk under odd"]
