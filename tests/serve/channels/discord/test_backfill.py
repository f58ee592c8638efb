"""What was said while the bot was away is answered when it is back, and nothing twice."""

from __future__ import annotations

import pytest

from tests.serve.channels.discord.running_bots import eventually, living
from tests.simulators.discord import serve_simulated_discord
from trimtab.testing import MemoryStore

pytestmark = pytest.mark.anyio


async def test_what_was_said_while_the_bot_was_away_is_answered_in_order():
    store = MemoryStore()
    async with serve_simulated_discord() as discord:
        ann, eve = discord.add_user("Ann"), discord.add_user("Eve")
        channel, hers = discord.open_direct_channel(ann), discord.open_direct_channel(eve)
        async with living(discord, store=store, allow=[ann["id"]]) as house:
            await discord.post_user_message(channel, ann, "one")
            await house.posted(channel)
        await discord.post_user_message(channel, ann, "two")
        await discord.post_user_message(channel, ann, "three")
        await discord.post_user_message(hers, eve, "I as well?")
        async with living(discord, store=store, allow=[ann["id"]]) as house:
            await discord.post_user_message(channel, ann, "four")

            async def told() -> list[str]:
                return [text for role, text in await house.texts(channel) if role == "user"]

            async def all_there() -> bool:
                return len(await told()) == 4

            await eventually(all_there)
            assert await told() == ["one", "two", "three", "four"]
            await house.posted(channel, 2)
            assert discord.list_posted_texts(hers) == []


async def test_a_mention_that_was_missed_in_a_channel_of_threads_is_answered():
    store = MemoryStore()
    async with serve_simulated_discord() as discord:
        ann = discord.add_user("Ann")
        channel = discord.add_channel(discord.add_guild())
        async with living(discord, store=store) as house:
            first = await discord.post_user_message(channel, ann, "one", mention=True)
            await house.posted(first)
        await discord.post_user_message(first, ann, "one and a half")
        await discord.post_user_message(channel, ann, "not for the bot")
        second = await discord.post_user_message(channel, ann, "two", mention=True)
        async with living(discord, store=store) as house:
            assert await house.posted(second) == [f"You said: Ann ({ann['id']}): two"]
            assert (await house.posted(first, 2))[
                1
            ] == f"You said: Ann ({ann['id']}): one and a half"
            assert discord.list_threads(channel) == [first, second]
            assert discord.list_posted_texts(channel) == []


async def test_a_channel_that_cannot_be_read_any_more_stops_nothing():
    store = MemoryStore()
    async with serve_simulated_discord() as discord:
        ann = discord.add_user("Ann")
        channel = discord.open_direct_channel(ann)
        other = discord.add_channel(discord.add_guild())
        async with living(discord, store=store, threads=False) as house:
            await discord.post_user_message(channel, ann, "one")
            await discord.post_user_message(other, ann, "one", mention=True)
            await house.posted(channel)
            await house.posted(other)
        discord.forbid_permissions(other, "history", "view")
        await discord.post_user_message(channel, ann, "two")
        async with living(discord, store=store, threads=False) as house:
            assert (await house.posted(channel, 2))[1] == "You said: two"
