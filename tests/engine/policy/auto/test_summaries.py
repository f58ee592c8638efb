"""What `auto` does where results do not suffice."""

import pytest

from tests.agents import Agent
from tests.conversations import chat, prose, said, texts, user
from tests.engine.policy.auto.contexts import GOAL_LOW, beside_the_list, names_of
from tests.recording import append, decide
from trimtab import check
from trimtab.engine.policy.auto import MIN_GAIN_TOKENS

pytestmark = pytest.mark.usefixtures("low_mark")


def test_where_results_do_not_suffice_the_oldest_rounds_become_a_summary():
    agent = talkative()
    assert names_of(agent) == ["summarise"]
    assert beside_the_list(agent) <= GOAL_LOW
    assert agent.window.summary is not None
    last = agent.window.summary.text.splitlines()[-1]
    assert last.startswith("- named: ")
    assert "topic_0_a" in last


def talkative() -> Agent:
    """A conversation without tools that went over the mark and found its cache cold."""
    agent = Agent()
    talk(agent, 0, 20)
    assert not agent.edits
    agent.clock.now += 301
    talk(agent, 20, 1)
    return agent


def talk(agent: Agent, start: int, turns: int) -> None:
    for number in range(start, start + turns):
        agent.clock.now += 1
        agent.context.add(said(f"{prose(2_000)}\ntopic_{number}_a topic_{number}_b"))
        agent.context.add(user(prose(2_000)))
        agent.context.request()


def test_a_summary_carries_on_what_the_one_before_it_named():
    agent = talkative()
    talk(agent, 21, 12)
    agent.clock.now += 301
    talk(agent, 40, 1)
    assert names_of(agent) == ["summarise", "summarise"]
    assert beside_the_list(agent) <= GOAL_LOW
    assert "topic_0_a" in agent.edits[1].text
    assert "topic_21_a" in agent.edits[1].text
    assert "topic_21_a" not in agent.edits[0].text


def test_a_summary_counts_itself_when_it_brings_the_window_down_to_the_mark():
    agent = Agent()
    for number in range(30):
        agent.clock.now += 1
        words = " ".join(f"long_topic_name_{number}_{index}" for index in range(30))
        agent.context.add(said(f"{prose(1_500)}\n{words}"))
        agent.context.add(user(prose(400)))
        agent.context.request()
        if agent.edits:
            break
        agent.clock.now += 301
    assert agent.window.summary is not None
    assert agent.window.summary.size.tokens > MIN_GAIN_TOKENS
    assert beside_the_list(agent) <= GOAL_LOW


def test_early_rounds_of_a_loop_with_signed_thinking_become_a_summary_and_the_question_stays():
    agent = Agent()
    agent.context.add(user(prose(24_000)))
    for number in range(10):
        agent.clock.now += 1
        thought = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
        call = {"type": "tool_use", "id": f"t{number}", "name": "read", "input": {}}
        agent.context.add({"role": "assistant", "content": [thought, call]})
        back = {"type": "tool_result", "tool_use_id": f"t{number}", "content": prose(15_000)}
        agent.context.add({"role": "user", "content": [back]})
        agent.context.request()
    assert not agent.edits
    agent.context.pin("m2")
    agent.clock.now += 301
    agent.context.add(
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "last", "name": "read", "input": {}}],
        }
    )
    request = agent.context.request()
    assert names_of(agent) == ["summarise"]
    assert check(request) == []
    shown = texts(request)
    assert prose(24_000) in shown
    ids = [*(f"t{number}" for number in range(10)), "last"]
    assert [each for each in ids if f"'id': '{each}'" in shown] == ["t8", "t9", "last"]
    assert shown.count("'type': 'thinking'") == 2


def test_deciding_again_after_a_summary_changes_nothing():
    agent = Agent()
    talk(agent, 0, 20)
    agent.context.add(said("ok"))
    agent.context.add(user("more"))
    agent.clock.now += 301
    edits = decide(agent.context)
    assert edits
    append(agent.context, *edits)
    assert decide(agent.context) == []


def test_a_summary_that_more_is_put_into_at_once_loses_nothing_that_it_named():
    context = chat("auto", context_window=32_000, max_output_tokens=2_000)
    for number in range(30):
        context.add(user(prose(1_000, f"fact {number}: the word is ALPHA_{number}_KEY.")))
        context.add(said("Noted."))
    for number in range(6):
        context.add(user(prose(30_000, f"late {number}")))
        context.add(said(prose(15_000, f"reply {number}")))
    context.add(user("go on"))
    # What the list of the user's words has no room for is named in the summary.
    shown = texts(context.request())
    assert context.window.summary is not None
    assert [n for n in range(30) if f"ALPHA_{n}_KEY" not in shown] == []
