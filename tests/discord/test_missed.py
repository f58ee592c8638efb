"""What was said while the bot was away is answered when it is back, and nothing twice."""

from __future__ import annotations

import asyncio

from tests.discord.house import eventually, living
from trimtab.testing import MemoryStore
from trimtab.testing.discord import serve


def test_what_was_said_while_the_bot_was_away_is_answered_in_order():
    async def run() -> None:
        store = MemoryStore()
        async with serve() as discord:
            ann, eve = discord.user("Ann"), discord.user("Eve")
            channel, hers = discord.direct(ann), discord.direct(eve)
            async with living(discord, store=store, allow=[ann["id"]]) as house:
                await discord.say(channel, ann, "one")
                await house.posted(channel)
            await discord.say(channel, ann, "two")
            await discord.say(channel, ann, "three")
            await discord.say(hers, eve, "I as well?")
            async with living(discord, store=store, allow=[ann["id"]]) as house:
                await discord.say(channel, ann, "four")

                async def told() -> list[str]:
                    return [text for role, text in await house.texts(channel) if role == "user"]

                async def all_there() -> bool:
                    return len(await told()) == 4

                await eventually(all_there)
                assert await told() == ["one", "two", "three", "four"]
                await house.posted(channel, 2)
                assert discord.posted(hers) == []

    asyncio.run(run())


def test_a_mention_that_was_missed_in_a_channel_of_threads_is_answered():
    async def run() -> None:
        store = MemoryStore()
        async with serve() as discord:
            ann = discord.user("Ann")
            channel = discord.channel(discord.guild())
            async with living(discord, store=store) as house:
                first = await discord.say(channel, ann, "one", mention=True)
                await house.posted(first)
            await discord.say(first, ann, "one and a half")
            await discord.say(channel, ann, "not for the bot")
            second = await discord.say(channel, ann, "two", mention=True)
            async with living(discord, store=store) as house:
                assert await house.posted(second) == ["You said: Ann: two"]
                assert (await house.posted(first, 2))[1] == "You said: Ann: one and a half"
                assert discord.threads(channel) == [first, second]
                assert discord.posted(channel) == []

    asyncio.run(run())


def test_a_channel_that_cannot_be_read_any_more_stops_nothing():
    async def run() -> None:
        store = MemoryStore()
        async with serve() as discord:
            ann = discord.user("Ann")
            channel = discord.direct(ann)
            other = discord.channel(discord.guild())
            async with living(discord, store=store, threads=False) as house:
                await discord.say(channel, ann, "one")
                await discord.say(other, ann, "one", mention=True)
                await house.posted(channel)
                await house.posted(other)
            discord.forbid(other, "history", "view")
            await discord.say(channel, ann, "two")
            async with living(discord, store=store, threads=False) as house:
                assert (await house.posted(channel, 2))[1] == "You said: two"

    asyncio.run(run())
