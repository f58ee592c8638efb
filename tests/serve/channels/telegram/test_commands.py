"""What a slash does: begin anew, show the context, make it smaller, say why."""

from __future__ import annotations

import asyncio
import io

import pytest
from PIL import Image

from tests.serve.channels.telegram.running_bots import ADA, GROUP, running, until
from tests.simulators.telegram import OneTimeTelegramFault, make_flood_refusal
from trimtab.session.tools import Tool
from trimtab.testing import MemoryStore, ScriptedCall

pytestmark = pytest.mark.anyio


async def test_the_commands_are_told_to_telegram_and_listed(served):
    async with running(served):
        served.simulator.post_user_message(ADA, "/help")
        await until(lambda: served.simulator.list_bot_texts(ADA))
        names = [one["command"] for one in served.simulator.commands]
        assert names == ["start", "help", "reset", "undo", "context", "compact", "why", "stop"]
        lines = served.simulator.list_bot_texts(ADA)[0].splitlines()
        assert [line.split()[0] for line in lines] == [f"/{name}" for name in names]


async def test_undo_takes_back_the_last_message_and_what_followed_it(served):
    async with running(served, "One.", "Two.", "Three.") as bot:
        for text in ("Remember 42.", "Forget it."):
            served.simulator.post_user_message(ADA, text)
            await bot.settled()
        served.simulator.post_user_message(ADA, "/undo")
        told = "Undone: “Forget it.” and 1 message with it. Effects of tools are not undone."
        await until(lambda: told in served.simulator.list_bot_texts(ADA))
        served.simulator.post_user_message(ADA, "What do you know?")
        await bot.settled()
        sent = str(bot.provider.requests[-1]["messages"])
        assert ("42" in sent, "Forget it." in sent, "/undo" in sent) == (True, False, False)
        assert ("user", "Forget it.") in await bot.texts()
        for _ in range(3):
            served.simulator.post_user_message(ADA, "/undo")
        await until(
            lambda: "There are no messages here yet." in served.simulator.list_bot_texts(ADA)
        )


def test_reset_begins_anew_and_keeps_the_log(served):
    async def run() -> None:
        async with running(served, "One.", "Two.") as bot:
            served.simulator.post_user_message(ADA, "Remember 42.")
            await bot.settled()
            served.simulator.post_user_message(ADA, "/reset")
            told = (
                "This is a new conversation: I no longer see the 2 earlier messages. The log still "
                "has them."
            )
            await until(lambda: told in served.simulator.list_bot_texts(ADA))
            served.simulator.post_user_message(ADA, "What do you know?")
            await bot.settled()
            assert "42" not in str(bot.provider.requests[-1]["messages"])
            assert bot.provider.requests[-1]["system"] == bot.provider.requests[0]["system"]
            assert ("user", "Remember 42.") in await bot.texts()

    asyncio.run(run())


async def test_reset_keeps_the_settings_that_hold_now(served):
    store = MemoryStore()
    async with running(served, "One.", store=store) as bot:
        served.simulator.post_user_message(ADA, "Before.")
        await bot.settled()
    async with running(served, "Two.", "Three.", store=store) as bot:
        bot.service.agents["helper"].system = "Be brief."
        served.simulator.post_user_message(ADA, "Between.")
        await bot.settled()
        served.simulator.post_user_message(ADA, "/reset")
        served.simulator.post_user_message(ADA, "After.")
        await bot.settled()
        assert "Be brief." in str(bot.provider.requests[-1]["system"])
        assert "Between." not in str(bot.provider.requests[-1]["messages"])


async def test_a_reset_that_is_delivered_again_hides_nothing_that_came_after(served):
    store = MemoryStore()
    async with running(served, "One.", "Two.", store=store) as bot:
        served.simulator.post_user_message(ADA, "Before.")
        await bot.settled()
        served.simulator.post_user_message(ADA, "/reset")
        reset = served.simulator.list_pending_updates() or []
        served.simulator.post_user_message(ADA, "Remember 42.")
        await bot.settled()
    served.simulator.redeliver_updates(reset)
    async with running(served, "42.", store=store) as bot:
        served.simulator.post_user_message(ADA, "What do you know?")
        await bot.settled()
        assert "Remember 42." in str(bot.provider.requests[-1]["messages"])
        assert (
            sum("a new conversation" in text for text in served.simulator.list_bot_texts(ADA)) == 1
        )


async def test_context_is_a_picture_with_the_same_in_messages(served):
    async with running(served, "Hello.") as bot:
        served.simulator.post_user_message(ADA, "Hello.")
        await bot.settled()
        served.simulator.post_user_message(ADA, "/context")
        await until(lambda: served.simulator.list_calls("sendPhoto"))
        call = served.simulator.list_calls("sendPhoto")[0]
        picture = Image.open(io.BytesIO(call.params["photo"]))
        assert (picture.format, picture.width) == ("PNG", 880)
        assert picture.height > 300
        # The bar is mostly free, and begins with what there is.
        assert picture.getpixel((870 - 40, 40 + 60 + 28)) == (0x2B, 0x39, 0x48)
        assert "Context" in call.params["caption"]
        assert '"pre"' in call.params["caption_entities"]


async def test_context_is_told_in_messages_where_the_picture_is_refused(served):
    async with running(served, "Hello.") as bot:
        served.simulator.post_user_message(ADA, "Hello.")
        await bot.settled()
        served.simulator.fail_calls("sendPhoto", OneTimeTelegramFault(refusal=_no_photos()))
        served.simulator.post_user_message(ADA, "/context")
        await until(lambda: len(served.simulator.list_bot_texts(ADA)) == 2)
        assert "Context" in served.simulator.list_bot_texts(ADA)[1]


async def test_compact_says_how_much_smaller_the_context_is(served):
    async with running(served, *["Long " * 400] * 8) as bot:
        for number in range(8):
            served.simulator.post_user_message(ADA, f"{number} " + "word " * 600)
            await bot.settled()
        served.simulator.post_user_message(ADA, "/compact")
        await until(lambda: "Nothing is lost." in served.simulator.list_bot_texts(ADA)[-1])
        assert "tokens are now" in served.simulator.list_bot_texts(ADA)[-1]


async def test_compact_says_that_there_is_nothing_to_do(served):
    async with running(served):
        served.simulator.post_user_message(ADA, "/compact")
        await until(lambda: served.simulator.list_bot_texts(ADA))
        assert served.simulator.list_bot_texts(ADA)[0].startswith("There is nothing to compact")


async def test_why_says_what_became_of_a_message(served):
    async with running(served, "Hello.") as bot:
        served.simulator.post_user_message(ADA, "The code is 1234.")
        await bot.settled()
        for asked in ("/why m2", "/why", "/why m999", "/why nonsense"):
            before = len(served.simulator.list_bot_texts(ADA))
            served.simulator.post_user_message(ADA, asked)
            await until(lambda n=before: len(served.simulator.list_bot_texts(ADA)) > n)
        told = served.simulator.list_bot_texts(ADA)[1:]
        assert told[0].startswith("m2 is in the context, in full.\nText:\n")
        assert told[0].endswith("The code is 1234.")
        assert told[1].startswith("Add a handle, such as /why m12")
        assert "999" in told[2]
        assert len(told) == 4


async def test_stop_ends_the_turn_and_its_tool_at_once(served):
    began, gate = asyncio.Event(), asyncio.Event()

    async def wait(asked: object) -> str:
        del asked
        began.set()
        await gate.wait()
        return "done"

    definition = {"name": "wait", "description": "Waits.", "input_schema": {"type": "object"}}
    tool = Tool(definition=definition, run=wait)
    async with running(served, ScriptedCall(name="wait"), "Never said.", tools=[tool]) as bot:
        served.simulator.post_user_message(ADA, "Begin.")
        await asyncio.wait_for(began.wait(), 10)
        served.simulator.post_user_message(ADA, "/stop")
        await until(lambda: "I'm stopping." in served.simulator.list_bot_texts(ADA))
        async with asyncio.timeout(30):
            await bot.settled()
        assert len(bot.provider.requests) == 1


async def test_a_command_for_another_bot_is_no_concern(served):
    async with running(served) as bot:
        served.simulator.post_user_message(GROUP, "/reset@other_bot")
        served.simulator.post_user_message(GROUP, "/help@Helper_Bot")
        await until(lambda: served.simulator.list_bot_texts(GROUP))
        await bot.settled()
        assert served.simulator.list_bot_texts(GROUP)[0].startswith("/start")
        assert bot.provider.requests == []


async def test_the_answer_to_a_command_waits_as_long_as_telegram_asks(served):
    async with running(served, "Hello."):
        served.simulator.fail_calls(
            "sendMessage", OneTimeTelegramFault(refusal=make_flood_refusal(1))
        )
        served.simulator.post_user_message(ADA, "/help")
        await until(lambda: served.simulator.list_bot_texts(ADA))
        first, second = served.simulator.list_calls("sendMessage", only_done=False)
        assert first.refusal_reason is not None
        assert second.refusal_reason is None
        assert second.at - first.at >= 1


def _no_photos():
    from tests.simulators.telegram import make_bad_request_refusal

    return make_bad_request_refusal("not enough rights to send photos to the chat")
