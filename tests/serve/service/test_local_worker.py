"""Turns in one process: fair, bounded, tried again, and left in order when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Any

import pytest

from tests.serve.queue.memory_queue import MemoryQueue
from tests.serve.service.served_agents import SESSION, Gated, inbound, served, until
from trimtab import check
from trimtab.errors import ProviderError, ProviderFailureDetails, StoreUnavailable
from trimtab.session import Session, turn
from trimtab.testing import MemoryStore, ScriptedProvider
from trimtab_serve.queue.messages import InboundMessage, OutboundMessage
from trimtab_serve.service import retries
from trimtab_serve.service.retries import (
    APOLOGY_TEXT,
    MAX_TURN_ATTEMPTS,
    MAX_TURN_RETRY_S,
    TurnRetries,
)

pytestmark = pytest.mark.anyio

DOWN = ProviderFailureDetails(kind="server", message="down", status=500)
WRONG = ProviderFailureDetails(kind="refused", message="no such model", status=404)


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(retries, "FIRST_TURN_RETRY_S", 0.001)


async def test_a_turn_that_failed_is_tried_again():
    house = served(DOWN, DOWN, "Hello to you.")
    await house.say("Hello.", key="a")
    await house.turns.wait_until_idle()
    assert await house.texts() == [("user", "Hello."), ("assistant", "Hello to you.")]
    assert await house.service.queue.list_dead_letters() == []


async def test_a_turn_that_fails_for_good_is_given_up_with_an_apology_and_can_be_revived():
    house = served(WRONG, "Hello to you.")
    await house.say("Hello.", key="a")
    await house.turns.wait_until_idle()
    assert [reply.text for reply in await house.sent()] == [APOLOGY_TEXT]
    (dead,) = await house.service.queue.list_dead_letters()
    assert (dead.session, dead.messages) == (SESSION, 1)
    assert dead.why == "ProviderError: refused (HTTP 404): no such model"
    assert await house.service.queue.revive(SESSION)
    await house.turns.wait_until_idle()
    assert [reply.text for reply in await house.sent()] == ["Hello to you."]
    assert await house.service.queue.depth() == 0


async def test_a_new_message_begins_again_what_was_given_up():
    house = served(WRONG, "Both.")
    await house.say("One.", key="a")
    await house.turns.wait_until_idle()
    await house.say("Two.", key="b")
    await house.turns.wait_until_idle()
    assert [text for _, text in await house.texts()] == ["One.", "Two.", "Both."]
    assert await house.service.queue.list_dead_letters() == []


async def test_what_would_end_the_same_is_not_tried_again():
    house = served(WRONG)
    await house.say("Hello.", key="a")
    await house.turns.wait_until_idle()
    assert len(house.provider.requests) == 1
    assert len(await house.service.queue.list_dead_letters()) == 1


async def test_messages_for_an_agent_that_is_gone_are_given_up():
    house = served()
    await house.service.queue.post(inbound("Hello.", key="a", session="default/gone/one"))
    await house.turns.wait_until_idle()
    (dead,) = await house.service.queue.list_dead_letters()
    assert "AgentNotServed" in dead.why


class Away(MemoryQueue):
    """A queue that cannot be reached, so many times."""

    times = 0

    async def finish_turn(
        self,
        session: str,
        epoch: int,
        answered: Collection[int],
        replies: Sequence[OutboundMessage],
    ) -> None:
        self._fail()
        await super().finish_turn(session, epoch, answered, replies)

    async def dead_letter_session(
        self,
        inbound: InboundMessage,
        epoch: int | None,
        why: str,
        replies: Sequence[OutboundMessage] = (),
    ) -> bool:
        self._fail()
        return await super().dead_letter_session(inbound, epoch, why, replies)

    def _fail(self) -> None:
        if self.times:
            self.times -= 1
            raise StoreUnavailable("the disk is away")


async def test_a_store_that_is_away_is_waited_for_however_long():
    store = MemoryStore()
    queue = Away(store)
    queue.times = MAX_TURN_ATTEMPTS + 3
    house = served("Hello to you.", store=store, queue=queue)
    await house.say("Hello.", key="a")
    await house.turns.wait_until_idle()
    assert [reply.text for reply in await house.sent()] == ["Hello to you."]


async def test_giving_up_is_tried_again_where_it_could_not_be_kept():
    store = MemoryStore()
    queue = Away(store)
    queue.times = 2
    house = served(*[WRONG] * 3, store=store, queue=queue)
    await house.say("Hello.", key="a")
    await house.turns.wait_until_idle()
    assert len(await queue.list_dead_letters()) == 1


def test_waits_grow_with_jitter_and_end(monkeypatch):
    monkeypatch.setattr(retries, "FIRST_TURN_RETRY_S", 1.0)
    made = [TurnRetries(n).delay_after(RuntimeError()) for n in range(MAX_TURN_ATTEMPTS)]
    assert made[-1] is None
    for n, wait in enumerate(made[:-1]):
        assert wait is not None
        assert 2**n / 2 <= wait <= 2**n
    held = TurnRetries()
    waits = [held.delay_after(StoreUnavailable("away")) for _ in range(50)]
    assert all(wait is not None and wait <= MAX_TURN_RETRY_S for wait in waits)
    assert len({TurnRetries().delay_after(RuntimeError()) for _ in range(20)}) > 1


async def test_a_turn_that_another_has_claimed_before_it_is_given_up_goes_on(monkeypatch):
    house = served(WRONG, "Hello to you.")
    store, queue = house.service.store, house.service.queue
    pending = queue.pending

    async def meanwhile(session, **which):
        if not which:  # it is about to be given up
            await (await Session.open(store, SESSION)).recorder.claim()
        return await pending(session, **which)

    monkeypatch.setattr(queue, "pending", meanwhile)
    await house.say("Hello.", key="a")
    await house.turns.wait_until_idle()
    assert await queue.list_dead_letters() == []
    assert [reply.text for reply in await house.sent()] == ["Hello to you."]


async def test_a_turn_that_fails_between_its_claim_and_its_first_step_is_given_up(monkeypatch):
    house = served()
    monkeypatch.setattr(turn, "set_session_tools", broken)
    await house.say("Hello.", key="a")
    await house.turns.wait_until_idle()
    (dead,) = await house.service.queue.list_dead_letters()
    assert "no such model" in dead.why


async def broken(*_):
    raise ProviderError(WRONG)


async def test_no_more_turns_run_than_may_and_of_one_tenant_no_more_than_its_share():
    gated = Gated(*["Done."] * 9)
    house = served(provider=gated, runs={"max_turns": 3, "max_turns_per_tenant": 2})
    for tenant in ("a", "b", "c"):
        for n in range(3):
            await house.say(f"{tenant}{n}", key="k", session=f"{tenant}/helper/s{n}")
    await until(lambda: len(gated.waiting) == 3)
    assert house.turns.running_count == 3
    assert sorted(text[0] for text in gated.waiting) == ["a", "a", "b"]
    gated.open.set()
    await house.turns.wait_until_idle()
    assert len(gated.begun) == 9


async def test_a_tenant_with_much_to_do_does_not_hold_up_another():
    gated = Gated(*["Done."] * 12)
    gated.open.set()
    house = served(provider=gated, runs={"max_turns": 1})
    for n in range(10):
        await house.say(f"a{n}", key="k", session=f"a/helper/s{n}")
    for n in range(2):
        await house.say(f"b{n}", key="k", session=f"b/helper/s{n}")
    await house.turns.wait_until_idle()
    assert gated.begun[:5] == ["a0", "a1", "b0", "a2", "b1"]


async def test_slow_turns_of_one_tenant_leave_half_of_the_turns_to_others():
    gated = Gated(*["Done."] * 50)
    house = served(provider=gated)
    for n in range(40):
        await house.say("slow", key="k", session=f"evil/helper/s{n}")
    await until(lambda: len(gated.waiting) == 32)  # as many as one operator needs
    await house.say("hello", key="k", session="acme/helper/s")
    await until(lambda: "hello" in gated.waiting)
    assert house.turns.running_count == 33
    gated.open.set()
    await house.turns.wait_until_idle()
    assert len(gated.begun) == 41


async def test_a_session_with_much_to_do_does_not_hold_up_another():
    gated = Gated(*["Done."] * 4)
    house = served(provider=gated, on_message="queue", runs={"max_turns": 1})
    await house.say("long 0", key="0", session="a/helper/long")
    await until(lambda: gated.waiting)
    await house.say("long 1", key="1", session="a/helper/long")
    await house.say("short", key="0", session="a/helper/short")
    gated.open.set()
    await house.turns.wait_until_idle()
    assert gated.begun == ["long 0", "short", "long 1"]


async def test_a_drained_process_ends_what_it_can_and_leaves_a_valid_log_of_the_rest():
    store = MemoryStore()
    queue = MemoryQueue(store)
    gated = Gated()
    house = served(provider=gated, store=store, queue=queue)
    await house.say("Hello.", key="a")
    await until(lambda: gated.waiting)
    assert await house.turns.drain(0.01) == 1
    await house.say("Still there?", key="b")
    assert house.turns.running_count == 0
    await house.turns.wait_until_idle()
    again = served("Now.", store=store, queue=queue)
    assert await again.turns.resume_waiting() == 1
    await again.turns.wait_until_idle()
    assert [text for _, text in await again.texts()] == ["Hello.", "Still there?", "Now."]
    async with again.service.open_session(SESSION) as session:
        await session.add({"role": "user", "content": "Well?"})
        assert check(await session.request(), dialect_name="anthropic") == []


async def test_a_drained_process_lets_a_turn_end_that_can():
    gated = Gated("Done.")
    house = served(provider=gated)
    await house.say("Hello.", key="a")
    await until(lambda: gated.waiting)
    draining = asyncio.create_task(house.turns.drain(10))
    await asyncio.sleep(0)
    gated.open.set()
    assert await draining == 0
    assert [reply.text for reply in await house.sent()] == ["Done."]


class Late(MemoryQueue):
    """A queue that gets one more message right after it was found empty."""

    async def pending(
        self, session: str, *, after: int = 0, limit: int = 100
    ) -> list[InboundMessage]:
        found = await super().pending(session, after=after, limit=limit)
        if limit == 1 and not found and not self.waits_no_more:
            self.waits_no_more = True
            await self.post(inbound("Still there?", key="b"))
        return found

    waits_no_more = False


async def test_a_message_that_comes_as_a_turn_ends_is_answered_by_another():
    store = MemoryStore()
    house = served("Hello to you.", "Yes.", store=store, queue=Late(store))
    await house.say("Hello.", key="a")
    await house.turns.wait_until_idle()
    assert [reply.text for reply in await house.sent()] == ["Hello to you.", "Yes."]


class Cancelling(ScriptedProvider):
    """One whose first request cancels itself, as careless code does."""

    async def send(self, request: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        if not self.requests:
            self.requests.append(dict(request))
            raise asyncio.CancelledError
        async for event in super().send(request):
            yield event


async def test_a_turn_in_which_something_cancels_itself_is_tried_again():
    house = served(provider=Cancelling("anthropic", ["unused", "Hello to you."]))
    await house.say("Hello.", key="a")
    await house.turns.wait_until_idle()
    assert [reply.text for reply in await house.sent()] == ["Hello to you."]
