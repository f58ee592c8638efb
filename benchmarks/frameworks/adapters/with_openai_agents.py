"""OpenAI Agents: an `Agent` whose items are kept in an `SQLiteSession`."""

# The framework is not installed where types are checked.
# pyright: basic, reportMissingImports=false
from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import agents
from agents import ModelSettings, Runner, SQLiteSession, function_tool
from agents.models.openai_chatcompletions import OpenAIChatCompletionsModel
from agents.models.openai_responses import OpenAIResponsesModel
from openai import AsyncOpenAI

from benchmarks.frameworks import life
from benchmarks.frameworks.life import Said, Setup
from benchmarks.frameworks.worker import Meter, Numbers

agents.set_tracing_disabled(True)


class Agent:
    def __init__(self, setup: Setup, meter: Meter) -> None:
        self._setup = setup

        @function_tool(name_override=life.TOOL, description_override=life.TOOL_DESCRIPTION)
        def read_report(number: int) -> str:
            return life.report(number, setup.lines)

        model: Any = _model(setup)
        tools: list[Any] = [read_report]
        self._module: Any = None
        if setup.has_module:
            model.get_response = _timed(model.get_response, meter.passed_on)
            self._module = model = _module(model, setup)
            model.get_response = _timed(model.get_response, meter.part, meter.finish)
            tools += self._module.tools
        self._agent = agents.Agent(
            "reader",
            instructions=life.SYSTEM,
            tools=tools,
            model=model,
            model_settings=ModelSettings(max_tokens=life.MAX_OUTPUT_TOKENS),
        )
        path = f"{setup.folder}/items.sqlite" if setup.folder else ":memory:"
        self._session = SQLiteSession(life.CONVERSATION, path)

    def say(self, text: str) -> None:
        Runner.run_sync(self._agent, text, session=self._session, max_turns=50)

    async def say_async(self, text: str) -> None:
        if not self._setup.stream:
            await Runner.run(self._agent, text, session=self._session, max_turns=50)
            return
        result = Runner.run_streamed(self._agent, text, session=self._session, max_turns=50)
        async for _ in result.stream_events():
            pass

    async def preload(self, history: Sequence[Said]) -> None:
        await self._session.add_items(
            [_item(said, f"msg_{number}") for number, said in enumerate(history)]
        )

    async def history(self) -> list[Said]:
        return _history(await self._session.get_items())

    async def usage(self) -> str:
        return str(await self._module.report(life.CONVERSATION))


def _timed(call: Any, part: Any, finish: Any = None) -> Any:
    async def timed(*arguments: Any, **named: Any) -> Any:
        with part():
            response = await call(*arguments, **named)
        if finish is not None:
            finish()
        return response

    return timed


def _module(model: Any, setup: Setup) -> Any:
    from trimtab.integrations.openai_agents import TrimtabModel

    return TrimtabModel(model, **setup.module_options)


def _model(setup: Setup) -> Any:
    name = life.MODELS[setup.api]
    if setup.api == "anthropic":
        from agents.extensions.models.litellm_model import LitellmModel

        return LitellmModel(f"anthropic/{name}", base_url=setup.url, api_key="none")
    client = AsyncOpenAI(base_url=f"{setup.url}/v1", api_key="none", max_retries=0)
    kind = OpenAIResponsesModel
    if setup.api == "openai_chat":
        kind = OpenAIChatCompletionsModel
    return kind(name, client)


def _item(said: Said, message_id: str) -> Any:
    kind, *rest = said
    if kind == "call":
        call = {"call_id": f"call_{rest[0]}", "name": life.TOOL, "arguments": json.dumps(rest[1])}
        return {"type": "function_call", **call}
    if kind == "result":
        return {
            "type": "function_call_output",
            "call_id": f"call_{rest[0]}",
            "output": rest[1],
        }
    if kind == "user":
        return {"role": "user", "content": rest[0]}
    content = [{"type": "output_text", "text": rest[0], "annotations": []}]
    return {
        "type": "message",
        "id": message_id,
        "status": "completed",
        "role": "assistant",
        "content": content,
    }


def _history(items: Sequence[Any]) -> list[Said]:
    numbers, history = Numbers(), list[Said]()
    for item in items:
        kind = item.get("type", "message")
        if kind == "function_call":
            call = numbers[item["call_id"]], json.loads(item["arguments"])
            history.append(("call", *call))
        elif kind == "function_call_output":
            history.append(("result", numbers[item["call_id"]], item["output"]))
        elif kind == "message":
            content = item["content"]
            if not isinstance(content, str):
                content = "".join(part["text"] for part in content)
            history += [(item["role"], content)] if content else []
        else:
            history.append(("other", kind))
    return history
