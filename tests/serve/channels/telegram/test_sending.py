"""How replies leave: in pieces, as drafts that grow, at Telegram's pace, once or with a mark."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from tests.serve.channels.telegram.running_bots import ADA, GROUP, running, until
from tests.simulators.telegram import (
    OneTimeTelegramFault,
    TelegramRateLimits,
    make_flood_refusal,
)
from trimtab.session.events import TextDelta, TurnFinished
from trimtab_serve.channels.telegram.reply_sender import RESENT_NOTICE
from trimtab_serve.queue.messages import OutboundMessage, ReplyRoute

pytestmark = pytest.mark.anyio

SESSION = f"default/helper/telegram:{ADA}"


def reply(text: str, attempts: int = 0) -> OutboundMessage:
    route = ReplyRoute(channel="telegram", address={"chat": ADA})
    return OutboundMessage(
        session=SESSION, seq=1, text=text, route=route, key=text, attempts=attempts
    )


async def test_that_somebody_writes_is_shown_while_a_turn_runs(served):
    async with running(served, "Done.") as bot:
        served.simulator.post_user_message(ADA, "Begin.")
        await until(lambda: served.simulator.list_calls("sendChatAction"))
        assert served.simulator.list_calls("sendChatAction")[0].params["action"] == "typing"
        await bot.settled()


async def test_a_reply_grows_in_one_message_and_ends_as_it_was_said(served):
    async with running(served, "The **whole** answer.", deliver=False) as bot:
        bot.channel._drafts.watch_session(SESSION, _place())
        live = bot.service.event_bus
        for text, seen in (("The **wh", "The **wh …"), ("ole** ans", "The whole ans …")):
            live.publish(SESSION, TextDelta(kind="text", text=text))
            await until(lambda wanted=seen: served.simulator.list_bot_texts(ADA) == [wanted])
        live.publish(SESSION, TextDelta(kind="text", text="wer."))
        live.publish(SESSION, TurnFinished(reason="done", calls=1))
        await bot.channel.deliver(reply("The **whole** answer."))
        assert served.simulator.list_bot_texts(ADA) == ["The whole answer."]
        assert len(served.simulator.list_calls("sendMessage")) == 1
        assert len(served.simulator.list_calls("editMessageText")) >= 1


async def test_a_draft_is_changed_no_faster_than_the_pace(served):
    async with running(served, deliver=False, pace=0.2) as bot:
        bot.channel._drafts.watch_session(SESSION, _place())
        for number in range(60):
            bot.service.event_bus.publish(SESSION, TextDelta(kind="text", text=f"word{number} "))
            await asyncio.sleep(0.01)  # a model's own pace
        await until(lambda: "word59" in _shown(served))
        at = [call.at for call in served.simulator.list_calls("sendMessage", "editMessageText")]
        assert len(at) >= 2
        assert min(b - a for a, b in itertools.pairwise(at)) > 0.15


async def test_a_draft_that_no_reply_makes_its_own_is_taken_back(served):
    async with running(served, deliver=False) as bot:
        bot.channel._drafts.watch_session(SESSION, _place())
        bot.service.event_bus.publish(SESSION, TextDelta(kind="text", text="Half a"))
        await until(lambda: served.simulator.list_bot_texts(ADA) == ["Half a …"])
    assert served.simulator.list_bot_texts(ADA) == []


async def test_too_many_requests_are_waited_for_and_nothing_is_sent_twice(served):
    async with running(served, "Hello.") as bot:
        served.simulator.fail_calls(
            "sendMessage", OneTimeTelegramFault(refusal=make_flood_refusal(1))
        )
        served.simulator.post_user_message(ADA, "Hello.")
        await bot.settled()
        assert served.simulator.list_bot_texts(ADA) == ["Hello."]
        first, second = served.simulator.list_calls("sendMessage", only_done=False)
        assert second.at - first.at >= 0.99


async def test_a_strict_server_refuses_nothing_at_the_own_pace(served):
    served.simulator.limits = TelegramRateLimits(per_chat=5)
    async with running(served, "word " * 4_000, pace=0.21) as bot:
        served.simulator.post_user_message(ADA, "Tell me all.")
        await bot.settled()
        assert len(served.simulator.list_bot_texts(ADA)) == 5
        refused = [one for one in served.simulator.recorded_calls if one.refusal_reason]
        assert refused == []


async def test_a_reply_whose_answer_was_lost_is_sent_again_with_a_mark(served):
    async with running(served, "Hello.") as bot:
        served.simulator.fail_calls("sendMessage", OneTimeTelegramFault(carried_out=True))
        served.simulator.post_user_message(ADA, "Hello.")
        await bot.settled()
        assert served.simulator.list_bot_texts(ADA) == ["Hello.", f"{RESENT_NOTICE}\n\nHello."]


async def test_who_has_blocked_the_bot_is_not_tried_again(served):
    async with running(served, "Hello.") as bot:
        served.simulator.post_user_message(ADA, "Hello.")
        served.simulator.get_or_add_chat(ADA).blocked = True
        await bot.settled()
        refused = served.simulator.list_calls("sendMessage", only_done=False)
        assert len(refused) == 1
        dead = await bot.service.queue.list_dead_letters()
        assert [(one.session, one.replies) for one in dead] == [(SESSION, 1)]


async def test_a_group_that_became_a_supergroup_takes_its_past_along(served):
    new = -100999
    async with running(served, "Noted.", "Still.", groups="all") as bot:
        served.simulator.get_or_add_chat(-55, "Old", type="group")
        served.simulator.post_user_message(-55, "Remember 42.")
        await bot.settled()
        served.simulator.get_or_add_chat(new, "New")
        served.simulator.get_or_add_chat(-55).moved_to = new
        served.simulator.post_user_message(new, migrate_from_chat_id=-55)
        served.simulator.post_user_message(new, "What do you know?")
        await bot.settled()
        assert "42" in str(bot.provider.requests[-1]["messages"])
        assert served.simulator.list_bot_texts(new) == ["Still."]


async def test_a_reply_to_a_group_that_moved_meanwhile_follows_it(served):
    async with running(served, deliver=False) as bot:
        served.simulator.get_or_add_chat(-55, "Old", type="group").moved_to = GROUP
        route = ReplyRoute(channel="telegram", address={"chat": -55, "reply_to": 3})
        await bot.channel.deliver(
            OutboundMessage(session=SESSION, seq=1, text="Here.", route=route, key="k")
        )
        assert served.simulator.list_bot_texts(GROUP) == ["Here."]


def _place():
    from trimtab_serve.channels.telegram.paced_sender import TelegramTarget

    return TelegramTarget(chat=ADA)


def _shown(served) -> str:
    return "".join(served.simulator.list_bot_texts(ADA))
