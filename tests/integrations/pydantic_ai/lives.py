"""An agent of Pydantic AI that reads long reports from a strict provider."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings

from tests.integrations import life
from tests.integrations.life import write_report
from trimtab.testing import ServedSimulator

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


def make_report(number: int) -> str:
    return write_report(number, lines=90)


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
    script(served, *life.script_turn(turn))


def script(served: ServedSimulator, *steps: Any) -> None:
    served.simulator.script.set_replies(list(steps), otherwise={"text": 20})


def ask(turn: int) -> str:
    return f"Turn {turn}: read three reports and remember rule-{turn}-keep."


def dump(history: list[ModelMessage]) -> bytes:
    return ModelMessagesTypeAdapter.dump_json(history)


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
