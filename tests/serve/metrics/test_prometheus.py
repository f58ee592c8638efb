"""What Prometheus sees of a turn, read by its own parser."""

import asyncio
import logging
from dataclasses import replace

import pytest

from tests.agents import Clock
from tests.conversations import prose
from tests.serve.metrics.exported import samples
from tests.session.summarised_chats import GOOD, writer
from tests.session.turns.narrow_provider import Narrow
from tests.session.turns.sessions import Hand, create, of, say
from trimtab.engine.log.event import Usage
from trimtab.engine.log.message import ToolCall
from trimtab.errors import ProviderError, ProviderFailureDetails, StoreUnavailable
from trimtab.observe import instrument
from trimtab.session import Session
from trimtab.session.events import (
    AssistantReplied,
    ContextEdited,
    ModelCallStarted,
    SummaryFinished,
    ToolFinished,
    TurnFailed,
    TurnFinished,
)
from trimtab.session.turn import run_turn
from trimtab.session.turn_event_builders import total_edits_by_kind_since
from trimtab.testing import MemoryStore, ScriptedCall, ScriptedProvider, ScriptedReply
from trimtab_serve.metrics.prometheus import TurnMetrics

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

MODEL = "claude-sonnet-4-5"


def claude(*replies):
    return ScriptedProvider("anthropic", replies)


async def counting(session, provider, tools=(), says: str | None = "Go.", **how):
    """A whole turn that is observed, with what was told of it."""
    told = []
    tell = instrument(told.append, agent="helper")
    said = None if says is None else say(says)
    await run_turn(session, provider, [h.tool for h in tools], message=said, on_event=tell, **how)
    return told


async def test_a_turn_is_counted_with_its_calls_tokens_and_cost(memory, counted):
    session = await create(memory)
    used = Usage(input=1_000, output=10, cache_read=600, cache_write=300)
    provider = claude(
        ScriptedReply(calls=(ScriptedCall(name="read"),), usage=used),
        ScriptedReply(text="Ok", usage=used),
    )
    told = await counting(session, provider, [Hand()])
    assert counted("trimtab_turns_total", agent="helper", outcome="done") == 1
    assert counted("trimtab_turn_duration_seconds_count", agent="helper") == 1
    assert counted("trimtab_turns_running", agent="helper") == 0
    assert counted("trimtab_model_calls_total", model=MODEL, outcome="ok") == 2
    assert counted("trimtab_model_call_duration_seconds_count", model=MODEL) == 2
    assert counted("trimtab_time_to_first_token_seconds_count", model=MODEL) == 1
    for kind, count in {"input": 1e3, "output": 10, "cache_read": 600, "cache_write": 300}.items():
        assert counted("trimtab_tokens_total", model=MODEL, type=kind, purpose="reply") == 2 * count
    cost = (100 * 3 + 600 * 0.3 + 300 * 3.75 + 10 * 15) / 1e6
    assert counted("trimtab_cost_dollars_total", model=MODEL, purpose="reply") == round(2 * cost, 9)
    assert counted("trimtab_tool_calls_total", tool="read", outcome="ok") == 1
    assert counted("trimtab_tool_call_duration_seconds_count", tool="read") == 1
    assert [each.usage for each in of(AssistantReplied, told)] == [used, used]


def asking(helper_turn):
    """A tool by which an agent asks another one."""

    async def ask(_):
        await helper_turn()
        return "It says no."

    return Hand(name="ask", gives=ask)


PAID = Usage(input=1_000, output=0)
PAID_USD = 1_000 * 3 / 1e6


async def one_call(store, agent, session, *replies, tools=()):
    """A turn of an agent, each call of which costs the same."""
    opened = await Session.create(store, session, model=MODEL, clock=Clock())
    script = claude(*[replace(reply, usage=PAID) for reply in replies])
    tell = instrument(agent=agent)
    tools = [hand.tool for hand in tools]
    await run_turn(opened, script, tools, message=say("Go."), on_event=tell)


async def test_cost_is_counted_by_agent_and_by_the_tenant_of_a_served_session(memory, counted):
    await one_call(memory, "clerk", "acme/clerk/one", ScriptedReply(text="Ok"))
    await one_call(memory, "clerk", "user-4711/whatever/x", ScriptedReply(text="Ok"))
    paid = "trimtab_agent_cost_dollars_total"
    assert counted(paid, agent="clerk", tenant="acme") == PAID_USD
    assert counted(paid, agent="clerk", tenant="") == PAID_USD
    assert counted(paid, agent="clerk") == 2 * PAID_USD


async def test_an_agent_pays_for_what_its_sub_agents_spend_and_no_longer(memory, counted):
    async def research():
        async def deeper():
            await one_call(memory, "reader", "reader-1", ScriptedReply(text="No."))

        replies = (ScriptedReply(calls=(ScriptedCall(name="ask"),)), ScriptedReply(text="No."))
        await one_call(memory, "researcher", "research-1", *replies, tools=[asking(deeper)])

    replies = (ScriptedReply(calls=(ScriptedCall(name="ask"),)), ScriptedReply(text="Ok"))
    await one_call(memory, "chief", "acme/chief/one", *replies, tools=[asking(research)])
    paid = "trimtab_agent_cost_dollars_total"
    assert counted(paid, agent="chief", tenant="acme") == 5 * PAID_USD
    assert counted(paid, agent="researcher") == counted(paid, agent="reader") == 0
    assert counted("trimtab_turns_total", agent="reader", outcome="done") == 1
    await one_call(memory, "reader", "reader-2", ScriptedReply(text="Alone."))
    assert counted(paid, agent="reader") == PAID_USD


def test_what_runs_is_told_by_its_version():
    import platform

    import trimtab

    labels = {"version": trimtab.__version__, "python": platform.python_version()}
    assert samples()["trimtab_build_info", frozenset(labels.items())] == 1


async def test_a_prompt_is_counted_by_its_sections_and_its_share_of_the_room(memory, counted):
    session = await create(memory, context_window=5_000, max_output_tokens=1_000)
    told = await counting(session, claude("Hm."), says=prose(2_000))
    (call,) = of(ModelCallStarted, told)
    assert counted("trimtab_prompt_tokens_sum", model=MODEL) == call.tokens
    assert counted("trimtab_prompt_budget_ratio_sum", model=MODEL) == round(call.tokens / 4_000, 9)
    assert (
        counted("trimtab_prompt_section_tokens_total", section="system_and_tools") == call.head > 0
    )
    assert counted("trimtab_prompt_section_tokens_total", model=MODEL) == call.tokens
    assert counted("trimtab_window_messages_sum") == 1
    assert counted("trimtab_near_limit_total") == 0


@pytest.mark.slow
async def test_the_approach_to_the_limit_is_counted_and_warned_of_once(memory, counted, caplog):
    session = await create(memory, policy="full", context_window=4_000, max_output_tokens=500)
    provider = claude(*["Hm."] * 30)
    with caplog.at_level(logging.WARNING, "trimtab.turn"):
        while not counted("trimtab_near_limit_total", model=MODEL):
            await counting(session, provider, says=prose(600))
        await counting(session, provider, says=prose(100))
    assert counted("trimtab_near_limit_total", model=MODEL) == 1
    (record,) = caplog.records
    assert (record.session, record.budget_tokens) == ("s", 3_500)
    assert 0.8 * 3_500 <= record.tokens <= 3_500


async def test_edits_are_counted_with_what_they_hide(memory, counted):
    session = await create(memory, policy="compact", max_output_tokens=1_000)
    provider = claude(*[ScriptedCall(name="read")] * 20, "Done.")
    told = await counting(session, provider, [Hand(gives=prose(3_000))])
    hidden = session.report().hidden
    assert set(hidden) == {"mask"}
    assert (
        counted("trimtab_edits_total", op="mask", cause="policy"),
        counted("trimtab_hidden_tokens_total", op="mask", cause="policy"),
    ) == hidden["mask"]
    # The pass comes before the call that it is for.
    kinds = [type(each) for each in told if isinstance(each, ContextEdited | ModelCallStarted)]
    assert kinds[kinds.index(ContextEdited) + 1] is ModelCallStarted


async def test_edits_that_left_memory_meanwhile_are_read_from_the_store(memory):
    session = await create(memory, policy="thresholds", context_window=8_000)
    for number in range(30):
        await session.add(say(prose(900, f"question {number}")))
        await session.add({"role": "assistant", "content": prose(900, f"answer {number}")})
    position = session.window.seq
    await session.request()
    seen = await total_edits_by_kind_since(session, position, "policy")
    assert sum(each.count for each in seen) > 10
    await session.recorder.checkpoint()
    assert not session.window.base.events_since_snapshot
    assert await total_edits_by_kind_since(session, position, "policy") == seen


async def test_a_refusal_is_counted_with_what_was_done_about_it(memory, counted):
    session = await create(memory, policy="full", context_window=100_000)
    for number in range(40):
        role = "assistant" if number % 2 else "user"
        await session.add({"role": role, "content": prose(2_000, f"message {number}")})
    told = await counting(session, Narrow("anthropic", ["Fine."], window=6_000))
    assert counted("trimtab_model_calls_total", outcome="overflow") == 1
    assert counted("trimtab_model_calls_total", outcome="ok") == 1
    assert counted("trimtab_model_call_retries_total", reason="overflow") == 1
    assert counted("trimtab_learned_limits_total", model=MODEL) == 1
    edits = [each for each in of(ContextEdited, told) if each.cause == "recovery"]
    assert counted("trimtab_edits_total", cause="recovery") == sum(e.count for e in edits) > 0
    assert counted("trimtab_hidden_tokens_total", cause="recovery") > 0


async def test_a_call_that_fails_for_good_ends_the_turn_by_its_kind(memory, counted):
    session = await create(memory)
    with pytest.raises(ProviderError):
        await counting(session, claude(ProviderFailureDetails(kind="auth", message="no")))
    assert counted("trimtab_model_calls_total", outcome="auth") == 1
    assert counted("trimtab_turns_total", outcome="auth") == 1
    assert counted("trimtab_turns_running") == 0


async def test_what_is_cancelled_is_counted_as_such(memory, counted):
    began, never = asyncio.Event(), asyncio.Event()

    async def waits(_):
        began.set()
        await never.wait()

    session = await create(memory)
    both = claude([ScriptedCall(name="read"), ScriptedCall(name="stuck")])
    turn = asyncio.create_task(counting(session, both, [Hand(), Hand("stuck", gives=waits)]))
    await began.wait()
    assert counted("trimtab_turns_running", agent="helper") == 1
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    assert counted("trimtab_tool_calls_total", tool="read", outcome="ok") == 1
    assert counted("trimtab_tool_calls_total", tool="stuck", outcome="cancelled") == 1
    assert counted("trimtab_turns_total", outcome="cancelled") == 1
    assert counted("trimtab_turns_running", agent="helper") == 0


class Stuck(ScriptedProvider):
    """Never answers."""

    def __init__(self):
        super().__init__("anthropic")
        self.asked = asyncio.Event()

    async def send(self, request):
        self.asked.set()
        await asyncio.Event().wait()
        yield {}


async def test_a_call_that_is_cancelled_is_counted_as_such(memory, counted):
    provider = Stuck()
    turn = asyncio.create_task(counting(await create(memory), provider))
    await provider.asked.wait()
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    assert counted("trimtab_model_calls_total", outcome="cancelled") == 1
    assert counted("trimtab_model_call_duration_seconds_count") == 1


class Full(MemoryStore):
    full = False

    async def append(self, *given, **how):
        if self.full:
            raise StoreUnavailable("no disk")
        await super().append(*given, **how)


async def test_a_store_that_fails_is_counted(counted):
    store = Full()
    session = await create(store)
    await session.add(say("Go."))
    store.full = True
    with pytest.raises(StoreUnavailable):
        await counting(session, claude("Hm."), says=None)
    assert counted("trimtab_store_errors_total", error="StoreUnavailable") == 1
    assert counted("trimtab_turns_total", outcome="store") == 1


async def test_a_provider_that_reports_nothing_adds_no_tokens(memory, counted):
    session = await create(memory)
    silent = ScriptedReply(text="Hm.", usage=Usage(input=0))
    await counting(session, claude("One.", silent))
    first = counted("trimtab_tokens_total", type="input")
    assert first > 0
    await counting(session, claude(silent))
    assert counted("trimtab_model_calls_total", outcome="ok") == 2
    assert counted("trimtab_tokens_total", type="input") == first


async def test_a_name_that_the_model_makes_up_is_no_label(memory, counted):
    session = await create(memory)
    await counting(session, claude(ScriptedCall(name="rm_minus_rf"), "Hm."), [Hand()])
    assert counted("trimtab_tool_calls_total", tool="other", outcome="not_run") == 1
    assert counted("trimtab_tool_calls_total", tool="rm_minus_rf") == 0


async def test_a_call_that_is_not_allowed_is_counted_under_its_name(memory, counted):
    async def no(_):
        return "not today"

    session = await create(memory)
    await counting(session, claude(ScriptedCall(name="shy"), "Hm."), [Hand("shy")])
    refused = Hand("shy", own={"check_permission": no})
    await counting(session, claude(ScriptedCall(name="shy"), "Hm."), [refused])
    assert counted("trimtab_tool_calls_total", tool="shy", outcome="not_run") == 1
    assert counted("trimtab_tool_call_duration_seconds_count", tool="shy") == 1


async def test_summaries_are_counted_with_their_size_and_their_own_tokens(memory, counted):
    limits = {"summary": {"list_tokens": 500}}
    session = await create(memory, policy="rolling", limits=limits)
    summariser = writer(GOOD, "", *[GOOD] * 9)
    provider = claude(*[prose(300, f"answer {n}") for n in range(12)])
    told = []
    for number in range(12):
        words = prose(300, f"question {number} of item_{number}")
        told += [await counting(session, provider, says=words, summariser=summariser)]
        await session.wait_for_background()
    tried = [each.attempt for turn in told for each in of(SummaryFinished, turn)]
    meter = session.window.accounting.summary_stats
    assert meter.made > 0
    stands = counted("trimtab_summaries_total", outcome="made", target="messages") + counted(
        "trimtab_summaries_total", outcome="patched", target="messages"
    )
    assert stands == counted("trimtab_summary_tokens_count") == meter.made
    failed = counted("trimtab_summaries_total", outcome="failed")
    rejected = counted("trimtab_summaries_total", outcome="rejected")
    assert (failed, rejected) == (meter.failed, meter.rejected)
    assert counted("trimtab_tokens_total", purpose="summary", type="input") == meter.usage.input > 0
    assert counted("trimtab_cost_dollars_total", purpose="summary") == round(meter.cost or 0, 9) > 0
    assert counted("trimtab_edits_total", op="summarise", cause="summary") == meter.made
    assert counted("trimtab_summary_model_calls_total") == sum(each.calls for each in tried) > 0
    items = sum(each.patched for each in tried)
    assert counted("trimtab_summary_patched_items_total") == items > 0
    assert (
        counted("trimtab_summary_duration_seconds_count")
        == meter.made + meter.failed + meter.rejected
    )


async def test_no_label_holds_a_session_or_anything_that_was_said(memory):
    session = await create(memory)
    path = ScriptedCall(name="read", arguments={"path": "zanzibar"})
    await counting(session, claude(path, "Zanzibar."), [Hand(gives="zanzibar")], says="Zanzibar?")
    values = {value.lower() for _, labels in samples() for _, value in labels}
    assert not [value for value in values if "zanzibar" in value]
    assert session.id not in values


def test_a_turn_of_which_only_the_end_is_heard_is_not_counted(counted):
    metered = TurnMetrics("late")
    metered(ToolFinished(call=ToolCall(id="c", name="n", arguments=""), text="", is_error=False))
    metered(TurnFinished(reason="done", calls=0))
    metered(TurnFailed(reason="cancelled", error="CancelledError"))
    assert counted("trimtab_turns_total", agent="late") == 0
    assert counted("trimtab_turns_running", agent="late") == 0


async def test_the_time_of_a_call_is_that_of_the_clock_and_not_of_the_session(memory, counted):
    session = await create(memory, clock=Clock())
    await counting(session, claude("Hm."))
    assert (
        0
        < counted("trimtab_model_call_duration_seconds_sum")
        <= counted("trimtab_turn_duration_seconds_sum")
        < 60
    )
