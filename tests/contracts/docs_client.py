"""Stand-ins for the provider clients that the documents' code calls.

Each checks the request as its provider would, with the dialect's own rules, and answers in the
SDK's own types: with a call of the first tool where there is one and nothing was returned to this
user message yet, else with a sentence.
"""

from __future__ import annotations

import importlib
import itertools
import json
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from tests.lazy import anthropic, openai

NUMBERS = itertools.count(1)
"""For ids: a reply that repeats an id would be taken for a second copy."""
ANSWER = "Done: everything you asked for is in place."
EXAMPLES: dict[str, Any] = {
    "string": "notes.txt",
    "integer": 1,
    "number": 1.0,
    "boolean": True,
    "array": [],
    "object": {},
}


def verify(dialect: str, request: Mapping[str, Any]) -> None:
    """Refuse what the provider would refuse."""
    codec = importlib.import_module(f"trimtab.dialects.{dialect}.codec")
    problems = codec.find_request_errors(request)
    if problems:
        raise ValueError(f"{dialect} would refuse this request: {'; '.join(problems)}")


def arguments(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The smallest arguments that a tool's schema allows."""
    properties: Mapping[str, Any] = schema.get("properties", {})
    return {
        name: properties.get(name, {}).get("enum", [None])[0]
        or EXAMPLES[properties.get(name, {}).get("type", "string")]
        for name in schema.get("required", [])
    }


def tokens(request: Mapping[str, Any]) -> int:
    return len(json.dumps(request, default=str)) // 4


def create_message(**request: Any) -> anthropic.types.Message | list[anthropic.BaseModel]:
    """`anthropic.Anthropic().messages.create`."""
    message = _message(request)
    return _events(message) if request.get("stream") else message


def count_tokens(**request: Any) -> anthropic.types.MessageTokensCount:
    """`anthropic.Anthropic().messages.count_tokens`."""
    assert "max_tokens" not in request
    verify("anthropic", {**request, "max_tokens": 1})
    return anthropic.types.MessageTokensCount(input_tokens=tokens(request))


def _events(message: anthropic.types.Message) -> list[anthropic.BaseModel]:
    """The reply as the SDK streams it."""
    start = message.model_copy(update={"content": [], "stop_reason": None})
    (block,) = (block.model_dump(mode="json") for block in message.content)
    delta = {"type": "text_delta", "text": block.get("text")}
    if block["type"] == "tool_use":
        delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    first_block = block | ({"text": ""} if block["type"] == "text" else {"input": {}})
    end_delta = {"stop_reason": message.stop_reason, "stop_sequence": None}
    return [
        anthropic.types.RawMessageStartEvent(type="message_start", message=start),
        anthropic.types.RawContentBlockStartEvent.model_validate(
            {"type": "content_block_start", "index": 0, "content_block": first_block}
        ),
        anthropic.types.RawContentBlockDeltaEvent.model_validate(
            {"type": "content_block_delta", "index": 0, "delta": delta}
        ),
        anthropic.types.RawContentBlockStopEvent(type="content_block_stop", index=0),
        anthropic.types.RawMessageDeltaEvent.model_validate(
            {"type": "message_delta", "delta": end_delta, "usage": {"output_tokens": 20}}
        ),
        anthropic.types.RawMessageStopEvent(type="message_stop"),
    ]


def _message(request: Mapping[str, Any]) -> anthropic.types.Message:
    verify("anthropic", request)
    content: list[dict[str, Any]] = [{"type": "text", "text": ANSWER}]
    tools = request.get("tools") or []
    if tools and not _returned(request["messages"][-1]):
        tool = tools[0]
        tool_input = arguments(tool.get("input_schema", {}))
        content = [
            {
                "type": "tool_use",
                "id": f"toolu_{next(NUMBERS)}",
                "name": tool["name"],
                "input": tool_input,
            }
        ]
    return anthropic.types.Message.model_validate(
        {
            "id": f"msg_{next(NUMBERS)}",
            "type": "message",
            "role": "assistant",
            "model": request["model"],
            "content": content,
            "stop_reason": "end_turn" if content[0]["type"] == "text" else "tool_use",
            "stop_sequence": None,
            "usage": {"input_tokens": tokens(request), "output_tokens": 20},
        }
    )


def create_completion(**request: Any) -> openai.types.chat.ChatCompletion:
    """`openai.OpenAI().chat.completions.create`."""
    verify("openai_chat", request)
    message: dict[str, Any] = {"role": "assistant", "content": ANSWER}
    tools = request.get("tools") or []
    if tools and request["messages"][-1]["role"] != "tool":
        tool = tools[0]["function"]
        tool_arguments = json.dumps(arguments(tool.get("parameters", {})))
        call = {
            "id": f"call_{next(NUMBERS)}",
            "function": {"name": tool["name"], "arguments": tool_arguments},
        }
        message = {"role": "assistant", "tool_calls": [call | {"type": "function"}]}
    prompt_tokens = tokens(request)
    return openai.types.chat.ChatCompletion.model_validate(
        {
            "id": f"chatcmpl-{next(NUMBERS)}",
            "object": "chat.completion",
            "created": 0,
            "model": request["model"],
            "choices": [
                {
                    "index": 0,
                    "message": message,
                    "finish_reason": "tool_calls" if "tool_calls" in message else "stop",
                    "logprobs": None,
                }
            ],
            "usage": {
                "prompt_tokens": prompt_tokens,
                "completion_tokens": 20,
                "total_tokens": prompt_tokens + 20,
            },
        }
    )


def create_response(**request: Any) -> openai.types.responses.Response:
    """`openai.OpenAI().responses.create`."""
    verify("openai_responses", request)
    text = {"type": "output_text", "text": ANSWER, "annotations": []}
    item: dict[str, Any] = {"type": "message", "id": f"item_{next(NUMBERS)}", "role": "assistant"}
    item |= {"status": "completed", "content": [text]}
    tools = request.get("tools") or []
    if tools and request["input"][-1].get("type") != "function_call_output":
        tool_arguments = json.dumps(arguments(tools[0].get("parameters", {})))
        item = {
            "type": "function_call",
            "id": f"item_{next(NUMBERS)}",
            "call_id": f"call_{next(NUMBERS)}",
        }
        item |= {"name": tools[0]["name"], "arguments": tool_arguments, "status": "completed"}
    return openai.types.responses.Response.model_validate(
        {
            "id": f"resp_{next(NUMBERS)}",
            "object": "response",
            "created_at": 0,
            "status": "completed",
            "model": request["model"],
            "output": [item],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": {
                "input_tokens": tokens(request),
                "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                "output_tokens": 20,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": tokens(request) + 20,
            },
        }
    )


def _returned(message: Mapping[str, Any]) -> bool:
    content: str | Sequence[Mapping[str, Any]] = message["content"]
    return not isinstance(content, str) and any(p["type"] == "tool_result" for p in content)


class Client:
    """Stands for `anthropic.Anthropic` and `openai.OpenAI` alike."""

    def __init__(self, **options: Any) -> None:
        self.messages = SimpleNamespace(create=create_message, count_tokens=count_tokens)
        self.chat = SimpleNamespace(completions=SimpleNamespace(create=create_completion))
        self.responses = SimpleNamespace(create=create_response)


class AsyncClient:
    """Stands for `anthropic.AsyncAnthropic` and `openai.AsyncOpenAI` alike."""

    def __init__(self, **options: Any) -> None:
        async def message(**request: Any) -> anthropic.types.Message | list[anthropic.BaseModel]:
            return create_message(**request)

        async def completion(**request: Any) -> openai.types.chat.ChatCompletion:
            return create_completion(**request)

        async def response(**request: Any) -> openai.types.responses.Response:
            return create_response(**request)

        self.messages = SimpleNamespace(create=message)
        self.chat = SimpleNamespace(completions=SimpleNamespace(create=completion))
        self.responses = SimpleNamespace(create=response)
