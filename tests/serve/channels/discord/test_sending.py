"""Replies arrive once, in order, at Discord's pace, or it is said why they never will."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from tests.serve.channels.discord.running_bots import (
    PACE,
    House,
    at_home,
    eventually,
    living,
    until,
)
from tests.simulators.discord import serve_simulated_discord
from trimtab_serve.channels.discord.reply_sender import RESENT_NOTICE
from trimtab_serve.queue.messages import OutboundMessage, ReplyRoute
from trimtab_serve.service import delivery
from trimtab_serve.service.delivery import RetryDelivery, Undeliverable

pytestmark = pytest.mark.anyio

POST = r"/messages$"
LONG = "\n\n".join(f"Paragraph {number}: " + "word" + " word" * 149 for number in range(5))


def limited(seconds: float, *, everything: bool = False) -> dict[str, Any]:
    body = {"message": "You are being rate limited.", "retry_after": seconds, "global": everything}
    return {"status": 429, "body": body, "headers": {"Via": "1.1 simulated"}}


def reply_to(house: House, channel: int, text: str = "Hello.", key: str = "k") -> OutboundMessage:
    route = ReplyRoute(channel="discord", address={"channel": channel})
    return OutboundMessage(session=house.session(channel), seq=3, text=text, route=route, key=key)


def a_direct_channel(house: House) -> int:
    return house.discord.open_direct_channel(house.discord.add_user("Ann"))


async def test_a_long_reply_arrives_in_pieces_and_only_the_first_is_a_reply():
    async with serve_simulated_discord() as discord:
        ann = discord.add_user("Ann")
        channel = discord.add_channel(discord.add_guild())
        async with living(discord, LONG, threads=False) as house:
            await discord.post_user_message(channel, ann, "Tell me all.", mention=True)
            pieces = await house.posted(channel, 3)
            assert "\n\n".join(pieces) == LONG
            said = [one for one in discord.world.messages[channel].values() if "nonce" in one]
            assert ["message_reference" in one for one in said] == [True, False, False]


@pytest.mark.parametrize("everything", [False, True])
async def test_a_short_limit_is_waited_for(everything):
    async with at_home() as house:
        channel = a_direct_channel(house)
        house.discord.fail_requests("POST", POST, times=2, **limited(0.05, everything=everything))
        await house.channel.deliver(reply_to(house, channel))
        assert house.discord.list_posted_texts(channel) == ["Hello."]


async def test_more_messages_than_discord_takes_are_spread_out():
    async with (
        serve_simulated_discord(messages=(2, 0.1)) as discord,
        living(discord, LONG, LONG) as house,
    ):
        channel = a_direct_channel(house)
        await house.channel.deliver(reply_to(house, channel, LONG))
        assert len(discord.list_posted_texts(channel)) == 3
        assert discord.rest.limits.refused_count == 0


async def test_a_long_limit_puts_the_reply_off_for_as_long_as_discord_says():
    async with at_home() as house:
        channel = a_direct_channel(house)
        house.discord.fail_requests("POST", POST, **limited(42.5))
        with pytest.raises(RetryDelivery) as caught:
            await house.channel.deliver(reply_to(house, channel))
        assert caught.value.delay_s == 42.5
        # So does whatever stands before Discord.
        refused: dict[str, Any] = {"status": 429, "headers": {"Retry-After": "7", "Via": ""}}
        house.discord.fail_requests("POST", POST, **refused)
        with pytest.raises(RetryDelivery) as caught:
            await house.channel.deliver(reply_to(house, channel))
        assert caught.value.delay_s == 7


async def test_a_delivery_that_is_broken_off_in_a_global_limit_holds_nobody_else_back():
    async with at_home(pace=replace(PACE, max_rate_limit_wait_s=90.0)) as house:
        discord = house.discord
        channel, other = a_direct_channel(house), a_direct_channel(house)
        discord.fail_requests("POST", POST, **limited(60.0, everything=True))
        task = asyncio.create_task(house.channel.deliver(reply_to(house, channel)))
        await until(lambda: [one for one in discord.requests if one.status == 429])
        await asyncio.sleep(0)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        async with asyncio.timeout(5):
            await house.channel.deliver(reply_to(house, other))
        assert discord.list_posted_texts(other) == ["Hello."]


@pytest.mark.parametrize("status", [0, 503])
def test_a_reply_of_which_nobody_knows_is_sent_again_and_there_once(status, monkeypatch):
    monkeypatch.setattr(delivery, "FIRST_DELIVERY_RETRY_S", 0.01)

    async def run() -> None:
        async with at_home("Once.") as house:
            discord = house.discord
            ann = discord.add_user("Ann")
            channel = discord.open_direct_channel(ann)
            discord.fail_requests("POST", POST, status=status, carries_out_first=True, times=2)
            await discord.post_user_message(channel, ann, "Say it once.")
            await until(lambda: len(house.tried) == 3)
            await until(lambda: not [t for t in asyncio.all_tasks() if "typing" in t.get_name()])
            assert [one.attempts for one in house.tried] == [0, 1, 2]
            assert discord.list_posted_texts(channel) == ["Once."]

    asyncio.run(run())


async def test_a_reply_that_another_process_may_have_sent_is_marked():
    async with at_home() as house:
        channel = a_direct_channel(house)
        reply = replace(reply_to(house, channel), attempts=1)
        await house.channel.deliver(reply)
        assert house.discord.list_posted_texts(channel) == [f"{RESENT_NOTICE}Hello."]
        # Soon after, Discord knows its nonce; later it does not, and the mark tells.
        await house.channel.deliver(reply)
        assert len(house.discord.list_posted_texts(channel)) == 1
        house.discord.advance_clock(600)
        await house.channel.deliver(reply)
        assert len(house.discord.list_posted_texts(channel)) == 2


async def test_what_discord_will_never_take_is_kept_for_the_operator():
    async with at_home("For nobody.") as house:
        discord = house.discord
        ann = discord.add_user("Ann")
        channel = discord.open_direct_channel(ann)
        discord.forbid_permissions(channel, "send")
        await discord.post_user_message(channel, ann, "Hello?")
        await until(lambda: house.tried)
        queue = house.served.service.queue
        await eventually(queue.list_dead_letters)
        dead = await queue.list_dead_letters()
        assert "Cannot send messages to this user" in dead[0].why
        with pytest.raises(Undeliverable, match="Unknown Channel"):
            await house.channel.deliver(reply_to(house, 99))
        nowhere = ReplyRoute(channel="discord", address={"chat": 1})
        with pytest.raises(Undeliverable, match="invalid Discord channel"):
            await house.channel.deliver(replace(reply_to(house, 99), route=nowhere))


async def test_nothing_is_sent_to_a_channel_that_is_denied_by_now():
    async with serve_simulated_discord() as discord:
        channel = discord.open_direct_channel(discord.add_user("Ann"))
        async with living(discord, deny=[channel]) as house:
            with pytest.raises(Undeliverable, match=r"discord\.deny"):
                await house.channel.deliver(reply_to(house, channel))
            assert discord.posted_texts_by_channel() == {}


async def test_replies_wait_until_the_bot_is_connected():
    async with at_home() as house:
        await house.channel.close()
        with pytest.raises(RetryDelivery, match="not connected"):
            await house.channel.deliver(reply_to(house, 1))
