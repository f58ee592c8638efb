"""Faults of LangChain's own middleware, each shown, and gone with ours."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("langchain", reason="LangChain is not installed here")

from langchain.agents import create_agent
from langchain.agents.middleware import (
    ClearToolUsesEdit,
    ContextEditingMiddleware,
    SummarizationMiddleware,
)
from langchain.tools import ToolRuntime
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from tests.integrations.langchain.lives import (
    WINDOW,
    bodies,
    history,
    live,
    make_model,
    read_report,
    say,
)
from tests.integrations.life import (
    count_prefix_breaks,
    list_refusals,
    read_cache_ratio,
    write_report,
)
from trimtab.integrations.langchain import TrimtabMiddleware

pytestmark = pytest.mark.filterwarnings("default")
PICTURE = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGA"
    "WjR9awAAAABJRU5ErkJggg=="
)


def make_agent(served: Any, middleware: Any, api: str = "openai_chat") -> Any:
    return create_agent(
        make_model(api, served),
        [read_report],
        system_prompt="Be careful.",
        middleware=[middleware],
        checkpointer=InMemorySaver(),
    )


def summarising(served: Any, **options: Any) -> SummarizationMiddleware:
    return SummarizationMiddleware(make_model("openai_chat", served), **options)


def is_of_agent(body: Any) -> bool:
    """Whether it is a request of the agent, and not of the summariser."""
    return "tools" in body


def test_its_summary_replaces_the_history_that_langgraph_keeps(served):
    summary = summarising(served, trigger=("tokens", 9_000), keep=("messages", 6))
    alone = make_agent(served, summary)
    live(alone, served, range(6))
    assert len(history(alone)) < 6 * 7
    assert write_report(0) not in [each.text for each in history(alone)]
    ours = make_agent(served, TrimtabMiddleware(context_window=WINDOW))
    live(ours, served, range(6))
    assert len(history(ours)) == 6 * 7


def test_its_summary_of_a_long_tool_loop_is_one_sentence(served):
    # The summariser gets the newest 4,000 tokens, which must begin with a human message.
    summary = summarising(served, trigger=("tokens", 9_000), keep=("messages", 2))
    calls = [{"calls": [{"name": "read_report", "arguments": {"number": n}}]} for n in range(10)]
    texts: dict[str, str] = {}
    for name, middleware in {
        "alone": summary,
        "ours": TrimtabMiddleware(context_window=WINDOW),
    }.items():
        agent = make_agent(served, middleware)
        served.simulator.script.set_replies([*calls, "Done."], otherwise="Done.")
        say(agent, "Read ten reports, and remember that the boat is called Ada.")
        texts[name] = json.dumps(bodies(served)[-1])
    assert "Previous conversation was too long to summarize." in texts["alone"]
    assert "Ada" not in texts["alone"]
    assert "Ada" in texts["ours"]


def test_its_summary_is_written_before_many_calls_if_the_kept_part_is_large(served):
    summary = summarising(
        served, trigger=("tokens", 2_000), keep=("messages", 4), trim_tokens_to_summarize=None
    )
    live(make_agent(served, summary), served, range(6))
    of_agent = [body for body in bodies(served) if is_of_agent(body)]
    alone = count_prefix_breaks(served, is_of_agent) / len(of_agent)
    served.simulator.reset()
    live(make_agent(served, TrimtabMiddleware(context_window=WINDOW)), served, range(6))
    ours = count_prefix_breaks(served, is_of_agent) / len(bodies(served))
    assert alone > 0.4
    assert ours < alone * 0.8, (ours, alone)


@tool
def look_at_picture(runtime: ToolRuntime[Any, Any], number: int) -> Command[Any]:
    """Look at a picture."""
    # The usual way to show a picture: OpenAI takes it in a message of the user.
    picture = {"type": "image", "base64": PICTURE, "mime_type": "image/png"}
    result = ToolMessage(f"Picture {number} follows.", tool_call_id=runtime.tool_call_id)
    return Command(update={"messages": [result, HumanMessage([picture])]})


def test_its_summary_leaves_results_without_their_call(served):
    calls = [{"name": "look_at_picture", "arguments": {"number": n}} for n in range(2)]

    def run(*middleware: Any) -> Any:
        served.simulator.reset()
        agent = create_agent(
            make_model("openai_responses", served),
            [look_at_picture],
            middleware=middleware,
            checkpointer=InMemorySaver(),
        )
        served.simulator.script.set_replies([{"calls": calls}], otherwise="Yes.")
        say(agent, "Look at both pictures.")
        return agent

    assert len(history(run())) == 7  # the list is valid, only the summary breaks it
    with pytest.raises(Exception, match="No tool call found"):
        run(summarising(served, trigger=("messages", 6), keep=("messages", 3)))
    assert len(history(run(TrimtabMiddleware(context_window=WINDOW)))) == 7
    assert list_refusals(served) == []


def test_its_clearing_writes_the_prompt_of_claude_to_the_cache_at_each_call(served):
    from langchain_anthropic.middleware import AnthropicPromptCachingMiddleware

    clearing = ContextEditingMiddleware(edits=[ClearToolUsesEdit(trigger=6_000, keep=3)])
    alone = create_agent(
        make_model("anthropic", served),
        [read_report],
        system_prompt="Be careful.",
        middleware=[clearing, AnthropicPromptCachingMiddleware()],
        checkpointer=InMemorySaver(),
    )
    live(alone, served, range(12))
    read_alone = read_cache_ratio(served)
    served.simulator.reset()
    live(
        make_agent(served, TrimtabMiddleware(context_window=WINDOW), "anthropic"), served, range(12)
    )
    assert list_refusals(served) == []
    assert read_cache_ratio(served) > read_alone
