"""How replies leave: in pieces, as drafts that grow, at Telegram's pace, once or with a mark."""

from __future__ import annotations

import asyncio
import itertools

from tests.telegram.bots import ADA, GROUP, running, until
from trimtab.gateways.telegram.delivering import AGAIN
from trimtab.gateways.utf16 import units
from trimtab.session.happenings import Ended, Piece
from trimtab.testing import MemoryStore
from trimtab.testing.mail import MemoryMail
from trimtab.testing.telegram import Limits, Trouble, flood
from trimtab.worker.letters import Outbound, Route

SESSION = f"default/helper/telegram:{ADA}"


def reply(text: str, attempts: int = 0) -> Outbound:
    route = Route(door="telegram", address={"chat": ADA})
    return Outbound(session=SESSION, seq=1, text=text, route=route, key=text, attempts=attempts)


def test_a_long_reply_comes_in_several_messages_in_order(served):
    async def run() -> None:
        text = "\n\n".join(f"Paragraph {number}: " + "😀 word " * 60 for number in range(30))
        async with running(served, text) as bot:
            served.api.says(ADA, "Tell me all.")
            await bot.settled()
            sent = served.api.texts(ADA)
            assert len(sent) > 1
            assert all(units(one) <= 4_096 for one in sent)
            assert "".join("".join(sent).split()) == "".join(text.split())

    asyncio.run(run())


def test_that_somebody_writes_is_shown_while_a_turn_runs(served):
    async def run() -> None:
        async with running(served, "Done.") as bot:
            served.api.says(ADA, "Begin.")
            await until(lambda: served.api.calls("sendChatAction"))
            assert served.api.calls("sendChatAction")[0].given["action"] == "typing"
            await bot.settled()

    asyncio.run(run())


def test_a_reply_grows_in_one_message_and_ends_as_it_was_said(served):
    async def run() -> None:
        async with running(served, "The **whole** answer.", deliver=False) as bot:
            bot.door._streaming.begin(SESSION, _place())
            live = bot.service.live
            for text, seen in (("The **wh", "The **wh …"), ("ole** ans", "The whole ans …")):
                live.tell(SESSION, Piece(kind="text", text=text))
                await until(lambda wanted=seen: served.api.texts(ADA) == [wanted])
            live.tell(SESSION, Piece(kind="text", text="wer."))
            live.tell(SESSION, Ended(why="done", calls=1))
            await bot.door.deliver(reply("The **whole** answer."))
            assert served.api.texts(ADA) == ["The whole answer."]
            assert len(served.api.calls("sendMessage")) == 1
            assert len(served.api.calls("editMessageText")) >= 1

    asyncio.run(run())


def test_a_draft_is_changed_no_faster_than_the_pace(served):
    async def run() -> None:
        async with running(served, deliver=False, pace=0.2) as bot:
            bot.door._streaming.begin(SESSION, _place())
            for number in range(60):
                bot.service.live.tell(SESSION, Piece(kind="text", text=f"word{number} "))
                await asyncio.sleep(0.01)  # a model's own pace
            await until(lambda: "word59" in _shown(served))
            at = [call.at for call in served.api.calls("sendMessage", "editMessageText")]
            assert len(at) >= 2
            assert min(b - a for a, b in itertools.pairwise(at)) > 0.15

    asyncio.run(run())


def test_a_draft_that_no_reply_makes_its_own_is_taken_back(served):
    async def run() -> None:
        async with running(served, deliver=False) as bot:
            bot.door._streaming.begin(SESSION, _place())
            bot.service.live.tell(SESSION, Piece(kind="text", text="Half a"))
            await until(lambda: served.api.texts(ADA) == ["Half a …"])
        assert served.api.texts(ADA) == []

    asyncio.run(run())


def test_too_many_requests_are_waited_for_and_nothing_is_sent_twice(served):
    async def run() -> None:
        async with running(served, "Hello.") as bot:
            served.api.fail("sendMessage", Trouble(refusal=flood(1)))
            served.api.says(ADA, "Hello.")
            await bot.settled()
            assert served.api.texts(ADA) == ["Hello."]
            first, second = served.api.calls("sendMessage", done=False)
            assert second.at - first.at >= 0.99

    asyncio.run(run())


def test_a_strict_server_refuses_nothing_at_the_own_pace(served):
    async def run() -> None:
        served.api.limits = Limits(per_chat=5)
        async with running(served, "word " * 4_000, pace=0.21) as bot:
            served.api.says(ADA, "Tell me all.")
            await bot.settled()
            assert len(served.api.texts(ADA)) == 5
            refused = [one for one in served.api.asked if one.refused]
            assert refused == []

    asyncio.run(run())


def test_a_reply_whose_answer_was_lost_is_sent_again_with_a_mark(served):
    async def run() -> None:
        async with running(served, "Hello.") as bot:
            served.api.fail("sendMessage", Trouble(done=True))
            served.api.says(ADA, "Hello.")
            await bot.settled()
            assert served.api.texts(ADA) == ["Hello.", f"{AGAIN}\n\nHello."]

    asyncio.run(run())


def test_a_reply_that_another_process_began_is_sent_with_a_mark(served):
    async def run() -> None:
        async with running(served, deliver=False) as bot:
            await bot.door.deliver(reply("Hello.", attempts=1))
            assert served.api.texts(ADA) == [f"{AGAIN}\n\nHello."]

    asyncio.run(run())


def test_the_parts_of_a_long_reply_that_arrived_are_not_sent_again(served):
    async def run() -> None:
        text = "\n\n".join(f"Part {number}. " + "word " * 300 for number in range(6))
        store = MemoryStore()
        mail = MemoryMail(store)
        async with running(served, text, store=store, mail=mail) as bot:
            nothing = Trouble(refusal=flood(1))
            served.api.says(ADA, "Tell me all.")
            await until(lambda: served.api.texts(ADA))
            served.api.fail("sendMessage", nothing)
            await bot.settled()
            assert "".join("".join(served.api.texts(ADA)).split()) == "".join(text.split())

    asyncio.run(run())


def test_who_has_blocked_the_bot_is_not_tried_again(served):
    async def run() -> None:
        async with running(served, "Hello.") as bot:
            served.api.says(ADA, "Hello.")
            served.api.chat(ADA).blocked = True
            await bot.settled()
            refused = served.api.calls("sendMessage", done=False)
            assert len(refused) == 1
            dead = await bot.service.mail.dead()
            assert [(one.session, one.replies) for one in dead] == [(SESSION, 1)]

    asyncio.run(run())


def test_a_group_that_became_a_supergroup_takes_its_past_along(served):
    async def run() -> None:
        new = -100999
        async with running(served, "Noted.", "Still.", groups="all") as bot:
            served.api.chat(-55, "Old", type="group")
            served.api.says(-55, "Remember 42.")
            await bot.settled()
            served.api.chat(new, "New")
            served.api.chat(-55).moved_to = new
            served.api.says(new, migrate_from_chat_id=-55)
            served.api.says(new, "What do you know?")
            await bot.settled()
            assert "42" in str(bot.provider.requests[-1]["messages"])
            assert served.api.texts(new) == ["Still."]

    asyncio.run(run())


def test_a_reply_to_a_group_that_moved_meanwhile_follows_it(served):
    async def run() -> None:
        async with running(served, deliver=False) as bot:
            served.api.chat(-55, "Old", type="group").moved_to = GROUP
            route = Route(door="telegram", address={"chat": -55, "reply_to": 3})
            await bot.door.deliver(
                Outbound(session=SESSION, seq=1, text="Here.", route=route, key="k")
            )
            assert served.api.texts(GROUP) == ["Here."]

    asyncio.run(run())


def _place():
    from trimtab.gateways.telegram.sending import Place

    return Place(chat=ADA)


def _shown(served) -> str:
    return "".join(served.api.texts(ADA))
