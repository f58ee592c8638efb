"""Pydantic AI: an `Agent` whose messages are kept in a file, as its documentation shows."""

# The framework is not installed where types are checked.
# pyright: basic, reportMissingImports=false
from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pydantic_ai
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from benchmarks.frameworks import life
from benchmarks.frameworks.life import Said, Setup
from benchmarks.frameworks.worker import Meter, Numbers

HOOKS = ("prepare_model_request", "after_model_request", "on_model_request_error")
"""What the framework calls of a capability around a model call."""


class Agent:
    def __init__(self, setup: Setup, meter: Meter) -> None:
        self._setup = setup
        self._module: Any = None
        capabilities: list[Any] = []
        if setup.has_module:
            self._module = _module(setup, meter)
            capabilities = [self._module]
        self._agent = pydantic_ai.Agent(
            _model(setup),
            instructions=life.SYSTEM,
            capabilities=capabilities,
            model_settings={"max_tokens": life.MAX_OUTPUT_TOKENS},
        )

        @self._agent.tool_plain(name=life.TOOL, description=life.TOOL_DESCRIPTION)
        def read_report(number: int) -> str:
            return life.report(number, setup.lines)

        self._file = Path(setup.folder) / "messages.json" if setup.folder else None
        self._messages: list[ModelMessage] = []
        if self._file is not None and self._file.exists():
            self._messages = ModelMessagesTypeAdapter.validate_json(self._file.read_bytes())

    def say(self, text: str) -> None:
        asked: Any = {"message_history": self._messages, "conversation_id": life.CONVERSATION}
        if not self._setup.stream:
            self._keep(self._agent.run_sync(text, **asked).all_messages())
            return
        result = self._agent.run_stream_sync(text, **asked)
        for _ in result.stream_text():
            pass
        self._keep(result.all_messages())

    async def say_async(self, text: str) -> None:
        asked: Any = {"message_history": self._messages, "conversation_id": life.CONVERSATION}
        if not self._setup.stream:
            self._keep((await self._agent.run(text, **asked)).all_messages())
            return
        async with self._agent.run_stream(text, **asked) as result:
            async for _ in result.stream_text():
                pass
        self._keep(result.all_messages())

    def _keep(self, messages: list[ModelMessage]) -> None:
        self._messages = messages
        if self._file is not None:
            self._file.write_bytes(ModelMessagesTypeAdapter.dump_json(messages))

    async def preload(self, history: Sequence[Said]) -> None:
        self._messages = _messages(history)

    async def history(self) -> list[Said]:
        return _history(self._messages)

    async def usage(self) -> str:
        return str(await self._module.report(life.CONVERSATION))


def _module(setup: Setup, meter: Meter) -> Any:
    from trimtab.integrations.pydantic_ai import TrimtabCapability

    timed = {name: _timed(getattr(TrimtabCapability, name), meter) for name in HOOKS}
    return type("TimedCapability", (TrimtabCapability,), timed)(**setup.module_options)


def _timed(hook: Any, meter: Meter) -> Any:
    async def timed(*arguments: Any, **named: Any) -> Any:
        with meter.part():
            done = await hook(*arguments, **named)
        if hook.__name__ == "after_model_request":
            meter.finish()
        return done

    return timed


def _model(setup: Setup) -> Any:
    name = life.MODELS[setup.api]
    if setup.api == "anthropic":
        provider = AnthropicProvider(base_url=setup.url, api_key="none")
        return AnthropicModel(name, provider=provider)
    kind = OpenAIResponsesModel if setup.api == "openai_responses" else OpenAIChatModel
    return kind(name, provider=OpenAIProvider(base_url=f"{setup.url}/v1", api_key="none"))


def _messages(history: Sequence[Said]) -> list[ModelMessage]:
    messages: list[ModelMessage] = []
    for kind, *rest in history:
        if kind == "user":
            messages.append(ModelRequest([UserPromptPart(rest[0])]))
        elif kind == "assistant":
            messages.append(ModelResponse([TextPart(rest[0])]))
        else:
            number, value = rest
            of, part = ModelResponse, ToolCallPart
            if kind == "result":
                of, part = ModelRequest, ToolReturnPart
            made: Any = part(life.TOOL, value, tool_call_id=f"call_{number}")
            if isinstance(messages[-1], of):
                messages[-1].parts = [*messages[-1].parts, made]
            else:
                messages.append(of([made]))
    return messages


def _history(messages: Sequence[ModelMessage]) -> list[Said]:
    numbers, history = Numbers(), list[Said]()
    for part in (part for message in messages for part in message.parts):
        match part:
            case UserPromptPart():
                history.append(("user", part.content))
            case TextPart():
                history += [("assistant", part.content)] if part.content else []
            case ToolCallPart():
                history.append(("call", numbers[part.tool_call_id], part.args_as_dict()))
            case ToolReturnPart():
                history.append(("result", numbers[part.tool_call_id], part.content))
            case _:
                history.append(("other", type(part).__name__))
    return history
