"""Agents of LangChain in the strict simulator, and what the simulator received."""

# LangChain is not installed where types are checked.
# pyright: basic, reportMissingImports=false
from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from langchain_anthropic import ChatAnthropic
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

from tests.integrations.life import script_turn, write_report
from trimtab.testing import ServedSimulator

WINDOW = 16_000
THREAD: Any = {"configurable": {"thread_id": "thread-1"}, "recursion_limit": 200}
RUNNER = asyncio.Runner()
"""One event loop for all: the clients of LangChain keep connections to the first."""
Way = str
"""How an agent is called: `invoke`, `stream`, `ainvoke` or `astream`."""


@tool
def read_report(number: int) -> str:
    """Read a report."""
    return write_report(number)


def make_model(api: str, served: ServedSimulator, **options: Any) -> Any:
    shared: dict[str, Any] = {"api_key": "none", "max_tokens": 1_000, "max_retries": 1, **options}
    if api == "anthropic":
        return ChatAnthropic(model="claude-sonnet-5-5", base_url=served.url, **shared)
    is_responses = api == "openai_responses"
    return ChatOpenAI(
        model="gpt-4o", base_url=served.openai_url, use_responses_api=is_responses, **shared
    )


def say(agent: Any, text: str, way: Way = "invoke", config: Any = THREAD) -> None:
    said = {"messages": [("user", text)]}
    if way == "invoke":
        agent.invoke(said, config)
    elif way == "stream":
        for _ in agent.stream(said, config, stream_mode=["messages", "updates"]):
            pass
    else:
        RUNNER.run(_say_async(agent, said, way, config))


async def _say_async(agent: Any, said: Any, way: Way, config: Any) -> None:
    if way == "ainvoke":
        await agent.ainvoke(said, config)
        return
    async for _ in agent.astream(said, config, stream_mode=["messages", "updates"]):
        pass


def live(agent: Any, served: ServedSimulator, turns: Sequence[int], way: Way = "invoke") -> None:
    """Let the agent live some turns."""
    for turn in turns:
        served.simulator.script.set_replies(script_turn(turn), otherwise={"text": 10})
        say(agent, f"Turn {turn}: read three reports and remember rule-{turn}-keep.", way)


def bodies(served: ServedSimulator) -> list[Any]:
    return [record.body for record in served.simulator.records.requests]


def history(agent: Any, config: Any = THREAD) -> list[Any]:
    return agent.get_state(config).values["messages"]
