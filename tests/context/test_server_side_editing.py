"""Providers that edit a request themselves, since the caller's parameters ask for it; over HTTP."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.lazy import anthropic, openai
from trimtab import Context
from trimtab.engine.log.event import CallOutcome, Edit
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
THINKING: dict[str, Any] = {
    "thinking": {"type": "adaptive"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
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

    def call(context: Context, *, stream: bool = False):
        request = context.request(stream=stream)
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


def edits(context: Context) -> list[Edit]:
    return [event.body for event in context.events if isinstance(event.body, Edit)]


@pytest.mark.slow
def test_auto_hides_nothing_where_the_provider_clears_results(send):
    made: dict[str, Any] = {"tools": [READ], "goal": "cost", "context_window": 64_000}
    context = Context(CLAUDE, params=clearing(20_000), **made)
    replies = read_pages(context, send, 10)
    assert replies[-1].context_management.applied_edits[0].cleared_tool_uses >= 6
    assert edits(context) == []
    beside = Context(CLAUDE, **made)
    read_pages(beside, send, 10)
    assert edits(beside) != []


@pytest.mark.parametrize(
    ("model", "params"),
    [
        (CLAUDE, clearing(1_000)),
        (CLAUDE, COMPACTING),
        (CLAUDE, {"extra_body": {"context_management": COMPACTING["context_management"]}}),
        (GPT, RESPONSES_COMPACTING),
        (GPT, {"truncation": "auto"}),
    ],
)
def test_it_is_told_in_the_report_and_once_in_the_log(model, params, caplog):
    caplog.set_level(logging.INFO, "trimtab.context")
    dialect = "anthropic" if model == CLAUDE else "openai_responses"
    context = Context(model, dialect=dialect, params=params)
    (line,) = caplog.messages
    assert "the provider edits the request itself" in line
    assert "so the policy auto hides only what does not fit" in line
    assert line == context.report().server_editing
    assert line in context.report().breakdown()
    context.configure(max_output_tokens=500)
    assert len(caplog.messages) == 1
    context.configure(params={})
    assert context.report().server_editing == ""


@pytest.mark.parametrize(
    ("dialect", "params"),
    [
        ("anthropic", THINKING),
        ("anthropic", {"betas": ["context-management-2025-06-27"]}),
        ("anthropic", {"truncation": "auto"}),
        ("openai_responses", {"truncation": "disabled"}),
        ("openai_responses", {"context_management": COMPACTING["context_management"]}),
        ("openai_chat", {"context_management": COMPACTING["context_management"]}),
    ],
)
def test_what_edits_nothing_that_is_said_changes_nothing(dialect, params):
    """Old thinking, a beta alone, and what another provider's parameters ask for."""
    context = Context(
        CLAUDE if dialect == "anthropic" else "gpt-4o", dialect=dialect, params=params
    )
    assert context.report().server_editing == ""


def test_a_policy_that_was_asked_for_goes_on_and_a_warning_says_that_there_are_two(caplog):
    context = Context(CLAUDE, policy="layered", params=clearing(1_000))
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "and the policy layered also edits it" in record.getMessage()
    assert record.getMessage() == context.report().server_editing


def test_what_the_caller_set_still_binds(send):
    context = Context(
        CLAUDE,
        tools=[READ],
        limits={"max_tool_result_tokens": 300},
        params=clearing(20_000),
    )
    read_pages(context, send, 2)
    assert {edit.op for edit in edits(context)} == {"truncate"}


@pytest.mark.parametrize("params", [clearing(4_000), {}])
def test_the_guard_keeps_the_request_within_the_window(send, served, params):
    """What leaves is within the window by our own count, whatever the provider takes out of it."""
    window = 24_000
    context = Context(CLAUDE, tools=[READ], context_window=window, params=params)
    for _ in range(12):
        read_pages(context, send, 1)
        assert context.window.last_call is not None
        sent = context.window.last_call.body
        assert sent.bound + sent.max_output <= window
        whole = served.simulator.records.requests[-1].body
        count = served.simulator._counter(CLAUDE)
        real = count.total_tokens(count.split_blocks(whole, "anthropic"))
        assert real <= sent.bound


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True])
def test_usage_after_clearing_does_not_lower_the_bound(send, stream):
    cleared = Context(CLAUDE, tools=[READ], policy="full", params=clearing(8_000))
    whole = Context(CLAUDE, tools=[READ], policy="full")
    for context in (cleared, whole):
        read_pages(context, send, 10, stream=stream)
    counted, real = cleared.report(), last_input(whole)
    assert last_input(cleared) < real / 2, "the server has cleared most of it"
    assert counted.bound >= real
    # What was cleared is told by the server, so that its count is as good as any.
    assert counted.bound <= real * 1.1
    assert counted.doubt == ""


@pytest.mark.slow
def test_usage_after_a_compaction_does_not_lower_the_bound(send):
    context = Context(CLAUDE, tools=[READ], params=COMPACTING)
    plain = Context(CLAUDE, tools=[READ], policy="full")
    for each in (context, plain):
        read_pages(each, send, 18)
    report, real = context.report(), last_input(plain)
    assert last_input(context) < real / 2
    assert report.bound >= real
    assert "the provider edited the request" in report.doubt
    assert edits(context) == []
    blocks = [
        block["type"]
        for message in context.request()["messages"]
        if message["role"] == "assistant"
        for block in message["content"]
    ]
    assert "compaction" in blocks, "it goes back to the provider, or nothing would be compacted"


def test_what_a_compaction_costs_is_in_the_bill(send):
    context = Context(CLAUDE, tools=[READ], params=COMPACTING)
    replies = [reply.usage for reply in read_pages(context, send, 14)]
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
    params = {**RESPONSES_COMPACTING}
    made: dict[str, Any] = {"dialect": "openai_responses", "tools": [READ]}
    context, plain = Context(GPT, params=params, **made), Context(GPT, policy="full", **made)
    for each in (context, plain):
        read_pages(each, send, 6, stream=stream)
    report, real = context.report(), last_input(plain)
    assert last_input(context) < real / 2
    assert report.bound >= real
    assert edits(context) == []
    assert "compaction" in [item.get("type") for item in context.request()["input"]]


@pytest.mark.slow
def test_a_server_that_truncates_on_request_does_not_lower_the_bound(send, served):
    made: dict[str, Any] = {
        "dialect": "openai_responses",
        "tools": [READ],
        "context_window": 400_000,
    }
    context = Context(GPT, params={"truncation": "auto"}, **made)
    plain = Context(GPT, policy="full", **made)
    read_pages(plain, send, 7)
    served.simulator.configure(window=20_000)
    read_pages(context, send, 7)
    report, real = context.report(), last_input(plain)
    assert last_input(context) < real
    assert report.bound >= real


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
