"""What each API answers: a request, a reply, a stream, and how the provider is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.providers.canned import sse
from trimtab.providers.anthropic import AnthropicProvider
from trimtab.providers.base import Provider
from trimtab.providers.openai import OpenAIChatProvider, OpenAIResponsesProvider

SAID = [{"role": "user", "content": "Hi."}]


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    make: Callable[[str], Provider]
    """The provider, at a server's address."""
    path: str
    """Where it posts to."""
    request: Mapping[str, Any]
    """Keyword arguments, unstreamed."""
    reply: Mapping[str, Any]
    """The whole reply."""
    events: tuple[Mapping[str, Any], ...]
    """The stream's events."""
    named: bool
    """Whether the events have a name of their own on the wire."""
    overflow: Mapping[str, Any]
    """An error body of an overflow, 9,000 tokens above 8,192."""
    failed: Mapping[str, Any]
    """The event of an overload in a stream."""

    def lines(self, *, first: int | None = None) -> tuple[str, ...]:
        ends_stream = not self.named and first is None
        return sse(*self.events[:first], named=self.named, done=ends_stream)


_MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [{"type": "text", "text": "Hello."}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 9, "output_tokens": 2},
}
_USAGE = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}
_CHUNK = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
_ITEM = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "Hello.", "annotations": []}],
}
_RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "status": "completed",
    "error": None,
    "incomplete_details": None,
    "model": "m",
    "output": [_ITEM],
    "usage": {
        "input_tokens": 9,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 2,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 11,
    },
}
_BEGUN = {**_RESPONSE, "status": "in_progress", "output": [], "usage": None}
_TOO_LONG = "maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens"


def _chunk(delta: Mapping[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {**_CHUNK, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


APIS = {
    "anthropic": Api(
        make=lambda url: AnthropicProvider(api_key="k", base_url=url, timeout=5.0),
        path="/v1/messages",
        # More than the SDK lets through unstreamed with a timeout of its own.
        request={"model": "m", "max_tokens": 100_000, "messages": SAID},
        reply=_MESSAGE,
        events=(
            {
                "type": "message_start",
                "message": {**_MESSAGE, "content": [], "stop_reason": None},
            },
            {
                "type": "content_block_start",
                "index": 0,
                "content_block": {"type": "text", "text": ""},
            },
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "text_delta", "text": "Hello."},
            },
            {"type": "content_block_stop", "index": 0},
            {
                "type": "message_delta",
                "delta": {"stop_reason": "end_turn", "stop_sequence": None},
                "usage": {"output_tokens": 2},
            },
            {"type": "message_stop"},
        ),
        named=True,
        overflow={
            "type": "error",
            "error": {
                "type": "invalid_request_error",
                "message": "prompt is too long: 9000 tokens > 8192 maximum",
            },
        },
        failed={"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
    ),
    "openai_chat": Api(
        make=lambda url: OpenAIChatProvider(api_key="k", base_url=f"{url}/v1", timeout=5.0),
        path="/v1/chat/completions",
        request={"model": "m", "messages": SAID},
        reply={
            "id": "c1",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": [
                {
                    "index": 0,
                    "finish_reason": "stop",
                    "message": {"role": "assistant", "content": "Hello.", "reasoning": "Hm."},
                }
            ],
            "usage": _USAGE,
        },
        events=(
            _chunk({"role": "assistant", "content": ""}),
            _chunk({"content": "Hello."}),
            _chunk({}, "stop"),
            {**_CHUNK, "choices": [], "usage": _USAGE},
        ),
        named=False,
        overflow={"error": {"message": _TOO_LONG, "code": "context_length_exceeded"}},
        failed={"error": {"message": "The engine is currently overloaded", "type": "server_error"}},
    ),
    "openai_responses": Api(
        make=lambda url: OpenAIResponsesProvider(api_key="k", base_url=f"{url}/v1", timeout=5.0),
        path="/v1/responses",
        request={"model": "m", "input": SAID},
        reply=_RESPONSE,
        events=(
            {"type": "response.created", "sequence_number": 0, "response": _BEGUN},
            {
                "type": "response.output_item.added",
                "sequence_number": 1,
                "output_index": 0,
                "item": {**_ITEM, "status": "in_progress", "content": []},
            },
            {
                "type": "response.output_item.done",
                "sequence_number": 2,
                "output_index": 0,
                "item": _ITEM,
            },
            {"type": "response.completed", "sequence_number": 3, "response": _RESPONSE},
        ),
        named=True,
        overflow={"error": {"message": _TOO_LONG, "code": "context_length_exceeded"}},
        failed={
            "type": "response.failed",
            "sequence_number": 1,
            "response": {
                **_BEGUN,
                "status": "failed",
                "error": {"code": "server_error", "message": "We are currently overloaded"},
            },
        },
    ),
}
