"""What Pydantic AI's own ways of shortening a history do, and that the capability does not."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

pytest.importorskip("pydantic_ai", reason="Pydantic AI is not installed here")

from pydantic_ai import Agent
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart

from tests.integrations.life import (
    count_prefix_breaks,
    list_answered,
    list_refusals,
    read_cache_ratio,
)
from tests.integrations.pydantic_ai.lives import (
    WINDOW,
    ask,
    iterate_texts,
    make_agent,
    make_model,
    make_report,
    script_turn,
)
from trimtab.integrations.pydantic_ai import TrimtabCapability
from trimtab.testing import ServedSimulator

pytestmark = pytest.mark.anyio

TURNS = 8


def keep_recent(messages: list[ModelMessage]) -> list[ModelMessage]:
    """Keep the newest messages, as the framework's page on message history shows."""
    return messages[-10:] if len(messages) > 10 else messages


def clear_old_results(messages: list[ModelMessage]) -> list[ModelMessage]:
    """Clear all results except the newest four, in place."""
    results = [
        part
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    ]
    for part in results[:-4]:
        part.content = "[cleared]"
    return messages


async def live(served: ServedSimulator, *capabilities: Any) -> list[ModelMessage]:
    agent: Agent[object, Any] = make_agent(make_model(served), *capabilities)
    history: list[ModelMessage] = []
    for turn in range(TURNS):
        script_turn(served, turn)
        history = (await agent.run(ask(turn), message_history=history)).all_messages()
    return history


def list_results(history: list[ModelMessage]) -> list[Any]:
    return [
        part.content
        for message in history
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    ]


ALL_REPORTS = [make_report(number) for number in range(3 * TURNS)]


async def test_a_processor_that_keeps_the_newest_loses_the_history(served):
    history = await live(served, ProcessHistory(keep_recent))
    assert len(history) < 6 * TURNS
    assert ask(0) not in str(history)


async def test_a_processor_that_clears_results_loses_them(served):
    history = await live(served, ProcessHistory(clear_old_results))
    assert list_results(history).count("[cleared]") > 3 * TURNS - 8


async def test_the_capability_keeps_history_and_results(served):
    history = await live(served, TrimtabCapability(context_window=WINDOW))
    assert len(history) == 6 * TURNS
    assert list_results(history) == ALL_REPORTS


@pytest.mark.parametrize("processor", [keep_recent, clear_old_results])
async def test_a_processor_breaks_the_prefix_at_nearly_each_call(served, processor):
    await live(served, ProcessHistory(processor))
    calls = len(list_answered(served))
    assert count_prefix_breaks(served) > calls / 2
    breaks, ratio = count_prefix_breaks(served), read_cache_ratio(served)
    served.simulator.reset()
    await live(served, TrimtabCapability(context_window=WINDOW))
    assert count_prefix_breaks(served) < breaks / 3
    assert read_cache_ratio(served) > ratio + 0.2


async def test_a_cut_between_a_call_and_its_result_loses_the_result(served):
    """The framework drops a result without its call, so the model never learns what it was."""

    def cut(messages: list[ModelMessage]) -> list[ModelMessage]:
        return messages[-1:] if isinstance(messages[-1].parts[0], ToolReturnPart) else messages

    agent = make_agent(make_model(served), ProcessHistory(cut))
    script_turn(served, 0)
    with suppress(Exception):  # whatever the framework makes of an empty request
        await agent.run(ask(0))
    seen = [text for record in list_answered(served) for text in iterate_texts(record.body)]
    assert not any("report 0: " in text for text in seen)


async def test_the_users_rules_stay_with_the_capability_and_go_with_a_processor(served):
    def shows_first_rule() -> bool:
        return "rule-0-keep" in str(list_answered(served)[-1].body)

    await live(served, ProcessHistory(keep_recent))
    assert not shows_first_rule()
    served.simulator.reset()
    await live(served, TrimtabCapability(context_window=WINDOW))
    assert shows_first_rule()
    assert len(list_refusals(served)) == 0
