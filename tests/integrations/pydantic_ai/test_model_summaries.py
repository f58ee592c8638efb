"""An agent of Pydantic AI whose own model writes the summaries."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("pydantic_ai", reason="Pydantic AI is not installed here")

from tests.integrations import life
from tests.integrations.pydantic_ai.lives import DIALECTS, ask, make_agent, make_model
from tests.session.summarised_chats import GOOD
from trimtab.integrations.pydantic_ai import TrimtabCapability
from trimtab.testing import ServedSimulator, serve_simulated_provider

pytestmark = pytest.mark.anyio

FACT = "- the questions are numbered"
TOOL_SETTINGS: Any = {"max_tokens": 1_000, "parallel_tool_calls": True, "tool_choice": "auto"}


async def live(served: ServedSimulator, dialect: str, summary: Any = GOOD) -> list[Any]:
    """The bodies of the answered requests."""
    capability = TrimtabCapability(summaries="model", policy="rolling", context_window=16_000)
    agent = make_agent(make_model(served, dialect), capability, model_settings=TOOL_SETTINGS)
    messages: Any = None
    for turn in range(8):
        served.simulator.script.set_replies(life.script_turn(turn), summary=summary)
        result = await agent.run(ask(turn), message_history=messages)
        messages = result.all_messages()
    texts = [part.content for message in messages for part in message.parts
             if part.part_kind == "user-prompt"]  # fmt: skip
    assert texts == [ask(turn) for turn in range(8)]
    bodies = [record.body for record in life.list_answered(served)]
    assert all(map(life.is_paired, bodies))
    return bodies


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_agents_model_writes_the_summaries(dialect):
    with serve_simulated_provider(window=16_000) as served:
        bodies = await live(served, dialect)
        assert life.list_refusals(served) == []
        assert FACT in json.dumps(bodies[-1])


@pytest.mark.parametrize("summary", [{"fault": "forbidden"}, ""], ids=["fails", "empty"])
async def test_a_summary_that_fails_or_is_empty_falls_back_to_the_extract(summary):
    with serve_simulated_provider(window=16_000) as served:
        bodies = await live(served, "openai_chat", summary)
        assert "of the earlier conversation, for reference" in json.dumps(bodies[-1])
        assert FACT not in json.dumps(bodies[-1])
