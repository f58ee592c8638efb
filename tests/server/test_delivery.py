"""Replies leave in order, once or marked, and a slow door holds nobody else up."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from tests.server.queues import S, claimed, keys, letter, reply
from tests.server.served_agents import until
from trimtab.errors import StoreUnavailable
from trimtab.server import delivery
from trimtab.server.delivery import (
    MAX_DELIVERY_ATTEMPTS,
    ReplyDelivery,
    ReplyInterrupted,
    RetryDelivery,
    Undeliverable,
)
from trimtab.server.queue.inbound_outbound import OutboundMessage, ReplyRoute
from trimtab.testing import MemoryStore
from trimtab.testing.memory_queue import MemoryQueue

pytestmark = pytest.mark.anyio


class Phone:
    """A door that does what it is told, in turn, and then delivers."""

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
def mail():
    return MemoryQueue(MemoryStore())


async def outgoing(mail, *names, door="phone", session=S):
    if not await mail.store.position(session):
        await claimed(mail.store, session)
    route = ReplyRoute(channel=door, address={})
    made = [reply(name, session=session, route=route) for name in names]
    await mail.finish_turn(session, 1, [], made)


@contextlib.asynccontextmanager
async def running(mail, **doors):
    made = ReplyDelivery(mail, doors)
    mail.on_replies = made.wake
    task = asyncio.create_task(made.run(poll_s=0.01))
    try:
        yield made
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_replies_of_a_session_arrive_in_order(mail):
    phone = Phone()
    await outgoing(mail, "a", "b", "c")
    async with running(mail, phone=phone):
        await until(lambda: len(phone.got) == 3)
        await outgoing(mail, "d")
        await until(lambda: len(phone.got) == 4)
    assert phone.got == [("a", 0), ("b", 0), ("c", 0), ("d", 0)]


async def test_a_reply_that_must_wait_holds_up_its_session_alone_and_is_not_marked(mail):
    phone = Phone(RetryDelivery(0.05, "slow down"))
    await outgoing(mail, "a1", "a2")
    await outgoing(mail, "b1", session="default/helper/two")
    async with running(mail, phone=phone):
        await until(lambda: len(phone.got) == 4)
    assert phone.got == [("a1", 0), ("b1", 0), ("a1", 0), ("a2", 0)]


async def test_a_reply_that_will_never_arrive_lets_the_next_one_go(mail):
    phone = Phone(Undeliverable("blocked"))
    await outgoing(mail, "a", "b")
    async with running(mail, phone=phone):
        await until(lambda: len(phone.got) == 2)
    (dead,) = await mail.list_dead_letters()
    assert (dead.why, dead.replies) == ("blocked", 1)
    assert (await mail.list_dead_letters())[0].replies == 1


async def test_a_reply_of_unknown_end_is_sent_again_marked_and_given_up_in_the_end(
    mail, monkeypatch
):
    monkeypatch.setattr(delivery, "FIRST_DELIVERY_RETRY_S", 0.0001)
    phone = Phone(*[ConnectionError("reset")] * MAX_DELIVERY_ATTEMPTS)
    await outgoing(mail, "a", "b")
    async with running(mail, phone=phone):
        await until(lambda: ("b", 0) in phone.got)
    assert phone.got == [*(("a", n) for n in range(MAX_DELIVERY_ATTEMPTS)), ("b", 0)]


async def test_of_interruptions_the_first_alone_is_counted_and_no_number_gives_a_reply_up(mail):
    count = MAX_DELIVERY_ATTEMPTS + 2
    phone = Phone(*[ReplyInterrupted("cut", delay_s=0.0)] * count)
    await outgoing(mail, "a")
    async with running(mail, phone=phone):
        await until(lambda: len(phone.got) == count + 1)
    assert phone.got == [("a", 0), *[("a", 1)] * count]
    assert await mail.list_dead_letters() == []


async def test_a_reply_gets_all_its_attempts_again_after_it_got_further(mail, monkeypatch):
    monkeypatch.setattr(delivery, "FIRST_DELIVERY_RETRY_S", 0.0001)
    unknown = [ConnectionError("reset")] * (MAX_DELIVERY_ATTEMPTS - 1)
    phone = Phone(*unknown, ReplyInterrupted("cut"), *unknown)
    await outgoing(mail, "a")
    async with running(mail, phone=phone):
        await until(lambda: len(phone.got) == 2 * MAX_DELIVERY_ATTEMPTS)
    assert await mail.list_dead_letters() == []


async def test_a_delivery_that_hangs_is_of_unknown_end(mail, monkeypatch):
    monkeypatch.setattr(delivery, "DELIVERY_LEASE_S", 0.05)
    monkeypatch.setattr(delivery, "FIRST_DELIVERY_RETRY_S", 0.0001)
    phone = Phone(asyncio.Event().wait)
    await outgoing(mail, "a")
    async with running(mail, phone=phone):
        await until(lambda: len(phone.got) == 2)
    assert phone.got == [("a", 0), ("a", 1)]


async def test_a_slow_door_holds_nobody_up(mail):
    stuck = asyncio.Event()
    slow, fast = Phone(*[stuck.wait] * 40), Phone()
    for n in range(40):
        await outgoing(mail, f"slow{n}", door="slow", session=f"default/helper/slow{n}")
    for n in range(5):
        await outgoing(mail, f"fast{n}", door="fast", session=f"default/helper/fast{n}")
    async with running(mail, slow=slow, fast=fast):
        await until(lambda: len(fast.got) == 5)
        assert len(slow.got) == delivery.MAX_CONCURRENT_DELIVERIES
        await outgoing(mail, "both", door="fast", session="default/helper/slow0")
        await until(lambda: len(fast.got) == 6)
        stuck.set()
        await until(lambda: len(slow.got) == 40)


async def test_one_slow_session_holds_up_no_other_of_its_door(mail):
    stuck = asyncio.Event()
    phone = Phone(stuck.wait)
    await outgoing(mail, "a1", "a2")
    async with running(mail, phone=phone):
        await until(lambda: phone.got)
        for n in range(30):
            await outgoing(mail, f"b{n}", session=f"default/helper/b{n}")
        await until(lambda: len(phone.got) == 31)
        assert ("a2", 0) not in phone.got
        stuck.set()
        await until(lambda: ("a2", 0) in phone.got)


async def test_what_could_not_be_kept_is_sent_again_marked(mail, monkeypatch):
    monkeypatch.setattr(delivery, "DELIVERY_LEASE_S", 0.02)
    phone, kept = Phone(), mail.mark_delivered

    async def once(number):
        mail.mark_delivered = kept
        raise StoreUnavailable("the disk is away")

    mail.mark_delivered = once
    await outgoing(mail, "a", "b")
    async with running(mail, phone=phone):
        await until(lambda: len(phone.got) == 3)
    assert phone.got == [("a", 0), ("a", 1), ("b", 0)]


async def test_a_mail_that_is_away_ends_no_delivery(mail):
    phone, real, failed = Phone(), mail.lease_replies, []

    async def away(*given, **named):
        if len(failed) < 3:
            failed.append(1)
            raise StoreUnavailable("away")
        return await real(*given, **named)

    mail.lease_replies = away
    await outgoing(mail, "a")
    async with running(mail, phone=phone):
        await until(lambda: phone.got)


async def test_what_is_under_way_when_it_ends_is_waited_for(mail):
    begun = asyncio.Event()

    async def slowly():
        begun.set()
        await asyncio.sleep(0.02)

    phone = Phone(slowly)
    await outgoing(mail, "a")
    async with running(mail, phone=phone):
        await begun.wait()
    assert await mail.lease_replies(["phone"], limit=1, lease_s=1) == []


async def test_what_is_outgoing_now_can_be_sent_at_once(mail):
    phone = Phone()
    await mail.post(letter("k"))
    await outgoing(mail, "a", "b")
    made = ReplyDelivery(mail, {"phone": phone})
    assert [await made.deliver_due(), await made.deliver_due(), await made.deliver_due()] == [
        1,
        1,
        0,
    ]
    assert await keys(mail) == ["k"]
