"""Agents of the OpenAI Agents SDK against the simulated provider, and what the provider saw.

What a request looks like is judged here by rules of this file, not by those of Trimtab.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from agents import (
    Agent,
    Model,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    SQLiteSession,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

from trimtab.integrations.openai_agents import TrimtabModel
from trimtab.testing import RecordedRequest, ServedSimulator, serve_simulated_provider

set_tracing_disabled(disabled=True)

HANDLE = re.compile(r"recall (m\d+\.\d+)")


def write_report(number: int) -> str:
    lines = (f"line_{number}_{line} value={line * number % 977}" for line in range(120))
    return f"report {number}: " + " ".join(lines)


@function_tool
def read_report(number: int) -> str:
    """Read a report."""
    return write_report(number)


def call(number: int) -> dict[str, Any]:
    return {"name": "read_report", "arguments": {"number": number}}


def list_outputs(items: list[Any]) -> list[Any]:
    """Return what the tools have returned, in order."""
    return [item["output"] for item in items if item.get("type") == "function_call_output"]


def turn_script(turn: int) -> list[dict[str, Any]]:
    """Two parallel calls, one call, an answer."""
    first = 3 * turn
    return [{"calls": [call(first), call(first + 1)]}, {"calls": [call(first + 2)]}, {"text": 30}]


@dataclass(frozen=True, slots=True)
class Simulation:
    served: ServedSimulator
    client: AsyncOpenAI

    def make_model(self, api: str = "responses", name: str = "gpt-4o") -> Model:
        """Return a model of the SDK that calls the simulated provider."""
        kind = OpenAIChatCompletionsModel if api == "chat" else OpenAIResponsesModel
        return kind(name, self.client)

    def script(self, *steps: Any) -> None:
        self.served.simulator.script.set_replies(list(steps), otherwise={"text": 20})

    @property
    def requests(self) -> list[RecordedRequest]:
        return self.served.simulator.records.requests

    @property
    def last_items(self) -> list[dict[str, Any]]:
        return list_messages(self.requests[-1].body)

    def count_refused(self) -> int:
        return sum(request.fate != "answered" for request in self.requests)

    def count_unpaired(self) -> int:
        return sum(not is_paired(request.body) for request in self.requests)

    def count_prefix_breaks(self) -> int:
        """Count the answered requests that do not begin with the one before."""
        lists = [list_messages(each.body) for each in self.requests if each.fate == "answered"]
        return sum(now[: len(before)] != before for before, now in pairwise(lists))

    def compute_cache_read_ratio(self) -> float:
        usages = [_read_usage(each.reply or {}) for each in self.requests]
        return sum(read for _, read in usages) / sum(total for total, _ in usages)

    def find_handle(self) -> str:
        """Return a handle that the last request names."""
        return HANDLE.findall(json.dumps(self.requests[-1].body))[0]

    async def run_turns(
        self, agent: Agent, session: Any, turns: range, *, stream: bool = False, **config: Any
    ) -> None:
        for turn in turns:
            self.script(*turn_script(turn))
            await run_once(agent, f"Turn {turn}: rule-{turn}-keep.", session, stream, **config)


@asynccontextmanager
async def simulate(**options: Any) -> AsyncIterator[Simulation]:
    with serve_simulated_provider(**{"window": 16_000, **options}) as served:
        url = served.openai_url
        async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
            yield Simulation(served, client)


def make_agent(model: Model, *tools: Any, **options: Any) -> Agent:
    recall = model.tools if isinstance(model, TrimtabModel) else []
    given: dict[str, Any] = {"name": "Reader", "instructions": "Be careful."}
    given["model_settings"] = ModelSettings(max_tokens=1_000)
    return Agent(**{**given, "model": model, "tools": [read_report, *tools, *recall], **options})


async def run_once(
    agent: Agent, text: Any, session: Any = None, stream: bool = False, **config: Any
) -> Any:
    options = {"session": session, "max_turns": 100, "run_config": RunConfig(**config)}
    if not stream:
        return await Runner.run(agent, text, **options)
    result = Runner.run_streamed(agent, text, **options)
    async for _ in result.stream_events():
        pass
    return result


def make_session(name: str = "chat-7", path: Any = ":memory:") -> SQLiteSession:
    return SQLiteSession(name, path)


def list_messages(body: Any) -> list[dict[str, Any]]:
    return body["input"] if "input" in body else body["messages"]


def is_paired(body: Any) -> bool:
    """Whether every call has one result after it, and every result a call before it."""
    open_calls: set[str] = set()
    for item in list_messages(body):
        for made in item.get("tool_calls") or ():
            open_calls.add(made["id"])
        if item.get("type") == "function_call":
            open_calls.add(item["call_id"])
        result = item.get("tool_call_id") if item.get("role") == "tool" else None
        if item.get("type") == "function_call_output":
            result = item["call_id"]
        if result is not None:
            if result not in open_calls:
                return False
            open_calls.remove(result)
    return not open_calls


def _read_usage(reply: Any) -> tuple[int, int]:
    """Return the input tokens of a reply, and those of them that were read from the cache."""
    usage = reply.get("usage") or {}
    if "prompt_tokens" in usage:
        details = usage.get("prompt_tokens_details") or {}
        return usage["prompt_tokens"], details.get("cached_tokens") or 0
    details = usage.get("input_tokens_details") or {}
    return usage.get("input_tokens", 0), details.get("cached_tokens") or 0
