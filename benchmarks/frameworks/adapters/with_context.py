"""No framework: the provider's SDK and a plain `Context`. What the frameworks are measured by."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import anthropic
import openai

from benchmarks.frameworks import life
from benchmarks.frameworks.life import Said, Setup
from benchmarks.frameworks.worker import Meter
from trimtab import Context

TOOL = {
    "name": life.TOOL,
    "description": life.TOOL_DESCRIPTION,
    "parameters": {
        "type": "object",
        "properties": {"number": {"type": "integer"}},
        "required": ["number"],
    },
}


class Agent:
    def __init__(self, setup: Setup, meter: Meter) -> None:
        self._setup, self._meter = setup, meter
        self._context = Context(
            life.MODELS[setup.api],
            dialect=setup.api,
            system=life.SYSTEM,
            tools=[TOOL],
            recall=True,
            context_window=setup.context_window,
            max_output_tokens=life.MAX_OUTPUT_TOKENS,
        )
        keys: dict[str, Any] = {"api_key": "none", "max_retries": 0}
        chat = openai.OpenAI(base_url=f"{setup.url}/v1", **keys)
        self._create: Any = {
            "openai_chat": chat.chat.completions.create,
            "openai_responses": chat.responses.create,
            "anthropic": anthropic.Anthropic(base_url=setup.url, **keys).messages.create,
        }[setup.api]

    def say(self, text: str) -> None:
        context = self._context
        context.add({"role": "user", "content": text})
        while True:
            with self._meter.part():
                request = context.request()
            reply = self._create(**request)
            with self._meter.part():
                context.add(reply)
            self._meter.finish()
            message = [*context.window.entries.values()][-1].message
            if not message.calls:
                return
            for call in message.calls:
                number = json.loads(call.arguments)["number"]
                text = life.report(number, self._setup.lines)
                context.add({"role": "tool", "tool_call_id": call.id, "content": text})

    async def say_async(self, text: str) -> None:
        self.say(text)

    async def preload(self, history: Sequence[Said]) -> None:
        raise NotImplementedError

    async def history(self) -> list[Said]:
        raise NotImplementedError

    async def usage(self) -> str:
        return str(self._context.report())
