"""Replies as the SDKs hand them out: real objects, and the events of real streams."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.lazy import anthropic, openai, pydantic

DIALECTS = ("anthropic", "openai_chat", "openai_responses")
MODELS = {
    "anthropic": "claude-sonnet-4-5",
    "openai_chat": "gpt-4o",
    "openai_responses": "gpt-4o",
}


def claude_reply(
    text: str = "Hello.", *, name: str = "msg_1", calls: tuple[str, ...] = ()
) -> anthropic.types.Message:
    content: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    content += [{"type": "tool_use", "id": each, "name": "read", "input": {}} for each in calls]
    return anthropic.types.Message.model_validate(
        {
            "id": name,
            "type": "message",
            "role": "assistant",
            "model": "claude-sonnet-4-5",
            "content": content,
            "stop_reason": "tool_use" if calls else "end_turn",
            "stop_sequence": None,
            "usage": {
                "input_tokens": 20,
                "cache_creation_input_tokens": 30,
                "cache_read_input_tokens": 50,
                "output_tokens": 7,
            },
        }
    )


def chat_reply(
    text: str = "Hello.",
    *,
    name: str = "chatcmpl-1",
    calls: tuple[str, ...] = (),
    choices: int = 1,
    tokens: int = 100,
) -> openai.types.chat.ChatCompletion:
    message: dict[str, Any] = {"role": "assistant", "content": text or None, "refusal": None}
    if calls:
        message["tool_calls"] = [
            {"id": each, "type": "function", "function": {"name": "read", "arguments": "{}"}}
            for each in calls
        ]
    one = {
        "finish_reason": "tool_calls" if calls else "stop",
        "logprobs": None,
        "message": message,
    }
    return openai.types.chat.ChatCompletion.model_validate(
        {
            "id": name,
            "object": "chat.completion",
            "created": 1,
            "model": "gpt-4o",
            "choices": [{"index": index, **one} for index in range(choices)],
            "usage": {
                "prompt_tokens": tokens,
                "completion_tokens": 7,
                "total_tokens": tokens + 7,
                "prompt_tokens_details": {"cached_tokens": 50},
            },
        }
    )


def response(
    text: str = "Hello.", *, name: str = "resp_1", calls: tuple[str, ...] = ()
) -> openai.types.responses.Response:
    output: list[dict[str, Any]] = [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "Z0FB"}
    ]
    if text:
        output.append(
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": text, "annotations": []}],
            }
        )
    output += [
        {
            "type": "function_call",
            "id": f"fc_{each}",
            "call_id": each,
            "name": "read",
            "arguments": "{}",
            "status": "completed",
        }
        for each in calls
    ]
    return openai.types.responses.Response.model_validate(
        {
            "id": name,
            "object": "response",
            "created_at": 1.0,
            "model": "gpt-4o",
            "status": "completed",
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "parallel_tool_calls": True,
            "temperature": 1.0,
            "tool_choice": "auto",
            "tools": [],
            "top_p": 1.0,
            "output": output,
            "usage": {
                "input_tokens": 100,
                "input_tokens_details": {"cached_tokens": 50, "cache_write_tokens": 0},
                "output_tokens": 7,
                "output_tokens_details": {"reasoning_tokens": 3},
                "total_tokens": 107,
            },
        }
    )


REPLY: dict[str, Any] = {
    "anthropic": claude_reply,
    "openai_chat": chat_reply,
    "openai_responses": response,
}


def result(dialect: str, call_id: str, text: str) -> dict[str, Any]:
    """A tool's result in the dialect's own form."""
    match dialect:
        case "anthropic":
            block = {"type": "tool_result", "tool_use_id": call_id, "content": text}
            return {"role": "user", "content": [block]}
        case "openai_chat":
            return {"role": "tool", "tool_call_id": call_id, "content": text}
        case _:
            return {"type": "function_call_output", "call_id": call_id, "output": text}


def stream(dialect: str, text: str = "Hello.") -> Iterator[Any]:
    """The SDK objects of a streamed reply, usage included."""
    match dialect:
        case "anthropic":
            yield from _claude_stream(text)
        case "openai_chat":
            yield from _chat_stream(text)
        case _:
            whole_response = response(text).model_dump(mode="json")
            event = {"type": "response.completed", "sequence_number": 1, "response": whole_response}
            yield pydantic.TypeAdapter(openai.types.responses.ResponseStreamEvent).validate_python(
                event
            )


def _claude_stream(text: str) -> Iterator[Any]:
    parse = pydantic.TypeAdapter(anthropic.types.RawMessageStreamEvent).validate_python
    start = claude_reply(text).model_dump(mode="json") | {"content": [], "stop_reason": None}
    half = len(text) // 2
    yield parse({"type": "message_start", "message": start})
    block = {"type": "text", "text": "", "citations": None}
    yield parse({"type": "content_block_start", "index": 0, "content_block": block})
    for piece in (text[:half], text[half:]):
        delta = {"type": "text_delta", "text": piece}
        yield parse({"type": "content_block_delta", "index": 0, "delta": delta})
    yield parse({"type": "content_block_stop", "index": 0})
    yield parse(
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"output_tokens": 7},
        }
    )
    yield parse({"type": "message_stop"})


def _chat_stream(text: str) -> Iterator[Any]:
    parse = openai.types.chat.ChatCompletionChunk.model_validate
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o"}
    half = len(text) // 2
    for delta, finish in (
        ({"role": "assistant", "content": ""}, None),
        ({"content": text[:half]}, None),
        ({"content": text[half:]}, None),
        ({}, "stop"),
    ):
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        yield parse({**head, "choices": [choice]})
    usage = chat_reply(text).model_dump(mode="json")["usage"]
    yield openai.types.chat.ChatCompletionChunk.model_validate(
        {**head, "choices": [], "usage": usage}
    )
