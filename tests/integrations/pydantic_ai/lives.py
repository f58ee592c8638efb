"""An agent of Pydantic AI that reads long reports, and what a strict provider saw of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings

from trimtab.testing import RecordedRequest, ServedSimulator

WINDOW = 16_000
MAX_TOKENS = 1_000
DIALECTS = ("openai_chat", "openai_responses", "anthropic")


# Otherwise the framework leaves open connections to the garbage collector.
_SETTINGS: ModelSettings = {"extra_headers": {"Connection": "close"}}


def make_model(served: ServedSimulator, dialect: str = "openai_chat", name: str = "") -> Model:
    if dialect == "anthropic":
        provider = AnthropicProvider(base_url=served.url, api_key="x")
        return AnthropicModel(name or "claude-sonnet-5-5", provider=provider, settings=_SETTINGS)
    kind = OpenAIChatModel if dialect == "openai_chat" else OpenAIResponsesModel
    provider = OpenAIProvider(base_url=served.openai_url, api_key="x")
    return kind(name or "gpt-4o", provider=provider, settings=_SETTINGS)


def make_report(number: int, lines: int = 90) -> str:
    words = " ".join(f"line_{number}_{line} value={line * number % 977}" for line in range(lines))
    return f"report {number}: {words}"


def make_agent(model: Model, *capabilities: Any, **options: Any) -> Agent[object, Any]:
    options.setdefault("model_settings", {"max_tokens": MAX_TOKENS})
    agent: Agent[object, Any] = Agent(
        model, instructions="Be careful.", capabilities=capabilities, **options
    )

    @agent.tool_plain
    def read_report(number: int) -> str:
        """Read a report."""
        return make_report(number)

    return agent


def script_turn(served: ServedSimulator, turn: int) -> None:
    """Two parallel calls, one call, an answer."""

    def call(number: int) -> dict[str, Any]:
        return {"name": "read_report", "arguments": {"number": number}}

    script(
        served,
        {"calls": [call(3 * turn), call(3 * turn + 1)]},
        {"calls": [call(3 * turn + 2)]},
        {"text": 30},
    )


def script(served: ServedSimulator, *steps: Any) -> None:
    served.simulator.script.set_replies(list(steps), otherwise={"text": 20})


def ask(turn: int) -> str:
    return f"Turn {turn}: read three reports and remember rule-{turn}-keep."


def dump(history: list[ModelMessage]) -> bytes:
    return ModelMessagesTypeAdapter.dump_json(history)


def list_records(served: ServedSimulator) -> list[RecordedRequest]:
    return list(served.simulator.records.requests)


def list_answered(served: ServedSimulator) -> list[RecordedRequest]:
    return [record for record in list_records(served) if record.fate == "answered"]


def list_wires(body: Any) -> list[dict[str, Any]]:
    return body.get("messages", body.get("input"))


def list_pairs(body: Any) -> tuple[list[str], list[str]]:
    """The ids of all calls and of all results, by rules of this file."""
    calls: list[str] = []
    results: list[str] = []
    for wire in list_wires(body):
        calls += [call["id"] for call in wire.get("tool_calls") or ()]
        if wire.get("role") == "tool":
            results.append(wire["tool_call_id"])
        if wire.get("type") == "function_call":
            calls.append(wire["call_id"])
        if wire.get("type") == "function_call_output":
            results.append(wire["call_id"])
        content = wire.get("content")
        for block in content if isinstance(content, list) else ():
            if block.get("type") == "tool_use":
                calls.append(block["id"])
            if block.get("type") == "tool_result":
                results.append(block["tool_use_id"])
    return sorted(calls), sorted(results)


def count_refused(served: ServedSimulator) -> int:
    return sum(record.fate != "answered" for record in list_records(served))


def count_prefix_breaks(served: ServedSimulator) -> int:
    """Calls whose messages do not begin with those of the call before."""
    answered = list_answered(served)
    return sum(not extends(one.body, other.body) for one, other in pairwise(answered))


def extends(before: Any, after: Any) -> bool:
    """Whether a body begins with all messages of another one, cache marks aside."""
    one, other = (
        [json.dumps(_without_marks(wire)) for wire in list_wires(body)] for body in (before, after)
    )
    return other[: len(one)] == one


def _without_marks(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_marks(v) for k, v in value.items() if k != "cache_control"}
    return [_without_marks(each) for each in value] if isinstance(value, list) else value


def read_cache_ratio(served: ServedSimulator) -> float:
    """The share of all input tokens that were read from the provider's cache."""
    usages = [record.reply["usage"] for record in list_answered(served)]
    sizes = [_read_input(usage) for usage in usages]
    return sum(read for _, read in sizes) / sum(total for total, _ in sizes)


def _read_input(usage: Any) -> tuple[int, int]:
    if "prompt_tokens" in usage:
        details = usage.get("prompt_tokens_details") or {}
        return usage["prompt_tokens"], details.get("cached_tokens") or 0
    if "cache_read_input_tokens" in usage:
        read = usage["cache_read_input_tokens"] or 0
        written = usage.get("cache_creation_input_tokens") or 0
        return usage["input_tokens"] + read + written, read
    details = usage.get("input_tokens_details") or {}
    return usage["input_tokens"], details.get("cached_tokens") or 0


def iterate_texts(value: Any) -> Iterator[str]:
    """All texts in a body."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from iterate_texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from iterate_texts(each)
