"""Providers that edit a request themselves, since the caller asks for it in the call; over HTTP.

A context refuses such parameters. A caller may still add them to a call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.lazy import anthropic, openai
from trimtab import Context
from trimtab.engine.log.event import CallOutcome
from trimtab.testing.server import serve_simulated_provider

CLAUDE, GPT = "claude-sonnet-4-6", "gpt-5.2"
READ: dict[str, Any] = {"name": "read", "description": "Read.", "input_schema": {"type": "object"}}
PAGE = "What stands on this page is neither short nor of any use to anybody at all.\n" * 220


def clearing(trigger: int, keep: int = 1) -> dict[str, Any]:
    edit = {
        "type": "clear_tool_uses_20250919",
        "trigger": {"type": "input_tokens", "value": trigger},
        "keep": {"type": "tool_uses", "value": keep},
    }
    return {"context_management": {"edits": [edit]}, "betas": ["context-management-2025-06-27"]}


COMPACTING: dict[str, Any] = {
    "context_management": {
        "edits": [
            {"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": 50_000}}
        ]
    },
    "betas": ["compact-2026-01-12"],
}
RESPONSES_COMPACTING: dict[str, Any] = {
    "context_management": [{"type": "compaction", "compact_threshold": 8_000}],
}


@pytest.fixture(scope="module")
def served():
    with serve_simulated_provider() as running:
        yield running


@pytest.fixture
def send(served):
    """Send the next request by its provider's SDK, add the reply, and return it."""
    served.simulator.reset()
    served.simulator.configure(window=None)
    claude = anthropic.Anthropic(base_url=served.url, api_key="k", max_retries=0)
    gpt = openai.OpenAI(base_url=served.openai_url, api_key="k", max_retries=0)

    def call(context: Context, *, stream: bool = False, asks: Mapping[str, Any] | None = None):
        request = {**context.request(stream=stream), **(asks or {})}
        if "messages" in request:
            reply = claude.beta.messages.create(**request)
        else:
            reply = gpt.responses.create(**request)
        if stream:
            for _ in context.watch(reply):
                pass
            return None
        context.add(reply)
        return reply

    with claude, gpt:
        yield call


def read_pages(context: Context, send: Any, count: int, **how: Any) -> list[Any]:
    """An agent that reads one page after the other; its replies."""
    replies: list[Any] = []
    for number in range(count):
        name = f"t{len(context.events)}"
        context.add({"role": "user", "content": f"Read page {number}."})
        if context.window.settings.dialect == "anthropic":
            call = {"type": "tool_use", "id": name, "name": "read", "input": {}}
            context.add({"role": "assistant", "content": [call]})
            found = {"type": "tool_result", "tool_use_id": name, "content": PAGE}
            context.add({"role": "user", "content": [found]})
        else:
            call = {"type": "function_call", "call_id": name, "name": "read", "arguments": "{}"}
            context.add(call)
            context.add({"type": "function_call_output", "call_id": name, "output": PAGE})
        replies.append(send(context, **how))
    return replies


def last_input(context: Context) -> int:
    """Input tokens that the provider has reported for the last call."""
    used = context.report().last_usage
    assert used is not None
    return used.input


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True])
def test_usage_after_clearing_does_not_lower_the_bound(send, stream):
    cleared = Context(CLAUDE, tools=[READ], policy="full")
    whole = Context(CLAUDE, tools=[READ], policy="full")
    for context, asks in ((cleared, clearing(8_000)), (whole, {})):
        read_pages(context, send, 10, stream=stream, asks=asks)
    counted, real = cleared.report(), last_input(whole)
    assert last_input(cleared) < real / 2, "the server has cleared most of it"
    assert counted.bound >= real
    # What was cleared is told by the server, so that its count is as good as any.
    assert counted.bound <= real * 1.1
    assert counted.doubt == ""


@pytest.mark.slow
def test_usage_after_a_compaction_does_not_lower_the_bound(send):
    context = Context(CLAUDE, tools=[READ], policy="full")
    plain = Context(CLAUDE, tools=[READ], policy="full")
    for each, asks in ((context, COMPACTING), (plain, {})):
        read_pages(each, send, 18, asks=asks)
    report, real = context.report(), last_input(plain)
    assert last_input(context) < real / 2
    assert report.bound >= real
    assert "the reported usage is ignored" in report.doubt
    blocks = [
        block["type"]
        for message in context.preview().request["messages"]
        if message["role"] == "assistant"
        for block in message["content"]
    ]
    assert "compaction" in blocks, "it goes back to the provider, or nothing would be compacted"


def test_what_a_compaction_costs_is_in_the_bill(send):
    context = Context(CLAUDE, tools=[READ], policy="full")
    replies = [reply.usage for reply in read_pages(context, send, 14, asks=COMPACTING)]
    outcomes = [e.body.usage for e in context.events if isinstance(e.body, CallOutcome)]
    pairs = zip(replies, outcomes, strict=True)
    ((told, ours),) = (pair for pair in pairs if pair[0].iterations)
    compaction = next(each for each in told.iterations if each.type == "compaction")
    top = told.input_tokens + told.cache_read_input_tokens + told.cache_creation_input_tokens
    assert ours is not None
    assert ours.input == top + compaction.input_tokens > 50_000
    assert ours.output == told.output_tokens + compaction.output_tokens


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True])
def test_a_compaction_by_openai_does_not_lower_the_bound(send, stream):
    made: dict[str, Any] = {"dialect": "openai_responses", "tools": [READ], "policy": "full"}
    context, plain = Context(GPT, **made), Context(GPT, **made)
    for each, asks in ((context, RESPONSES_COMPACTING), (plain, {})):
        read_pages(each, send, 6, stream=stream, asks=asks)
    report, real = context.report(), last_input(plain)
    assert last_input(context) < real / 2
    assert report.bound >= real
    assert "compaction" in [item.get("type") for item in context.preview().request["input"]]


def test_a_loop_of_the_provider_s_own_tools_is_counted_once():
    """Its usage is the sum of all runs of the model; the first has read what we sent."""
    context = Context(CLAUDE, policy="full")
    context.add({"role": "user", "content": "Search. " * 1_000})
    context.request()
    figures = {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 9}
    runs = [{"type": "message", "input_tokens": n, **figures} for n in (2_000, 2_600, 3_100)]
    said = [{"type": "text", "text": "Found."}]
    usage = {**figures, "input_tokens": 7_700, "output_tokens": 27, "iterations": runs}
    made = {"id": "msg_1", "type": "message", "role": "assistant", "model": CLAUDE}
    context.add({**made, "stop_reason": "end_turn", "content": said, "usage": usage})
    report = context.report()
    assert last_input(context) == 7_700, "all of it is paid for"
    assert report.bound < 2_200
