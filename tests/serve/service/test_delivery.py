"""Replies leave in order, once or marked, and a slow channel holds nobody else up."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from tests.serve.queue.memory_queue import MemoryQueue
from tests.serve.queue.queues import S, claimed, inbound, keys, reply
from tests.serve.service.served_agents import until
from trimtab.errors import StoreUnavailable
from trimtab.testing import MemoryStore
from trimtab_serve.queue.messages import OutboundMessage, ReplyRoute
from trimtab_serve.service import delivery
from trimtab_serve.service.delivery import (
    MAX_DELIVERY_ATTEMPTS,
    ReplyDelivery,
    ReplyInterrupted,
    RetryDelivery,
    Undeliverable,
)

pytestmark = pytest.mark.anyio


class Phone:
    """A channel that does what it is told, in turn, and then delivers."""

    def __init__(self, *does) -> None:
        self.does = list(does)
        self.got: list[tuple[str, int]] = []

    async def __call__(self, sent: OutboundMessage) -> None:
        self.got.append((sent.key, sent.attempts))
        if self.does:
            next_one = self.does.pop(0)
            if isinstance(next_one, Exception):
                raise next_one
            await next_one()


@pytest.fixture
def queue():
    return MemoryQueue(MemoryStore())


async def outgoing(queue, *names, channel="phone", session=S):
    if not await queue.store.position(session):
        await claimed(queue.store, session)
    route = ReplyRoute(channel=channel, address={})
    made = [reply(name, session=session, route=route) for name in names]
    await queue.finish_turn(session, 1, [], made)


@contextlib.asynccontextmanager
async def running(queue, **channels):
    made = ReplyDelivery(queue, channels)
    queue.on_replies = made.wake
    task = asyncio.create_task(made.run(poll_s=0.01))
    try:
        yield made
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_replies_of_a_session_arrive_in_order(queue):
    phone = Phone()
    await outgoing(queue, "a", "b", "c")
    async with running(queue, phone=phone):
        await until(lambda: len(phone.got) == 3)
        await outgoing(queue, "d")
        await until(lambda: len(phone.got) == 4)
    assert phone.got == [("a", 0), ("b", 0), ("c", 0), ("d", 0)]


async def test_a_reply_that_must_wait_holds_up_its_session_alone_and_is_not_marked(queue):
    phone = Phone(RetryDelivery(0.05, "slow down"))
    await outgoing(queue, "a1", "a2")
    await outgoing(queue, "b1", session="default/helper/two")
    async with running(queue, phone=phone):
        await until(lambda: len(phone.got) == 4)
    assert phone.got == [("a1", 0), ("b1", 0), ("a1", 0), ("a2", 0)]


async def test_a_reply_that_will_never_arrive_lets_the_next_one_go(queue):
    phone = Phone(Undeliverable("blocked"))
    await outgoing(queue, "a", "b")
    async with running(queue, phone=phone):
        await until(lambda: len(phone.got) == 2)
    (dead,) = await queue.list_dead_letters()
    assert (dead.why, dead.replies) == ("blocked", 1)
    assert (await queue.list_dead_letters())[0].replies == 1


async def test_a_reply_of_unknown_end_is_sent_again_marked_and_given_up_in_the_end(
    queue, monkeypatch
):
    monkeypatch.setattr(delivery, "FIRST_DELIVERY_RETRY_S", 0.0001)
    phone = Phone(*[ConnectionError("reset")] * MAX_DELIVERY_ATTEMPTS)
    await outgoing(queue, "a", "b")
    async with running(queue, phone=phone):
        await until(lambda: ("b", 0) in phone.got)
    assert phone.got == [*(("a", n) for n in range(MAX_DELIVERY_ATTEMPTS)), ("b", 0)]


async def test_of_interruptions_the_first_alone_is_counted_and_no_number_gives_a_reply_up(queue):
    count = MAX_DELIVERY_ATTEMPTS + 2
    phone = Phone(*[ReplyInterrupted("cut", delay_s=0.0)] * count)
    await outgoing(queue, "a")
    async with running(queue, phone=phone):
        await until(lambda: len(phone.got) == count + 1)
    assert phone.got == [("a", 0), *[("a", 1)] * count]
    assert await queue.list_dead_letters() == []


async def test_a_reply_gets_all_its_attempts_again_after_it_got_further(queue, monkeypatch):
    monkeypatch.setattr(delivery, "FIRST_DELIVERY_RETRY_S", 0.0001)
    unknown = [ConnectionError("reset")] * (MAX_DELIVERY_ATTEMPTS - 1)
    phone = Phone(*unknown, ReplyInterrupted("cut"), *unknown)
    await outgoing(queue, "a")
    async with running(queue, phone=phone):
        await until(lambda: len(phone.got) == 2 * MAX_DELIVERY_ATTEMPTS)
    assert await queue.list_dead_letters() == []


async def test_a_delivery_that_hangs_is_of_unknown_end(queue, monkeypatch):
    monkeypatch.setattr(delivery, "DELIVERY_LEASE_S", 0.05)
    monkeypatch.setattr(delivery, "FIRST_DELIVERY_RETRY_S", 0.0001)
    phone = Phone(asyncio.Event().wait)
    await outgoing(queue, "a")
    async with running(queue, phone=phone):
        await until(lambda: len(phone.got) == 2)
    assert phone.got == [("a", 0), ("a", 1)]


async def test_a_slow_channel_holds_nobody_up(queue):
    stuck = asyncio.Event()
    slow, fast = Phone(*[stuck.wait] * 40), Phone()
    for n in range(40):
        await outgoing(queue, f"slow{n}", channel="slow", session=f"default/helper/slow{n}")
    for n in range(5):
        await outgoing(queue, f"fast{n}", channel="fast", session=f"default/helper/fast{n}")
    async with running(queue, slow=slow, fast=fast):
        await until(lambda: len(fast.got) == 5)
        assert len(slow.got) == delivery.MAX_CONCURRENT_DELIVERIES
        await outgoing(queue, "both", channel="fast", session="default/helper/slow0")
        await until(lambda: len(fast.got) == 6)
        stuck.set()
        await until(lambda: len(slow.got) == 40)


async def test_one_slow_session_holds_up_no_other_of_its_channel(queue):
    stuck = asyncio.Event()
    phone = Phone(stuck.wait)
    await outgoing(queue, "a1", "a2")
    async with running(queue, phone=phone):
        await until(lambda: phone.got)
        for n in range(30):
            await outgoing(queue, f"b{n}", session=f"default/helper/b{n}")
        await until(lambda: len(phone.got) == 31)
        assert ("a2", 0) not in phone.got
        stuck.set()
        await until(lambda: ("a2", 0) in phone.got)


async def test_what_could_not_be_kept_is_sent_again_marked(queue, monkeypatch):
    monkeypatch.setattr(delivery, "DELIVERY_LEASE_S", 0.02)
    phone, kept = Phone(), queue.mark_delivered

    async def once(number):
        queue.mark_delivered = kept
        raise StoreUnavailable("the disk is away")

    queue.mark_delivered = once
    await outgoing(queue, "a", "b")
    async with running(queue, phone=phone):
        await until(lambda: len(phone.got) == 3)
    assert phone.got == [("a", 0), ("a", 1), ("b", 0)]


async def test_a_queue_that_is_away_ends_no_delivery(queue):
    phone, real, failed = Phone(), queue.lease_replies, []

    async def away(*given, **named):
        if len(failed) < 3:
            failed.append(1)
            raise StoreUnavailable("away")
        return await real(*given, **named)

    queue.lease_replies = away
    await outgoing(queue, "a")
    async with running(queue, phone=phone):
        await until(lambda: phone.got)


async def test_what_is_under_way_when_it_ends_is_waited_for(queue):
    begun = asyncio.Event()

    async def slowly():
        begun.set()
        await asyncio.sleep(0.02)

    phone = Phone(slowly)
    await outgoing(queue, "a")
    async with running(queue, phone=phone):
        await begun.wait()
    assert await queue.lease_replies(["phone"], limit=1, lease_s=1) == []


async def test_what_is_outgoing_now_can_be_sent_at_once(queue):
    phone = Phone()
    await queue.post(inbound("k"))
    await outgoing(queue, "a", "b")
    made = ReplyDelivery(queue, {"phone": phone})
    assert [await made.deliver_due(), await made.deliver_due(), await made.deliver_due()] == [
        1,
        1,
        0,
    ]
    assert await keys(queue) == ["k"]
