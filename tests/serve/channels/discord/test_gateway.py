"""Connections end, sessions are resumed or lost, and Discord sends what nobody understands."""

from __future__ import annotations

import asyncio
import logging

import pytest

from tests.serve.channels.discord.running_bots import House, at_home, living, until
from tests.simulators.discord import serve_simulated_discord
from trimtab_serve.channels.discord import DiscordLoginRefused

pytestmark = pytest.mark.anyio

IDENTIFY, RESUME = 2, 6


def count(house: House, op: int) -> int:
    return sum(one["op"] == op for one in house.discord.gateway.received)


@pytest.mark.parametrize("how", ["drop", "reconnect", "resumable"])
async def test_a_cut_connection_is_resumed_and_nothing_is_lost_or_heard_twice(how):
    async with at_home() as house:
        discord = house.discord
        ann = discord.add_user("Ann")
        channel = discord.open_direct_channel(ann)
        await discord.post_user_message(channel, ann, "one")
        await house.posted(channel)
        match how:
            case "drop":
                await discord.drop_connections()
            case "reconnect":
                await discord.request_reconnect()
            case _:
                await discord.invalidate_sessions(resumable=True)
        await until(lambda: not discord.gateway.identified.is_set() or count(house, RESUME))
        await discord.post_user_message(channel, ann, "two")
        assert await house.posted(channel, 2) == ["You said: one", "You said: two"]
        assert (count(house, IDENTIFY), count(house, RESUME)) == (1, 1)
        assert [text for role, text in await house.texts(channel) if role == "user"] == [
            "one",
            "two",
        ]


async def test_what_is_told_again_is_answered_once():
    async with at_home() as house:
        discord = house.discord
        ann = discord.add_user("Ann")
        channel = discord.open_direct_channel(ann)
        message = await discord.post_user_message(channel, ann, "one")
        await discord.redeliver_message(channel, message)
        await house.posted(channel)
        await discord.redeliver_message(channel, message)
        await house.heard(channel, ann)
        assert discord.list_posted_texts(channel) == [
            "You said: one",
            "You said: Are you there?",
        ]


async def test_a_mention_that_is_told_again_opens_no_second_thread():
    async with serve_simulated_discord() as discord:
        ann = discord.add_user("Ann")
        channel = discord.add_channel(discord.add_guild())
        async with living(discord) as house:
            message = await discord.post_user_message(channel, ann, "one", mention=True)
            await discord.redeliver_message(channel, message)
            await house.posted(message)
            await discord.redeliver_message(channel, message)
            await house.heard(message, ann)
            assert discord.list_threads(channel) == [message]
            assert len(discord.list_posted_texts(message)) == 2
            assert set(discord.posted_texts_by_channel()) == {message}


async def test_a_lost_session_begins_anew_and_what_was_missed_is_looked_up():
    async with at_home() as house:
        discord = house.discord
        ann = discord.add_user("Ann")
        channel = discord.open_direct_channel(ann)
        await discord.post_user_message(channel, ann, "one")
        await house.posted(channel)
        await discord.invalidate_sessions()
        assert discord.gateway.sessions == {}
        await discord.post_user_message(channel, ann, "two")
        assert await house.posted(channel, 2) == ["You said: one", "You said: two"]
        assert (count(house, IDENTIFY), count(house, RESUME)) == (2, 0)


async def test_events_that_nobody_can_read_are_passed_over(caplog):
    async with at_home() as house:
        discord = house.discord
        ann = discord.add_user("Ann")
        channel = discord.open_direct_channel(ann)
        for event, data in (
            ("MESSAGE_CREATE", {}),
            ("MESSAGE_CREATE", None),
            ("MESSAGE_CREATE", {"id": "x", "channel_id": "y", "author": 3}),
            ("MESSAGE_UPDATE", {"id": "1"}),
            ("INTERACTION_CREATE", {"type": 2}),
            ("GUILD_CREATE", {"id": None}),
            ("SOMETHING_NEW", {"a": 1}),
            ("THREAD_CREATE", []),
        ):
            await discord.dispatch_event(event, data)
        sound = discord.world.add_message(channel, ann, "Never heard.")
        for spoilt in (
            {name: sound[name] for name in sound if name != "author"},
            {**sound, "id": 1e308},
            {**sound, "author": {**ann, "id": -1}},
        ):
            await discord.dispatch_event("MESSAGE_CREATE", spoilt)
        used = discord.rest.interactions.start_interaction(channel, ann, "reset", {}, "1").payload
        for spoilt in ({"user": None}, {"data": None}, {"channel": 7}, {"type": "x"}):
            await discord.dispatch_event("INTERACTION_CREATE", {**used, **spoilt})
        await discord.send_text('{"op": 77, "d": null}')
        await house.heard(channel, ann)
        assert count(house, IDENTIFY) == 1
        assert "unreadable event MESSAGE_CREATE" in caplog.text
        assert not [one for one in caplog.records if one.levelno >= logging.ERROR]
        assert await house.texts(channel) == [
            ("user", "Are you there?"),
            ("assistant", "You said: Are you there?"),
        ]


@pytest.mark.parametrize("text", ["this is no JSON", "[1, 2]", '"a text"'])
async def test_a_frame_that_is_no_payload_begins_a_new_session(text):
    async with at_home() as house:
        discord = house.discord
        ann = discord.add_user("Ann")
        channel = discord.open_direct_channel(ann)
        await discord.post_user_message(channel, ann, "one")
        await house.posted(channel)
        await discord.send_text(text)
        await discord.post_user_message(channel, ann, "two")
        assert await house.posted(channel, 2) == ["You said: one", "You said: two"]
        assert count(house, IDENTIFY) == 2


async def test_a_wrong_token_is_named_as_such_and_not_told():
    async with at_home(connected=False, token=f"wrong.{'secret'}") as house:
        with pytest.raises(DiscordLoginRefused, match="does not accept the token") as caught:
            await house.tasks[0]
        assert "secret" not in str(caught.value)


async def test_a_missing_intent_is_named_as_such():
    async with (
        serve_simulated_discord(intents=1) as discord,
        living(discord, connected=False) as house,
    ):
        with pytest.raises(DiscordLoginRefused, match="Message Content Intent"):
            await house.tasks[0]


def test_discord_that_is_down_at_the_start_is_waited_for(caplog):
    async def run() -> None:
        async with serve_simulated_discord() as discord:
            discord.fail_requests("GET", "/users/@me", status=503, times=2)
            async with living(discord) as house:
                ann = discord.add_user("Ann")
                await house.heard(discord.open_direct_channel(ann), ann)

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    assert "Discord cannot be reached" in caplog.text


async def test_two_bots_in_one_process_talk_to_two_discords():
    async with at_home("I am one.") as one, at_home("I am two.") as two:
        for house, answer in ((one, "I am one."), (two, "I am two.")):
            ann = house.discord.add_user("Ann")
            channel = house.discord.open_direct_channel(ann)
            await house.discord.post_user_message(channel, ann, "Who?")
            assert await house.posted(channel) == [answer]
