"""What every chat platform promises of replies: all pieces, in order, none twice, none given up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.serve.channels.platforms import NAMES, WAIT_S, Platform, connected
from tests.serve.queue.memory_queue import MemoryQueue
from tests.serve.queue.queues import claimed
from trimtab.testing import MemoryStore
from trimtab_serve.channels.utf16 import count_utf16_units
from trimtab_serve.service.delivery import (
    MAX_DELIVERY_ATTEMPTS,
    ReplyDelivery,
    ReplyInterrupted,
    RetryDelivery,
    Undeliverable,
)

pytestmark = pytest.mark.parametrize("name", NAMES)


def on(name: str, check: Callable[[Platform], Awaitable[None]]) -> None:
    async def run() -> None:
        async with connected(name) as platform:
            await check(platform)

    asyncio.run(run())


def test_a_long_reply_arrives_whole_in_messages_that_the_platform_takes(name):
    async def check(platform: Platform) -> None:
        text = "\n\n".join(f"Paragraph {number}: " + "😀 word " * 60 for number in range(30))
        await platform.deliver(platform.reply(text))
        sent = platform.texts()
        assert len(sent) > 1
        assert all(count_utf16_units(one) <= platform.max_units for one in sent)
        assert "".join("".join(sent).split()) == "".join(text.split())

    on(name, check)


def test_a_reply_that_must_wait_before_its_first_message_is_put_off_for_as_long_as_asked(name):
    async def check(platform: Platform) -> None:
        platform.plan("must wait")
        with pytest.raises(RetryDelivery) as caught:
            await platform.deliver(platform.reply("Hello."))
        assert caught.value.delay_s == WAIT_S
        platform.pass_time()
        await platform.deliver(platform.reply("Hello."))
        assert platform.texts() == ["Hello."]

    on(name, check)


def test_a_reply_that_must_wait_after_a_message_goes_on_behind_it(name):
    async def check(platform: Platform) -> None:
        parts = platform.paragraphs(3)
        reply, again = (platform.reply("\n\n".join(parts), attempts) for attempts in (0, 1))
        platform.plan("arrives", "must wait", "must wait")
        with pytest.raises(ReplyInterrupted, match="have arrived: 1;") as caught:
            await platform.deliver(reply)
        assert caught.value.delay_s == WAIT_S
        platform.pass_time()
        # An attempt that gets no further is no interruption: nothing was sent.
        with pytest.raises(RetryDelivery):
            await platform.deliver(again)
        platform.pass_time()
        await platform.deliver(again)
        assert platform.texts() == parts

    on(name, check)


def test_a_message_that_was_lost_between_two_is_sent_again(name):
    async def check(platform: Platform) -> None:
        parts = platform.paragraphs(3)
        reply, again = (platform.reply("\n\n".join(parts), attempts) for attempts in (0, 1))
        platform.plan("arrives", "is lost")
        with pytest.raises(ReplyInterrupted) as caught:
            await platform.deliver(reply)
        assert caught.value.delay_s is None
        await platform.deliver(again)
        sent = platform.texts()
        assert [one.removeprefix(platform.resent_notice) for one in sent] == parts
        # What has arrived for certain is not marked.
        assert [sent[0], sent[2]] == [parts[0], parts[2]]

    on(name, check)


def test_no_message_is_there_twice_without_a_mark(name):
    async def check(platform: Platform) -> None:
        parts = platform.paragraphs(3)
        reply, again = (platform.reply("\n\n".join(parts), attempts) for attempts in (0, 1))
        platform.plan("arrives", "arrives without an answer")
        with pytest.raises(ReplyInterrupted):
            await platform.deliver(reply)
        await platform.deliver(again)
        unmarked = [one for one in platform.texts() if not one.startswith(platform.resent_notice)]
        assert unmarked == parts

    on(name, check)


def test_a_reply_that_another_process_began_has_a_mark_at_its_first_message_alone(name):
    async def check(platform: Platform) -> None:
        parts = platform.paragraphs(2)
        await platform.deliver(platform.reply("\n\n".join(parts), attempts=1))
        assert platform.texts() == [platform.resent_notice + parts[0], parts[1]]

    on(name, check)


@pytest.mark.parametrize("trouble", ["must wait", "is lost"])
def test_a_reply_that_gets_further_each_time_is_never_given_up(name, trouble):
    async def check(platform: Platform) -> None:
        parts = platform.paragraphs(MAX_DELIVERY_ATTEMPTS + 4)
        store, now = MemoryStore(), [0.0]
        queue = MemoryQueue(store, clock=lambda: now[0])
        await claimed(store, platform.session)
        await queue.finish_turn(platform.session, 1, [], [platform.reply("\n\n".join(parts))])
        platform.plan(*["arrives", trouble] * (len(parts) - 1))
        delivery = ReplyDelivery(queue, {platform.name: platform.deliver})
        for _ in parts:
            assert await delivery.deliver_due() == 1
            now[0] += 1_000.0
            platform.pass_time()
        assert await delivery.deliver_due() == 0
        assert await queue.list_dead_letters() == []
        sent = [one.removeprefix(platform.resent_notice) for one in platform.texts()]
        assert sent == parts

    on(name, check)


def test_an_address_that_names_no_chat_is_undeliverable(name):
    async def check(platform: Platform) -> None:
        platform.address = {"nowhere": 1}
        with pytest.raises(Undeliverable):
            await platform.deliver(platform.reply("Hello."))

    on(name, check)
