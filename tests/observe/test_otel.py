"""Spans and measurements as the real SDK exports them."""

import asyncio
import json
import logging

import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode

from tests.conversations import prose
from tests.session.summarised_chats import GOOD, writer
from tests.session.turns.sessions import Hand, create, found, say
from trimtab.engine.log.event import ModelCall as Sent
from trimtab.engine.log.event import Usage
from trimtab.errors import ProviderError, ProviderFailureDetails
from trimtab.observe.request_ids import RequestIdLogFilter, bind_request_id
from trimtab.session.turn import run_turn
from trimtab.testing import ScriptedCall, ScriptedProvider, ScriptedReply
from trimtab_serve.process.logging_setup import JsonLogFormatter

pytestmark = pytest.mark.anyio

MODEL = "claude-sonnet-4-5"
USED = Usage(input=1_000, output=10, cache_read=600, cache_write=300)
OWN = {
    "gen_ai.provider.name": "anthropic",
    "gen_ai.conversation.id": "s",
    "gen_ai.agent.name": "helper",
}


def claude(*replies):
    return ScriptedProvider("anthropic", replies)


async def turn(session, provider, tools, traced, says="Go."):
    made = [hand.tool for hand in tools]
    await run_turn(session, provider, made, message=say(says), on_event=traced.tell())


def within(span):
    return span.parent.span_id if span.parent is not None else None


def seconds(span):
    return (span.end_time - span.start_time) / 1e9


async def test_calls_and_tools_are_spans_within_the_turn(memory, traced):
    session = await create(memory)
    provider = claude(
        ScriptedReply(calls=(ScriptedCall(name="read", id="c1"),), usage=USED), "Done."
    )
    await turn(session, provider, [Hand()], traced)
    names = [span.name for span in traced.spans]
    assert names == ["invoke_agent helper", f"chat {MODEL}", "execute_tool read", f"chat {MODEL}"]
    whole, first, tool, _ = traced.spans
    assert {within(span) for span in traced.spans[1:]} == {whole.context.span_id}
    assert whole.parent is None
    assert dict(whole.attributes) == {
        **OWN,
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.request.model": MODEL,
        "trimtab.turn.outcome": "done",
        "trimtab.turn.calls": 2,
    }
    share = (
        first.attributes["trimtab.window.tokens"] / first.attributes["trimtab.window.budget_tokens"]
    )
    assert dict(first.attributes) == {
        **OWN,
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": MODEL,
        "gen_ai.request.max_tokens": 8_192,
        "gen_ai.usage.input_tokens": 1_000,
        "gen_ai.usage.output_tokens": 10,
        "gen_ai.usage.cache_read.input_tokens": 600,
        "gen_ai.usage.cache_write.input_tokens": 300,
        "trimtab.cost.usd": pytest.approx(0.001755),
        "trimtab.window.messages": 1,
        "trimtab.window.tokens": (await found(memory, Sent))[0].tokens,
        "trimtab.window.system_and_tools_tokens": session.window.settings.head.tokens,
        "trimtab.window.summary_tokens": 0,
        "trimtab.window.budget_tokens": 200_000 - 8_192,
        "trimtab.window.budget_ratio": share,
        "trimtab.window.near_limit": False,
    }
    assert dict(tool.attributes) == {
        **OWN,
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "read",
        "gen_ai.tool.call.id": "c1",
        "gen_ai.tool.type": "function",
    }
    kinds = [SpanKind.INTERNAL, SpanKind.CLIENT, SpanKind.INTERNAL]
    assert [span.kind for span in (whole, first, tool)] == kinds
    assert {span.status.status_code for span in traced.spans} == {StatusCode.UNSET}


async def test_parallel_tools_overlap_and_hold_what_is_traced_in_them(memory, traced):
    meet = asyncio.Barrier(2)

    async def inside(asked):
        await meet.wait()
        with traced.tracers.get_tracer("own").start_as_current_span(f"inside {asked.name}"):
            await meet.wait()
        return "done"

    session = await create(memory)
    provider = claude([ScriptedCall(name="left"), ScriptedCall(name="right")], "Done.")
    await turn(session, provider, [Hand("left", inside), Hand("right", inside)], traced)
    (whole,) = traced.named("invoke_agent")
    tools = {span.name: span for span in traced.named("execute_tool")}
    left, right = tools["execute_tool left"], tools["execute_tool right"]
    assert within(left) == within(right) == whole.context.span_id
    assert max(left.start_time, right.start_time) < min(left.end_time, right.end_time)
    for side in ("left", "right"):
        (own,) = traced.named(f"inside {side}")
        assert within(own) == tools[f"execute_tool {side}"].context.span_id


async def test_a_turns_span_has_the_id_of_the_request(memory, traced):
    session = await create(memory)
    with bind_request_id("r-1"):
        await turn(session, claude("Ok"), [], traced)
    await turn(session, claude("Ok"), [], traced)
    found = [dict(span.attributes or {}) for span in traced.named("invoke_agent")]
    assert [each.get("trimtab.request.id") for each in found] == ["r-1", None]


def test_log_lines_have_the_ids_of_the_span_they_are_written_in(traced):
    def fields():
        record = logging.makeLogRecord({"msg": "Hm."})
        assert RequestIdLogFilter().filter(record)
        told = json.loads(JsonLogFormatter().format(record))
        return {name: told[name] for name in ("request_id", "trace_id", "span_id") if name in told}

    assert fields() == {}
    with traced.tracers.get_tracer("test").start_as_current_span("work"), bind_request_id("r-1"):
        written = fields()
    (span,) = traced.spans
    assert written == {
        "request_id": "r-1",
        "trace_id": format(span.context.trace_id, "032x"),
        "span_id": format(span.context.span_id, "016x"),
    }
    assert fields() == {}


async def test_a_turn_is_within_the_callers_span_and_gives_it_back(memory, traced):
    session = await create(memory)
    with traced.tracers.get_tracer("own").start_as_current_span("request") as outer:
        await turn(session, claude(ScriptedCall(name="read"), "Done."), [Hand()], traced)
        assert trace.get_current_span() is outer
    (whole,) = traced.named("invoke_agent")
    assert within(whole) == outer.get_span_context().span_id


async def test_the_provider_is_called_within_the_span_of_the_call(memory, traced):
    class Asked(ScriptedProvider):
        async def send(self, request):
            with traced.tracers.get_tracer("own").start_as_current_span("POST"):
                pass
            async for event in super().send(request):
                yield event

    await turn(await create(memory), Asked("anthropic", ["Hm."]), [], traced)
    (post,), (chat,) = traced.named("POST"), traced.named("chat")
    assert within(post) == chat.context.span_id


async def test_a_call_takes_as_long_as_the_provider_does(memory, traced):
    class Slow(ScriptedProvider):
        async def send(self, request):
            await asyncio.sleep(0.05)
            async for event in super().send(request):
                yield event

    await turn(await create(memory), Slow("anthropic", ["Hm."]), [], traced)
    (whole,), (chat,) = traced.named("invoke_agent"), traced.named("chat")
    assert 0.05 <= seconds(chat) <= seconds(whole) < 30
    assert whole.start_time <= chat.start_time < chat.end_time <= whole.end_time


async def test_a_call_that_is_made_again_is_two_spans_of_which_one_failed(memory, traced):
    session = await create(memory, policy="full", context_window=100_000)
    for number in range(20):
        role = "assistant" if number % 2 else "user"
        await session.add({"role": role, "content": prose(2_000, f"message {number}")})
    refused = ProviderFailureDetails(kind="overflow", message="zanzibar is too long", limit=6_000)
    await turn(session, claude(refused, "Fine."), [], traced)
    first, second = traced.named("chat")
    assert first.status.status_code is StatusCode.ERROR
    assert first.attributes["error.type"] == "overflow"
    assert second.status.status_code is StatusCode.UNSET
    assert second.attributes["trimtab.edits.hidden_tokens"] > 0
    (whole,) = traced.named("invoke_agent")
    assert [event.name for event in whole.events] == ["trimtab.model_call.retried"]
    assert whole.events[0].attributes == {"trimtab.limit": 6_000}
    assert whole.status.status_code is StatusCode.UNSET
    failed = traced.points("gen_ai.client.operation.duration")
    assert {point.attributes.get("error.type") for point in failed} == {None, "overflow"}


async def test_a_turn_that_fails_is_a_span_that_failed(memory, traced):
    session = await create(memory)
    with pytest.raises(ProviderError):
        await turn(session, claude(ProviderFailureDetails(kind="auth", message="no")), [], traced)
    (whole,), (chat,) = traced.named("invoke_agent"), traced.named("chat")
    assert chat.attributes["error.type"] == "auth"
    assert whole.attributes["error.type"] == "ProviderError"
    assert whole.attributes["trimtab.turn.outcome"] == "auth"
    assert whole.status.status_code is StatusCode.ERROR
    assert not trace.get_current_span().is_recording()


async def test_a_tool_that_fails_is_a_span_that_failed_in_a_turn_that_did_not(memory, traced):
    async def fails(_):
        raise ValueError("zanzibar")

    await turn(
        await create(memory), claude(ScriptedCall(name="read"), "Oh."), [Hand(gives=fails)], traced
    )
    (whole,), (tool,) = traced.named("invoke_agent"), traced.named("execute_tool")
    assert tool.attributes["error.type"] == "tool_error"
    assert whole.status.status_code is StatusCode.UNSET


async def test_spans_of_a_turn_that_is_cancelled_end_with_it(memory, traced):
    began = asyncio.Event()

    async def waits(_):
        began.set()
        await asyncio.Event().wait()

    session = await create(memory)
    both = claude([ScriptedCall(name="read"), ScriptedCall(name="stuck")])
    running = asyncio.create_task(turn(session, both, [Hand(), Hand("stuck", waits)], traced))
    await began.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    wrong = {span.name: span.attributes.get("error.type") for span in traced.spans}
    assert wrong == {
        "invoke_agent helper": "CancelledError",
        f"chat {MODEL}": None,
        "execute_tool read": None,
        "execute_tool stuck": "cancelled",
    }


async def test_a_call_that_is_cancelled_ends_with_the_turn(memory, traced):
    asked = asyncio.Event()

    class Stuck(ScriptedProvider):
        async def send(self, request):
            asked.set()
            await asyncio.Event().wait()
            yield {}

    running = asyncio.create_task(turn(await create(memory), Stuck("anthropic"), [], traced))
    await asked.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    (chat,) = traced.named("chat")
    assert chat.attributes["error.type"] == "cancelled"
    (point,) = traced.points("gen_ai.client.operation.duration")
    assert point.attributes["error.type"] == "cancelled"


async def test_tokens_and_durations_are_measured_by_their_conventional_names(memory, traced):
    answer = ScriptedReply(text="Hm.", usage=USED)
    session = await create(memory)
    await turn(session, claude(answer), [], traced)
    await turn(session, claude(answer), [], traced)
    asked = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "anthropic",
        "gen_ai.request.model": MODEL,
    }
    used = {
        point.attributes["gen_ai.token.type"]: (point.count, point.sum)
        for point in traced.points("gen_ai.client.token.usage")
        if asked.items() <= point.attributes.items()
    }
    assert used == {"input": (2, 2_000), "output": (2, 20)}
    (took,) = traced.points("gen_ai.client.operation.duration")
    assert (dict(took.attributes), took.count) == (asked, 2)


async def test_a_summary_in_the_background_is_a_span_of_the_turns_trace(memory, traced):
    session = await create(memory, policy="rolling")
    summariser = writer(*[GOOD] * 9)
    provider = claude(*[prose(300, f"answer {n}") for n in range(8)])
    for number in range(8):
        words = prose(300, f"question {number} of item_{number}")
        tell = traced.tell()
        await run_turn(session, provider, message=say(words), summariser=summariser, on_event=tell)
        await session.wait_for_background()
    (summary,) = traced.named("summarise")
    turns = {span.context.span_id: span for span in traced.named("invoke_agent")}
    assert within(summary) in turns
    assert summary.start_time >= turns[within(summary)].end_time
    assert summary.attributes["trimtab.summary.outcome"] in ("made", "patched")
    assert (
        summary.attributes["gen_ai.usage.input_tokens"]
        == session.window.accounting.summary_stats.usage.input
    )
    assert summary.attributes["gen_ai.request.model"] == summariser.model


async def test_nothing_that_was_said_is_in_a_span(memory, traced):
    session = await create(memory)
    path = ScriptedCall(name="read", arguments={"path": "zanzibar"})
    provider = claude(
        path, ProviderFailureDetails(kind="overflow", message="zanzibar"), "Zanzibar."
    )
    await turn(session, provider, [Hand(gives="zanzibar")], traced, says="Zanzibar?")
    assert len(traced.spans) == 5
    assert "zanzibar" not in "".join(span.to_json() for span in traced.spans).lower()
