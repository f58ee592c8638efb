"""Pydantic AI: `TieredCompaction` of pydantic-ai-harness, in the form its guide recommends.

File reads that a newer read supersedes go first, then results but the newest three pairs, then a
summary that keeps 20 messages; each only while the history is above the target. The capability's
own hook is called, with the run's history and the usage that the provider reported.
"""

# The peer is not installed where types are checked.
# pyright: basic, reportMissingImports=false
from __future__ import annotations

import asyncio
import json
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.messages import (
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestContext, ModelRequestParameters
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage, RunUsage
from pydantic_ai_harness import (
    ClearToolResults,
    DeduplicateFileReads,
    SummarizingCompaction,
    TieredCompaction,
)

Wire = dict[str, Any]


class Session:
    def __init__(self, stand_in: Any, options: Wire) -> None:
        def write(messages: list[Any], info: AgentInfo) -> ModelResponse:  # noqa: ARG001 - the library's signature
            return ModelResponse(parts=[TextPart(stand_in.summary(_text(messages)))])

        self._model = FunctionModel(write)
        summary = SummarizingCompaction[None](model=self._model, max_messages=1, keep_messages=20)
        self._capability = TieredCompaction[None](
            tiers=[
                DeduplicateFileReads(file_key=_file),
                ClearToolResults(max_tokens=1, keep_pairs=3),
                summary,
            ],
            **options,
        )
        self._loop = asyncio.new_event_loop()
        self._messages: list[Any] = []
        self._names: dict[str, str] = {}
        self._index: dict[int, int] = {}
        self._kept: list[Any] = []
        self._calls: dict[int, int] = {}

    def add(self, index: int, message: Wire, size: int, used: int | None) -> None:
        parts = self._parts(message)
        for part in parts:
            self._index[id(part)] = index
        # The identity of a part is its name here: none may be freed and its place used again.
        self._kept += parts
        if message["role"] == "assistant":
            self._calls[index] = len(parts)
            usage = RequestUsage(input_tokens=used or 0, output_tokens=size if used else 0)
            self._messages.append(ModelResponse(parts=parts, usage=usage))
        elif message["role"] == "tool" and self._ends_with_results():
            last = self._messages.pop()
            self._messages.append(ModelRequest(parts=[*last.parts, *parts]))
        else:
            self._messages.append(ModelRequest(parts=parts))

    def decide(self) -> None:
        context = RunContext[None](
            deps=None, model=self._model, usage=RunUsage(), messages=self._messages
        )
        request = ModelRequestContext(
            model=self._model,
            messages=list(self._messages),
            model_settings=None,
            model_request_parameters=ModelRequestParameters(),
        )
        self._loop.run_until_complete(self._capability.before_model_request(context, request))
        # The hook writes what it did into the run's history, and that is what is sent.
        self._messages = context.messages

    def view(self) -> list[int | Wire]:
        out: list[int | Wire] = []
        for message in self._messages:
            for part in message.parts:
                index = self._index.get(id(part))
                if index is None:
                    out.append(_made(part))
                elif not out or out[-1] != index:
                    out.append(index)
        return out

    def _ends_with_results(self) -> bool:
        last: Any = self._messages[-1] if self._messages else None
        return isinstance(last, ModelRequest) and all(
            isinstance(part, ToolReturnPart) for part in last.parts
        )

    def _parts(self, message: Wire) -> list[Any]:
        content = message.get("content") or ""
        match message["role"]:
            case "user":
                return [UserPromptPart(content)]
            case "system":
                return [SystemPromptPart(content)]
            case "tool":
                called = message["tool_call_id"]
                name = self._names.get(called, "tool")
                return [ToolReturnPart(tool_name=name, content=content, tool_call_id=called)]
            case _:
                pass
        parts: list[Any] = [TextPart(content)] if content else []
        for call in message.get("tool_calls") or ():
            name = call["function"]["name"]
            self._names[call["id"]] = name
            arguments = call["function"]["arguments"]
            parts.append(ToolCallPart(tool_name=name, args=arguments, tool_call_id=call["id"]))
        return parts or [TextPart("")]


def _file(call: ToolCallPart) -> str | None:
    """Reads of a whole file; a read of some lines is not superseded by one of others."""
    if call.tool_name != "Read":
        return None
    arguments = call.args_as_dict()
    if arguments.get("offset") or arguments.get("limit"):
        return None
    return arguments.get("file_path")


def _made(part: Any) -> Wire:
    if isinstance(part, ToolReturnPart):
        called, content = part.tool_call_id, part.model_response_str()
        return {"role": "tool", "tool_call_id": called, "content": content}
    if isinstance(part, ToolCallPart):
        function = {"name": part.tool_name, "arguments": part.args_as_json_str()}
        call = {"id": part.tool_call_id, "type": "function", "function": function}
        return {"role": "assistant", "content": "", "tool_calls": [call]}
    role = {UserPromptPart: "user", SystemPromptPart: "system"}.get(type(part), "assistant")
    content = part.content
    return {"role": role, "content": content if isinstance(content, str) else json.dumps(content)}


def _text(messages: list[Any]) -> str:
    return "\n".join(
        part.content
        for message in messages
        for part in message.parts
        if isinstance(getattr(part, "content", None), str)
    )


def open_session(setup: Wire, stand_in: Any) -> Session:
    return Session(stand_in, setup)
