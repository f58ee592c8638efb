"""The figures of deferred tools count what they say: they would see a call without its tool, and
definitions that are counted although they are not in the prompt."""

import pytest

from benchmarks.deferred_tools import (
    APIS,
    CALLED,
    PRESETS,
    broken,
    call,
    calls_without_their_tool,
    definition,
    search,
    start,
    toolbox,
    under_preset,
)
from trimtab.engine.policy.planning.plan import Plan

ANTHROPIC, CHAT, RESPONSES = APIS


def in_messages(api, made):
    match api.name:
        case "anthropic":
            return {"messages": [{"role": "assistant", "content": made}]}
        case "openai_chat":
            return {"messages": [{"role": "assistant", "tool_calls": made}]}
        case _:
            return {"input": made}


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_a_call_counts_as_lost_only_if_nothing_before_it_loads_its_tool(api):
    made, _ = call(api.name, 3, CALLED)
    found, result = search(api.name, 0)
    alone, after = in_messages(api, made), in_messages(api, [*found, *made])
    if result is not None:
        after = {"messages": [result, *alone["messages"]]}
    assert [*calls_without_their_tool(alone)] == [CALLED]
    assert [*calls_without_their_tool(after)] == []
    assert [*calls_without_their_tool({"tools": toolbox(api.name), **after})] == []


def test_it_notices_when_what_loaded_a_tool_is_hidden(monkeypatch):
    monkeypatch.setattr(Plan, "is_needed", lambda *_: False)
    agent = start(
        ANTHROPIC, lambda text: len(text) // 4, 9_000, toolbox("anthropic"), policy="rolling"
    )
    under_preset(agent, 8)
    assert agent.lost > 0


def test_all_rules_are_rules():
    row = {
        "counted_ratio": 1.1,
        "first_hidden_call": 30,
        "first_hidden_call_plain": 30,
        "loader_lost": dict.fromkeys(PRESETS, 0),
        "refused": [],
        "bound_exceeded": 0,
        "hidden": 3,
    }
    good = {"counted_ratio": 1.1, "dialects": {"anthropic": row}}
    assert broken(good) == []
    for wrong in (
        {"counted_ratio": 1.3},
        {"counted_ratio": 0.9},
        {"first_hidden_call": 5},
        {"first_hidden_call": None},
        {"loader_lost": {"rolling": 2}},
        {"refused": ["Tool reference"]},
        {"bound_exceeded": 1},
        {"hidden": 0},
    ):
        assert len(broken({**good, "dialects": {"anthropic": {**row, **wrong}}})) == 1, wrong


def test_the_tools_are_hundreds_and_each_is_as_large_as_usual():
    assert len(toolbox("anthropic")) == 301
    assert 400 < len(str(definition("anthropic", CALLED))) < 1_000
