"""What is said in Telegram is answered there, through the real library and a real socket."""

from __future__ import annotations

import asyncio

import pytest

from tests.serve.channels.telegram.running_bots import ADA, BOB, GROUP, running, until
from trimtab.engine.log.message import Text
from trimtab.testing import MemoryStore

pytestmark = pytest.mark.anyio


async def test_a_message_in_a_private_chat_is_answered(served):
    async with running(served, "Hello **you**.") as bot:
        served.simulator.post_user_message(ADA, "Hello.")
        await until(lambda: served.simulator.list_bot_texts(ADA) == ["Hello you."])
        assert await bot.texts() == [("user", "Hello."), ("assistant", "Hello **you**.")]
        sent = served.simulator.get_or_add_chat(ADA).messages[2]
        assert sent["entities"] == [{"type": "bold", "offset": 6, "length": 3}]
        assert not served.simulator.list_pending_updates() or await bot.settled() is None


async def test_chats_and_topics_are_sessions_of_their_own(served):
    async with running(served, "One.", "Two.", "Three.", "Four.", groups="all") as bot:
        for number, (chat, own) in enumerate(
            [
                (ADA, {}),
                (BOB, {}),
                (GROUP, {}),
                (GROUP, {"message_thread_id": 5, "is_topic_message": True}),
            ]
        ):
            served.simulator.post_user_message(chat, f"From {number}.", **own)
            await bot.settled()
        assert await bot.texts("telegram:7") == [("user", "From 0."), ("assistant", "One.")]
        assert await bot.texts("telegram:8") == [("user", "From 1."), ("assistant", "Two.")]
        assert (await bot.texts("telegram:-100123"))[0] == ("user", "Ada (42): From 2.")
        assert (await bot.texts("telegram:-100123:5"))[0] == ("user", "Ada (42): From 3.")
        last = served.simulator.list_calls("sendMessage")[-1].params
        assert (last["chat_id"], last["message_thread_id"]) == (str(GROUP), "5")
        assert '"message_id": 3' in last["reply_parameters"]


async def test_messages_that_come_during_a_turn_steer_it_in_order(served):
    gate, began = asyncio.Event(), asyncio.Event()

    async def wait(asked: object) -> str:
        del asked
        began.set()
        await gate.wait()
        return "done"

    tool = _tool(wait)
    script = (_call("wait"), "All answered.")
    async with running(served, *script, tools=[tool]) as bot:
        served.simulator.post_user_message(ADA, "First.")
        await asyncio.wait_for(began.wait(), 10)
        for text in ("Second.", "Third."):
            served.simulator.post_user_message(ADA, text)
        await until(lambda: not served.simulator.list_pending_updates())
        gate.set()
        await bot.settled()
        said = [text for role, text in await bot.texts() if role == "user"]
        assert said == ["First.", "Second.", "Third."]
        assert served.simulator.list_bot_texts(ADA) == ["All answered."]


async def test_messages_in_pieces_are_answered_together(served):
    async with running(served, "Got both.", session={"debounce": 0.3}) as bot:
        served.simulator.post_user_message(ADA, "One thing.")
        served.simulator.post_user_message(ADA, "And another.")
        await bot.settled()
        assert await bot.texts() == [
            ("user", "One thing."),
            ("user", "And another."),
            ("assistant", "Got both."),
        ]


async def test_an_edit_is_told_as_an_edit(served):
    async with running(served, "Noted.", "Changed.") as bot:
        first = served.simulator.post_user_message(ADA, "At 8.")
        await bot.settled()
        served.simulator.edit_user_message(ADA, first, "At 9.")
        told = served.simulator.list_bot_texts
        await until(lambda: told(ADA) == ["Noted.", "Changed."])
        assert (await bot.texts())[2] == (
            "user",
            "[A message was edited. It now says:]\nAt 9.",
        )


async def test_edits_in_a_row_are_one_turn_and_one_that_waits_is_kept_at_the_end(served):
    store = MemoryStore()
    async with running(served, "Noted.", store=store, edit_pause=1_000) as bot:
        first = served.simulator.post_user_message(ADA, "At 8.")
        await bot.settled()
        for hour in range(9, 40):
            served.simulator.edit_user_message(ADA, first, f"At {hour}.")
        await bot.settled()
        assert len(await bot.texts()) == 2
        await bot.channel.close()
        (queued,) = await bot.service.queue.pending("default/helper/telegram:7")
        assert queued.message.parts[0] == Text(text="[A message was edited. It now says:]\nAt 39.")


async def test_a_reply_tells_what_it_replies_to(served):
    async with running(served, "The sky is blue.", "Because.") as bot:
        served.simulator.post_user_message(ADA, "What colour?")
        await bot.settled()
        earlier = served.simulator.get_or_add_chat(ADA).messages[2]
        served.simulator.post_user_message(ADA, "Why?", reply_to_message=earlier)
        await bot.settled()
        told = (await bot.texts())[2][1]
        assert told == "[in reply to you: “The sky is blue.”]\nWhy?"


async def test_what_nobody_said_is_not_answered(served):
    async with running(served) as bot:
        ada = {"id": 7, "is_bot": False, "first_name": "Ada"}
        served.simulator.post_user_message(GROUP, new_chat_members=[ada])
        served.simulator.post_user_message(
            GROUP, pinned_message=served.simulator.get_or_add_chat(GROUP).messages[1]
        )
        served.simulator.push_update({"my_chat_member": {}})
        served.simulator.push_update(
            {"channel_post": served.simulator.get_or_add_chat(GROUP).messages[1]}
        )
        served.simulator.push_update({})
        await bot.settled()
        assert bot.provider.requests == []
        assert served.simulator.list_calls("sendMessage", only_done=False) == []


async def test_stickers_and_places_are_told_in_words(served):
    async with running(served, "A", "B", "C", "D", "E") as bot:
        sticker = {
            "file_id": "s", "file_unique_id": "s", "type": "regular", "width": 1, "height": 1,
            "is_animated": False, "is_video": False, "emoji": "👍",
        }  # fmt: skip
        place = {"latitude": 47.4, "longitude": 8.5}
        for own in (
            {"sticker": sticker},
            {"location": place},
            {"venue": {"location": place, "title": "Museum", "address": "Street 1"}},
            {"contact": {"phone_number": "+41", "first_name": "Bob"}},
            {"dice": {"emoji": "🎲", "value": 4}},
        ):
            served.simulator.post_user_message(ADA, **own)
            await bot.settled()
        assert [text for role, text in await bot.texts() if role == "user"] == [
            "[sticker 👍]",
            "[location: 47.4, 8.5]",
            "[place: Museum, Street 1, 47.4, 8.5]",
            "[contact: Bob, +41]",
            "[🎲 shows 4]",
        ]


def _tool(run):
    from trimtab.session.tools import Tool

    definition = {"name": "wait", "description": "Waits.", "input_schema": {"type": "object"}}
    return Tool(definition=definition, run=run)


def _call(name):
    from trimtab.testing import ScriptedCall

    return ScriptedCall(name=name)
