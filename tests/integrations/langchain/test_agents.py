"""An agent with the middleware, against a strict provider."""

from __future__ import annotations

import json
import logging
import re
import sqlite3
from pathlib import Path
from typing import Any, ClassVar

import pytest

pytest.importorskip("langchain", reason="LangChain is not installed here")

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain_anthropic.middleware import AnthropicPromptCachingMiddleware
from langchain_core.exceptions import ContextOverflowError
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command
from pydantic import BaseModel

from tests.integrations.langchain.lives import (
    RUNNER,
    THREAD,
    WINDOW,
    bodies,
    history,
    live,
    make_model,
    read_report,
    say,
)
from tests.integrations.life import (
    count_cut,
    count_prefix_breaks,
    list_refusals,
    read_cache_ratio,
    write_report,
)
from trimtab.engine.log.event import CallOutcome, MessageAdded
from trimtab.integrations.langchain import TrimtabMiddleware
from trimtab.stores.memory import MemoryStore
from trimtab.testing import serve_simulated_provider

pytestmark = pytest.mark.filterwarnings("default")  # LangChain warns of its own parts
APIS = ("openai_chat", "openai_responses", "anthropic")
HANDLE = re.compile(r"recall (m\d+\.\d+)")


def make_agent(model: Any, middleware: Any = None, *, saver: Any = None, **options: Any) -> Any:
    return create_agent(
        model,
        [read_report],
        system_prompt="Be careful.",
        middleware=[TrimtabMiddleware(context_window=WINDOW)] if middleware is None else middleware,
        checkpointer=saver or InMemorySaver(),
        **options,
    )


@pytest.mark.parametrize("way", ["invoke", "stream", "ainvoke", "astream"])
@pytest.mark.parametrize("api", APIS)
def test_an_agent_outlives_its_window_and_keeps_its_history(api, way, served):
    agent = make_agent(make_model(api, served))
    live(agent, served, range(12), way)
    assert list_refusals(served) == []
    said = history(agent)
    assert len(said) == 12 * 7
    results = [each.text for each in said if each.type == "tool"]
    assert results == [write_report(number) for number in range(36)]
    sent = json.dumps(bodies(served)[-1])
    assert "recall m" in sent
    assert len(sent) < sum(map(len, results)) / 2


def test_an_agent_alone_does_not(served):
    agent = make_agent(make_model("openai_chat", served), middleware=[])
    with pytest.raises(Exception, match="maximum context length"):
        live(agent, served, range(12))


@pytest.mark.parametrize("way", ["invoke", "stream", "ainvoke"])
@pytest.mark.parametrize("api", APIS)
def test_a_window_that_is_smaller_than_believed_is_learned_from_one_refusal(api, way, served):
    agent = make_agent(make_model(api, served), [TrimtabMiddleware(context_window=32_000)])
    live(agent, served, range(10), way)
    assert len(list_refusals(served)) + count_cut(served) == 1
    said = history(agent)
    assert [each.type for each in said].count("human") == 10
    assert all(each.text or each.tool_calls for each in said if each.type == "ai")


@pytest.mark.parametrize("way", ["invoke", "stream", "ainvoke"])
def test_a_reply_that_a_full_window_cut_is_requested_again(way, served):
    agent = make_agent(make_model("anthropic", served), [TrimtabMiddleware(context_window=32_000)])
    served.simulator.script.set_replies([], otherwise={"text": 900})
    for turn in range(20):
        say(agent, f"Question {turn}", way)
    assert count_cut(served) == 1
    replies = [each for each in history(agent) if each.type == "ai"]
    assert {each.response_metadata["stop_reason"] for each in replies} == {"end_turn"}
    assert len(replies) == 20


def test_claude_s_largest_reply_as_the_default_does_not_take_the_window(served):
    model = make_model("anthropic", served, max_tokens=None)
    assert model.max_tokens > WINDOW
    agent = make_agent(model)
    live(agent, served, range(6))
    assert list_refusals(served) == []
    assert {body["max_tokens"] for body in bodies(served)} == {WINDOW // 4}


@pytest.mark.parametrize("restarts", [False, True])
def test_claude_s_largest_reply_as_the_default_shrinks_with_a_window_that_is_learned(
    restarts, served
):
    model = make_model("anthropic", served, max_tokens=None)
    store, saver = MemoryStore(), InMemorySaver()
    agent = make_agent(model, [TrimtabMiddleware(store=store)], saver=saver)
    calls = [{"name": "read_report", "arguments": {"number": number}} for number in range(16)]
    for some in (calls[:6], calls[6:]):  # the second list is far too long for the window
        served.simulator.script.set_replies([{"calls": some}, {"text": 10}])
        say(agent, "Read reports.")
    if restarts:
        agent = make_agent(model, [TrimtabMiddleware(store=store)], saver=saver)
    live(agent, served, range(6, 9))
    assert len(list_refusals(served)) == 1
    asked = [body["max_tokens"] for body in bodies(served)]
    assert [*dict.fromkeys(asked)] == [model.max_tokens, WINDOW // 4]


def test_no_output_limit_is_sent_that_nobody_has_set(served):
    agent = make_agent(make_model("openai_chat", served, max_tokens=None))
    live(agent, served, range(6))
    assert list_refusals(served) == []
    assert not [
        body for body in bodies(served) if {"max_tokens", "max_completion_tokens"} & {*body}
    ]


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
@pytest.mark.parametrize("thread", ["thread", "no thread"])
def test_the_model_recalls_what_is_hidden_byte_for_byte(thread, way, served):
    agent = make_agent(make_model("openai_chat", served))
    live(agent, served, range(6))
    said = history(agent)
    config = THREAD
    if thread == "no thread":
        agent = create_agent(
            make_model("openai_chat", served),
            [read_report],
            middleware=[TrimtabMiddleware(context_window=WINDOW)],
        )
        config = {"recursion_limit": 50}
    served.simulator.script.set_replies(["Yes."])
    first = {"messages": said if thread == "no thread" else [("user", "Go on.")]}
    agent.invoke(first, config)
    handle = HANDLE.findall(json.dumps(bodies(served)[-1]))[0]
    call = {"name": "recall", "arguments": {"handle": handle}}
    # The oldest result is hidden, however many tokens the random ids of the calls have.
    search = {"name": "search_history", "arguments": {"query": "line_0_119"}}
    served.simulator.script.set_replies([{"calls": [call, search]}, "Done."])
    second = {
        "messages": [*said, ("user", "Look it up.")]
        if thread == "no thread"
        else [("user", "Look it up.")]
    }
    run = agent.invoke if way == "invoke" else lambda *args: RUNNER.run(agent.ainvoke(*args))
    ended = run(second, config)["messages"]
    recalled, found = ended[-3].text, ended[-2].text
    number = int(re.findall(r"report (\d+): ", recalled)[0])
    assert recalled == write_report(number)
    assert write_report(0)[-200:] in found
    assert list_refusals(served) == []


class Verdict(BaseModel):
    """What was found."""

    text: str


def test_a_structured_response_by_a_tool(served):
    agent = make_agent(make_model("openai_chat", served), response_format=ToolStrategy(Verdict))
    for turn in range(9):
        calls = [{"name": "read_report", "arguments": {"number": 2 * turn + k}} for k in range(2)]
        verdict = {"name": "Verdict", "arguments": {"text": f"fine {turn}"}}
        served.simulator.script.set_replies([{"calls": calls}, {"calls": [verdict]}])
        ended = agent.invoke({"messages": [("user", f"Turn {turn}")]}, THREAD)
        assert ended["structured_response"] == Verdict(text=f"fine {turn}")
    assert list_refusals(served) == []
    assert "recall m" in json.dumps(bodies(served)[-1])


def test_a_structured_response_by_the_provider(served):
    agent = make_agent(make_model("openai_chat", served), response_format=ProviderStrategy(Verdict))
    for turn in range(5):
        calls = [{"name": "read_report", "arguments": {"number": 2 * turn + k}} for k in range(2)]
        served.simulator.script.set_replies(
            [{"calls": calls}, json.dumps({"text": f"fine {turn}"})]
        )
        ended = agent.invoke({"messages": [("user", f"Turn {turn}")]}, THREAD)
        assert ended["structured_response"] == Verdict(text=f"fine {turn}")
    assert list_refusals(served) == []


def test_report_and_why_tell_what_is_hidden(served):
    middleware = TrimtabMiddleware(context_window=WINDOW)
    with pytest.raises(LookupError, match="no model call"):
        middleware.report()
    agent = make_agent(make_model("openai_chat", served), [middleware])
    live(agent, served, range(6))
    report = middleware.report("thread-1")
    assert report.limit == WINDOW
    assert report.hidden
    assert report.calls == 18
    assert report.last_usage is not None
    assert str(middleware.report()) == str(report) == str(RUNNER.run(middleware.areport()))
    handle = HANDLE.findall(json.dumps(bodies(served)[-1]))[0]
    why = middleware.why(handle, "thread-1")
    assert str(why) == str(RUNNER.run(middleware.awhy(handle)))
    with pytest.raises(LookupError):
        middleware.report("another thread")


def test_the_log_has_each_reply_with_its_usage_when_a_turn_ends(served):
    store = MemoryStore()
    agent = make_agent(
        make_model("openai_chat", served), [TrimtabMiddleware(context_window=WINDOW, store=store)]
    )
    live(agent, served, range(2))

    async def read() -> list[Any]:
        return [event.body async for event in store.events("thread-1")]

    log = RUNNER.run(read())
    sent = [record.reply["usage"]["prompt_tokens"] for record in served.simulator.records.requests]
    heard = [body.usage.input for body in log if isinstance(body, CallOutcome) and body.usage]
    assert heard == sent
    added = [body.message for body in log if isinstance(body, MessageAdded)]
    assert len(added) == len(history(agent)) == 2 * 7
    assert added[-1].text == history(agent)[-1].text


@pytest.mark.parametrize("keeps_log", [True, False])
def test_a_restart_goes_on_with_the_same_prompt_if_there_is_a_store(keeps_log, served, tmp_path):
    def run(turns: range) -> None:
        store = str(tmp_path / "logs") if keeps_log else None
        saver = SqliteSaver(sqlite3.connect(tmp_path / "threads", check_same_thread=False))
        middleware = TrimtabMiddleware(context_window=WINDOW, store=store)
        agent = make_agent(make_model("openai_chat", served), [middleware], saver=saver)
        live(agent, served, turns)
        middleware.close()

    run(range(6))
    before = bodies(served)[-1]["messages"]
    run(range(6, 8))
    after = bodies(served)[18]["messages"]
    assert list_refusals(served) == []
    assert (after[: len(before)] == before) is keeps_log


def test_claude_s_cache_is_read_with_at_most_four_marks(served):
    figures: dict[str, float] = {}
    ours = TrimtabMiddleware(context_window=WINDOW)
    for name, middleware in {
        "ours": [ours],
        "off": [TrimtabMiddleware(context_window=WINDOW, cache="off")],
        "inside": [TrimtabMiddleware(context_window=WINDOW), AnthropicPromptCachingMiddleware()],
        "outside": [AnthropicPromptCachingMiddleware(), TrimtabMiddleware(context_window=WINDOW)],
    }.items():
        served.simulator.reset()
        live(make_agent(make_model("anthropic", served), middleware), served, range(12))
        assert list_refusals(served) == []
        figures[name] = read_cache_ratio(served)
        marks = max(json.dumps(body).count("cache_control") for body in bodies(served))
        assert marks <= 4
    assert figures["off"] == 0
    assert min(figures["ours"], figures["inside"], figures["outside"]) > 0.55


def test_a_cache_setting_of_the_caller_stays(served):
    agent = make_agent(
        make_model("anthropic", served, model_kwargs={}),
        [TrimtabMiddleware(context_window=WINDOW, cache="1h")],
    )
    live(agent, served, range(2))
    assert {body["cache_control"]["ttl"] for body in bodies(served)} == {"1h"}


def test_a_call_that_a_human_edits_or_rejects_is_sent_as_it_was_run(served):
    review = HumanInTheLoopMiddleware(interrupt_on={"read_report": True})
    middleware = [TrimtabMiddleware(context_window=WINDOW), review]
    agent = make_agent(make_model("openai_chat", served), middleware)
    for turn in range(5):
        calls = [{"name": "read_report", "arguments": {"number": 10 * turn + k}} for k in range(2)]
        served.simulator.script.set_replies([{"calls": calls}, "Done."])
        say(agent, f"Turn {turn}: read two reports.")
        edited = {"name": "read_report", "args": {"number": 10 * turn + 5}}
        decisions = [
            {"type": "edit", "edited_action": edited},
            {"type": "reject", "message": "No."},
        ]
        agent.invoke(Command(resume={"decisions": decisions}), THREAD)
    assert list_refusals(served) == []
    assert write_report(45) in json.dumps(bodies(served)[-1])


def test_a_turn_that_broke_off_leaves_no_call_without_a_result(served):
    def break_off(number: int) -> str:
        """Read a report."""
        raise KeyboardInterrupt

    for middleware in ([], [TrimtabMiddleware(context_window=WINDOW)]):
        served.simulator.reset()
        agent = create_agent(
            make_model("openai_chat", served),
            [break_off],
            middleware=middleware,
            checkpointer=InMemorySaver(),
        )
        call = {"name": "break_off", "arguments": {"number": 1}}
        served.simulator.script.set_replies([{"calls": [call]}, "Yes."], otherwise="Yes.")
        with pytest.raises(KeyboardInterrupt):
            say(agent, "Read it.")
        if not middleware:
            with pytest.raises(Exception, match="tool_call"):
                say(agent, "Are you there?")
        else:
            say(agent, "Are you there?")
            assert list_refusals(served) == []


def test_a_refusal_that_only_langchain_recognises_is_answered(served):
    class Refusing(GenericFakeChatModel):
        seen: ClassVar[list[int]] = []

        def bind_tools(self, tools: Any, **settings: Any) -> Any:
            return self

        def _generate(self, messages: Any, *args: Any, **settings: Any) -> Any:
            self.seen.append(sum(len(each.text) for each in messages))
            if self.seen[-1] > 60_000:
                raise ContextOverflowError("far too much")
            return super()._generate(messages, *args, **settings)

    model = Refusing(messages=(AIMessage("Yes.") for _ in range(50)))
    agent = make_agent(model, [TrimtabMiddleware(context_window=64_000, policy="full")])
    for number in range(12):
        say(agent, f"Question {number}: " + write_report(number) * 3)
    assert len(history(agent)) == 24
    assert max(model.seen) > 60_000


def test_a_model_that_keeps_its_history_at_the_provider_is_left_alone(served, caplog):
    model = make_model("openai_responses", served, use_previous_response_id=True)
    agent = make_agent(model)
    with caplog.at_level(logging.WARNING, logger="trimtab.langchain"):
        live(agent, served, range(2))
    told = [each.message for each in caplog.records if each.name == "trimtab.langchain"]
    assert told == ["the model keeps its history at the provider; Trimtab does not edit it"]


def test_the_graph_on_the_page_runs(served):
    page = (Path(__file__).parents[3] / "docs" / "langchain.md").read_text()
    code = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[-1]
    code = code.replace("TrimtabMiddleware()", f"TrimtabMiddleware(context_window={WINDOW})")
    names: dict[str, Any] = {"model": make_model("openai_chat", served), "tools": [read_report]}
    exec(code, names)  # noqa: S102
    graph = names["graph"]
    live(graph, served, range(6))
    assert bodies(served)[-1]["messages"][0]["content"] == "Be careful."
    handle = HANDLE.findall(json.dumps(bodies(served)[-1]))[0]
    call = {"name": "recall", "arguments": {"handle": handle}}
    served.simulator.script.set_replies([{"calls": [call]}, "Done."])
    say(graph, "Look it up.")
    recalled = history(graph)[-2].text
    assert recalled == write_report(int(re.findall(r"report (\d+): ", recalled)[0]))
    assert list_refusals(served) == []


def test_a_strict_template_gets_alternating_roles():
    with serve_simulated_provider(window=WINDOW, template="strict") as strict:
        model = make_model("openai_chat", strict).model_copy(update={"model_name": "qwen3"})
        limits: Any = {"summary": {"keep": 11}}
        options: Any = {"policy": "rolling", "limits": limits, "recall": False}
        middleware = TrimtabMiddleware(context_window=WINDOW, **options)
        agent = create_agent(
            model,
            [],
            system_prompt="Be careful.",
            middleware=[middleware],
            checkpointer=InMemorySaver(),
        )
        strict.simulator.script.set_replies([], otherwise={"text": 60})
        for number in range(30):
            say(agent, f"Question {number}. " * 20)
        assert list_refusals(strict) == []
        assert count_prefix_breaks(strict) < 25
