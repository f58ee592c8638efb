"""An agent of the OpenAI Agents SDK whose own model writes the summaries."""

from __future__ import annotations

import asyncio
import json
from importlib.util import find_spec
from typing import Any

import pytest

if find_spec("agents") is None:
    pytest.skip("the OpenAI Agents SDK is not installed here", allow_module_level=True)

from agents import ModelSettings

from tests.integrations.life import script_turn, write_report
from tests.integrations.openai_agents.simulation import (
    list_outputs,
    make_agent,
    make_session,
    run_once,
    simulate,
)
from tests.session.summarised_chats import GOOD
from trimtab.integrations.openai_agents import TrimtabModel

FACT = "- the questions are numbered"
SETTINGS = ModelSettings(max_tokens=1_000, tool_choice="auto", parallel_tool_calls=True)


async def live(api: str, *, stream: bool = False, summary: Any = GOOD) -> tuple[str, int]:
    """The last request, and how many were refused."""
    async with simulate() as simulation:
        inner = simulation.make_model(api)
        model = TrimtabModel(inner, summaries="model", policy="rolling", context_window=16_000)
        agent = make_agent(model, model_settings=SETTINGS)
        session = make_session()
        for turn in range(8):
            script = simulation.served.simulator.script
            script.set_replies(script_turn(turn), summary=summary)
            await run_once(agent, f"Turn {turn}", session, stream)
        assert simulation.count_unpaired() == 0
        items = await session.get_items()
        assert list_outputs(items) == [write_report(number) for number in range(24)]
        return json.dumps(simulation.requests[-1].body), simulation.count_refused()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", ["responses", "chat"])
def test_the_agents_model_writes_the_summaries(api, stream):
    last_body, refused = asyncio.run(live(api, stream=stream))
    assert refused == 0
    assert FACT in last_body


@pytest.mark.parametrize("summary", [{"fault": "forbidden"}, ""], ids=["fails", "empty"])
def test_a_summary_that_fails_or_is_empty_falls_back_to_the_extract(summary):
    last_body, _ = asyncio.run(live("chat", summary=summary))
    assert "of the earlier conversation, for reference" in last_body
    assert FACT not in last_body
