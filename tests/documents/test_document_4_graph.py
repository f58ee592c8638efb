"""Document 4, Context Management with thresholds: the messages of a graph, as it keeps them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.documents.product import THRESHOLDS, Talk, definition
from tests.documents.words import prose

lc = pytest.importorskip("langchain_core.messages", reason="langchain-core is not installed")


def called(number: int) -> Any:
    call = {"name": "read", "args": {"path": f"f{number}"}, "id": f"c{number}"}
    return lc.AIMessage("", tool_calls=[call])


def answered(text: str, read: int, written: int) -> Any:
    usage = {"input_tokens": read, "output_tokens": written, "total_tokens": read + written}
    return lc.AIMessage(text, usage_metadata=usage)


def test_messages_of_a_graph_are_counted_by_their_kind():
    talk = Talk("gpt-4o", preset=THRESHOLDS)
    talk.sync(
        [
            lc.SystemMessage("You simulate reservoirs."),
            lc.HumanMessage(prose(2_000)),
            called(1),
            lc.ToolMessage(prose(4_000), tool_call_id="c1"),
            lc.AIMessage("done"),
            lc.HumanMessage("and?"),
        ]
    )
    roles = [message["role"] for message in talk.request()["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "user"]
    found = talk.sections
    assert found["system"] < 100
    assert 300 < found["messages"] < 600 < found["tools"]


def test_what_is_sent_becomes_messages_of_the_graph_again_with_their_pairs():
    talk = Talk("gpt-4o", preset=THRESHOLDS, window=12_000, output=500, tools=[definition()])
    history: list[Any] = []
    back: list[Any] = []
    for number in range(12):
        history += [lc.HumanMessage(prose(400, f"q{number}")), called(number)]
        history.append(lc.ToolMessage(prose(4_000, f"r{number}"), tool_call_id=f"c{number}"))
        talk.sync(history)
        back = lc.convert_to_messages(talk.request()["messages"])
        calls = [call["id"] for each in back if each.type == "ai" for call in each.tool_calls]
        assert calls == [each.tool_call_id for each in back if each.type == "tool"]
        history.append(lc.AIMessage(prose(400, f"a{number}")))
    assert talk.summary is not None
    assert len(back) < len(history)


def test_usage_that_a_reply_brings_is_learned_once_from_the_list_of_the_graph():
    talk = Talk("gpt-4o", preset=THRESHOLDS)
    history: list[Any] = [lc.HumanMessage("hi")]
    costs = [talk.cost]
    for number in (1, 2):
        talk.sync(history)
        talk.request()
        history.append(answered(f"hello {number}", 1_000 * number, 5))
        talk.sync(history)
        talk.sync([*history])
        assert talk.calls == number
        assert (talk.usage["input"], talk.usage["output"]) == (1_000 * number, 5)
        costs.append(talk.cost)
        history.append(lc.HumanMessage(f"and {number}?"))
    assert 0 == costs[0] < costs[1] < costs[2]


def test_usage_of_calls_that_were_made_elsewhere_is_not_taken_for_ours():
    talk = Talk("gpt-4o", preset=THRESHOLDS)
    talk.sync([lc.HumanMessage("hi"), answered("hello", 90_000, 5), lc.HumanMessage("and?")])
    assert talk.usage is None
    talk.request()
    talk.sync(
        [
            lc.HumanMessage("hi"),
            answered("hello", 90_000, 5),
            lc.HumanMessage("and?"),
            lc.HumanMessage("or?"),
            answered("well", 80_000, 5),
        ]
    )
    assert talk.usage is None
