"""Agents of the OpenAI Agents SDK against the simulated provider, and what the provider saw."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
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

from tests.integrations.life import (
    count_prefix_breaks,
    is_paired,
    list_refusals,
    read_cache_ratio,
    script_turn,
    write_report,
)
from trimtab.integrations.openai_agents import TrimtabModel
from trimtab.testing import RecordedRequest, ServedSimulator, serve_simulated_provider

set_tracing_disabled(disabled=True)

HANDLE = re.compile(r"recall (m\d+\.\d+)")


@function_tool
def read_report(number: int) -> str:
    """Read a report."""
    return write_report(number)


def list_outputs(items: list[Any]) -> list[Any]:
    """Return what the tools have returned, in order."""
    return [item["output"] for item in items if item.get("type") == "function_call_output"]


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

    def count_refused(self) -> int:
        return len(list_refusals(self.served))

    def count_unpaired(self) -> int:
        return sum(not is_paired(request.body) for request in self.requests)

    def count_prefix_breaks(self) -> int:
        return count_prefix_breaks(self.served)

    def compute_cache_read_ratio(self) -> float:
        return read_cache_ratio(self.served)

    def find_handle(self) -> str:
        """Return a handle that the last request names."""
        return HANDLE.findall(json.dumps(self.requests[-1].body))[0]

    async def run_turns(
        self, agent: Agent, session: Any, turns: range, *, stream: bool = False, **config: Any
    ) -> None:
        for turn in turns:
            self.script(*script_turn(turn))
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
