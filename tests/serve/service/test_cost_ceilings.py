"""Served agents with a cost ceiling: who is told what, what is counted, and when it works again."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.agents import Clock
from tests.serve.channels.http.running_apps import house as http_house
from tests.serve.service.served_agents import Gated, served, until, with_ceilings
from tests.stores.conftest import place, shared, store, template
from trimtab.engine.log.event import Usage
from trimtab.session.spending import (
    SpendingAccount,
    charge_calls_to,
    describe_reached_ceiling,
)
from trimtab.stores.factory import find_spending_ledger
from trimtab.stores.spending import CostCeilings
from trimtab.testing.replies import ScriptedReply
from trimtab_serve.channels.chat_commands import run_chat_command
from trimtab_serve.client import RemoteTurnFailed
from trimtab_serve.service.replies import SESSION_CEILING_TEXT

__all__ = ["place", "shared", "store", "template"]

pytestmark = pytest.mark.anyio

ANSWER = ScriptedReply(text="Yes.", usage=Usage(input=100, output=1_000))
"""It costs 0.0153 dollars."""
RESERVED = 0.064
"""About what a call reserves: 4,000 tokens of output, its input, and what a cache may cost."""


def served_with(*script: Any, clock: Any = None, store: Any = None, **cost: float) -> Any:
    bot = served(*script, store=store)
    with_ceilings(bot.service, clock, **cost)
    return bot


async def say(bot: Any, key: str, **where: Any) -> list[str]:
    await bot.say(f"Question {key}.", key=key, **where)
    await bot.turns.wait_until_idle()
    return [reply.text for reply in await bot.sent()]


async def test_a_session_at_its_ceiling_says_so_and_is_no_dead_letter(store):
    bot = served_with(*[ANSWER] * 9, store=store, max_per_session=0.1)
    told = [await say(bot, str(number)) for number in range(5)]
    assert told[0] == ["Yes."]
    assert told[-1] == [SESSION_CEILING_TEXT]
    assert "Send /reset" in SESSION_CEILING_TEXT
    assert await bot.service.queue.list_dead_letters() == []
    assert await bot.service.queue.depth() == 0
    spent = len(bot.provider.requests) * 0.0153
    assert 0.1 - 0.08 < spent <= 0.1
    assert await say(bot, "x", session="default/helper/another") == ["Yes."]


async def reset(bot: Any, key: str) -> str:
    name = "default/helper/one"
    return (await run_chat_command(bot.service, name, "reset", "", idempotency_key=key)).text


async def test_a_conversation_that_begins_anew_has_a_new_budget_each_time(store):
    bot = served_with(*[ANSWER] * 99, store=store, max_per_session=0.1)
    for conversation in range(3):
        told = [await say(bot, f"{conversation}-{number}") for number in range(5)]
        assert told[0] == ["Yes."]
        assert told[-1] == [SESSION_CEILING_TEXT]
        # As often delivered as it likes, it is one command.
        assert "new conversation" in await reset(bot, f"reset-{conversation}")
        assert await reset(bot, f"reset-{conversation}") == ""


@pytest.mark.parametrize("ceiling", ["cost_per_day", "max_per_day"])
async def test_no_reset_passes_a_ceiling_of_the_day(store, ceiling):
    bot = served_with(*[ANSWER] * 99, store=store, **{"max_per_session": 0.1, ceiling: 0.15})
    told: list[str] = []
    for conversation in range(6):
        for number in range(3):
            told = await say(bot, f"{conversation}-{number}")
        await reset(bot, f"reset-{conversation}")
    assert told == [describe_reached_ceiling("day")]
    assert 0.05 < len(bot.provider.requests) * 0.0153 <= 0.15  # more than one conversation


@pytest.mark.parametrize("ceiling", ["cost_per_day", "max_per_day"])
async def test_the_next_message_after_midnight_utc_is_answered(store, ceiling):
    clock = Clock()
    clock.now = 86_400 * 20_000 - 60
    bot = served_with(*[ANSWER] * 9, store=store, clock=clock, **{ceiling: 0.075})
    assert await say(bot, "1") == ["Yes."]
    assert "midnight UTC" in (await say(bot, "2"))[0]
    assert "midnight UTC" in (await say(bot, "3", session="default/helper/another"))[0]
    other = await say(bot, "4", session="other/helper/one")
    assert other == ["Yes."] if ceiling == "cost_per_day" else "midnight" in other[0]
    clock.now += 60
    assert await say(bot, "5") == ["Yes."]
    assert [text for role, text in await bot.texts() if role == "user"] == [
        *("Question 1.", "Question 2.", "Question 5.")
    ]


async def test_20_calls_at_once_do_not_exceed_a_ceiling_that_allows_7(store, caplog):
    provider = Gated(*[ANSWER] * 20)
    bot = served(provider=provider, store=store)
    with_ceilings(bot.service, max_per_day=7.5 * RESERVED)
    with caplog.at_level(logging.WARNING, "trimtab.spending"):
        for number in range(20):
            where = f"default/helper/s{number}"
            await bot.say(f"Question {number}.", key=str(number), session=where)
        await until(lambda: len(provider.begun) + len(caplog.records) == 20, seconds=20)
    assert len(provider.begun) == 7
    provider.open.set()
    await bot.turns.wait_until_idle()
    texts = [reply.text for reply in await bot.sent()]
    assert (texts.count("Yes."), texts.count(describe_reached_ceiling("day"))) == (7, 13)
    # What those seven did not cost is free for others.
    assert await say(bot, "more") == ["Yes."]


async def test_a_served_turn_pays_for_itself_whoever_has_started_it():
    """A message that a tool of another turn posts is not answered by a sub-agent of that turn."""
    bot = served_with(ANSWER, max_per_session=1.0)
    poor = SpendingAccount(
        ledger=find_spending_ledger(bot.service.store),
        ceilings=CostCeilings(day=0),
        session=await bot.service.agents["helper"].open_session("x"),
        agent="other",
    )
    with charge_calls_to(poor):
        assert await say(bot, "1") == ["Yes."]


async def test_http_tells_the_reason_in_the_event_and_the_client_raises_it():
    async with http_house(ANSWER) as house:
        with_ceilings(house.service, max_per_day=0.01)
        session = house.session()
        events = [event async for event in session.stream("Hello.")]
        assert events[-1].kind == "turn.finished"
        assert events[-1].data["reason"] == "cost_ceiling"
        assert events[-1].data["detail"] == describe_reached_ceiling("day")
        assert events[-1].data["cost_ceiling"] == "day"
        assert [e.data["outcome"] for e in events if "outcome" in e.data] == ["cost_ceiling"]
        assert "turn.failed" not in [event.kind for event in events]
        with pytest.raises(RemoteTurnFailed, match="cost_ceiling: I stopped here"):
            await session.ask("And now?")
        assert house.provider.requests == []
