"""What the SDK's own means do to a long conversation, and that it does not happen with the model
around the model."""

from __future__ import annotations

import asyncio
import json
from importlib.util import find_spec
from types import SimpleNamespace

import pytest

if find_spec("agents") is None:
    pytest.skip("the OpenAI Agents SDK is not installed here", allow_module_level=True)

from agents import ModelSettings, SessionSettings
from agents.extensions.tool_output_trimmer import ToolOutputTrimmer
from agents.memory import OpenAIResponsesCompactionSession
from openai import BadRequestError

from tests.integrations.openai_agents.simulation import make_agent, make_session, run_once, simulate
from trimtab.integrations.openai_agents import TrimtabModel

pytestmark = pytest.mark.soak

TURNS = range(9)
IS_ALONE = pytest.mark.parametrize("is_alone", [True, False], ids=["alone", "with Trimtab"])


def choose_model(simulation, is_alone):
    inner = simulation.make_model()
    return inner if is_alone else TrimtabModel(inner, context_window=16_000)


def keep_newest(history, new):
    return [*history[-5:], *new]


def drop_oldest(data):
    data.model_data.input = data.model_data.input[-9:]
    return data.model_data


def is_cut(request, simulation):
    """Whether the provider counted much less than it was sent, compared with a short request."""
    short = simulation.requests[5]
    tokens_per_byte = short.tokens / len(short.raw)
    return request.tokens < 0.8 * tokens_per_byte * len(request.raw)


@IS_ALONE
def test_at_the_end_of_the_window_the_conversation_is_dead(is_alone):
    async def live():
        async with simulate() as simulation:
            agent, session = make_agent(choose_model(simulation, is_alone)), make_session()
            if not is_alone:
                await simulation.run_turns(agent, session, TURNS)
                assert simulation.count_refused() == 0
                return
            with pytest.raises(BadRequestError, match="exceeds the context window"):
                await simulation.run_turns(agent, session, TURNS)
            # The message that was refused is in the session, and every later one is refused too.
            with pytest.raises(BadRequestError, match="exceeds the context window"):
                await run_once(agent, "Are you there?", session)

    asyncio.run(live())


@IS_ALONE
@pytest.mark.parametrize(
    "means", [{"session_input_callback": keep_newest}, {"call_model_input_filter": drop_oldest}]
)
def test_a_callback_that_keeps_the_newest_items_leaves_a_result_without_its_call(means, is_alone):
    async def live():
        async with simulate() as simulation:
            agent, session = make_agent(choose_model(simulation, is_alone)), make_session()
            if is_alone:
                with pytest.raises(BadRequestError, match="No tool call found"):
                    await simulation.run_turns(agent, session, TURNS, **means)
            else:
                await simulation.run_turns(agent, session, TURNS)
                assert simulation.count_refused() == 0
                assert simulation.count_unpaired() == 0

    asyncio.run(live())


@IS_ALONE
@pytest.mark.parametrize(
    "means",
    [
        {"session_settings": SessionSettings(limit=20)},
        {"model_settings": ModelSettings(truncation="auto")},
    ],
    ids=["session limit", "truncation auto"],
)
def test_what_the_user_said_first_is_gone(means, is_alone):
    async def live():
        async with simulate() as simulation:
            agent, session = make_agent(choose_model(simulation, is_alone)), make_session()
            await simulation.run_turns(agent, session, TURNS, **(means if is_alone else {}))
            last = simulation.requests[-1]
            is_shown = "rule-0-keep" in json.dumps(last.body) and not is_cut(last, simulation)
            assert is_shown is not is_alone

    asyncio.run(live())


@IS_ALONE
def test_a_trimmer_changes_the_beginning_of_the_prompt_in_every_turn(is_alone):
    async def live():
        async with simulate(window=64_000) as simulation:
            inner = simulation.make_model()
            model = inner if is_alone else TrimtabModel(inner, context_window=64_000)
            means = {"call_model_input_filter": ToolOutputTrimmer()} if is_alone else {}
            await simulation.run_turns(make_agent(model), make_session(), TURNS, **means)
            breaks = simulation.count_prefix_breaks()
            assert breaks >= 6 if is_alone else breaks == 0

    asyncio.run(live())


@IS_ALONE
def test_a_compaction_session_replaces_the_history(is_alone):
    class Responses:
        async def compact(self, **_):
            item = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAA"}
            return SimpleNamespace(output=[item])

    async def live():
        async with simulate() as simulation:
            session = kept = make_session()
            if is_alone:
                # OpenAI's own endpoint, which no simulator has.
                session = OpenAIResponsesCompactionSession(
                    "chat-7", kept, client=SimpleNamespace(responses=Responses())
                )
            agent = make_agent(choose_model(simulation, is_alone))
            await simulation.run_turns(agent, session, range(3))
            words = json.dumps(await kept.get_items())
            assert ("rule-0-keep" in words) is not is_alone

    asyncio.run(live())
