"""One command starts all that the agent's file names: HTTP, Telegram, Discord and the clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.serve.process.processes import PATIENCE, serving, write_agent
from tests.serve.queue.queues import reply
from tests.simulators import discord, telegram
from trimtab_serve.process import wiring
from trimtab_serve.process.wiring import map_channel_senders
from trimtab_serve.queue.messages import OutboundMessage
from trimtab_serve.service import delivery
from trimtab_serve.service.delivery import MAX_DELIVERY_ATTEMPTS, RetryDelivery, Undeliverable

pytestmark = [pytest.mark.anyio, pytest.mark.process]

ADA = 7


async def until(holds: Callable[[], Any]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110 - a process of its own signals nothing here
            await asyncio.sleep(0.02)


async def test_one_command_opens_every_channel_of_the_file(tmp_path, simulator):
    simulator.set_replies(otherwise="At your service.")
    async with discord.serve_simulated_discord() as guild:
        bob = guild.add_user("bob")
        direct = guild.open_direct_channel(bob)
        with telegram.serve_simulated_telegram() as bots:
            bots.simulator.get_or_add_chat(ADA, "Ada", username="ada")
            write_agent(
                tmp_path,
                simulator.url,
                telegram={"token": bots.simulator.token, "allow": ["*"], "api": bots.url},
                discord={"token": guild.options.token, "allow": ["*"], "api": guild.url},
                # Long ago and never done: it is made up for at the start.
                schedules={
                    "report": {
                        "at": "2026-01-01 08:00",
                        "message": "Report.",
                        "catch_up_window": 10**9,
                    }
                },
            )
            house = serving(tmp_path)
            # In a thread: Discord is simulated in this loop.
            server = await asyncio.to_thread(house.__enter__)
            try:
                facts = server.heard[-1]
                assert facts["channels"] == ["telegram", "discord", "schedule"]
                bots.simulator.post_user_message(ADA, "Hello, helper!")
                await until(lambda: bots.simulator.list_bot_texts(ADA) == ["At your service."])
                async with asyncio.timeout(PATIENCE):
                    await guild.gateway.identified.wait()
                await guild.post_user_message(direct, bob, "Hello, helper!")
                await until(lambda: guild.list_posted_texts(direct) == ["At your service."])
                async with server.client() as client:
                    assert await client.session("helper", "web").ask("Hi.") == "At your service."
                    report = client.session("helper", "schedule:report")
                    told = [(each.role, each.text) async for each in report.history()]
                    assert told == [("user", "Report."), ("assistant", "At your service.")]
                assert await asyncio.to_thread(server.end) == 0
            finally:
                await asyncio.to_thread(house.__exit__, None, None, None)


class Phone:
    """A channel that sends whatever it is given."""

    name = "phone"
    routes = ()

    def __init__(self) -> None:
        self.sent: list[str] = []

    async def run(self) -> None:
        """Nothing comes in."""

    async def deliver(self, reply: OutboundMessage) -> None:
        self.sent.append(reply.key)

    async def close(self) -> None:
        """Nothing is held."""


async def outcome(deliver, sent):
    try:
        await deliver(sent)
    except (RetryDelivery, Undeliverable) as error:
        return error
    return None


async def test_a_reply_goes_through_the_channel_of_its_own_agent():
    mine, other = Phone(), Phone()
    ways = map_channel_senders([("helper", mine), ("other", other)], is_only_process=True)
    await ways["phone"](reply("r1"))
    assert (mine.sent, other.sent) == (["r1"], [])


async def test_a_reply_whose_channel_is_nowhere_is_refused_with_what_to_do():
    ways = map_channel_senders([("other", Phone())], is_only_process=True)
    found = await outcome(ways["phone"], reply("r1"))
    assert isinstance(found, Undeliverable)
    assert str(found) == (
        "the agent helper has no phone channel here; add it to the agent's file, restart the "
        "server and retry the reply"
    )


async def test_a_reply_whose_channel_other_processes_may_have_is_left_to_them_for_a_while():
    ways = map_channel_senders([("other", Phone())], is_only_process=False)
    found = [await outcome(ways["phone"], reply("r1")) for _ in range(MAX_DELIVERY_ATTEMPTS)]
    assert [type(each) for each in found] == [RetryDelivery] * (MAX_DELIVERY_ATTEMPTS - 1) + [
        Undeliverable
    ]
    waits = [each.delay_s for each in found if isinstance(each, RetryDelivery)]
    assert waits == [
        delivery.FIRST_DELIVERY_RETRY_S * 2**n for n in range(MAX_DELIVERY_ATTEMPTS - 1)
    ]
    assert isinstance(await outcome(ways["phone"], reply("r2")), RetryDelivery)


async def test_no_more_replies_for_others_are_counted_than_there_is_room_for(monkeypatch):
    monkeypatch.setattr(wiring, "MAX_MISSED_REPLIES", 1)
    ways = map_channel_senders([("other", Phone())], is_only_process=False)
    for key in ("r1", "r2", "r1"):
        found = await outcome(ways["phone"], reply(key))
        assert isinstance(found, RetryDelivery)
        assert found.delay_s == delivery.FIRST_DELIVERY_RETRY_S
