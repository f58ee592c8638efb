"""Long conversations: every request fits and is valid, and the SDK's history stays whole."""

from __future__ import annotations

import asyncio
import json
from importlib.util import find_spec

import pytest

if find_spec("agents") is None:
    pytest.skip("the OpenAI Agents SDK is not installed here", allow_module_level=True)

from tests.integrations.life import list_messages, write_report
from tests.integrations.openai_agents.simulation import (
    list_outputs,
    make_agent,
    make_session,
    run_once,
    simulate,
)
from trimtab.integrations.openai_agents import TrimtabModel

pytestmark = pytest.mark.soak

APIS = ("responses", "chat")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", APIS)
def test_a_long_conversation_is_never_refused_and_its_history_is_whole(api, stream):
    async def live():
        async with simulate() as simulation:
            model = TrimtabModel(simulation.make_model(api), context_window=16_000)
            session = make_session()
            await simulation.run_turns(make_agent(model), session, range(20), stream=stream)
            assert simulation.count_refused() == 0
            assert simulation.count_unpaired() == 0
            items = await session.get_items()
            texts = [item["content"] for item in items if item.get("role") == "user"]
            assert texts == [f"Turn {turn}: rule-{turn}-keep." for turn in range(20)]
            assert list_outputs(items) == [write_report(number) for number in range(60)]

    asyncio.run(live())


@pytest.mark.parametrize("api", APIS)
def test_the_model_sees_all_words_of_the_user_and_the_newest_results(api):
    async def live():
        async with simulate() as simulation:
            model = TrimtabModel(simulation.make_model(api), context_window=16_000)
            await simulation.run_turns(make_agent(model), make_session(), range(20))
            sent = json.dumps(list_messages(simulation.requests[-1].body))
            assert all(f"rule-{turn}-keep" in sent for turn in range(20))
            assert write_report(59) in sent
            assert write_report(0) not in sent

    asyncio.run(live())


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", APIS)
def test_a_window_smaller_than_believed_is_learned_from_refusals(api, stream):
    async def live():
        async with simulate(window=12_000) as simulation:
            model = TrimtabModel(simulation.make_model(api), context_window=32_000)
            await simulation.run_turns(make_agent(model), make_session(), range(14), stream=stream)
            refused = [each.number for each in simulation.requests if each.fate != "answered"]
            assert 1 <= len(refused) <= 3
            assert refused[-1] < 20, "refused again after it was learned"

    asyncio.run(live())


def test_a_strict_chat_template_accepts_every_request():
    async def live():
        async with simulate(template="strict") as simulation:
            model = TrimtabModel(simulation.make_model("chat"), context_window=16_000)
            await simulation.run_turns(make_agent(model), make_session(), range(15))
            assert simulation.count_refused() == 0

    asyncio.run(live())


@pytest.mark.parametrize("api", APIS)
def test_the_model_reads_back_byte_for_byte_what_was_hidden(api):
    async def live():
        async with simulate() as simulation:
            model = TrimtabModel(simulation.make_model(api), context_window=16_000)
            agent, session = make_agent(model), make_session()
            await simulation.run_turns(agent, session, range(12))
            asked = {"name": "recall", "arguments": {"handle": simulation.find_handle()}}
            simulation.script({"calls": [asked]}, {"text": 10})
            await run_once(agent, "What was in it?", session)
            outputs = list_outputs(await session.get_items())
            assert any(write_report(number) in outputs[-1] for number in range(36))
            assert simulation.count_refused() == 0

    asyncio.run(live())


def test_the_model_searches_what_was_hidden():
    async def live():
        async with simulate() as simulation:
            model = TrimtabModel(simulation.make_model(), context_window=16_000)
            agent, session = make_agent(model), make_session()
            await simulation.run_turns(agent, session, range(12))
            asked = {"name": "search_history", "arguments": {"query": "line_2_77"}}
            simulation.script({"calls": [asked]}, {"text": 10})
            await run_once(agent, "Where was it?", session)
            outputs = list_outputs(await session.get_items())
            assert "line_2_77 value=154" in outputs[-1]

    asyncio.run(live())


@pytest.mark.parametrize("api", APIS)
def test_edits_survive_a_restart_in_a_store(api, tmp_path):
    async def live():
        async with simulate() as simulation:
            database, store = tmp_path / "sdk.db", tmp_path / "store"
            for turns in (range(8), range(8, 16)):
                inner = simulation.make_model(api)
                model = TrimtabModel(inner, context_window=16_000, store=store)
                if turns.start:
                    before = list_messages(simulation.requests[-1].body)
                    first = len(simulation.requests)
                session = make_session(path=database)
                await simulation.run_turns(make_agent(model), session, turns)
                await model.close()
            assert simulation.count_refused() == 0
            assert list_messages(simulation.requests[first].body)[: len(before)] == before

    asyncio.run(live())


def test_without_a_store_a_restart_builds_the_context_again_from_the_session(tmp_path):
    async def live():
        async with simulate() as simulation:
            for turns in (range(8), range(8, 16)):
                model = TrimtabModel(simulation.make_model(), context_window=16_000)
                session = make_session(path=tmp_path / "sdk.db")
                await simulation.run_turns(make_agent(model), session, turns)
            assert simulation.count_refused() == 0
            assert simulation.count_unpaired() == 0

    asyncio.run(live())


def test_many_conversations_at_once_stay_apart():
    async def live():
        async with simulate() as simulation:
            model = TrimtabModel(simulation.make_model(), context_window=16_000)
            agent = make_agent(model)

            async def talk(user):
                session = make_session(f"user-{user}")
                for turn in range(4):
                    script = [{"calls": [{"name": "read_report", "arguments": {"number": turn}}]}]
                    text = f"simulate: {json.dumps([*script, f'to user-{user}'])}\nuser-{user}"
                    await run_once(agent, text, session)
                sent = json.dumps(await session.get_items())
                assert f"user-{user}" in sent

            await asyncio.gather(*(talk(user) for user in range(8)))
            assert simulation.count_refused() == 0
            assert simulation.count_unpaired() == 0
            for request in simulation.requests:
                sent = json.dumps(request.body)
                assert sum(f"\\nuser-{user}" in sent for user in range(8)) == 1

    asyncio.run(live())
