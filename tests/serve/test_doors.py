"""One command starts all that the agent's file names: HTTP, Telegram, Discord and the clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.serve.processes import PATIENCE, serving, write_agent
from trimtab.testing import discord, telegram

pytestmark = pytest.mark.anyio

ADA = 7


async def until(holds: Callable[[], Any]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110 - a process of its own signals nothing here
            await asyncio.sleep(0.02)


async def test_one_command_opens_every_door_of_the_file(tmp_path, simulator):
    simulator.script(otherwise="At your service.")
    async with discord.serve() as guild:
        bob = guild.user("bob")
        direct = guild.direct(bob)
        with telegram.serve() as bots:
            bots.api.chat(ADA, "Ada", username="ada")
            write_agent(
                tmp_path,
                simulator.url,
                telegram={"token": bots.api.token, "allow": ["*"], "api": bots.url},
                discord={"token": guild.options.token, "allow": ["*"], "api": guild.url},
                # Long ago and never done: it is made up for at the start.
                schedules={"report": {"at": "2026-01-01 08:00", "says": "Report.", "late": 10**9}},
            )
            house = serving(tmp_path)
            # In a thread: Discord is simulated in this loop.
            server = await asyncio.to_thread(house.__enter__)
            try:
                facts = server.heard[-1]
                assert facts["doors"] == ["telegram", "discord", "schedule"]
                bots.api.says(ADA, "Hello, helper!")
                await until(lambda: bots.api.texts(ADA) == ["At your service."])
                async with asyncio.timeout(PATIENCE):
                    await guild.gateway.identified.wait()
                await guild.say(direct, bob, "Hello, helper!")
                await until(lambda: guild.posted(direct) == ["At your service."])
                async with server.client() as client:
                    assert await client.session("helper", "web").ask("Hi.") == "At your service."
                    report = client.session("helper", "schedule:report")
                    told = [(each.role, each.text) async for each in report.history()]
                    assert told == [("user", "Report."), ("assistant", "At your service.")]
                assert await asyncio.to_thread(server.end) == 0
            finally:
                await asyncio.to_thread(house.__exit__, None, None, None)
