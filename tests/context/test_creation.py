"""Making a context: what follows from its arguments, and what its first event says."""

from dataclasses import replace
from typing import cast

import pytest

from tests.context.contexts import READ
from tests.conversations import (
    chat,
    ticking,
    user,
)
from tests.snapshots import snapshot
from trimtab import Context
from trimtab.engine.log.event import Settings, Size
from trimtab.engine.log.message import Message, Text
from trimtab.types import DialectName


@pytest.mark.parametrize(
    ("model", "dialect"),
    [
        ("claude-sonnet-4-5", "anthropic"),
        ("anthropic/claude-opus-4.5", "anthropic"),
        ("gpt-4o", "openai_chat"),
        ("gpt-5", "openai_chat"),
    ],
)
def test_the_dialect_follows_from_the_model(model, dialect):
    assert Context(model).window.settings.dialect == dialect


def test_an_unknown_model_without_a_dialect_is_refused_with_the_choices():
    with pytest.raises(
        ValueError,
        match="the dialect of model 'my-model' is unknown; pass dialect= one of "
        "anthropic, openai_chat, openai_responses",
    ):
        Context("my-model")


def test_an_unknown_dialect_is_refused_with_the_choices():
    with pytest.raises(ValueError, match="unknown dialect 'smoke'; choose one of anthropic"):
        Context("gpt-4o", dialect=cast("DialectName", "smoke"))


def test_all_that_shapes_a_request_is_in_the_first_event():
    context = Context(
        "my-model",
        dialect="openai_chat",
        system="Be brief.",
        tools=[READ],
        policy="compact",
        goal="cost",
        limits={"max_history_tokens": 10},
        context_window=50_000,
        max_input_tokens=40_000,
        max_output_tokens=1_000,
        params={"temperature": 0},
        clock=lambda: 12.5,
    )
    [event] = context.events
    assert isinstance(event.body, Settings)
    assert (event.seq, event.at) == (1, 12.5)
    assert replace(event.body, entry={}, head=Size(bytes=0, tokens=0)) == snapshot(
        Settings(
            model="my-model",
            dialect="openai_chat",
            system=(
                Message(
                    role="system",
                    parts=(Text(text="Be brief."),),
                    origin="openai_chat",
                ),
            ),
            tools=(
                {
                    "type": "function",
                    "function": {
                        "name": "read",
                        "description": "Read.",
                        "parameters": {"type": "object"},
                    },
                },
            ),
            params={"temperature": 0},
            policy="compact",
            policy_params={
                "goal": "cost",
                "context": {"max_history_tokens": 10},
                "summaries": "extractive",
            },
            limits={
                "context_window": 50_000,
                "max_input_tokens": 40_000,
                "max_output_tokens": 1_000,
            },
            counter="piecewise/max/2",
            renderer=1,
        )
    )


def test_the_clock_is_asked_for_every_event():
    context = chat(clock=ticking(100.0))
    context.add(user("hi"))
    context.request()
    at = [event.at for event in context.events]
    assert at[:2] == [102.0, 103.0]  # the prices of the settings took the first time
    assert at[2] > 102.0
