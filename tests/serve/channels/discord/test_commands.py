"""Slash commands do the same as everywhere, and tell the one who asked and nobody else."""

from __future__ import annotations

import asyncio
import io

import pytest
from PIL import Image

from tests.serve.channels.discord.running_bots import Waiting, at_home, echo, living, until
from tests.simulators.discord import (
    DiscordSimulator,
    SlashInteraction,
    serve_simulated_discord,
)
from trimtab.testing import ScriptedCall
from trimtab_serve.channels import chat_commands

pytestmark = pytest.mark.anyio

PNG = b"\x89PNG\r\n\x1a\n"


async def told(discord: DiscordSimulator, channel: int, user, name: str, **options: str) -> str:
    """What somebody is told who uses a command."""
    used = await discord.use_slash_command(channel, user, name, **options)
    return await answered(used)


async def answered(used: SlashInteraction) -> str:
    await until(lambda: used.answer is not None)
    assert used.answer is not None
    assert used.ephemeral
    return str(used.answer["content"])


def pictures(discord: DiscordSimulator) -> list[bytes]:
    return [file for request in discord.requests for file in request.files if request.status == 200]


async def test_the_same_verbs_as_elsewhere_are_registered_for_servers_and_direct_messages():
    async with at_home() as house:
        found = {one["name"]: one for one in house.discord.rest.commands}
        assert set(found) == {"help", "reset", "undo", "context", "compact", "why", "stop"}
        assert (
            found["reset"]["description"]
            == "Start a new conversation; the old one stays in the log"
        )
        assert found["why"]["options"][0]["name"] == "handle"
        assert {tuple(one["contexts"]) for one in found.values()} == {(0, 1)}
        ann = house.discord.add_user("Ann")
        text = await told(house.discord, house.discord.open_direct_channel(ann), ann, "help")
        assert "/why HANDLE – why a message such as m12 is shown or hidden" in text


async def test_context_is_a_picture_with_its_words_in_columns():
    async with at_home() as house:
        discord = house.discord
        ann = discord.add_user("Ann")
        channel = discord.open_direct_channel(ann)
        assert await told(discord, channel, ann, "context") == "There are no messages here yet."
        await house.heard(channel, ann)
        text = await told(discord, channel, ann, "context")
        assert text.startswith("```\n")
        assert "Context Usage" in text
        (png,) = pictures(discord)
        assert png.startswith(PNG)
        assert Image.open(io.BytesIO(png)).size[0] > 500
        assert len(discord.list_posted_texts(channel)) == 1


async def test_context_is_told_in_words_where_no_picture_can_be_had(monkeypatch):
    async with at_home() as house:
        discord = house.discord
        ann = discord.add_user("Ann")
        channel = discord.open_direct_channel(ann)
        await house.heard(channel, ann)
        discord.fail_requests("PATCH", "/webhooks/", status=413, code=40005, message="Too large")
        assert "Context Usage" in await told(discord, channel, ann, "context")
        monkeypatch.setattr(chat_commands, "draw_context_png", lambda ledger: None)
        assert "Context Usage" in await told(discord, channel, ann, "context")
        assert pictures(discord) == []


async def test_compact_makes_the_context_smaller_and_why_tells_of_it():
    async with at_home() as house:
        discord = house.discord
        ann = discord.add_user("Ann")
        channel = discord.open_direct_channel(ann)
        await house.heard(channel, ann)
        text = await told(discord, channel, ann, "compact")
        assert text == "There is nothing to compact: the newest messages always stay."
        for number in range(1, 10):
            await discord.post_user_message(channel, ann, f"{number} " + "many words " * 50)
            await house.posted(channel, number + 1)
        text = await told(discord, channel, ann, "compact")
        assert text.endswith("less. Nothing is lost.")
        why = await told(discord, channel, ann, "why", handle="m2")
        assert why.startswith("m2 is in the context, in the list of the user's earlier messages.")
        assert why.endswith("Are you there?")
        assert "handle" in await told(discord, channel, ann, "why", handle="nonsense")
        assert "m9999" in await told(discord, channel, ann, "why", handle="m9999")


async def test_undo_takes_back_the_last_message_and_what_followed_it():
    async with at_home() as house:
        discord = house.discord
        ann = discord.add_user("Ann")
        channel = discord.open_direct_channel(ann)
        await house.heard(channel, ann)
        text = await told(discord, channel, ann, "undo")
        assert text.startswith("Undone: “Are you there?” and 1 message with it.")
        await discord.post_user_message(channel, ann, "New.")
        assert (await house.posted(channel, 2))[1] == "You said: New."
        assert "Are you there?" not in str(house.served.provider.requests[-1]["messages"])


def test_reset_begins_anew_and_the_log_keeps_what_was_said():
    async def run() -> None:
        async with at_home() as house:
            discord = house.discord
            ann = discord.add_user("Ann")
            channel = discord.open_direct_channel(ann)
            await house.heard(channel, ann)
            text = await told(discord, channel, ann, "reset")
            assert text == (
                "This is a new conversation: I no longer see the 2 earlier messages. The log still "
                "has them."
            )
            await discord.post_user_message(channel, ann, "New.")
            assert (await house.posted(channel, 2))[1] == "You said: New."
            assert len(house.served.provider.requests[-1]["messages"]) == 1
            said = [text for _, text in await house.texts(channel)]
            assert said[:3] == ["Are you there?", "You said: Are you there?", "/reset"]

    asyncio.run(run())


async def test_reset_stops_what_runs_and_leaves_behind_what_still_waits():
    waiting = Waiting()
    async with at_home(ScriptedCall(name="wait"), echo, echo, tools=[waiting.tool]) as house:
        discord = house.discord
        ann = discord.add_user("Ann")
        channel = discord.open_direct_channel(ann)
        await discord.post_user_message(channel, ann, "Begin.")
        await waiting.begun.wait()
        await discord.post_user_message(channel, ann, "And this.")
        assert "This is a new conversation" in await told(discord, channel, ann, "reset")
        await house.served.turns.wait_until_idle()
        await discord.post_user_message(channel, ann, "New.")
        assert (await house.posted(channel))[-1] == "You said: New."
        assert len(house.served.provider.requests[-1]["messages"]) == 1


async def test_stop_ends_the_turn_and_its_tool_at_once():
    waiting = Waiting()
    async with at_home(ScriptedCall(name="wait"), "Too late.", tools=[waiting.tool]) as house:
        discord = house.discord
        ann = discord.add_user("Ann")
        channel = discord.open_direct_channel(ann)
        assert await told(discord, channel, ann, "stop") == chat_commands.NOT_RUNNING_TEXT
        await discord.post_user_message(channel, ann, "Begin.")
        await waiting.begun.wait()
        assert await told(discord, channel, ann, "stop") == "I'm stopping."
        async with asyncio.timeout(30):
            await house.served.turns.wait_until_idle()
        assert len(house.served.provider.requests) == 1


async def test_a_thread_is_asked_about_itself():
    async with serve_simulated_discord() as discord:
        ann = discord.add_user("Ann")
        channel = discord.add_channel(discord.add_guild())
        async with living(discord) as house:
            thread = await discord.post_user_message(channel, ann, "What is new?", mention=True)
            await house.posted(thread)
            why = await told(discord, thread, ann, "why", handle="m2")
            assert f"Ann ({ann['id']}): What is new?" in why
            assert await told(discord, channel, ann, "context") == chat_commands.NO_MESSAGES_TEXT


async def test_who_is_not_allowed_is_not_even_acknowledged():
    async with serve_simulated_discord() as discord:
        ann, eve = discord.add_user("Ann"), discord.add_user("Eve")
        channel = discord.add_channel(discord.add_guild())
        thread = discord.add_thread(channel, "of Ann's", ann)
        async with living(discord, allow=["*"], deny=[eve["id"], channel]) as house:
            hers = await discord.use_slash_command(discord.open_direct_channel(eve), eve, "reset")
            there = await discord.use_slash_command(channel, ann, "context")
            below = await discord.use_slash_command(thread, ann, "context")
            await told(discord, discord.open_direct_channel(ann), ann, "help")
            assert [one.acknowledged for one in (hers, there, below)] == [0, 0, 0]
            assert len(house.served.service.sessions) == 0


async def test_a_command_that_is_told_again_or_comes_too_late_does_nothing():
    async with at_home() as house:
        discord = house.discord
        ann = discord.add_user("Ann")
        channel = discord.open_direct_channel(ann)
        await house.heard(channel, ann)
        used = await discord.use_slash_command(channel, ann, "reset")
        await answered(used)
        await house.heard(channel, ann)
        await discord.dispatch_event("INTERACTION_CREATE", used.payload)
        late = await discord.use_slash_command(channel, ann, "reset")
        late.at -= 60
        await told(discord, channel, ann, "help")
        await discord.post_user_message(channel, ann, "Still here?")
        await house.posted(channel, 3)
        assert late.acknowledged == 0
        assert len(house.served.provider.requests[-1]["messages"]) == 3
