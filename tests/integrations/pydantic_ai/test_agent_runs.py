"""An agent with the capability, against a strict provider."""

from __future__ import annotations

import asyncio
import copy
import logging
import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pydantic_ai", reason="Pydantic AI is not installed here")

from pydantic import BaseModel
from pydantic_ai import Agent, ModelRetry, NativeOutput, PromptedOutput, RunContext, ToolOutput
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolReturnPart,
)
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults

from tests import pictures
from tests.integrations.life import (
    count_cut,
    count_prefix_breaks,
    extends,
    is_paired,
    list_answered,
    list_messages,
    list_records,
    list_refusals,
    read_cache_ratio,
)
from tests.integrations.pydantic_ai.lives import (
    DIALECTS,
    WINDOW,
    ask,
    dump,
    iterate_texts,
    make_agent,
    make_model,
    make_report,
    script,
    script_turn,
)
from trimtab.errors import CannotFit
from trimtab.integrations.pydantic_ai import TrimtabCapability
from trimtab.testing import ServedSimulator, serve_simulated_provider

pytestmark = pytest.mark.anyio

PAGE = Path(__file__).parents[3] / "docs" / "pydantic-ai.md"
HANDLE = re.compile(r"recall (m\d+\.\d+)")


def make_capability(**options: Any) -> TrimtabCapability:
    return TrimtabCapability(**{"context_window": WINDOW, **options})


async def live(
    agent: Agent[object, Any],
    served: ServedSimulator,
    turns: range,
    history: list[ModelMessage],
    **options: Any,
) -> list[ModelMessage]:
    """Run turns, and return the history that the framework has then."""
    for turn in turns:
        script_turn(served, turn)
        result = await agent.run(ask(turn), message_history=history, **options)
        history = result.all_messages()
    return history


def check_requests(served: ServedSimulator) -> None:
    assert all(is_paired(record.body) for record in list_answered(served))


def check_history(history: list[ModelMessage], turns: int) -> None:
    """The framework's history is whole: every report, word for word."""
    results = [
        part.content
        for message in history
        for part in message.parts
        if isinstance(part, ToolReturnPart) and part.tool_name == "read_report"
    ]
    assert results == [make_report(number) for number in range(3 * turns)]


STRUCTURED_OUTPUT = """
from pydantic import BaseModel, Field

class SupportOutput(BaseModel):
    support_advice: str
    risk: int = Field(ge=0, le=10)

for model in ("openai:gpt-5.2", "openai-chat:gpt-5.2"):
    support_agent = Agent(model, output_type=SupportOutput, capabilities=[TrimtabCapability()])
    print(type(support_agent.run_sync("My card is lost.").output))
"""


@pytest.mark.process
def test_the_program_of_the_page_and_an_agent_with_an_output_type_run_without_a_key():
    [program] = re.findall(
        r"```python\n(import asyncio\n.*?)```", PAGE.read_text("utf-8"), re.DOTALL
    )
    with serve_simulated_provider() as server:
        run = subprocess.run(
            [sys.executable, "-c", program + STRUCTURED_OUTPUT],
            env={**os.environ, "OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_API_KEY": "any"},
            capture_output=True,
            text=True,
            check=False,
        )
    assert run.returncode == 0, run.stderr
    assert "m2 is in the context, in full" in run.stdout
    assert run.stdout.count("SupportOutput") == 2


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_long_life_is_never_refused_and_its_history_stays_whole(served, dialect):
    agent = make_agent(make_model(served, dialect), make_capability())
    history = await live(agent, served, range(12), [])
    assert len(list_refusals(served)) == 0
    assert len(list_answered(served)) == 36
    check_requests(served)
    check_history(history, 12)
    assert count_prefix_breaks(served) < 12
    assert read_cache_ratio(served) > 0.6


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_without_the_capability_the_same_life_ends(served, dialect):
    agent = make_agent(make_model(served, dialect))
    with pytest.raises(ModelHTTPError):
        await live(agent, served, range(12), [])


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_streamed_life_is_never_refused(served, dialect):
    agent = make_agent(make_model(served, dialect), make_capability())
    history: list[ModelMessage] = []
    for turn in range(10):
        script_turn(served, turn)
        async with agent.run_stream(ask(turn), message_history=history) as result:
            texts = [text async for text in result.stream_text()]
        assert texts
        history = result.all_messages()
    assert len(list_refusals(served)) == 0
    check_requests(served)
    check_history(history, 10)


async def test_events_and_steps_can_be_iterated(served):
    agent = make_agent(make_model(served), make_capability())
    history: list[ModelMessage] = []
    for turn in range(0, 10, 2):
        script_turn(served, turn)
        async with agent.run_stream_events(ask(turn), message_history=history) as stream:
            events = [event async for event in stream]
        history = events[-1].result.all_messages()
        script_turn(served, turn + 1)
        async with agent.iter(ask(turn + 1), message_history=history) as run:
            async for _ in run:
                pass
        assert run.result is not None
        history = run.result.all_messages()
    assert len(list_refusals(served)) == 0
    check_requests(served)
    check_history(history, 10)


def test_a_synchronous_run_works_in_a_thread_without_a_loop(served):
    capability = make_capability()
    agent = make_agent(make_model(served), capability)
    history: list[ModelMessage] = []
    with asyncio.Runner() as runner:
        runner.get_loop()  # else the framework makes a loop, and nobody closes it
        for turn in range(8):
            script_turn(served, turn)
            result = agent.run_sync(ask(turn), message_history=history)
            history = result.all_messages()
        report = runner.run(capability.report(result.conversation_id))
    assert len(list_refusals(served)) == 0
    check_history(history, 8)
    assert report.used < WINDOW


async def test_many_conversations_at_once_do_not_mix(served):
    capability = make_capability()
    agent = make_agent(make_model(served), capability)
    served.simulator.script.set_replies([], otherwise={"text": 20})
    secrets = [f"secret-of-user-{user}" for user in range(12)]

    async def talk(user: int) -> None:
        history: list[ModelMessage] = []
        for turn in range(4):
            prompt = f"{secrets[user]} turn {turn}"
            history = (await agent.run(prompt, message_history=history)).all_messages()

    await asyncio.gather(*(talk(user) for user in range(12)))
    assert len(list_refusals(served)) == 0
    for record in list_answered(served):
        text = str(record.body)
        assert sum(f"{secret} " in text for secret in secrets) == 1


async def test_two_users_without_ids_and_with_the_same_words_are_two_conversations(served):
    """What was hidden from one must not be recalled by the other."""
    capability = make_capability()
    agent = make_agent(make_model(served), capability)
    ids = set[str]()
    for _ in range(2):
        result = await agent.run("Hello.")
        ids.add(result.conversation_id)
        loaded = ModelMessagesTypeAdapter.validate_json(result.all_messages_json())
        ids.add((await agent.run("And?", message_history=loaded)).conversation_id)
    assert len(ids) == 2


async def test_recall_gives_the_hidden_text_back(served):
    capability = make_capability()
    agent = make_agent(make_model(served), capability)
    history = await live(agent, served, range(10), [])
    handle = HANDLE.findall(str(list_answered(served)[-1].body))[0]
    script(served, {"calls": [{"name": "recall", "arguments": {"handle": handle}}]}, {"text": 10})
    result = await agent.run("What was there?", message_history=history)
    [recalled] = [
        part.content
        for message in result.new_messages()
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    ]
    assert recalled in {make_report(number) for number in range(30)}
    reason = await capability.why(handle, result.conversation_id)
    assert str(reason)
    assert len(list_refusals(served)) == 0


async def test_history_can_be_searched(served):
    agent = make_agent(make_model(served), make_capability())
    history = await live(agent, served, range(8), [])
    script(
        served,
        {"calls": [{"name": "search_history", "arguments": {"query": "rule-0-keep"}}]},
        {"text": 10},
    )
    result = await agent.run("What was rule 0?", message_history=history)
    assert "rule-0-keep" in str(result.new_messages()[2])


async def test_recall_can_be_left_out(served):
    agent = make_agent(make_model(served), make_capability(recall=False))
    await live(agent, served, range(8), [])
    body = list_answered(served)[-1].body
    assert [tool["function"]["name"] for tool in body["tools"]] == ["read_report"]
    assert not HANDLE.search(str(body))


async def test_a_wrong_handle_is_answered_and_does_not_end_the_run(served):
    agent = make_agent(make_model(served), make_capability())
    call = {"name": "recall", "arguments": {"handle": "m9999"}}
    script(served, {"calls": [call]}, {"text": 5})
    result = await agent.run("Look it up.")
    assert "m9999" in str(result.new_messages()[2])


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_window_smaller_than_believed_costs_one_refusal(dialect, streamed):
    # Claude's own count of these reports is smaller.
    with serve_simulated_provider(window=8_000 if dialect == "anthropic" else 11_000) as served:
        agent = make_agent(make_model(served, dialect), make_capability())
        history: list[ModelMessage] = []
        for turn in range(8):
            script_turn(served, turn)
            if streamed:
                async with agent.run_stream(ask(turn), message_history=history) as result:
                    await result.get_output()
            else:
                result = await agent.run(ask(turn), message_history=history)
            history = result.all_messages()
        assert len(list_refusals(served)) == 1
        check_requests(served)
        check_history(history, 8)


@pytest.mark.parametrize(
    ("dialect", "fault"),
    [("anthropic", "anthropic"), ("openai_responses", "openai_responses")],
)
async def test_a_refusal_inside_a_stream_is_answered_before_anything_was_said(
    served, dialect, fault
):
    agent = make_agent(make_model(served, dialect), make_capability())
    history = await live(agent, served, range(5), [])
    numbers = {"limit": 9_000, "input": 9_500, "in_stream": 1}
    script(served, {"fault": fault, **numbers}, {"text": 12})
    async with agent.run_stream("And now?", message_history=history) as result:
        texts = [text async for text in result.stream_text()]
    assert texts
    *_, refused, answered = list_records(served)
    assert (refused.fate, answered.fate) == ("fault", "answered")
    assert answered.tokens < min(refused.tokens, 9_000)
    assert "And now?" in str(answered.body)


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_reply_that_a_full_window_cut_is_requested_again(served, is_streamed):
    capability = TrimtabCapability(context_window=32_000)
    agent = make_agent(make_model(served, "anthropic"), capability)
    served.simulator.script.set_replies([], otherwise={"text": 900})
    history: list[ModelMessage] = []
    for turn in range(20):
        if is_streamed:
            async with agent.run_stream(f"Question {turn}", message_history=history) as result:
                await result.get_output()
        else:
            result = await agent.run(f"Question {turn}", message_history=history)
        history = result.all_messages()
    assert count_cut(served) == 1
    reasons = [each.finish_reason for each in history if isinstance(each, ModelResponse)]
    assert len(reasons) == 20
    # What was streamed cannot be taken back. The request after it is smaller.
    assert reasons.count("length") == is_streamed


async def test_pydantic_ai_s_own_default_of_output_does_not_take_the_window(served):
    capability = TrimtabCapability(context_window=16_000)
    agent = make_agent(make_model(served, "anthropic"), capability, model_settings={})
    result = await agent.run("Hello.")
    assert list_refusals(served) == []
    assert list_records(served)[0].body["max_tokens"] == 4_000
    asked = await agent.run(
        "More.", message_history=result.all_messages(), model_settings={"max_tokens": 300}
    )
    assert list_records(served)[1].body["max_tokens"] == 300
    assert asked.output


async def test_an_error_that_is_no_refusal_for_length_reaches_the_caller(served):
    agent = make_agent(make_model(served), make_capability())
    script(served, {"fault": "forbidden"})
    with pytest.raises(ModelHTTPError):
        await agent.run("Hello.")
    assert len(list_records(served)) == 1


async def test_what_cannot_fit_says_why(served):
    agent = make_agent(make_model(served), make_capability(context_window=2_000))
    agent.instructions("word " * 5_000)
    with pytest.raises(CannotFit):
        await agent.run("Hello.")
    assert not list_records(served)


async def test_more_output_than_the_model_has_is_the_callers_decision():
    """The catalog may be older than the model."""
    asked: list[Any] = []

    def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        asked.append(info.model_settings)
        return ModelResponse(parts=[TextPart("Fine.")])

    model = FunctionModel(reply, model_name="gpt-4o")
    agent = Agent(model, capabilities=[TrimtabCapability()])
    await agent.run("Hello.", model_settings={"max_tokens": 100_000})
    assert asked[0]["max_tokens"] == 100_000


async def test_claudes_cache_is_read_and_the_callers_setting_is_kept(served):
    model = make_model(served, "anthropic")
    await live(make_agent(model, make_capability()), served, range(6), [])
    assert read_cache_ratio(served) > 0.6
    for settings in ({"cache": False}, {"anthropic_cache_instructions": False}):
        served.simulator.reset()
        options = {"model_settings": {"max_tokens": 1_000, **settings}}
        await live(make_agent(model, make_capability(), **options), served, range(3), [])
        assert "cache_control" not in str(list_answered(served)[-1].body)


async def test_claude_still_reads_what_stays_when_more_is_hidden(served):
    agent = make_agent(make_model(served, "anthropic"), make_capability())
    await live(agent, served, range(10), [])
    answered = list_answered(served)
    read_after_hiding = [
        after.reply["usage"]["cache_read_input_tokens"]
        for before, after in pairwise(answered)
        if not extends(before.body, after.body)
    ]
    assert len(read_after_hiding) > 3
    assert read_after_hiding[-1] > read_after_hiding[0]
    assert max(str(record.body).count("'cache_control'") for record in answered) == 4


async def test_the_caches_lifetime_is_an_option(served):
    agent = make_agent(make_model(served, "anthropic"), make_capability(cache="1h"))
    await agent.run("Hello.")
    assert "'ttl': '1h'" in str(list_answered(served)[-1].body)
    served.simulator.reset()
    agent = make_agent(make_model(served, "anthropic"), make_capability(cache="off"))
    await agent.run("Hello.")
    assert "cache_control" not in str(list_answered(served)[-1].body)


class Weather(BaseModel):
    degrees: int


@pytest.mark.parametrize("kind", [ToolOutput, NativeOutput, PromptedOutput])
async def test_structured_output_in_a_long_conversation(served, kind):
    agent = make_agent(make_model(served), make_capability())
    history = await live(agent, served, range(8), [])
    if kind is ToolOutput:
        step: Any = {"calls": [{"name": "final_result", "arguments": {"degrees": 12}}]}
    else:
        step = {"text": '{"degrees": 12}'}
    script(served, step)
    result = await agent.run("How warm?", message_history=history, output_type=kind(Weather))
    assert result.output == Weather(degrees=12)
    script_turn(served, 8)
    await agent.run(ask(8), message_history=result.all_messages())
    assert len(list_refusals(served)) == 0
    check_requests(served)


async def test_output_is_validated_again(served):
    agent = make_agent(make_model(served), make_capability(), output_type=ToolOutput(Weather))

    @agent.output_validator
    def check(ctx: RunContext[object], weather: Weather) -> Weather:
        if weather.degrees > 50:
            raise ModelRetry("Too warm.")
        return weather

    def answer(degrees: int) -> dict[str, Any]:
        return {"calls": [{"name": "final_result", "arguments": {"degrees": degrees}}]}

    script(served, {"text": 5}, answer(90), answer(20))
    result = await agent.run("How warm?")
    assert result.output.degrees == 20
    assert len(list_refusals(served)) == 0
    check_requests(served)


async def test_tools_that_are_deferred_are_answered_in_the_next_run(served):
    agent = make_agent(
        make_model(served), make_capability(), output_type=[str, DeferredToolRequests]
    )

    @agent.tool_plain(requires_approval=True)
    def delete_report(number: int) -> str:
        """Delete a report."""
        return f"deleted {number}"

    history = await live(agent, served, range(8), [])
    script(served, {"calls": [{"name": "delete_report", "arguments": {"number": 1}}]}, {"text": 5})
    result = await agent.run("Delete report 1.", message_history=history)
    assert isinstance(result.output, DeferredToolRequests)
    approvals = {call.tool_call_id: True for call in result.output.approvals}
    done = await agent.run(
        message_history=result.all_messages(),
        deferred_tool_results=DeferredToolResults(approvals=approvals),
    )
    assert "deleted 1" in str(done.new_messages())
    assert len(list_refusals(served)) == 0
    check_requests(served)


async def test_new_messages_are_the_runs_own(served):
    agent = make_agent(make_model(served), make_capability())
    history = await live(agent, served, range(6), [])
    before = dump(history)
    script_turn(served, 6)
    result = await agent.run(ask(6), message_history=history)
    assert dump(history) == before
    assert len(result.new_messages()) == 6
    assert result.all_messages()[: len(history)] == history


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_an_agent_that_is_a_tool_has_a_conversation_of_its_own(served, dialect):
    capability = make_capability()
    model = make_model(served, dialect)
    inner = make_agent(model, capability)
    outer = make_agent(model, capability)
    inner_ids: list[str] = []

    @outer.tool
    async def delegate(ctx: RunContext[object], task: str) -> str:
        """Let another agent do it."""
        result = await inner.run(
            task, usage=ctx.usage, deps=ctx.deps, conversation_id=ctx.conversation_id
        )
        inner_ids.append(f"chat-7/{result.run_id}")
        return str(result.output)

    history: list[ModelMessage] = []
    for turn in range(8):
        call = {"name": "delegate", "arguments": {"task": f"inner task {turn}"}}
        read = {"name": "read_report", "arguments": {"number": turn}}
        script(
            served,
            {"calls": [call]},
            {"calls": [read, read]},
            {"text": 10},
            {"calls": [read]},
            {"text": 10},
        )
        result = await outer.run(ask(turn), message_history=history, conversation_id="chat-7")
        history = result.all_messages()
    assert len(list_refusals(served)) == 0
    for record in list_answered(served):
        body = record.body
        texts = [text for wire in list_messages(body) for text in iterate_texts(wire)]
        is_inner = not any("Turn " in text for text in texts)
        if is_inner:
            assert sum("inner task" in text for text in texts) == 1
    assert (await capability.why("m2", "chat-7")).text.endswith(ask(0))
    assert (await capability.why("m2", inner_ids[3])).text.endswith("inner task 3")
    events = await count_events(capability, "chat-7")
    assert events["rewind"] == 0


async def count_events(capability: TrimtabCapability, conversation_id: str) -> dict[str, int]:
    async def count() -> dict[str, int]:
        store = await capability._conversations._get_store()
        kinds = [type(event.body).__name__.lower() async for event in store.events(conversation_id)]
        return {"rewind": kinds.count("rewind"), "all": len(kinds)}

    return await capability._conversations.run_async(count())


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_restart_in_the_middle_keeps_the_prefix(served, tmp_path, dialect):
    model = make_model(served, dialect)
    first = make_capability(store=tmp_path)
    history = await live(make_agent(model, first), served, range(10), [], conversation_id="c7")
    await first.close()
    saved = dump(history)
    before = list_answered(served)[-1].body
    second = make_capability(store=tmp_path)
    loaded = ModelMessagesTypeAdapter.validate_json(saved)
    script(served, {"text": 10})
    result = await make_agent(model, second).run(
        "One more.", message_history=loaded, conversation_id="c7"
    )
    after = list_answered(served)[-1].body
    assert extends(before, after)
    await live(make_agent(model, second), served, range(11, 16), result.all_messages())
    assert len(list_refusals(served)) == 0
    assert (await count_events(second, "c7"))["rewind"] == 0
    await second.close()


async def test_a_conversation_that_lost_its_log_is_rebuilt_from_the_history(served):
    model = make_model(served)
    history = await live(make_agent(model, make_capability()), served, range(8), [])
    history = await live(make_agent(model, make_capability()), served, range(8, 16), history)
    assert len(list_refusals(served)) == 0
    check_history(history, 16)


async def test_a_history_that_the_caller_cut_or_edited_is_followed(served):
    agent = make_agent(make_model(served), make_capability())
    history = await live(agent, served, range(6), [])
    history = await live(agent, served, range(4, 8), history[:24])
    history = await live(agent, served, range(8, 12), history[12:])
    assert len(list_refusals(served)) == 0
    check_requests(served)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_picture_is_sent_with_an_edited_message(served, dialect):
    picture = BinaryContent(pictures.png(), media_type="image/png")
    agent = make_agent(make_model(served, dialect), make_capability(context_window=8_000))
    script(served, {"text": 5})
    await agent.run([" ".join(f"word{n}" for n in range(6_000)), picture])
    [record] = list_answered(served)
    assert picture.base64 in str(record.body)
    assert "word3000 " not in str(record.body)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_thinking_is_sent_back_as_it_came(served, dialect):
    settings: Any = {"max_tokens": 4_000, "thinking": "low"}
    name = "claude-sonnet-5-5" if dialect == "anthropic" else "gpt-5.2"
    agent = make_agent(
        make_model(served, dialect, name), make_capability(), model_settings=settings
    )
    history = await live(agent, served, range(8), [])
    assert len(list_refusals(served)) == 0
    check_history(history, 8)


async def test_a_fallback_model_uses_the_smallest_window(served):
    big = make_model(served, "openai_chat", "gpt-4o")
    small = make_model(served, "openai_chat", "gpt-4o-mini")
    agent = make_agent(FallbackModel(big, small), make_capability())
    history = await live(agent, served, range(10), [])
    assert len(list_refusals(served)) == 0
    check_history(history, 10)


async def test_the_window_of_a_profile_is_used_for_an_unknown_model(served):
    model = make_model(served, "openai_chat", "my-own-model")
    model.profile["context_window"] = WINDOW
    capability = TrimtabCapability()
    agent = make_agent(model, capability)
    history = await live(agent, served, range(10), [])
    assert len(list_refusals(served)) == 0
    check_history(history, 10)


async def test_a_history_that_the_provider_keeps_is_left_alone(served, caplog):
    settings: Any = {"max_tokens": 1_000, "openai_previous_response_id": "auto"}
    model = make_model(served, "openai_responses")
    agent = make_agent(model, make_capability(), model_settings=settings)
    script(served, {"text": 5}, {"text": 5})
    with caplog.at_level(logging.WARNING):
        result = await agent.run("Hello.")
        await agent.run("And?", message_history=result.all_messages())
    assert [record.message.count("Trimtab does nothing") for record in caplog.records] == [1]


async def test_a_model_for_tests_may_report_any_usage():
    capability = TrimtabCapability()
    agent: Agent[object, Any] = Agent(TestModel(), capabilities=[capability])
    agent.tool_plain(lambda: make_report(1) * 10, name="read_long_report")
    history: list[ModelMessage] = []
    for _ in range(4):
        result = await agent.run("Hi.", message_history=history, conversation_id="ann")
        history = result.all_messages()
    assert (await capability.report("ann")).limit > 10_000


async def test_the_last_of_two_capabilities_counts_and_the_log_says_so(served, caplog):
    agent = make_agent(
        make_model(served), make_capability(recall=False), make_capability(recall=True)
    )
    for _ in range(2):
        await agent.run("Hello.")
    names = [tool["function"]["name"] for tool in list_answered(served)[-1].body["tools"]]
    assert sorted(names) == ["read_report", "recall", "search_history"]
    assert len([r for r in caplog.records if "the last counts" in r.getMessage()]) == 1


async def test_a_copy_of_a_capability_has_the_same_conversations(served, tmp_path):
    capability = make_capability(store=tmp_path)
    await make_agent(make_model(served), capability).run("Hello.", conversation_id="ann")
    assert str(await copy.deepcopy(capability).report("ann")) == str(await capability.report("ann"))
    await capability.close()


async def test_a_system_prompt_in_the_history_is_sent_once(served):
    agent: Agent[object, str] = Agent(
        make_model(served), system_prompt="Old style.", capabilities=[make_capability()]
    )

    @agent.tool_plain
    def read_report(number: int) -> str:
        """Read a report."""
        return make_report(number)

    history = await live(agent, served, range(10), [])
    assert len(list_refusals(served)) == 0
    for record in list_answered(served):
        assert [w for w in list_messages(record.body) if w["role"] == "system"] == [
            {"role": "system", "content": "Old style."}
        ]
    assert isinstance(history[0], ModelRequest)


async def test_every_edit_is_told(served):
    notices: list[Any] = []
    agent = make_agent(make_model(served), make_capability(on_edit=notices.append))
    await live(agent, served, range(8), [])
    assert {notice.op for notice in notices} & {"mask", "truncate", "summarise"}
