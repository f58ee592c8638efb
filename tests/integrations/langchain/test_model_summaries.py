"""A LangChain agent whose own model writes the summaries."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("langchain", reason="LangChain is not installed here")

from langchain.agents import create_agent
from langgraph.checkpoint.memory import InMemorySaver

from tests.integrations.langchain.lives import (
    RUNNER,
    THREAD,
    history,
    make_model,
    read_report,
    refused,
    say,
    turn_script,
)
from tests.integrations.life import is_paired, list_answered
from tests.session.summarised_chats import GOOD
from trimtab.integrations.langchain import TrimtabMiddleware
from trimtab.testing import ServedSimulator

FACT = "- the questions are numbered"


def live(served: ServedSimulator, way: str, summary: Any = GOOD, api: str = "anthropic") -> Any:
    middleware = TrimtabMiddleware(summaries="model", policy="rolling", context_window=16_000)
    agent = create_agent(
        make_model(api, served),
        [read_report],
        middleware=[middleware],
        checkpointer=InMemorySaver(),
    )
    for turn in range(8):
        served.simulator.script.set_replies(turn_script(turn), summary=summary)
        say(agent, f"Turn {turn}", way)
    return agent


@pytest.mark.parametrize("api", ["anthropic", "openai_chat", "openai_responses"])
@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
def test_the_agents_model_writes_the_summaries(served, way, api):
    agent = live(served, way, api=api)
    assert refused(served) == []
    answered = [record.body for record in list_answered(served)]
    assert all(map(is_paired, answered))
    assert FACT in json.dumps(answered[-1])
    assert [m.text for m in history(agent) if m.type == "human"] == [f"Turn {n}" for n in range(8)]


@pytest.mark.parametrize("summary", [{"fault": "forbidden"}, ""], ids=["fails", "empty"])
def test_a_summary_that_fails_or_is_empty_falls_back_to_the_extract(served, summary):
    live(served, "invoke", summary=summary)
    answered = [record.body for record in list_answered(served)]
    assert "of the earlier conversation, for reference" in json.dumps(answered[-1])
    assert FACT not in json.dumps(answered[-1])


def test_a_summary_is_no_part_of_what_the_agent_streams_to_its_user(served):
    middleware = TrimtabMiddleware(summaries="model", policy="rolling", context_window=16_000)
    saver = InMemorySaver()
    model = make_model("openai_chat", served)
    agent = create_agent(model, [read_report], middleware=[middleware], checkpointer=saver)
    streamed: list[str] = []

    async def stream(turn: int) -> None:
        message = {"messages": [("user", f"Turn {turn}")]}
        async for piece, _ in agent.astream(message, THREAD, stream_mode="messages"):
            streamed.append(piece.text)

    for turn in range(8):
        served.simulator.script.set_replies(turn_script(turn), summary=GOOD)
        RUNNER.run(stream(turn))
    assert FACT in json.dumps([record.body for record in list_answered(served)][-1])
    assert "Goal and latest request" not in "".join(streamed)
