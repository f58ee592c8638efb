"""Which calls belong to one conversation."""

from __future__ import annotations

import asyncio
import logging
from importlib.util import find_spec

import pytest

if find_spec("agents") is None:
    pytest.skip("the OpenAI Agents SDK is not installed here", allow_module_level=True)

from agents import Agent, RunConfig, Runner

from tests.integrations.life import call_for, list_messages
from tests.integrations.openai_agents.scripted import ScriptedModel, call_tool, say
from tests.integrations.openai_agents.simulation import (
    list_outputs,
    make_agent,
    make_session,
    run_once,
    simulate,
)
from trimtab.integrations.openai_agents import TrimtabModel

pytestmark = pytest.mark.soak


def list_conversations(model):
    """Return the ids under which the model keeps conversations."""
    return sorted(model._named._by_id)


def recall_call(call_id, handle="m2"):
    return call_tool("recall", f'{{"handle": "{handle}"}}', call_id)


def test_the_id_of_the_session_names_the_conversation():
    async def live():
        model = TrimtabModel(ScriptedModel())
        for name in ("ann", "bob", "ann"):
            await run_once(make_agent(model), f"Hello from {name}.", make_session(name))
        assert len(list_conversations(model)) == 2
        assert (await model.report("ann")).used > 0
        for ask in (model.report("carl"), model.why("m2", "carl")):
            with pytest.raises(LookupError, match="nothing is known of conversation 'carl'"):
                await ask
        with pytest.raises(LookupError, match="m99"):
            await model.why("m99", "ann")

    asyncio.run(live())


def test_an_agent_that_runs_as_a_tool_has_a_conversation_of_its_own():
    async def live():
        for config in ({}, {"group_id": "thread-1"}):
            inner = ScriptedModel([[call_tool("expert", '{"input": "Look."}', "call_1")]])
            model = TrimtabModel(inner)
            expert = make_agent(model, name="Expert").as_tool("expert", "An expert.")
            await run_once(make_agent(model, expert), "Hello.", **config)
            assert len(list_conversations(model)) == 2

    asyncio.run(live())


def test_the_group_id_names_the_conversation_if_there_is_no_session():
    async def live():
        model = TrimtabModel(ScriptedModel())
        agent = make_agent(model)
        result = await run_once(agent, "Hello.", group_id="thread-1")
        again = [*result.to_input_list(), {"role": "user", "content": "More."}]
        await run_once(agent, again, group_id="thread-1")
        assert len(list_conversations(model)) == 1
        assert (await model.report("thread-1")).used > 0

    asyncio.run(live())


def test_the_report_of_a_group_is_that_of_its_newest_conversation():
    async def live():
        model = TrimtabModel(ScriptedModel())
        for text in ("Hello.", "word " * 5_000):
            await run_once(make_agent(model), text, group_id="thread-1")
        assert (await model.report("thread-1")).used > 5_000

    asyncio.run(live())


def test_the_group_id_counts_also_beside_a_cache_key_of_the_caller():
    async def live():
        model = TrimtabModel(ScriptedModel())
        from agents import ModelSettings, set_tracing_disabled

        settings = ModelSettings(extra_args={"prompt_cache_key": "mine"})
        set_tracing_disabled(False)
        try:
            agent = make_agent(model, model_settings=settings)
            await run_once(agent, "Hello.", group_id="thread-1")
        finally:
            set_tracing_disabled(True)
        assert (await model.report("thread-1")).used > 0
        assert model._given_model.requests[0]["model_settings"].extra_args == {
            "prompt_cache_key": "mine"
        }

    asyncio.run(live())


def test_a_caller_names_the_conversation_beside_a_cache_key_of_the_caller(caplog):
    async def live():
        model = TrimtabModel(ScriptedModel())
        from agents import ModelSettings

        own = {"prompt_cache_key": "mine"}
        await run_once(make_agent(model, model_settings=ModelSettings(extra_args=own)), "Hello.")
        assert "trimtab_conversation" in caplog.text
        named = ModelSettings(extra_args={**own, "trimtab_conversation": "ann"})
        await run_once(make_agent(model, model_settings=named), "Hello.", make_session("x"))
        assert (await model.report("ann")).used > 0
        assert model._given_model.requests[-1]["model_settings"].extra_args == own

    asyncio.run(live())


@pytest.mark.parametrize("api", ["responses", "chat"])
def test_a_list_that_the_caller_keeps_is_known_again_in_the_next_run(api):
    async def live():
        async with simulate() as simulation:
            model = TrimtabModel(simulation.make_model(api), context_window=16_000)
            agent, items = make_agent(model), []
            for turn in range(10):
                simulation.script({"calls": [call_for(turn)]})
                items.append({"role": "user", "content": f"Turn {turn}."})
                items = (await run_once(agent, items)).to_input_list()
            assert len(list_conversations(model)) == 1
            assert simulation.count_refused() == 0

    asyncio.run(live())


def test_two_users_with_the_same_first_message_have_two_conversations():
    async def live():
        inner = ScriptedModel([[say("Hello!", "msg_a")], [say("Hello!", "msg_b")]])
        model = TrimtabModel(inner)
        agent = make_agent(model)
        lists = [(await run_once(agent, "Hi.")).to_input_list() for _ in range(2)]
        for items in lists:
            await run_once(agent, [*items, {"role": "user", "content": "And now?"}])
        assert len(list_conversations(model)) == 2

    asyncio.run(live())


def test_two_runs_that_continue_one_list_at_once_have_two_conversations():
    async def live():
        model = TrimtabModel(ScriptedModel())
        agent = make_agent(model)
        items = (await run_once(agent, "Hi.")).to_input_list()
        both = ([*items, {"role": "user", "content": text}] for text in ("First.", "Second."))
        await asyncio.gather(*(run_once(agent, each) for each in both))
        assert len(list_conversations(model)) == 2

    asyncio.run(live())


@pytest.mark.parametrize("stream", [False, True])
def test_a_run_that_failed_continues_its_conversation_when_it_is_tried_again(stream):
    async def live():
        inner = ScriptedModel()
        model = TrimtabModel(inner)
        agent = make_agent(model)
        items = [*(await run_once(agent, "Hi.")).to_input_list(), {"role": "user", "content": "?"}]
        inner.steps.append(RuntimeError("no connection"))
        with pytest.raises(RuntimeError, match="no connection"):
            await run_once(agent, items, stream=stream)
        await run_once(agent, items, stream=stream)
        assert len(list_conversations(model)) == 1

    asyncio.run(live())


def test_a_call_of_recall_reads_its_own_conversation_also_if_call_ids_repeat():
    async def live():
        inner = ScriptedModel([[recall_call("call_1")], [recall_call("call_1")]])
        model = TrimtabModel(inner)
        agent = make_agent(model)
        sessions = [make_session("ann"), make_session("bob")]
        texts = ("The secret of Ann.", "The secret of Bob.")
        # Both models have answered before one of the tools runs.
        pairs = zip(texts, sessions, strict=True)
        await asyncio.gather(*(run_once(agent, text, session) for text, session in pairs))
        for session, own, other in zip(sessions, texts, texts[::-1], strict=True):
            outputs = list_outputs(await session.get_items())
            assert own in outputs[0]
            assert other not in outputs[0]

    asyncio.run(live())


def test_a_cleared_session_leaves_nothing_that_recall_can_read():
    async def live():
        inner = ScriptedModel([[say("Noted.")]])
        model, session = TrimtabModel(inner), make_session()
        agent = make_agent(model)
        await run_once(agent, "The password is swordfish.", session)
        await session.clear_session()
        search = call_tool("search_history", '{"query": "password swordfish"}', "call_2")
        inner.steps += [[recall_call("call_1")], [search]]
        await run_once(agent, "What was it?", session)
        outputs = list_outputs(await session.get_items())
        assert not any("is swordfish" in output for output in outputs), outputs

    asyncio.run(live())


def test_a_handoff_continues_the_conversation_with_another_agent_and_model():
    async def live():
        async with simulate() as simulation:
            model = TrimtabModel(simulation.make_model(), context_window=16_000)
            other = model.with_model(simulation.make_model("chat", "gpt-4.1"))
            billing = make_agent(other, name="Billing", instructions="You do the billing.")
            triage = make_agent(model, name="Triage", handoffs=[billing])
            session = make_session()
            for turn in range(10):
                transfer = {"name": "transfer_to_billing", "arguments": {}}
                steps = ({"calls": [each]} for each in (call_for(turn), transfer, call_for(turn)))
                simulation.script(*steps, {"text": 20})
                await run_once(triage, f"Turn {turn}: rule-{turn}-keep.", session)
            assert simulation.count_refused() == 0
            assert simulation.count_unpaired() == 0
            assert len(list_conversations(model)) == 1
            used = {(each.body["model"], each.dialect) for each in simulation.requests}
            assert used == {("gpt-4o", "openai_responses"), ("gpt-4.1", "openai_chat")}
            sent = str(list_messages(simulation.requests[-1].body))
            assert all(f"rule-{turn}-keep" in sent for turn in range(10))

    asyncio.run(live())


@pytest.mark.parametrize("nested", [False, True])
def test_a_handoff_with_a_rewritten_history_is_valid(nested, caplog):
    async def live():
        async with simulate() as simulation:
            model = TrimtabModel(simulation.make_model(), context_window=16_000)
            billing = make_agent(model, name="Billing")
            triage = make_agent(model, name="Triage", handoffs=[billing])
            session = make_session()
            for turn in range(6):
                transfer = {"name": "transfer_to_billing", "arguments": {}}
                steps = ({"calls": [each]} for each in (call_for(turn), transfer, call_for(turn)))
                simulation.script(*steps, {"text": 20})
                await run_once(triage, f"Turn {turn}.", session, nest_handoff_history=nested)
            assert simulation.count_refused() == 0
            assert simulation.count_unpaired() == 0

    with caplog.at_level(logging.WARNING, "trimtab"):
        asyncio.run(live())
    assert not caplog.records


def test_an_agent_keeps_the_default_settings_of_a_model_that_is_named():
    class Named(TrimtabModel):
        def _resolve_model(self):
            return inner

    async def live():
        for name in ("gpt-5.4", "gpt-4o"):
            await Runner.run(Agent(name="A", model=Named(name)), "Hello.")
            from agents.models import get_default_model_settings

            got = inner.requests[-1]["model_settings"]
            assert got == get_default_model_settings(name)
        own = Agent(name="A", model=Named("gpt-5.4"), model_settings={"temperature": 0.5})
        await Runner.run(own, "Hello.", run_config=RunConfig())
        assert inner.requests[-1]["model_settings"].reasoning is None

    inner = ScriptedModel()
    asyncio.run(live())
