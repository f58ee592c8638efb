"""A call that might cost more than is left is not made: of turns, summaries and sub-agents."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Any

import pytest

from tests.agents import Clock
from tests.session.summarised_chats import GOOD, attempts, rolling, talk, writer
from tests.session.turns.sessions import create
from trimtab.engine.log.event import CallOutcome, TurnProgressRecord, Usage
from trimtab.errors import (
    CostCeilingReached,
    CostCeilingUncheckable,
    ProviderError,
    ProviderFailureDetails,
    StoreUnavailable,
)
from trimtab.session.model_summaries import summarise_session_if_due
from trimtab.session.spending import CallCharge, SpendingAccount, charge_calls_to
from trimtab.session.tools import Tool
from trimtab.session.turn import run_turn
from trimtab.stores.factory import find_spending_ledger
from trimtab.stores.spending import CostCeilings
from trimtab.testing import ScriptedProvider
from trimtab.testing.replies import ScriptedCall, ScriptedReply
from trimtab.testing.scripted_provider import BrokenReply

pytestmark = pytest.mark.anyio
GO = {"role": "user", "content": "Go."}
OUTPUT_MICROS = 15_000
"""1,000 tokens of output at 15 dollars a million."""


def account_of(paying: Any, /, *, ledger: Any = None, **ceilings: int) -> SpendingAccount:
    return SpendingAccount(
        ledger=ledger or find_spending_ledger(paying.store),
        ceilings=CostCeilings(**ceilings),
        session=paying,
        agent="helper",
        clock=Clock(),
    )


async def counted(account: SpendingAccount, name: str = "day") -> int:
    """What counts now, in millionths of a dollar."""
    nothing_left = replace(account, ceilings=CostCeilings(**{name: 0}))
    with charge_calls_to(nothing_left), pytest.raises(CostCeilingReached) as error:
        async with CallCharge(account.session.window):
            pass
    return round(error.value.counted_usd * 1e6)


async def outcomes(session: Any) -> list[Any]:
    bodies = [event.body async for event in session.store.events(session.id)]
    return [body.error for body in bodies if isinstance(body, CallOutcome)]


async def test_a_call_above_the_ceiling_is_not_made_and_the_turn_ends_in_order(store, caplog):
    session = await create(store, max_output_tokens=1_000)
    provider, heard = ScriptedProvider("anthropic", ["Hello."]), []
    account = account_of(session, tenant_per_day=OUTPUT_MICROS)
    with caplog.at_level(logging.WARNING), charge_calls_to(account):
        ended = await run_turn(session, provider, message=GO, on_event=heard.append)
    assert (ended.reason, ended.cost_ceiling, ended.calls) == ("cost_ceiling", "tenant_per_day", 0)
    assert provider.requests == []
    assert heard[-1] == ended
    (record,) = [each for each in caplog.records if each.name == "trimtab.spending"]
    assert (record.ceiling, record.agent, record.ceiling_usd) == ("tenant_per_day", "helper", 0.015)
    assert await outcomes(session) == [{"kind": "cost_ceiling", "ceiling": "tenant_per_day"}]
    last = [event.body async for event in store.events(session.id)][-1]
    assert isinstance(last, TurnProgressRecord)
    assert last.state == "ended"
    # With more money the same message is answered.
    with charge_calls_to(account_of(session, ledger=account.ledger, tenant_per_day=10**6)):
        ended = await run_turn(session, provider)
    assert ended.reason == "done"


async def test_a_call_counts_at_what_was_reported(store):
    session = await create(store, max_output_tokens=1_000)
    reply = ScriptedReply(text="Hello.", usage=Usage(input=1_000, output=100))
    account = account_of(session, day=10**6)
    with charge_calls_to(account):
        await run_turn(session, ScriptedProvider("anthropic", [reply]), message=GO)
    assert session.window.accounting.total_cost_usd == pytest.approx(0.0045)
    assert await counted(account) == 4_500


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_refused_call_is_free(store, streamed):
    session = await create(store, max_output_tokens=1_000)
    away = ProviderFailureDetails(kind="overloaded", message="busy", status=529)
    account = account_of(session, day=10**6, session=10**6)
    provider = ScriptedProvider("anthropic", [away])
    with charge_calls_to(account), pytest.raises(ProviderError):
        await run_turn(session, provider, message=GO, stream=streamed)
    assert await counted(account) == 0


async def test_a_reply_that_breaks_off_counts_its_input_and_what_came(store):
    session = await create(store, max_output_tokens=1_000)
    gone = ProviderFailureDetails(kind="network", message="gone")
    broken = BrokenReply(reply=ScriptedReply(text="Hello."), failure=gone)
    account = account_of(session, day=10**6)
    with charge_calls_to(account), pytest.raises(ProviderError):
        await run_turn(session, ScriptedProvider("anthropic", [broken] * 3), message=GO)
    made = session.window.last_call
    assert made is not None
    least = 3 * made.body.bound * 3
    assert least <= await counted(account) <= 3 * (made.body.bound * 3.75 + OUTPUT_MICROS)


async def test_a_call_that_is_cancelled_counts_as_reserved(memory):
    session = await create(memory, max_output_tokens=1_000)
    account, began = account_of(session, day=10**6), asyncio.Event()

    class Silent(ScriptedProvider):
        async def send(self, request: Any):
            began.set()
            await asyncio.Event().wait()
            yield {}

    with charge_calls_to(account):
        turn = asyncio.create_task(run_turn(session, Silent("anthropic"), message=GO))
    await began.wait()
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    assert await counted(account) > OUTPUT_MICROS


async def test_the_ceiling_of_a_session_ends_a_loop_of_tools(store):
    session = await create(store, max_output_tokens=1_000)
    calls = [ScriptedCall(name="look", arguments={}) for _ in range(25)]

    async def look(_: Any) -> str:
        return "nothing"

    tool = Tool(definition={"name": "look", "input_schema": {"type": "object"}}, run=look)
    used = Usage(input=100, output=1_000)
    provider = ScriptedProvider("anthropic", [ScriptedReply(calls=(c,), usage=used) for c in calls])
    with charge_calls_to(account_of(session, session=5 * OUTPUT_MICROS)):
        ended = await run_turn(session, provider, [tool], message=GO)
    assert (ended.reason, ended.cost_ceiling) == ("cost_ceiling", "session")
    assert ended.calls == 4
    cost = session.window.accounting.total_cost_usd
    assert cost is not None
    assert cost * 1e6 <= 5 * OUTPUT_MICROS


async def test_what_a_session_spent_before_there_was_a_ceiling_counts(store):
    session = await create(store, max_output_tokens=1_000)
    used = Usage(input=100, output=1_000)
    reply = ScriptedReply(text="Hello.", usage=used)
    await run_turn(session, ScriptedProvider("anthropic", [reply]), message=GO)
    with charge_calls_to(account_of(session, session=2 * OUTPUT_MICROS)):
        ended = await run_turn(session, ScriptedProvider("anthropic"), message=GO)
    assert ended.cost_ceiling == "session"


async def test_a_sub_agent_is_paid_for_by_the_session_that_called_it(store):
    session = await create(store, max_output_tokens=1_000)
    used = Usage(input=100, output=1_000)
    below = ScriptedProvider("anthropic", [ScriptedReply(text="Found.", usage=used)] * 9)
    inner: list[str] = []

    async def delegate(_: Any) -> str:
        from trimtab import Session
        from trimtab.testing import MemoryStore

        own = await Session.create(
            MemoryStore(), "sub", model="claude-sonnet-4-5", max_output_tokens=1_000
        )
        # Its own account does not replace that of whoever asked.
        with charge_calls_to(account_of(own, day=10**9)):
            inner.append((await run_turn(own, below, message=GO)).reason)
        return "done"

    tool = Tool(definition={"name": "delegate", "input_schema": {"type": "object"}}, run=delegate)
    call = ScriptedReply(calls=(ScriptedCall(name="delegate", arguments={}),), usage=used)
    provider = ScriptedProvider("anthropic", [call] * 9)
    with charge_calls_to(account_of(session, session=6 * OUTPUT_MICROS)):
        ended = await run_turn(session, provider, [tool], message=GO)
    assert (ended.reason, ended.cost_ceiling) == ("cost_ceiling", "session")
    assert len(provider.requests) + len(below.requests) == 5
    assert set(inner) <= {"done", "cost_ceiling"}


async def test_a_summary_is_paid_for_and_is_not_asked_for_above_the_ceiling(store):
    session = await rolling(store)
    await talk(session, 10)
    used = ScriptedReply(text=GOOD, usage=Usage(input=5_000, output=300))
    summariser = writer(used, used)
    poor = account_of(session, day=100)
    with charge_calls_to(poor):
        made = await summarise_session_if_due(session, summariser)
    assert made is not None
    assert (made.outcome, made.calls) == ("failed", 0)
    assert "ceiling" in made.why
    await talk(session, 3, start=10)
    rich = account_of(session, ledger=poor.ledger, day=10**6)
    with charge_calls_to(rich):
        made = await summarise_session_if_due(session, summariser)
    assert made is not None
    assert made.outcome in ("made", "patched")
    assert len(await attempts(store)) == 2
    await session.request()
    assert await counted(rich) == 5_000 * 1 + 300 * 5  # Haiku 4.5: 1 and 5 dollars a million


async def test_summaries_in_the_background_belong_to_the_turn_that_wanted_them(memory):
    session = await rolling(memory)
    await talk(session, 30)
    summariser = writer(ScriptedReply(text=GOOD, usage=Usage(input=5, output=3)))
    account = account_of(session, day=10**6)
    reply = ScriptedReply(text="Yes.", usage=Usage(input=10, output=1))
    with charge_calls_to(account):
        provider = ScriptedProvider("anthropic", [reply])
        await run_turn(session, provider, message=GO, summariser=summariser)
    await session.wait_for_background()
    assert await counted(account) == (10 * 3 + 15) + (5 * 1 + 3 * 5)


async def test_a_model_without_a_price_cannot_be_paid_for(memory):
    session = await create(memory, model="homemade-1", max_output_tokens=1_000)
    provider = ScriptedProvider("anthropic", ["Hello."])
    with (
        charge_calls_to(account_of(session, day=10**6)),
        pytest.raises(CostCeilingUncheckable, match=r"homemade-1.*input_price"),
    ):
        await run_turn(session, provider, message=GO)
    assert provider.requests == []


async def test_a_ledger_that_cannot_settle_does_not_cost_the_reply(memory, caplog):
    session = await create(memory, max_output_tokens=1_000)
    ledger = find_spending_ledger(memory)

    class Broken:
        reserve = ledger.reserve

        async def settle(self, reservation: int, micros: int) -> None:
            raise StoreUnavailable("the disk is gone")

    account = account_of(session, ledger=Broken(), day=10**6)
    with charge_calls_to(account):
        ended = await run_turn(session, ScriptedProvider("anthropic", ["Hello."]), message=GO)
    assert ended.reason == "done"
    assert "reserved price" in caplog.text
    assert await counted(account_of(session, ledger=ledger)) > OUTPUT_MICROS


async def test_without_an_account_nothing_is_counted(tmp_path):
    from trimtab.stores.files import FileStore

    store = FileStore(tmp_path / "sessions")
    session = await create(store)
    await run_turn(session, ScriptedProvider("anthropic", ["Hello."]), message=GO)
    await session.close()
    await store.close()
    assert not (tmp_path / "sessions" / ".spending").exists()
