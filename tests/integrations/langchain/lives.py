"""Agents of LangChain in the strict simulator, and what the simulator received."""

# LangChain is not installed where types are checked.
# pyright: basic, reportMissingImports=false
from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

from langchain_anthropic import ChatAnthropic
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

from trimtab.testing import ServedSimulator

WINDOW = 16_000
THREAD: Any = {"configurable": {"thread_id": "thread-1"}, "recursion_limit": 200}
RUNNER = asyncio.Runner()
"""One event loop for all: the clients of LangChain keep connections to the first."""
Way = str
"""How an agent is called: `invoke`, `stream`, `ainvoke` or `astream`."""


def report_text(number: int) -> str:
    """A result of about 1,200 tokens."""
    lines = (f"line_{number}_{k} value={k * number % 977}" for k in range(120))
    return f"report {number}: " + " ".join(lines)


@tool
def read_report(number: int) -> str:
    """Read a report."""
    return report_text(number)


def make_model(api: str, served: ServedSimulator, **options: Any) -> Any:
    shared: dict[str, Any] = {"api_key": "none", "max_tokens": 1_000, "max_retries": 1, **options}
    if api == "anthropic":
        return ChatAnthropic(model="claude-sonnet-5-5", base_url=served.url, **shared)
    is_responses = api == "openai_responses"
    return ChatOpenAI(
        model="gpt-4o", base_url=served.openai_url, use_responses_api=is_responses, **shared
    )


def turn_script(turn: int) -> list[Any]:
    """Two parallel calls, one more call, an answer."""
    calls = [{"name": "read_report", "arguments": {"number": 3 * turn + k}} for k in range(3)]
    return [{"calls": calls[:2]}, {"calls": calls[2:]}, {"text": 30}]


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
        served.simulator.script.set_replies(turn_script(turn), otherwise={"text": 10})
        say(agent, f"Turn {turn}: read three reports and remember rule-{turn}-keep.", way)


def bodies(served: ServedSimulator) -> list[Any]:
    return [record.body for record in served.simulator.records.requests]


def refused(served: ServedSimulator) -> list[str]:
    records = served.simulator.records.requests
    return [record.message for record in records if record.fate != "answered"]


def count_cut(served: ServedSimulator) -> int:
    """How many replies of Claude ended because the window was full."""
    replies = [record.reply or {} for record in served.simulator.records.requests]
    return sum(reply.get("stop_reason") == "model_context_window_exceeded" for reply in replies)


def cache_read(served: ServedSimulator) -> float:
    """The share of the input that was read from the provider's cache."""
    read = total = 0
    for record in served.simulator.records.requests:
        usage = (record.reply or {}).get("usage") or {}
        if "cache_read_input_tokens" in usage:
            cached = usage["cache_read_input_tokens"] or 0
            written = usage["cache_creation_input_tokens"] or 0
            total += usage["input_tokens"] + cached + written
        else:
            details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details") or {}
            cached = details.get("cached_tokens") or 0
            total += usage.get("prompt_tokens") or usage.get("input_tokens") or 0
        read += cached
    return read / total


def count_breaks(served: ServedSimulator, is_counted: Callable[[Any], bool] = bool) -> int:
    """How many requests do not begin with the messages of the one before."""
    breaks, before = 0, list[str]()
    for body in bodies(served):
        if not is_counted(body):
            continue
        messages = [json.dumps(each, sort_keys=True) for each in body["messages"]]
        breaks += messages[: len(before)] != before
        before = messages
    return breaks


def history(agent: Any, config: Any = THREAD) -> list[Any]:
    return agent.get_state(config).values["messages"]
