"""One call: what is passed on, what is sent again, and what is left alone."""

from __future__ import annotations

import asyncio
import json
import logging
from importlib.util import find_spec

import pytest

if find_spec("agents") is None:
    pytest.skip("the OpenAI Agents SDK is not installed here", allow_module_level=True)

from agents import ModelBehaviorError, ModelSettings, ModelTracing, Runner, function_tool
from agents.models._response_terminal import response_terminal_failure_error
from openai.types.responses import ResponseReasoningItem
from pydantic import BaseModel

from tests.integrations.life import call_for, write_report
from tests.integrations.openai_agents.scripted import (
    ScriptedModel,
    TooLong,
    build_cut_response,
    call_tool,
    say,
)
from tests.integrations.openai_agents.simulation import (
    list_outputs,
    make_agent,
    make_session,
    run_once,
    simulate,
)
from trimtab.errors import CannotFit, UnsupportedMedia
from trimtab.integrations.openai_agents import TrimtabModel

pytestmark = pytest.mark.soak

PICTURE = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGA"
    "WjR9awAAAABJRU5ErkJggg=="
)
LONG = "word " * 6_000


def user(text):
    return {"role": "user", "content": text}


def answer(text, name="msg_1"):
    return say(text, name).model_dump(exclude_unset=True)


async def send(model, items, *, stream=False, **more):
    """Call the model as the runner does. Return the events of a stream, or the response."""
    settings = ModelSettings(extra_args={"prompt_cache_key": "agents-sdk:session:abc"})
    given = {"system_instructions": "Be careful.", "input": items, "tools": [*model.tools]}
    given |= {"model_settings": settings, "output_schema": None, "handoffs": []}
    given |= {"tracing": ModelTracing.DISABLED, "prompt": None}
    given |= {"previous_response_id": None, "conversation_id": None, **more}
    if not stream:
        return await model.get_response(**given)
    return [event async for event in model.stream_response(**given)]


def test_a_list_that_fits_is_sent_as_it_is_object_by_object():
    inner = ScriptedModel()
    items = [user("Hello."), answer("Hi."), user("More.")]
    asyncio.run(send(TrimtabModel(inner), items))
    assert all(sent is given for sent, given in zip(inner.inputs[0], items, strict=True))


@pytest.mark.parametrize("is_responses", [True, False])
def test_what_was_not_edited_is_sent_by_identity_and_the_list_is_not_changed(is_responses):
    async def live():
        async with simulate() as simulation:
            inner = simulation.make_model("responses" if is_responses else "chat")
            sent = []

            async def keep(system, items, *rest, **more):
                sent.append(items)
                return await original(system, items, *rest, **more)

            original, inner.get_response = inner.get_response, keep
            model = TrimtabModel(inner, context_window=16_000)
            items = []
            for turn in range(12):
                items += [user(f"Turn {turn}: rule-{turn}-keep."), answer("Yes.", f"msg_{turn}")]
                made = call_tool("read_report", json.dumps({"number": turn}), f"call_{turn}")
                items += [made.model_dump(exclude_unset=True)]
                output = [{"type": "input_text", "text": write_report(turn)}]
                items += [
                    {"type": "function_call_output", "call_id": f"call_{turn}", "output": output}
                ]
            items.append(user("Now."))
            before = json.dumps(items)
            await send(model, items)
            assert json.dumps(items) == before
            own = [each for each in sent[0] if any(each is given for given in items)]
            assert items[-1] in own
            assert 10 < len(own) < len(items)
            assert simulation.count_refused() == 0

    asyncio.run(live())


OPAQUE = [
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA" * 50},
    {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAA" * 50},
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}},
    {"type": "file_search_call", "id": "fs_1", "status": "completed", "queries": ["a"]},
    {
        "type": "code_interpreter_call",
        "id": "ci_1",
        "code": "1",
        "container_id": "c",
        "outputs": [],
    },
    {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "iVBORw0"},
    {"type": "mcp_list_tools", "id": "ml_1", "server_label": "s", "tools": []},
    {"type": "mcp_call", "id": "mc_1", "server_label": "s", "name": "n", "arguments": "{}"},
    {"type": "mcp_approval_request", "id": "ma_1", "server_label": "s", "name": "n"},
    {"type": "item_reference", "id": "msg_9"},
    {"type": "something_new", "id": "sn_1", "data": {"deep": [1, 2.5, None]}},
]


@pytest.mark.parametrize("item", OPAQUE, ids=[item["type"] for item in OPAQUE])
@pytest.mark.parametrize("api", ["openai_responses", "openai_chat"])
def test_items_that_only_the_provider_reads_pass_through_as_they_are(item, api, monkeypatch):
    inner = ScriptedModel()
    if api == "openai_responses":
        monkeypatch.setattr(
            "trimtab.integrations.openai_agents.OpenAIResponsesModel", ScriptedModel
        )
    model = TrimtabModel(inner, context_window=16_000)
    items = [user(LONG), answer("So."), user(LONG), answer("So."), user(LONG), answer("So.")]
    items += [user("Hello."), item, answer("Hi."), user("Go.")]
    asyncio.run(send(model, items))
    assert any(sent is item for sent in inner.inputs[0])
    assert sum(len(json.dumps(sent)) for sent in inner.inputs[0]) < 60_000


def test_a_call_of_a_computer_keeps_its_result():
    inner = ScriptedModel()
    action = {"type": "screenshot"}
    made = {"type": "computer_call", "id": "cu_1", "call_id": "call_1", "action": action}
    made |= {"pending_safety_checks": [], "status": "completed"}
    picture = {"type": "computer_screenshot", "image_url": PICTURE}
    result = {"type": "computer_call_output", "call_id": "call_1", "output": picture}
    items = [user("Look."), made, result, answer("Seen."), user(LONG), user("Go.")]
    asyncio.run(send(TrimtabModel(inner, context_window=16_000), items))
    sent = inner.inputs[0]
    assert [each for each in sent if each.get("call_id")] == [made, result]


def test_system_messages_at_the_start_of_the_list_are_sent():
    inner = ScriptedModel()
    rules = {"role": "developer", "content": "Answer in French."}
    items = [rules, user(LONG), answer("So."), user(LONG), answer("So."), user(LONG)]
    asyncio.run(send(TrimtabModel(inner, context_window=16_000), items))
    assert inner.inputs[0][0] is rules
    assert len(json.dumps(inner.inputs[0])) < 60_000


@pytest.mark.parametrize("is_responses", [True, False])
def test_a_picture_stays_in_a_message_whose_text_is_cut(is_responses, monkeypatch):
    inner = ScriptedModel()
    if is_responses:
        monkeypatch.setattr(
            "trimtab.integrations.openai_agents.OpenAIResponsesModel", ScriptedModel
        )
    parts = [
        {"type": "input_text", "text": LONG * 3},
        {"type": "input_image", "image_url": PICTURE, "detail": "low"},
    ]
    items = [{"role": "user", "content": parts}]
    asyncio.run(send(TrimtabModel(inner, context_window=16_000), items))
    [sent] = inner.inputs[0]
    assert sent is not items[0]
    assert parts[1] in sent["content"]
    assert len(json.dumps(sent)) < 60_000


@pytest.mark.parametrize("stream", [False, True])
def test_a_refusal_for_length_is_answered_by_a_smaller_request(stream):
    async def live():
        inner = ScriptedModel([TooLong()])
        model = TrimtabModel(inner)
        items = [user(LONG), answer("So."), user(LONG), answer("So."), user("Go.")]
        got = await send(model, items, stream=stream)
        sizes = [len(json.dumps(each)) for each in inner.inputs]
        tokens = [each["model_settings"].max_tokens for each in inner.requests]
        assert len(sizes) == 2
        assert sizes[1] < sizes[0] or (tokens[0] is None and tokens[1] is not None)
        if stream:
            assert [event.type for event in got].count("response.completed") == 1

    asyncio.run(live())


@pytest.mark.parametrize("step", ["failed", "error", "incomplete", [TooLong()]])
def test_a_refusal_inside_a_stream_is_retried_as_long_as_nothing_was_shown(step):
    async def live():
        inner = ScriptedModel([step])
        events = await send(
            TrimtabModel(inner), [user(LONG), answer("So."), user("Go.")], stream=True
        )
        assert len(inner.requests) == 2
        kinds = [event.type for event in events]
        assert kinds.count("response.created") == 1
        assert not {"response.failed", "response.incomplete", "error"}.intersection(kinds)
        assert kinds[-1] == "response.completed"

    asyncio.run(live())


def test_a_reply_that_a_full_window_cut_is_requested_again():
    async def live():
        inner = ScriptedModel(["incomplete"])
        await send(TrimtabModel(inner), [user(LONG), answer("So."), user("Go.")])
        first, second = (len(json.dumps(each)) for each in inner.inputs)
        assert second < first

    asyncio.run(live())


def test_a_reply_that_is_incomplete_for_another_reason_is_not():
    async def live():
        cut = build_cut_response()
        cut.incomplete_details.reason = "max_output_tokens"
        inner = ScriptedModel([response_terminal_failure_error("response.incomplete", cut)])
        with pytest.raises(ModelBehaviorError):
            await send(TrimtabModel(inner), [user("Go.")])
        assert len(inner.requests) == 1

    asyncio.run(live())


def test_a_refusal_after_output_is_not_retried():
    async def live():
        inner = ScriptedModel([[say("Hello."), TooLong()]])
        with pytest.raises(TooLong):
            await send(TrimtabModel(inner), [user("Go.")], stream=True)
        assert len(inner.requests) == 1

    asyncio.run(live())


@pytest.mark.parametrize("stream", [False, True])
def test_another_error_is_raised_as_it_is(stream):
    async def live():
        inner = ScriptedModel([ConnectionError("no network")])
        with pytest.raises(ConnectionError, match="no network"):
            await send(TrimtabModel(inner), [user("Go.")], stream=stream)
        assert len(inner.requests) == 1

    asyncio.run(live())


def test_refusals_without_end_are_raised():
    async def live():
        inner = ScriptedModel([TooLong() for _ in range(50)])
        with pytest.raises(CannotFit, match="the provider refused the request for its length"):
            await send(TrimtabModel(inner), [user(LONG), answer("So."), user("Go.")])
        assert len(inner.requests) <= 5

    asyncio.run(live())


@pytest.mark.parametrize("kept", ["previous_response_id", "conversation_id"])
def test_a_history_that_the_provider_keeps_is_passed_on_and_said_once(kept, caplog):
    async def live():
        inner = ScriptedModel()
        model = TrimtabModel(inner, context_window=4_000)
        items = [user(LONG)]
        with caplog.at_level(logging.WARNING, "trimtab"):
            for _ in range(3):
                await send(model, items, **{kept: "id_1"})
                await send(model, items, stream=True, **{kept: "id_1"})
        assert all(each is items for each in inner.inputs)
        assert all(each[kept] == "id_1" for each in inner.requests)
        [text] = [record.message for record in caplog.records]
        assert "kept by the provider" in text

    asyncio.run(live())


@pytest.mark.parametrize("option", ["conversation_id", "previous_response_id"])
def test_a_run_whose_history_is_kept_by_the_provider_works(option):
    async def live():
        inner = ScriptedModel([[call_tool("read_report", '{"number": 1}', "call_1")]])
        agent = make_agent(TrimtabModel(inner))
        result = await Runner.run(agent, "Hello.", **{option: "id_1"})
        assert result.final_output == "Done."
        assert [each["type"] for each in inner.inputs[1]] == ["function_call_output"]

    asyncio.run(live())


class Weather(BaseModel):
    city: str
    degrees: int


@pytest.mark.parametrize("api", ["responses", "chat"])
@pytest.mark.parametrize("stream", [False, True])
def test_structured_output_is_parsed(api, stream):
    async def live():
        async with simulate() as simulation:
            model = TrimtabModel(simulation.make_model(api), context_window=16_000)
            agent = make_agent(model, output_type=Weather)
            session = make_session()
            for turn in range(5):
                reply = json.dumps({"city": "Oslo", "degrees": turn})
                simulation.script({"calls": [call_for(turn), call_for(turn + 1)]}, {"text": reply})
                result = await run_once(agent, f"Turn {turn}.", session, stream)
                assert result.final_output == Weather(city="Oslo", degrees=turn)
            assert simulation.count_refused() == 0
            assert simulation.count_unpaired() == 0

    asyncio.run(live())


def test_reasoning_comes_back_as_it_was():
    async def live():
        thought = ResponseReasoningItem(
            id="rs_1", type="reasoning", summary=[], encrypted_content="gAAAA"
        )
        inner = ScriptedModel([[thought, call_tool("read_report", '{"number": 1}', "call_1")]])
        for policy in (None, "omit"):
            agent = make_agent(TrimtabModel(inner))
            inner.steps = [[thought, call_tool("read_report", '{"number": 1}', "call_1")]]
            await run_once(agent, "Hello.", reasoning_item_id_policy=policy)
            sent = inner.inputs[-1]
            assert sent[1]["encrypted_content"] == "gAAAA"
            assert ("id" in sent[1]) == (policy is None)
            assert [each.get("type") for each in sent[1:]] == [
                "reasoning",
                "function_call",
                "function_call_output",
            ]

    asyncio.run(live())


def test_an_agent_without_the_recall_tools_gets_no_handles_and_a_warning(caplog):
    async def live():
        async with simulate() as simulation:
            model = TrimtabModel(simulation.make_model(), context_window=16_000)
            agent = make_agent(model)
            agent.tools = agent.tools[:1]
            with caplog.at_level(logging.WARNING, "trimtab"):
                await simulation.run_turns(agent, make_session(), range(6))
            sent = json.dumps([each.body for each in simulation.requests])
            assert "recall" not in sent
            texts = {record.message for record in caplog.records if "tools" in record.message}
            assert len(texts) == 1
            assert "*model.tools" in texts.pop()

    asyncio.run(live())


def test_without_recall_there_are_no_tools_and_no_warning(caplog):
    async def live():
        model = TrimtabModel(ScriptedModel(), recall=False)
        assert model.tools == []
        with caplog.at_level(logging.WARNING, "trimtab"):
            await run_once(make_agent(model), "Hello.")
        assert not caplog.records

    asyncio.run(live())


def test_why_explains_what_is_hidden():
    async def live():
        async with simulate() as simulation:
            model = TrimtabModel(simulation.make_model(), context_window=16_000)
            await simulation.run_turns(make_agent(model), make_session(), range(6))
            reason = await model.why(simulation.find_handle(), "chat-7")
            assert "is not in the context: a placeholder replaces it" in str(reason)
            assert (await model.report("chat-7")).limit == 16_000

    asyncio.run(live())


def test_a_picture_that_a_tool_returned_is_in_the_list_of_its_output():
    @function_tool
    def look() -> dict[str, str]:
        """Look at it."""
        return {"type": "image", "image_url": PICTURE}

    async def live():
        inner = ScriptedModel([[call_tool("look", "{}", "call_1")]])
        session = make_session()
        await run_once(make_agent(TrimtabModel(inner), look), "Look.", session)
        [output] = list_outputs(inner.inputs[-1])
        assert output == list_outputs(await session.get_items())[0]
        assert output[0]["image_url"] == PICTURE

    asyncio.run(live())


def test_the_runners_cache_key_reaches_only_a_model_that_takes_it():
    class Takes(ScriptedModel):
        def _supports_default_prompt_cache_key(self):
            return True

    async def live():
        for kind, expected in ((Takes, "agents-sdk:session:abc"), (ScriptedModel, None)):
            inner = kind()
            await send(TrimtabModel(inner), [user("Hello.")])
            sent = inner.requests[0]["model_settings"].extra_args or {}
            assert sent.get("prompt_cache_key") == expected

    asyncio.run(live())


def test_an_output_limit_above_the_models_own_is_left_to_the_provider():
    async def live():
        inner = ScriptedModel()
        agent = make_agent(TrimtabModel(inner), model_settings=ModelSettings(max_tokens=20_000))
        await run_once(agent, "Hello.", make_session())
        assert inner.requests[-1]["model_settings"].max_tokens == 20_000

    asyncio.run(live())


def test_the_option_for_the_output_limit_is_sent_unless_the_agent_has_one():
    async def live():
        for own, sent in ((None, 500), (700, 700)):
            inner = ScriptedModel()
            model = TrimtabModel(inner, max_output_tokens=500)
            agent = make_agent(model, model_settings=ModelSettings(max_tokens=own))
            await run_once(agent, "Hello.", make_session())
            assert inner.requests[-1]["model_settings"].max_tokens == sent

    asyncio.run(live())


def test_there_are_no_tools_if_a_text_says_how_to_recall():
    assert not TrimtabModel(ScriptedModel(), recall="Ask the archivist for {handle}.").tools
    assert [tool.name for tool in TrimtabModel(ScriptedModel()).tools] == [
        "recall",
        "search_history",
    ]


@pytest.mark.parametrize("beside", [True, False])  # of two, the SDK passes on the last
def test_a_tool_of_the_callers_with_the_name_of_ours_is_told_once(caplog, beside):
    @function_tool
    def recall(handle: str) -> str:
        """Recall a defective product."""
        return handle

    async def live():
        model = TrimtabModel(ScriptedModel())
        tools = [*model.tools, recall] if beside else [recall, model.tools[1]]
        for _ in range(2):
            await run_once(make_agent(model, tools=tools), "Hello.", make_session())

    asyncio.run(live())
    told = [each.getMessage() for each in caplog.records if "named recall" in each.getMessage()]
    assert len([each for each in told if "rename it, or set recall=False" in each]) == 1


def test_the_tools_of_the_model_are_not_taken_for_others(caplog):
    async def live():
        model = TrimtabModel(ScriptedModel())
        await run_once(make_agent(model), "Hello.", make_session())

    asyncio.run(live())
    assert "another tool" not in caplog.text


def test_a_model_that_is_none_of_the_sdk_is_refused():
    for create in (TrimtabModel, TrimtabModel(ScriptedModel()).with_model):
        with pytest.raises(TypeError, match="type int; give the model's name, a Model of the SDK"):
            create(3)


def test_an_empty_list_is_left_to_the_model():
    async def live():
        inner = ScriptedModel()
        model = TrimtabModel(inner)
        await run_once(make_agent(model), [])
        await run_once(make_agent(model), [], stream=True)
        assert inner.inputs == [[], []]

    asyncio.run(live())


def test_a_picture_that_no_provider_takes_says_how_to_go_on():
    part = {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "auto"}

    async def live():
        agent, session = make_agent(TrimtabModel(ScriptedModel())), make_session()
        with pytest.raises(UnsupportedMedia, match=r"until it is removed, with session\.pop_item"):
            await run_once(agent, [{"role": "user", "content": [part]}], session)
        await session.pop_item()
        await run_once(agent, "Hello?", session)

    asyncio.run(live())
