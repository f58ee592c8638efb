"""Claude through LiteLLM: the cache is read, and a refusal is understood."""

from __future__ import annotations

import asyncio
import logging
from importlib.util import find_spec

import pytest

if find_spec("agents") is None or find_spec("litellm") is None:
    pytest.skip("openai-agents[litellm] is not installed here", allow_module_level=True)

from agents import ModelSettings
from agents.extensions.models.litellm_model import LitellmModel

from tests.integrations.openai_agents.scripted import ScriptedModel
from tests.integrations.openai_agents.simulation import make_agent, make_session, run_once, simulate
from trimtab.integrations.openai_agents import TrimtabModel

pytestmark = [
    pytest.mark.soak,
    # LiteLLM's own.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
NAME = "anthropic/claude-sonnet-4-5"


def make_model(simulation):
    return LitellmModel(NAME, base_url=simulation.served.url, api_key="none")


def count_cached(simulation):
    """Return how many requests have read most of their input from the cache."""
    usages = [each.reply["usage"] for each in simulation.requests if each.fate == "answered"]
    return sum(each["cache_read_input_tokens"] > 3 * each["input_tokens"] for each in usages)


@pytest.mark.parametrize("stream", [False, True])
def test_claudes_cache_is_read(stream):
    async def live():
        async with simulate() as simulation:
            model = TrimtabModel(make_model(simulation), context_window=16_000)
            await simulation.run_turns(make_agent(model), make_session(), range(8), stream=stream)
            assert simulation.count_refused() == 0
            assert count_cached(simulation) > len(simulation.requests) / 2

    asyncio.run(live())


def test_without_trimtab_nothing_is_cached():
    async def live():
        async with simulate() as simulation:
            agent = make_agent(make_model(simulation))
            await simulation.run_turns(agent, make_session(), range(3))
            assert count_cached(simulation) == 0

    asyncio.run(live())


@pytest.mark.parametrize("cache", ["off", "5m"])
def test_marks_of_the_caller_are_used_and_none_are_set_if_the_cache_is_off(cache):
    async def live():
        async with simulate() as simulation:
            model = TrimtabModel(make_model(simulation), context_window=16_000, cache=cache)
            point = {"location": "message", "index": -1, "control": {"type": "ephemeral"}}
            own = {"cache_control_injection_points": [point]} if cache == "5m" else {}
            settings = ModelSettings(max_tokens=1_000, extra_args=own)
            agent = make_agent(model, model_settings=settings)
            await run_once(agent, "Hello.", make_session())
            marks = simulation.requests[0].raw.count(b"cache_control")
            assert marks == (1 if cache == "5m" else 0)

    asyncio.run(live())


def test_a_window_smaller_than_believed_is_learned_from_litellms_error():
    async def live():
        async with simulate(window=12_000) as simulation:
            model = TrimtabModel(make_model(simulation))
            await simulation.run_turns(make_agent(model), make_session(), range(8))
            fates = [each.fate for each in simulation.requests]
            assert fates.count("overflow") == 1
            assert len(fates) - fates.count("answered") == 1

    asyncio.run(live())


def test_a_model_that_cannot_send_marks_is_named_once(caplog):
    async def live():
        model = TrimtabModel(ScriptedModel(model="claude-sonnet-4-5"))
        with caplog.at_level(logging.WARNING, "trimtab"):
            for _ in range(2):
                await run_once(make_agent(model), "Hello.")
        [text] = [record.message for record in caplog.records]
        assert "prompt cache of claude-sonnet-4-5 is not used" in text

    asyncio.run(live())
